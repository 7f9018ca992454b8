//! Which preconditions of a plan hold now.

use std::sync::Arc;

use crate::action::secret::Secrets;
use crate::cli::args::Global;
use crate::cli::session::connect;
use crate::definition::Library;
use crate::evaluate::Standing;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::plan::explain::Explained;
use crate::runner::preview::Preview;
use crate::time::SharedClock;
use crate::time::SystemClock;

/// Looks at the cluster, once for each step that demands something, and writes nothing. A cluster that cannot be asked
/// is an answer, too: the plan then stands without.
pub(super) async fn look(
    global: &Global,
    library: &Library,
    plan: &Plan,
    explained: &mut Explained,
) -> Result<(), Failure> {
    let clock: SharedClock = Arc::new(SystemClock::at_speed(1.0));
    let executor = connect(global, Secrets::default(), clock.clone()).await;
    if plan.needs_cluster() {
        explained.cluster = Some(executor.cluster()?.uid().await?);
    }
    let preview = Preview { executor: Arc::new(executor), clock, knowledge: library.knowledge() };
    fill(&preview, plan, explained).await
}

/// The same for one workflow; then for those that it calls and whose inputs are known.
async fn fill(preview: &Preview, plan: &Plan, explained: &mut Explained) -> Result<(), Failure> {
    let given = explained.inputs.as_object();
    let complete =
        plan.workflow.inputs.keys().all(|name| given.is_some_and(|given| given.contains_key(name)));
    let standings = match complete {
        true => preview.preconditions(plan, &explained.inputs).await?,
        false => std::collections::BTreeMap::new(),
    };
    for step in explained.steps.iter_mut().chain(&mut explained.finally) {
        let found = standings.get(&step.name).into_iter().flatten();
        for (condition, standing) in step.preconditions.iter_mut().zip(found) {
            (condition.holds, condition.why) = match standing {
                Standing::Holds => (Some(true), None),
                Standing::Unmet(message) => (Some(false), Some(message.clone())),
                Standing::Unknown(why) => (None, Some(why.clone())),
            };
        }
        if let Some(child) = &mut step.child {
            if let Some(plan) = plan.children.get(child.workflow.as_str()) {
                Box::pin(fill(preview, plan, child)).await?;
            }
        }
    }
    Ok(())
}

//! What a process does first with a run of an earlier one.

use std::collections::BTreeMap;

use tokio::task::AbortHandle;

use crate::definition::model::ActionKind;
use crate::engine::Command;
use crate::engine::state::Phase;
use crate::runner::run_task::Message;
use crate::runner::run_task::RunTask;

/// How often a cluster that does not answer is asked who it is.
const CLUSTER_BEAT: std::time::Duration = std::time::Duration::from_secs(2);

impl RunTask {
    /// Attempts that the earlier process left without a result are to be observed.
    pub(super) fn recover(&mut self) {
        let now = self.shared.clock.now();
        let mut settle = BTreeMap::new();
        for (unit, state) in self.run.open() {
            let Phase::Acting { process, .. } = &state.phase else { continue };
            let uses = self.step(&unit).map(|step| step.action.uses);
            // An action inside the process died with it, a child is a run of its own, a process has a mark: none of
            // them can arrive late, as a request to a server can.
            let dead =
                matches!(uses, Some(ActionKind::Extension | ActionKind::Workflow | ActionKind::Process));
            if dead || process.is_some() {
                settle.insert(unit, now);
            }
        }
        self.report(Command::Recover { settle });
    }

    /// Asks the cluster who it is before the first request of this process (E10), again and again until it answers.
    pub(super) fn check_cluster(&self) -> Option<AbortHandle> {
        let expected = self.run.created.cluster.clone()?;
        let (shared, outbox, run) = (self.shared.clone(), self.outbox.clone(), self.run.id);
        let task = tokio::spawn(async move {
            loop {
                let uid = match shared.executor.cluster() {
                    Ok(cluster) => cluster.uid().await,
                    Err(failure) => Err(failure),
                };
                match uid {
                    Ok(found) if *found == *expected => {
                        drop(outbox.send(Message::ClusterChecked));
                        return;
                    }
                    Ok(found) => {
                        tracing::error!(%run, %expected, %found, "the run belongs to another cluster: it is left alone");
                        shared.set_foreign(run, expected, found.into());
                        return;
                    }
                    Err(failure) => {
                        tracing::warn!(%run, error = failure.message, "the cluster does not answer")
                    }
                }
                shared.clock.sleep(CLUSTER_BEAT).await;
            }
        });
        Some(task.abort_handle())
    }
}

//! Kubernetes: reading, writing and watching objects of any kind.

pub mod catalogue;
pub mod changes;
pub mod classify;
pub mod client;
mod create;
pub(super) mod delete;
pub mod events;
mod other;
mod patch;
pub mod read;
#[cfg(test)]
pub(crate) mod script;
mod site;
mod source;
#[cfg(test)]
mod tests;
pub mod watch;

use std::time::Duration;

use crate::action::args;
use crate::action::codes;
use crate::action::k8s::client::Cluster;
use crate::action::k8s::site::Site;
use crate::action::request::Answer;
use crate::action::request::ObjectRef;
use crate::action::request::Origin;
use crate::action::request::Request;
use crate::definition::model::ActionKind;
use crate::failure::Failure;

/// Carries out one of the `k8s.*` actions. `k8s.wait` is not one: it is only a wait.
pub async fn execute(
    cluster: &Cluster,
    origin: &Origin,
    request: &Request,
    limit: Duration,
) -> Result<Answer, Failure> {
    let site = Site { cluster, origin, limit, dry_run: false };
    let needs_target = || {
        let missing = || Failure::permanent(codes::BAD_REQUEST, format!("{} needs a target", request.uses));
        request.target.as_ref().ok_or_else(missing)
    };
    match request.uses {
        ActionKind::K8sGet | ActionKind::K8sList => get(cluster, needs_target()?).await,
        ActionKind::K8sApply => site.apply(request, &args::read(&request.args)?).await,
        ActionKind::K8sCreate => site.create(&args::read::<args::Create>(&request.args)?.manifest).await,
        ActionKind::K8sPatch => site.patch(needs_target()?, request, args::read(&request.args)?).await,
        ActionKind::K8sDelete => site.delete(needs_target()?, request, &args::read(&request.args)?).await,
        ActionKind::K8sRestore => site.restore(needs_target()?, &args::read(&request.args)?).await,
        ActionKind::K8sSubresource => site.subresource(needs_target()?, &args::read(&request.args)?).await,
        ActionKind::K8sEvict => site.evict(needs_target()?, request, &args::read(&request.args)?).await,
        ActionKind::K8sDryRun => site.dry_run(request, args::read(&request.args)?).await,
        ActionKind::K8sLogs => site.logs(needs_target()?, args::read(&request.args)?).await,
        ActionKind::K8sEvents => site.events(needs_target()?, &args::read(&request.args)?).await,
        ActionKind::K8sRaw => site.raw(&args::read(&request.args)?).await,
        other => {
            Err(Failure::permanent(codes::BAD_REQUEST, format!("{other} is not an action on a cluster")))
        }
    }
}

/// `k8s.get` and `k8s.list`: what is read is the result; an object that is not there is null.
async fn get(cluster: &Cluster, target: &ObjectRef) -> Result<Answer, Failure> {
    Ok(Answer::done(false, read::read(cluster, target).await?.into_value()))
}

//! DaemonSets: each node has its pods, and a deleted one is made again. Here it comes back under the same name.

use serde_json::Value;

use crate::sim::contents;
use crate::sim::controller::turn::Turn;
use crate::sim::kinds::NODES;
use crate::sim::kinds::PODS;
use crate::sim::object::text;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// The DaemonSet controller, and the kubelets for their static pods.
pub(super) struct Daemons;

impl Controller for Daemons {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        let is_daemon =
            changed.resource == PODS && contents::daemon_pod(&changed.namespace, &changed.name).is_some();
        is_daemon.then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "daemonset-controller");
        let wanted =
            contents::daemon_pod(&key.namespace, &key.name).filter(|_| context.view.get(key).is_none());
        if let Some(pod) = wanted
            && context.view.get(&Key::new(NODES, "", text(&pod, "/spec/nodeName"))).is_some()
        {
            turn.create(PODS, pod);
        }
        turn.end()
    }
}

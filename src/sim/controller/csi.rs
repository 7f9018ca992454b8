//! Attaching volumes to the nodes that need them: Kubernetes asks, Longhorn's CSI attacher buys the ticket.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;
use sha2::Digest as _;
use sha2::Sha256;

use crate::sim::controller::longhorn;
use crate::sim::controller::longhorn::DRIVER;
use crate::sim::controller::turn::Turn;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::LONGHORN_ATTACHMENTS;
use crate::sim::kinds::NODES;
use crate::sim::kinds::PODS;
use crate::sim::kinds::VOLUME_ATTACHMENTS;
use crate::sim::kinds::VOLUMES;
use crate::sim::object::claims;
use crate::sim::object::deleting;
use crate::sim::object::has_finalizer;
use crate::sim::object::is_final;
use crate::sim::object::items;
use crate::sim::object::key_of;
use crate::sim::object::namespace;
use crate::sim::object::text;
use crate::sim::object::with_finalizer;
use crate::sim::object::without_finalizers;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::sim::world::View;

/// Keeps an attachment until the volume is detached.
const FINALIZER: &str = "external-attacher/driver-longhorn-io";
/// How often an attachment that is not done is looked at.
const POLL: Duration = Duration::from_secs(1);

/// The name of the attachment of a volume to a node, as external-attacher makes it.
pub(super) fn attachment_key(volume: &str, node: &str) -> Key {
    let digest = Sha256::digest(format!("{volume}{DRIVER}{node}"));
    let mut name = String::from("csi-");
    for byte in digest {
        _ = write!(name, "{byte:02x}");
    }
    Key::new(VOLUME_ATTACHMENTS, "", &name)
}

/// The volumes of Longhorn that the claims of a pod are bound to.
pub(super) fn volumes_of(view: &dyn View, pod: &Value) -> BTreeSet<String> {
    let claims =
        claims(pod, "/spec/volumes").filter_map(|claim| view.get(&Key::new(CLAIMS, namespace(pod), claim)));
    let names = claims.map(|claim| text(&claim, "/spec/volumeName").to_owned());
    names.filter(|name| of_longhorn(view, name)).collect()
}

fn of_longhorn(view: &dyn View, volume: &str) -> bool {
    let found = view.get(&Key::new(VOLUMES, "", volume));
    found.is_some_and(|volume| text(&volume, "/spec/csi/driver") == DRIVER)
}

/// Kubernetes' controller: for each node, the volumes of the pods there are attached and no others.
pub(super) struct AttachDetach;

impl Controller for AttachDetach {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        let node = match changed.resource {
            PODS | VOLUME_ATTACHMENTS => text(object, "/spec/nodeName"),
            _ => return None,
        };
        (!node.is_empty()).then(|| Key::new(NODES, "", node))
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "attachdetach-controller");
        let pods = context.view.list(PODS, None);
        let here = pods.iter().filter(|pod| text(pod, "/spec/nodeName") == &*key.name && !is_final(pod));
        let mut wanted = BTreeSet::new();
        for pod in here {
            for volume in volumes_of(context.view, pod) {
                if attach(&mut turn, &volume, key, pod) {
                    wanted.insert(volume);
                }
            }
        }
        for attachment in context.view.list(VOLUME_ATTACHMENTS, None) {
            let volume = text(&attachment, "/spec/source/persistentVolumeName");
            let own = text(&attachment, "/spec/nodeName") == &*key.name && of_longhorn(context.view, volume);
            if own && !wanted.contains(volume) && !deleting(&attachment) {
                turn.delete(&key_of(VOLUME_ATTACHMENTS, &attachment));
            }
        }
        turn.end()
    }
}

/// Asks for an attachment, unless another node has the volume and it cannot be shared (domain.md §4.2).
fn attach(turn: &mut Turn<'_>, volume: &str, node: &Key, pod: &Value) -> bool {
    let view = turn.context.view;
    let Some(persistent) = view.get(&Key::new(VOLUMES, "", volume)) else { return false };
    let shared = items(&persistent, "/spec/accessModes").iter().any(|mode| mode == "ReadWriteMany");
    let elsewhere = view.list(VOLUME_ATTACHMENTS, None).into_iter().any(|attachment| {
        text(&attachment, "/spec/source/persistentVolumeName") == volume
            && text(&attachment, "/spec/nodeName") != &*node.name
    });
    if elsewhere && !shared {
        let message = format!(
            "Multi-Attach error for volume \"{volume}\" Volume is already exclusively attached to one node and can't \
             be attached to another"
        );
        turn.event(&key_of(PODS, pod), "Warning", "FailedAttachVolume", &message);
        turn.again_after(POLL * 10);
        return false;
    }
    let key = attachment_key(volume, &node.name);
    match view.get(&key) {
        // The old attachment goes first, then there is a new one.
        Some(attachment) if deleting(&attachment) => turn.again_after(POLL),
        Some(_) => {}
        None => turn.create(
            VOLUME_ATTACHMENTS,
            json!({
                "apiVersion": "storage.k8s.io/v1",
                "kind": "VolumeAttachment",
                "metadata": { "name": &*key.name, "finalizers": [FINALIZER] },
                "spec": {
                    "attacher": DRIVER,
                    "nodeName": &*node.name,
                    "source": { "persistentVolumeName": volume },
                },
            }),
        ),
    }
    true
}

/// Longhorn's CSI attacher.
pub(super) struct Attacher;

impl Controller for Attacher {
    fn name(&self) -> &'static str {
        "csi-attacher"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        (changed.resource == VOLUME_ATTACHMENTS).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "driver.longhorn.io_csi-attacher");
        let Some(attachment) = context.view.get(key) else { return turn.end() };
        let volume = text(&attachment, "/spec/source/persistentVolumeName");
        // Attachments of other volumes are not this driver's business.
        if !has_finalizer(&attachment, FINALIZER) && !of_longhorn(context.view, volume) {
            return turn.end();
        }
        if deleting(&attachment) {
            detach(&mut turn, key, &attachment, volume);
        } else {
            publish(&mut turn, key, &attachment, volume);
        }
        turn.end()
    }
}

fn publish(turn: &mut Turn<'_>, key: &Key, attachment: &Value, volume: &str) {
    if !has_finalizer(attachment, FINALIZER) {
        turn.patch(key, attachment, with_finalizer(attachment, FINALIZER));
    }
    let view = turn.context.view;
    let tickets_key = Key::new(LONGHORN_ATTACHMENTS, longhorn::SPACE, volume);
    let ready = longhorn::volume(view, volume).is_some_and(|volume| longhorn::is_ready(&volume));
    let Some(tickets) = view.get(&tickets_key).filter(|_| ready) else {
        let message = format!("rpc error: code = Aborted desc = volume {volume} is not ready for workloads");
        let error = json!({ "message": message, "time": turn.now().to_string() });
        if text(attachment, "/status/attachError/message").is_empty() {
            turn.status(key, attachment, json!({ "attached": false, "attachError": error }));
        }
        return turn.again_after(POLL);
    };
    let ticket = json!({
        "id": &*key.name,
        "type": "csi-attacher",
        "nodeID": text(attachment, "/spec/nodeName"),
        "parameters": { "disableFrontend": "false" },
    });
    turn.patch(&tickets_key, &tickets, json!({ "spec": { "attachmentTickets": { (&*key.name): ticket } } }));
    let satisfied = tickets["status"]["attachmentTicketStatuses"][&*key.name]["satisfied"] == json!(true);
    turn.status(key, attachment, json!({ "attached": satisfied, "attachError": null }));
    if !satisfied {
        turn.again_after(POLL);
    }
}

fn detach(turn: &mut Turn<'_>, key: &Key, attachment: &Value, volume: &str) {
    let view = turn.context.view;
    let tickets_key = Key::new(LONGHORN_ATTACHMENTS, longhorn::SPACE, volume);
    if let Some(tickets) = view.get(&tickets_key) {
        turn.patch(
            &tickets_key,
            &tickets,
            json!({ "spec": { "attachmentTickets": { (&*key.name): null } } }),
        );
    }
    let node = text(attachment, "/spec/nodeName");
    let still =
        longhorn::volume(view, volume).is_some_and(|volume| text(&volume, "/status/currentNodeID") == node);
    if still {
        turn.again_after(POLL);
    } else {
        turn.patch(key, attachment, without_finalizers(attachment, &[FINALIZER]));
    }
}

//! Who wants a volume attached where: the tickets of a volume, and which of them has it (domain.md §3.6).

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::longhorn;
use crate::sim::controller::turn::Turn;
use crate::sim::kinds::LONGHORN_ATTACHMENTS;
use crate::sim::kinds::LONGHORN_VOLUMES;
use crate::sim::object::deleting;
use crate::sim::object::text;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// Longhorn's attachment controller.
pub(super) struct Tickets;

impl Controller for Tickets {
    fn name(&self) -> &'static str {
        "longhorn-manager"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        let concerned = [LONGHORN_ATTACHMENTS, LONGHORN_VOLUMES].contains(&changed.resource);
        concerned.then(|| Key { resource: LONGHORN_ATTACHMENTS, ..changed.clone() })
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "longhorn-volume-attachment-controller");
        let (Some(attachment), Some(volume)) =
            (context.view.get(key), longhorn::volume(context.view, &key.name))
        else {
            return turn.end();
        };
        if deleting(&volume) {
            return turn.end();
        }
        let tickets = attachment["spec"]["attachmentTickets"].as_object();
        let tickets: Vec<(&String, &Value)> = tickets.into_iter().flatten().collect();
        let wanted = |node: &str| tickets.iter().any(|(_, ticket)| text(ticket, "/nodeID") == node);
        let has = text(&volume, "/spec/nodeID");
        // Whoever has the volume keeps it until the last ticket for that node is gone; then it is detached first.
        let next = match tickets.first() {
            _ if !has.is_empty() && wanted(has) => has,
            Some((_, ticket)) if has.is_empty() && is_free(&volume) => text(ticket, "/nodeID"),
            _ => "",
        };
        let volume_key = Key { resource: LONGHORN_VOLUMES, ..key.clone() };
        turn.patch(&volume_key, &volume, json!({ "spec": { "nodeID": next } }));

        let mut statuses = serde_json::Map::new();
        let old = attachment["status"]["attachmentTicketStatuses"].as_object();
        statuses.extend(old.into_iter().flatten().map(|(id, _)| (id.clone(), Value::Null)));
        let attached = text(&volume, "/status/state") == "attached";
        for (id, ticket) in tickets {
            let here = text(&volume, "/status/currentNodeID") == text(ticket, "/nodeID");
            statuses.insert(id.clone(), json!({ "id": id, "satisfied": attached && here }));
        }
        turn.status(key, &attachment, json!({ "attachmentTicketStatuses": statuses }));
        turn.end()
    }
}

fn is_free(volume: &Value) -> bool {
    text(volume, "/status/state") == "detached" && longhorn::is_ready(volume)
}

//! Who wants a volume attached where: the tickets of a volume, and which of them has it (domain.md §3.6).

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::longhorn;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::BACKUP_HOLDS_VOLUME;
use crate::sim::kinds::LONGHORN_ATTACHMENTS;
use crate::sim::kinds::LONGHORN_REPLICAS;
use crate::sim::kinds::LONGHORN_VOLUMES;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::text;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// The ticket of a backup.
const BACKUP: &str = "backup-controller";
/// When the backup of the fault `backup-holds-volume` began.
const BACKUP_SINCE: &str = "sim/backup-since";
/// How long it takes.
const BACKUP_TAKES: Duration = Duration::from_mins(8);

/// A ticket of one of Longhorn's own controllers: it explains why a volume is attached though its VM is off.
pub(super) struct Ticket {
    /// Its id among the tickets of the volume.
    pub(super) id: String,
    /// Which controller.
    pub(super) kind: &'static str,
}

impl Ticket {
    /// Buys the ticket, to where the volume is or can be. True once the volume is attached.
    pub(super) fn admits(&self, turn: &mut Turn<'_>, volume: &str) -> bool {
        let view = turn.context.view;
        let key = Key::new(LONGHORN_ATTACHMENTS, longhorn::SPACE, volume);
        let (Some(stored), Some(tickets)) = (longhorn::volume(view, volume), view.get(&key)) else {
            return false;
        };
        let bought = text(&tickets["spec"]["attachmentTickets"][&self.id], "/nodeID").to_owned();
        let node = [bought.as_str(), text(&stored, "/spec/nodeID")].into_iter().find(|node| !node.is_empty());
        let replicas = longhorn::parts(view, LONGHORN_REPLICAS, volume);
        let replica =
            || replicas.iter().map(|replica| text(replica, "/spec/nodeID")).find(|node| !node.is_empty());
        let Some(node) = node.or_else(replica) else { return false };
        let ticket = json!({ "id": self.id, "type": self.kind, "nodeID": node, "parameters": {} });
        turn.patch(&key, &tickets, json!({ "spec": { "attachmentTickets": { (&self.id): ticket } } }));
        text(&stored, "/status/state") == "attached" && text(&stored, "/status/currentNodeID") == node
    }

    /// Gives the ticket back.
    pub(super) fn give_back(&self, turn: &mut Turn<'_>, volume: &str) {
        let key = Key::new(LONGHORN_ATTACHMENTS, longhorn::SPACE, volume);
        if let Some(tickets) = turn.context.view.get(&key) {
            turn.patch(&key, &tickets, json!({ "spec": { "attachmentTickets": { (&self.id): null } } }));
        }
    }
}

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
        back_up(&mut turn, key, &attachment, &volume);
        let tickets = attachment["spec"]["attachmentTickets"].as_object();
        let tickets: Vec<(&String, &Value)> = tickets.into_iter().flatten().collect();
        let wanted = |node: &str| tickets.iter().any(|(_, ticket)| text(ticket, "/nodeID") == node);
        let has = text(&volume, "/spec/nodeID");
        // Whoever has the volume keeps it until the last ticket for that node is gone; then it is detached first.
        let moving = text(&volume, "/spec/migrationNodeID");
        let next = match tickets.first() {
            _ if !has.is_empty() && wanted(has) => has,
            _ if !moving.is_empty() && wanted(moving) => moving,
            Some((_, ticket)) if has.is_empty() && is_free(&volume) => text(ticket, "/nodeID"),
            _ => "",
        };
        let volume_key = Key { resource: LONGHORN_VOLUMES, ..key.clone() };
        // A second node gets a migratable volume as well, for as long as the first one keeps it (domain.md §4.1).
        let of_pods = || tickets.iter().filter(|(_, ticket)| text(ticket, "/type") == "csi-attacher");
        let second = of_pods().map(|(_, ticket)| text(ticket, "/nodeID")).find(|node| *node != next);
        let kept = of_pods().any(|(_, ticket)| text(ticket, "/nodeID") == next);
        let second = second.filter(|_| kept && volume["spec"]["migratable"] == json!(true));
        let spec = json!({ "nodeID": next, "migrationNodeID": second.unwrap_or_default() });
        turn.patch(&volume_key, &volume, json!({ "spec": spec }));

        let mut statuses = serde_json::Map::new();
        let old = attachment["status"]["attachmentTicketStatuses"].as_object();
        statuses.extend(old.into_iter().flatten().map(|(id, _)| (id.clone(), Value::Null)));
        let attached = text(&volume, "/status/state") == "attached";
        for (id, ticket) in tickets {
            let here = ["/status/currentNodeID", "/status/currentMigrationNodeID"]
                .iter()
                .any(|place| text(&volume, place) == text(ticket, "/nodeID"));
            statuses.insert(id.clone(), json!({ "id": id, "satisfied": attached && here }));
        }
        turn.status(key, &attachment, json!({ "attachmentTicketStatuses": statuses }));
        turn.end()
    }
}

/// The fault that a backup of an attached volume has just begun.
fn back_up(turn: &mut Turn<'_>, key: &Key, attachment: &Value, volume: &Value) {
    if !turn.fault(BACKUP_HOLDS_VOLUME) {
        return;
    }
    match annotation(attachment, BACKUP_SINCE).and_then(|since| since.parse().ok()) {
        None if text(volume, "/status/state") == "attached" => {
            let node = text(volume, "/status/currentNodeID");
            let ticket = json!({ "id": BACKUP, "type": BACKUP, "nodeID": node });
            let since = json!({ BACKUP_SINCE: turn.now().to_string() });
            let spec = json!({ "attachmentTickets": { BACKUP: ticket } });
            turn.patch(key, attachment, json!({ "metadata": { "annotations": since }, "spec": spec }));
        }
        Some(since) if turn.passed(since, BACKUP_TAKES) => {
            turn.patch(key, attachment, json!({ "spec": { "attachmentTickets": { BACKUP: null } } }));
        }
        _ => {}
    }
}

fn is_free(volume: &Value) -> bool {
    text(volume, "/status/state") == "detached" && longhorn::is_attachable(volume)
}

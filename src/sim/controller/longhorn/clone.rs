//! Volumes that are filled from a snapshot or a backup (domain.md §3.6). What becomes of a clone is a race between the
//! copy and the end of its source; the faults only change how long things take.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::CONTENT_STAMP;
use crate::sim::controller::longhorn;
use crate::sim::controller::longhorn::recovery;
use crate::sim::controller::longhorn::recovery::Handle;
use crate::sim::controller::longhorn::ticket::Ticket;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::RESTORE_CLONE_FAILED;
use crate::sim::fault::RESTORE_CLONE_INITIATED;
use crate::sim::fault::RESTORE_DEGRADED_HEALS;
use crate::sim::fault::RESTORE_DEGRADED_STAYS;
use crate::sim::kinds::LONGHORN_VOLUMES;
use crate::sim::kinds::VOLUMES;
use crate::sim::object::Conditions;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::moment;
use crate::sim::object::text;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Fault;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::time::Timestamp;
use crate::time::shorten;

/// Since when a volume is being filled.
const FILLING_SINCE: &str = "sim/filling-since";
/// How often a volume that is being filled is looked at.
const POLL: Duration = Duration::from_secs(1);
/// Before another attempt Longhorn waits this long, doubled each time (LVC:64-65).
const AGAIN: Duration = Duration::from_secs(30);
/// How often Longhorn tries at most.
const ATTEMPTS: u64 = 10;

/// How long the steps of a clone take.
struct Pace {
    /// From the volume to the search for its source.
    start: Duration,
    /// The copy.
    copy: Duration,
}

/// The usual pace, at which a copy takes longer than the end of a source that nobody keeps.
const USUAL: Pace = Pace { start: Duration::from_secs(2), copy: Duration::from_secs(20) };
/// The pace with each of the faults (manual §6.4: the four outcomes that were seen).
const PACES: [(Fault, Pace); 4] = [
    (RESTORE_CLONE_FAILED, Pace { start: Duration::from_mins(1), ..USUAL }),
    (RESTORE_CLONE_INITIATED, Pace { copy: Duration::from_mins(3), ..USUAL }),
    (RESTORE_DEGRADED_HEALS, Pace { start: Duration::ZERO, copy: Duration::from_secs(1) }),
    (RESTORE_DEGRADED_STAYS, Pace { start: Duration::ZERO, copy: Duration::from_secs(1) }),
];

/// Longhorn's controller of volumes with a source.
pub(super) struct Clones;

impl Controller for Clones {
    fn name(&self) -> &'static str {
        "longhorn-manager"
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(300)
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        let filled = changed.resource == LONGHORN_VOLUMES && recovery::origin(object).is_some();
        filled.then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "longhorn-volume-clone-controller");
        let Some(volume) = context.view.get(key) else { return turn.end() };
        let origin = recovery::origin(&volume);
        if deleting(&volume) {
            if let Some(Handle::Snapshot { volume: source, snapshot }) = &origin {
                // Else the source stays attached for a copy that nobody wants any more.
                Clone { key, volume: &volume, source, snapshot }.leave(&mut turn);
            }
            return turn.end();
        }
        if ["", "creating"].contains(&text(&volume, "/status/state")) {
            return turn.end();
        }
        match origin {
            Some(Handle::Snapshot { volume: source, snapshot }) => {
                Clone { key, volume: &volume, source: &source, snapshot: &snapshot }.advance(&mut turn);
            }
            Some(Handle::Backup { backup, .. }) => fill(&mut turn, key, &volume, &backup),
            None => {}
        }
        turn.end()
    }
}

/// A volume that is copied from a snapshot inside another volume.
struct Clone<'a> {
    key: &'a Key,
    volume: &'a Value,
    source: &'a str,
    snapshot: &'a str,
}

impl Clone<'_> {
    fn state(&self) -> &str {
        text(self.volume, "/status/cloneStatus/state")
    }

    fn attempts(&self) -> u64 {
        self.volume["status"]["cloneStatus"]["attemptCount"].as_u64().unwrap_or(0)
    }

    /// The copy needs both ends attached.
    fn tickets(&self) -> [(Ticket, &str); 2] {
        let ticket = |end: &str| Ticket {
            id: format!("volume-clone-controller-{}{end}", self.key.name),
            kind: "volume-clone-controller",
        };
        [(ticket("-source"), self.source), (ticket(""), &*self.key.name)]
    }

    fn write(&self, turn: &mut Turn<'_>, clone: Value) {
        turn.status(self.key, self.volume, json!({ "cloneStatus": clone }));
    }

    fn advance(&self, turn: &mut Turn<'_>) {
        let view = turn.context.view;
        let source = longhorn::volume(view, self.source).filter(|source| !deleting(source));
        match self.state() {
            "" => self.start(turn, source.is_some()),
            // The engine controller fails before it can set another state (domain.md §3.6).
            "initiated" if source.is_none() => {}
            "initiated" => self.copy(turn),
            "copy-completed-awaiting-healthy" => {
                self.leave(turn);
                if text(self.volume, "/status/robustness") == "healthy" {
                    self.write(turn, json!({ "state": "completed" }));
                    self.tell(turn, "Normal", "VolumeCloneCompleted", "finished cloning");
                }
            }
            "failed" if source.is_some() && (1..ATTEMPTS).contains(&self.attempts()) => self.retry(turn),
            _ => {}
        }
    }

    /// Looks for the source, and waits until both ends are attached (LVC:3830-3844).
    fn start(&self, turn: &mut Turn<'_>, has_source: bool) {
        let since = moment(self.volume, "/metadata/creationTimestamp").unwrap_or(turn.now());
        if self.attempts() == 0 && !turn.passed(since, pace(turn).start) {
            return;
        }
        if !has_source {
            let failed = json!({ "state": "failed", "sourceVolume": "", "snapshot": "", "attemptCount": 0 });
            self.write(turn, failed);
            self.leave(turn);
            return self.tell(turn, "Warning", "VolumeCloneFailed", "found no source volume for cloning");
        }
        let mut attached = true;
        for (ticket, volume) in self.tickets() {
            attached &= ticket.admits(turn, volume);
        }
        if !attached {
            return turn.again_after(POLL);
        }
        let attempt = self.attempts() + 1;
        let wait = AGAIN.saturating_mul(1 << attempt.min(ATTEMPTS));
        let next = turn.now() + shorten(wait, turn.context.speed);
        let found = turn.context.view.get(&recovery::snapshot_key(self.snapshot)).is_some();
        let state = if found { "initiated" } else { "failed" };
        self.write(
            turn,
            json!({
                "state": state,
                "sourceVolume": self.source,
                "snapshot": self.snapshot,
                "attemptCount": attempt,
                "nextAllowedAttemptAt": next.to_string(),
            }),
        );
        if found {
            let since = json!({ FILLING_SINCE: turn.now().to_string() });
            turn.patch(self.key, self.volume, json!({ "metadata": { "annotations": since } }));
            self.tell(turn, "Normal", "VolumeCloneInitiated", "started cloning");
        } else {
            self.leave(turn);
            self.tell(turn, "Warning", "VolumeCloneFailed", "the snapshot was not found for cloning");
        }
    }

    /// The source is there: data flows while that is so.
    fn copy(&self, turn: &mut Turn<'_>) {
        let Some(since) = since(self.volume) else { return };
        let snapshot = turn.context.view.get(&recovery::snapshot_key(self.snapshot));
        // The source does not say when it is deleted: it is looked at again and again.
        turn.again_after(POLL);
        let Some(snapshot) = snapshot.filter(|_| turn.passed(since, pace(turn).copy)) else { return };
        if !stamp(turn, self.key, annotation(&snapshot, CONTENT_STAMP)) {
            return;
        }
        self.write(turn, json!({ "state": "copy-completed-awaiting-healthy" }));
        self.leave(turn);
        // A Warning by type though good news (LVC:879).
        self.tell(turn, "Warning", "VolumeCloneCopyCompletedAwaitingHealthy", "copied the data for cloning");
    }

    /// Another attempt, once it is allowed.
    fn retry(&self, turn: &mut Turn<'_>) {
        let at = moment(self.volume, "/status/cloneStatus/nextAllowedAttemptAt").unwrap_or(turn.now());
        if turn.passed(at, Duration::ZERO) {
            self.write(turn, json!({ "state": "" }));
        }
    }

    /// Lets go of both ends.
    fn leave(&self, turn: &mut Turn<'_>) {
        for (ticket, volume) in self.tickets() {
            ticket.give_back(turn, volume);
        }
    }

    fn tell(&self, turn: &mut Turn<'_>, kind: &'static str, reason: &str, what: &str) {
        let (to, source, snapshot) = (&self.key.name, self.source, self.snapshot);
        let message = format!("{what}: volume {to} from snapshot {snapshot} of volume {source}");
        turn.event(self.key, kind, reason, &message);
    }
}

fn pace(turn: &Turn<'_>) -> &'static Pace {
    PACES.iter().find(|(fault, _)| turn.fault(*fault)).map_or(&USUAL, |(_, pace)| pace)
}

/// Since when a volume is being filled, if it is or was.
pub(in crate::sim::controller) fn since(volume: &Value) -> Option<Timestamp> {
    annotation(volume, FILLING_SINCE)?.parse().ok()
}

/// The data has arrived. False while there is no volume in the cluster yet that could carry the word for it.
fn stamp(turn: &mut Turn<'_>, key: &Key, content: Option<&str>) -> bool {
    let volume_key = Key::new(VOLUMES, "", &key.name);
    let Some(volume) = turn.context.view.get(&volume_key) else { return false };
    turn.patch(&volume_key, &volume, json!({ "metadata": { "annotations": { CONTENT_STAMP: content } } }));
    true
}

/// A volume is filled from the backup target, which does not care whether the source still exists.
fn fill(turn: &mut Turn<'_>, key: &Key, volume: &Value, backup: &str) {
    let ticket =
        Ticket { id: format!("volume-restore-controller-{}", key.name), kind: "volume-restore-controller" };
    if volume["status"]["restoreRequired"] == json!(false) {
        return ticket.give_back(turn, &key.name);
    }
    let mut conditions = Conditions::of(volume, turn.now());
    let Some(backup) = turn.context.view.get(&recovery::backup_key(backup)) else {
        conditions.set("Restore", "False", "RestoreFailure", &format!("backup {backup} not found"));
        return turn.status(
            key,
            volume,
            json!({ "restoreRequired": true, "conditions": conditions.into_value() }),
        );
    };
    turn.again_after(POLL);
    conditions.set("Restore", "True", "RestoreInProgress", "");
    let going =
        json!({ "restoreRequired": true, "restoreInitiated": true, "conditions": conditions.into_value() });
    if !ticket.admits(turn, &key.name) {
        return turn.status(key, volume, going);
    }
    let Some(since) = since(volume) else {
        let since = json!({ FILLING_SINCE: turn.now().to_string() });
        turn.patch(key, volume, json!({ "metadata": { "annotations": since } }));
        return turn.status(key, volume, going);
    };
    if turn.passed(since, USUAL.copy) && stamp(turn, key, annotation(&backup, CONTENT_STAMP)) {
        let mut conditions = Conditions::of(volume, turn.now());
        conditions.set("Restore", "False", "", "");
        turn.status(key, volume, json!({ "restoreRequired": false, "conditions": conditions.into_value() }));
    }
}

/// True for a volume of which only one replica is made, because it is still being copied (LVC:3176).
pub(super) fn has_one_replica(volume: &Value) -> bool {
    let copied = ["copy-completed-awaiting-healthy", "completed"];
    matches!(recovery::origin(volume), Some(Handle::Snapshot { .. }))
        && !copied.contains(&text(volume, "/status/cloneStatus/state"))
}

/// How long the other replicas of a volume take to be built.
pub(super) fn rebuild_takes(turn: &Turn<'_>) -> Duration {
    let slow = turn.fault(RESTORE_DEGRADED_HEALS);
    if slow { Duration::from_mins(2) } else { Duration::from_secs(15) }
}

/// True if no disk has room for the other replicas of a clone.
pub(super) fn has_no_room(turn: &Turn<'_>, volume: &Value) -> bool {
    turn.fault(RESTORE_DEGRADED_STAYS) && recovery::origin(volume).is_some()
}

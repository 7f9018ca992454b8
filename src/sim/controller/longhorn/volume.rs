//! Longhorn's volume controller: a volume is made with its parts, attached, detached and deleted with them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::longhorn;
use crate::sim::controller::longhorn::DRIVER;
use crate::sim::controller::longhorn::ENGINE_IMAGE;
use crate::sim::controller::longhorn::FINALIZER;
use crate::sim::controller::longhorn::SPACE;
use crate::sim::controller::longhorn::clone;
use crate::sim::controller::longhorn::recovery;
use crate::sim::controller::node;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::ATTACH_FLAPS;
use crate::sim::fault::ATTACH_STUCK;
use crate::sim::fault::ENGINE_RESTARTED;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::LONGHORN_ATTACHMENTS;
use crate::sim::kinds::LONGHORN_ENGINES;
use crate::sim::kinds::LONGHORN_REPLICAS;
use crate::sim::kinds::LONGHORN_SNAPSHOTS;
use crate::sim::kinds::LONGHORN_VOLUMES;
use crate::sim::kinds::VOLUMES;
use crate::sim::object::Conditions;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::key_of;
use crate::sim::object::moment;
use crate::sim::object::name;
use crate::sim::object::pairs;
use crate::sim::object::text;
use crate::sim::object::without_finalizers;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::time::Timestamp;
use crate::time::shorten;

/// Marks an engine that has restarted, so that it happens once.
const RESTARTED: &str = "sim/restarted";
/// How long an engine runs with the fault `engine-restarted`: until the guest has booted.
const ENGINE_RUNS: Duration = Duration::from_secs(25);
/// How long a volume is attached, and detached, with the fault `attach-flaps`.
const FLAP: Duration = Duration::from_secs(10);
/// How often a replica without a node is placed again.
const PLACE_AGAIN: Duration = Duration::from_secs(30);

/// Longhorn's volume controller. Each step takes it as long as it takes to notice the one before.
pub(super) struct Volumes;

impl Controller for Volumes {
    fn name(&self) -> &'static str {
        "longhorn-manager"
    }

    fn lag(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        let volume = match changed.resource {
            LONGHORN_VOLUMES => &changed.name,
            LONGHORN_ENGINES | LONGHORN_REPLICAS => text(object, "/spec/volumeName"),
            VOLUMES if text(object, "/spec/csi/driver") == DRIVER => text(object, "/spec/csi/volumeHandle"),
            _ => return None,
        };
        Some(Key::new(LONGHORN_VOLUMES, SPACE, volume))
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "longhorn-volume-controller");
        let Some(volume) = context.view.get(key) else { return turn.end() };
        let replicas = longhorn::parts(context.view, LONGHORN_REPLICAS, &key.name);
        let flaps = turn.fault(ATTACH_FLAPS);
        if flaps {
            turn.again_after(FLAP / 5);
        }
        let beat = i64::try_from(shorten(FLAP, context.speed).as_millis()).unwrap_or(1).max(1);
        let away = flaps && turn.now().as_millis() / beat % 2 == 1;
        let facts = Facts { volume: &volume, replicas: &replicas, stuck: turn.fault(ATTACH_STUCK), away };
        if deleting(&volume) {
            delete(&mut turn, key, &facts);
            return turn.end();
        }
        let state = text(&volume, "/status/state");
        let row = ROWS.iter().find(|row| row.state == state && (row.when)(&facts));
        let state = row.map_or(state, |row| {
            tracing::trace!(%key, source = row.source, "transition");
            row.next
        });
        place(&mut turn, key, &facts);
        follow(&mut turn, key, &facts, state);
        turn.end()
    }
}

/// What the next state depends on.
struct Facts<'a> {
    volume: &'a Value,
    replicas: &'a [Arc<Value>],
    /// The fault that no attachment ever ends.
    stuck: bool,
    /// The fault that attachments come and go, and it is gone just now.
    away: bool,
}

impl Facts<'_> {
    fn wanted(&self) -> &str {
        text(self.volume, "/spec/nodeID")
    }

    /// It is wanted, and nowhere else than where it is or is going to be.
    fn wanted_here(&self) -> bool {
        let here = ["/status/currentNodeID", "/status/currentMigrationNodeID"];
        !self.wanted().is_empty() && here.iter().any(|place| text(self.volume, place) == self.wanted())
    }

    /// How many replicas it is to have by now.
    fn wanted_replicas(&self) -> usize {
        let wanted = self.volume["spec"]["numberOfReplicas"].as_u64().unwrap_or(1);
        if clone::has_one_replica(self.volume) { 1 } else { usize::try_from(wanted).unwrap_or(1) }
    }

    /// How many replicas make it healthy.
    fn full_number(&self) -> usize {
        let wanted = self.volume["spec"]["numberOfReplicas"].as_u64().unwrap_or(0);
        let number =
            if recovery::origin(self.volume).is_some() { usize::try_from(wanted).unwrap_or(0) } else { 0 };
        number.max(self.replicas.len())
    }

    /// Of each replica whether it has a node.
    fn placed(&self) -> bool {
        self.replicas.iter().all(|replica| !text(replica, "/spec/nodeID").is_empty())
    }
}

struct Row {
    state: &'static str,
    when: fn(&Facts<'_>) -> bool,
    next: &'static str,
    source: &'static str,
}

const fn row(
    state: &'static str,
    when: fn(&Facts<'_>) -> bool,
    next: &'static str,
    source: &'static str,
) -> Row {
    Row { state, when, next, source }
}

/// The first row that fits is done (domain.md §3.6, LVT:10-15).
const ROWS: &[Row] = &[
    row("", |_| true, "creating", "§3.6 states"),
    row(
        "creating",
        |f| !f.replicas.is_empty(),
        "detached",
        "§3.5 CreateVolume returns when it left creating",
    ),
    row("detached", |f| f.away, "detached", "domain-cases.md 31"),
    row("detached", |f| !f.wanted().is_empty(), "attaching", "§3.6 a ticket wants it"),
    row("attaching", |f| !f.wanted_here(), "detaching", "§3.6 nobody wants it here any more"),
    row("attaching", |f| !f.stuck, "attached", "§3.6 states"),
    row("attached", |f| f.away, "detaching", "domain-cases.md 31"),
    row("attached", |f| !f.wanted_here(), "detaching", "§3.6 nobody wants it here any more"),
    row("detaching", |_| true, "detached", "§3.6 states"),
];

/// Makes the parts of a new volume, and finds nodes for replicas that have none.
fn place(turn: &mut Turn<'_>, key: &Key, facts: &Facts<'_>) {
    let volume = facts.volume;
    let size = text(volume, "/spec/size");
    let taken: Vec<&str> = facts.replicas.iter().map(|replica| text(replica, "/spec/nodeID")).collect();
    let mut nodes = longhorn::nodes_with_room(turn, size.parse().unwrap_or(0));
    nodes.retain(|node| !taken.contains(&node.as_str()));
    if !facts.replicas.is_empty() && clone::has_no_room(turn, volume) {
        nodes.clear();
    }
    let mut nodes = nodes.into_iter();
    let there = facts.replicas.len();
    // The others of a clone are built while it is attached (domain.md §3.6).
    if there == 0 || there < facts.wanted_replicas() && text(volume, "/status/state") == "attached" {
        for i in there..facts.wanted_replicas() {
            let spec = json!({
                "volumeName": &*key.name,
                "volumeSize": size,
                "nodeID": nodes.next().unwrap_or_default(),
                "engineName": engine_name(key),
                "desireState": "stopped",
                "active": true,
                "healthyAt": "",
                "failedAt": "",
                "dataEngine": "v1",
                "image": ENGINE_IMAGE,
            });
            let replica = longhorn::part(volume, "Replica", &format!("{}-r-{i}", key.name), &spec);
            turn.create(LONGHORN_REPLICAS, replica);
        }
    }
    if there == 0 {
        let spec = json!({
            "volumeName": &*key.name, "volumeSize": size, "nodeID": "", "desireState": "stopped", "active": true,
            "dataEngine": "v1", "image": ENGINE_IMAGE,
        });
        turn.create(LONGHORN_ENGINES, longhorn::part(volume, "Engine", &engine_name(key), &spec));
        let spec = json!({ "volume": &*key.name, "attachmentTickets": {} });
        turn.create(LONGHORN_ATTACHMENTS, longhorn::part(volume, "VolumeAttachment", &key.name, &spec));
    }
    for replica in facts.replicas.iter().filter(|replica| text(replica, "/spec/nodeID").is_empty()) {
        match nodes.next() {
            Some(node) => {
                turn.patch(
                    &key_of(LONGHORN_REPLICAS, replica),
                    replica,
                    json!({ "spec": { "nodeID": node } }),
                );
            }
            None => turn.again_after(PLACE_AGAIN),
        }
    }
}

fn engine_name(key: &Key) -> String {
    format!("{}-e-0", key.name)
}

/// Writes a state and what follows from it for the parts.
fn follow(turn: &mut Turn<'_>, key: &Key, facts: &Facts<'_>, state: &str) {
    let volume = facts.volume;
    let current = match state {
        "attaching" if text(volume, "/status/state") == "detached" => facts.wanted(),
        "detached" | "creating" => "",
        // A migration has ended: the engine on the other node is the one that counts.
        "attached" if facts.wanted_here() => facts.wanted(),
        _ => text(volume, "/status/currentNodeID"),
    };
    let running = state == "attached";
    let modes = follow_replicas(turn, facts, running);
    let healthy = modes.values().filter(|mode| **mode == "RW").count();
    let robustness = match running {
        false => "unknown",
        true if healthy == facts.full_number() => "healthy",
        true if healthy > 0 => "degraded",
        true => "faulted",
    };
    follow_engine(turn, key, current, running, modes);

    let mut conditions = Conditions::of(volume, turn.now());
    // While it is detached one replica is enough: the setting allow-volume-creation-with-degraded-availability.
    let some_placed = facts.replicas.iter().any(|replica| !text(replica, "/spec/nodeID").is_empty());
    if facts.placed() || !running && some_placed {
        conditions.set("Scheduled", "True", "", "");
    } else {
        let message = "precheck new replica failed: insufficient storage";
        conditions.set("Scheduled", "False", "ReplicaSchedulingFailure", message);
    }
    let mut status = json!({
        "state": state,
        "robustness": robustness,
        "currentNodeID": current,
        "currentMigrationNodeID": if running { text(volume, "/spec/migrationNodeID") } else { "" },
        "currentImage": ENGINE_IMAGE,
        "frontendDisabled": false,
        "conditions": conditions.into_value(),
    });
    if let Some(persistent) = turn.context.view.get(&Key::new(VOLUMES, "", &key.name)) {
        status["kubernetesStatus"] = json!({
            "pvName": name(&persistent),
            "pvStatus": persistent["status"]["phase"],
            "namespace": persistent["spec"]["claimRef"]["namespace"],
            "pvcName": persistent["spec"]["claimRef"]["name"],
        });
    }
    turn.status(key, volume, status);
    if node::some_down(turn.context) {
        turn.again_after(node::DOWN_POLL);
    }
}

/// The replicas run with the volume. Returns the mode of each while it is attached.
fn follow_replicas(turn: &mut Turn<'_>, facts: &Facts<'_>, running: bool) -> serde_json::Map<String, Value> {
    let mut modes = serde_json::Map::new();
    for replica in facts.replicas.iter().filter(|replica| !text(replica, "/spec/nodeID").is_empty()) {
        let key = key_of(LONGHORN_REPLICAS, replica);
        let lost = node::is_down(turn.context, text(replica, "/spec/nodeID"));
        let mut spec = json!({ "desireState": if running { "running" } else { "stopped" } });
        let now = turn.now().to_string();
        if running {
            let rebuilds = !lost && rebuilds(turn, facts, replica);
            let mode = match (lost, rebuilds) {
                (true, _) => "ERR",
                (_, true) => "WO",
                _ => "RW",
            };
            modes.insert(name(replica).to_owned(), mode.into());
            let failed = text(replica, "/spec/failedAt");
            match lost {
                true if failed.is_empty() => spec["failedAt"] = now.into(),
                false if !failed.is_empty() => spec["failedAt"] = "".into(),
                false if !rebuilds && text(replica, "/spec/healthyAt").is_empty() => {
                    spec["healthyAt"] = now.into()
                }
                _ => {}
            }
        }
        turn.patch(&key, replica, json!({ "spec": spec }));
        let state = match (lost, running) {
            (true, _) => "unknown",
            (false, true) => "running",
            (false, false) => "stopped",
        };
        turn.status(&key, replica, json!({ "currentState": state, "started": state == "running" }));
    }
    modes
}

/// True while a replica gets its data from the others: it came later than they, and has not been healthy yet.
fn rebuilds(turn: &mut Turn<'_>, facts: &Facts<'_>, replica: &Value) -> bool {
    let is_new = |replica: &Value| text(replica, "/spec/healthyAt").is_empty();
    if !is_new(replica) || facts.replicas.iter().all(|replica| is_new(replica)) {
        return false;
    }
    let engine = longhorn::parts(turn.context.view, LONGHORN_ENGINES, name(facts.volume));
    let since = engine.first().and_then(|engine| {
        let writes_only = engine["status"]["replicaModeMap"][name(replica)] == "WO";
        let times = &engine["status"]["replicaTransitionTimeMap"];
        moment(times, &format!("/{}", name(replica))).filter(|_| writes_only)
    });
    since.is_none_or(|since| {
        let takes = clone::rebuild_takes(turn);
        !turn.passed(since, takes)
    })
}

/// The engine runs where the volume is attached; its map of modes is empty elsewhere (domain.md §3.6).
fn follow_engine(
    turn: &mut Turn<'_>,
    key: &Key,
    node: &str,
    running: bool,
    modes: serde_json::Map<String, Value>,
) {
    let engine_key = Key::new(LONGHORN_ENGINES, SPACE, &engine_name(key));
    let Some(engine) = turn.context.view.get(&engine_key) else { return };
    let (desired, endpoint) = match running {
        true => ("running", format!("/dev/longhorn/{}", key.name)),
        false => ("stopped", String::new()),
    };
    turn.patch(&engine_key, &engine, json!({ "spec": { "nodeID": node, "desireState": desired } }));
    let times = transitions(turn, &engine_key, &engine, &modes);
    let modes = if modes.is_empty() { Value::Null } else { modes.into() };
    let status = json!({
        "currentState": desired,
        "started": running,
        "endpoint": endpoint,
        "replicaModeMap": modes,
        "replicaTransitionTimeMap": times,
        "currentSize": engine["spec"]["volumeSize"],
    });
    turn.status(&engine_key, &engine, status);
}

/// When each replica came into its mode. All of them do at once when the engine restarts, which the fault
/// `engine-restarted` makes it do a while after the volume was attached.
fn transitions(
    turn: &mut Turn<'_>,
    key: &Key,
    engine: &Value,
    modes: &serde_json::Map<String, Value>,
) -> Value {
    if modes.is_empty() {
        return Value::Null;
    }
    let before =
        |name: &str| text(&engine["status"]["replicaTransitionTimeMap"], &format!("/{name}")).to_owned();
    let earliest: Option<Timestamp> = modes.keys().filter_map(|name| before(name).parse().ok()).min();
    let restarts = turn.fault(ENGINE_RESTARTED)
        && annotation(engine, RESTARTED).is_none()
        && earliest.is_some_and(|since| turn.passed(since, ENGINE_RUNS));
    if restarts {
        turn.patch(key, engine, json!({ "metadata": { "annotations": { RESTARTED: "yes" } } }));
    }
    let now = turn.now().to_string();
    let time = |(name, mode): (&String, &Value)| {
        let same = engine["status"]["replicaModeMap"][name] == *mode && !restarts;
        let since = if same { before(name) } else { now.clone() };
        (name.clone(), Value::from(since))
    };
    modes.iter().map(time).collect::<serde_json::Map<_, _>>().into()
}

/// The moment since when an engine has had all its replicas, which is when it started.
pub(in crate::sim::controller) fn started_at(engine: &Value) -> Option<Timestamp> {
    pairs(engine, "/status/replicaTransitionTimeMap").filter_map(|(_, at)| at.parse().ok()).min()
}

/// A deleted volume takes its parts along, and the claim and the volume of the cluster that are made of it
/// (LVC:360-371,395-409; domain.md §3.6, §5.1).
fn delete(turn: &mut Turn<'_>, key: &Key, facts: &Facts<'_>) {
    let volume = facts.volume;
    if text(volume, "/status/state") != "deleting" {
        return turn.status(key, volume, json!({ "state": "deleting" }));
    }
    let view = turn.context.view;
    let persistent = Key::new(VOLUMES, "", &key.name);
    if let Some(found) = view.get(&persistent) {
        let owner = &found["spec"]["claimRef"];
        let claim = Key::new(CLAIMS, text(owner, "/namespace"), text(owner, "/name"));
        for (key, object) in [(claim.clone(), view.get(&claim)), (persistent, Some(found))] {
            if object.is_some_and(|object| !deleting(&object)) {
                turn.delete(&key);
            }
        }
    }
    for replica in facts.replicas {
        turn.delete(&key_of(LONGHORN_REPLICAS, replica));
    }
    for snapshot in view.list(LONGHORN_SNAPSHOTS, Some(SPACE)) {
        if text(&snapshot, "/spec/volume") == &*key.name && !deleting(&snapshot) {
            turn.delete(&key_of(LONGHORN_SNAPSHOTS, &snapshot));
        }
    }
    turn.delete(&Key::new(LONGHORN_ENGINES, SPACE, &engine_name(key)));
    turn.delete(&Key { resource: LONGHORN_ATTACHMENTS, ..key.clone() });
    turn.patch(key, volume, without_finalizers(volume, &[FINALIZER]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::object::is_true;

    #[test]
    fn a_volume_without_a_node_for_each_replica_takes_no_attachment() {
        let volume = |state: &str, scheduled: &str| {
            let conditions = json!([{ "type": "Scheduled", "status": scheduled }]);
            json!({ "status": { "state": state, "robustness": "unknown", "conditions": conditions } })
        };
        for (state, scheduled, ready) in [
            ("detached", "True", true),
            ("detached", "False", false),
            ("attached", "False", true),
            ("creating", "True", false),
        ] {
            let volume = volume(state, scheduled);
            assert_eq!(longhorn::is_ready(&volume), ready, "{state} {scheduled}");
            assert_eq!(is_true(&volume, "Scheduled"), scheduled == "True");
        }
    }
}

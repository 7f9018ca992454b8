//! CDI's DataVolume controller: makes the claim and says what becomes of it (domain.md §2.1, §2.3).

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::cdi;
use crate::sim::controller::cdi::Source;
use crate::sim::controller::longhorn::bytes;
use crate::sim::controller::turn::Turn;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::CLONE_SOURCES;
use crate::sim::kinds::DATA_VOLUMES;
use crate::sim::kinds::IMPORT_SOURCES;
use crate::sim::object::Conditions;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::items;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::owned_by;
use crate::sim::object::owner;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// A claim that was filled before, by somebody else (domain.md §2.4).
const PRE_POPULATED: &str = "cdi.kubevirt.io/storage.prePopulated";
/// The same, said by the claim.
const POPULATED_FOR: &str = "cdi.kubevirt.io/storage.populatedFor";
/// Lets a DataVolume take over a claim that exists.
const ADOPTION: &str = "cdi.kubevirt.io/allowClaimAdoption";
/// How often a DataVolume that cannot begin is looked at.
const POLL: Duration = Duration::from_secs(5);

/// CDI's DataVolume controller.
pub(super) struct DataVolumes;

impl Controller for DataVolumes {
    fn name(&self) -> &'static str {
        "cdi-deployment"
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(300)
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        match changed.resource {
            DATA_VOLUMES => Some(changed.clone()),
            CLAIMS if owner(object, "DataVolume").is_some() => {
                Some(Key { resource: DATA_VOLUMES, ..changed.clone() })
            }
            _ => None,
        }
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "datavolume-controller");
        let Some(volume) = context.view.get(key).filter(|volume| !deleting(volume)) else {
            return turn.end();
        };
        let Some(source) = Source::of(&volume["spec"]["source"], &key.namespace) else { return turn.end() };
        let claim = context.view.get(&Key { resource: CLAIMS, ..key.clone() });
        match claim.as_deref() {
            None if text(&volume, "/status/phase") == "Succeeded" => {}
            None if annotation(&volume, PRE_POPULATED).is_some() => turn.again_after(POLL),
            None => begin(&mut turn, key, &volume, &source),
            Some(claim) if is_filled(claim, &volume) => adopt(&mut turn, key, &volume, claim),
            Some(claim) if is_own(claim, &volume) => report(&mut turn, key, &volume, claim, &source),
            Some(_) => {
                let message =
                    format!("Resource \"{}\" already exists and is not managed by DataVolume", key.name);
                turn.event(key, "Warning", "ErrResourceExists", &message);
                turn.again_after(POLL * 6);
            }
        }
        turn.end()
    }
}

fn is_own(claim: &Value, volume: &Value) -> bool {
    owner(claim, "DataVolume").is_some_and(|owner| text(owner, "/uid") == uid(volume))
}

/// True for a claim that others have filled and that the DataVolume may take over.
fn is_filled(claim: &Value, volume: &Value) -> bool {
    let own = Some(name(volume));
    annotation(volume, PRE_POPULATED) == own
        || annotation(claim, POPULATED_FOR) == own
        || annotation(volume, ADOPTION) == Some("true")
}

/// Makes the claim, and the object that tells the populator what to fill it with.
fn begin(turn: &mut Turn<'_>, key: &Key, volume: &Value, source: &Source) {
    let wanted = claim_for(volume);
    if let Source::Claim { namespace, name } = source {
        let Some(from) = turn.context.view.get(&Key::new(CLAIMS, namespace, name)) else {
            let message = format!("The source pvc {name} doesn't exist");
            turn.event(key, "Warning", "CloneWithoutSource", &message);
            turn.status(key, volume, json!({ "phase": "Pending", "claimName": &*key.name }));
            return turn.again_after(POLL);
        };
        let size = |claim: &Value| bytes(text(claim, "/spec/resources/requests/storage"));
        if size(&wanted) < size(&from) {
            let message = "target resources requests storage size is smaller than the source";
            turn.event(key, "Warning", "ErrIncompatiblePVC", message);
            return turn.again_after(POLL * 6);
        }
    }
    let (resource, kind, mut spec) = match source {
        Source::Import { .. } => {
            (IMPORT_SOURCES, "VolumeImportSource", json!({ "source": volume["spec"]["source"] }))
        }
        Source::Claim { name, .. } => {
            let from = json!({ "kind": "PersistentVolumeClaim", "name": name });
            (CLONE_SOURCES, "VolumeCloneSource", json!({ "source": from }))
        }
    };
    if resource == IMPORT_SOURCES {
        spec["targetClaim"] = (*key.name).into();
    }
    let prefix = if resource == IMPORT_SOURCES { "volume-import-source" } else { "volume-clone-source" };
    let reference = format!("{prefix}-{}", uid(volume));
    // It knows no namespace but its own, and an owner lives in the same one.
    let space = source.namespace().unwrap_or(&key.namespace);
    let owners = if *space == *key.namespace { vec![owned_by(volume)] } else { vec![] };
    turn.create(
        resource,
        json!({
            "apiVersion": cdi::API_VERSION,
            "kind": kind,
            "metadata": { "name": reference, "namespace": space, "ownerReferences": owners },
            "spec": spec,
        }),
    );
    let mut claim = wanted;
    if let Some(space) = source.namespace() {
        claim["metadata"]["annotations"][cdi::SOURCE_NAMESPACE] = space.into();
    }
    claim["spec"]["dataSourceRef"] = json!({ "apiGroup": cdi::GROUP, "kind": kind, "name": reference });
    turn.create(CLAIMS, claim);
    turn.status(key, volume, json!({ "phase": "Pending", "claimName": &*key.name, "progress": "N/A" }));
}

/// The claim that a DataVolume asks for. With `storage`, what is not said comes from the profile of the class, whose
/// first choice is RWX and a block device (domain.md §2.6).
fn claim_for(volume: &Value) -> Value {
    let spec = &volume["spec"];
    let mut claim = spec.get("pvc").unwrap_or(&spec["storage"]).clone();
    if spec.get("pvc").is_none() {
        if claim["accessModes"].as_array().is_none_or(Vec::is_empty) {
            claim["accessModes"] = json!(["ReadWriteMany"]);
        }
        if claim["volumeMode"].is_null() {
            claim["volumeMode"] = "Block".into();
        }
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name(volume),
            "namespace": namespace(volume),
            "labels": { "app": cdi::APP },
            "annotations": { "cdi.kubevirt.io/storage.usePopulator": "true" },
            "ownerReferences": [owned_by(volume)],
        },
        "spec": claim,
    })
}

/// What the phase depends on.
struct Facts<'a> {
    claim: &'a str,
    pod: &'a str,
}

struct Row {
    when: fn(&Facts<'_>) -> bool,
    /// The phase of an import, and of a clone.
    phase: [&'static str; 2],
    source: &'static str,
}

/// The first row that fits is shown.
const ROWS: &[Row] = &[
    Row { when: |f| f.claim == "Lost", phase: ["Failed"; 2], source: "§2.1 only when the claim is lost" },
    Row {
        when: |f| f.claim == "Bound" && f.pod == "Succeeded",
        phase: ["Succeeded"; 2],
        source: "§2.2 the volume is bound to the target at the end",
    },
    Row { when: |f| f.pod.is_empty(), phase: ["Pending"; 2], source: "§2.1 phases" },
    Row {
        when: |f| ["Pending", "Failed"].contains(&f.pod),
        phase: ["ImportScheduled", "CloneScheduled"],
        source: "§2.1 a failed pod maps to ImportScheduled",
    },
    Row { when: |_| true, phase: ["ImportInProgress", "CloneInProgress"], source: "§2.1 phases" },
];

fn report(turn: &mut Turn<'_>, key: &Key, volume: &Value, claim: &Value, source: &Source) {
    // What has succeeded once stays so (domain.md §2.4).
    if text(volume, "/status/phase") == "Succeeded" {
        return;
    }
    let of_claim = |name: &str| annotation(claim, name).unwrap_or_default();
    let facts = Facts { claim: text(claim, "/status/phase"), pod: of_claim(cdi::POD_PHASE) };
    let clones = matches!(source, Source::Claim { .. });
    let Some(row) = ROWS.iter().find(|row| (row.when)(&facts)) else { return };
    let phase = row.phase[usize::from(clones)];
    tracing::trace!(%key, source = row.source, "transition");

    let mut conditions = Conditions::of(volume, turn.now());
    let own = &*key.name;
    let prime = cdi::populator::prime_key(&key.namespace, claim);
    match (facts.claim, turn.context.view.get(&prime)) {
        ("Bound", _) => conditions.set("Bound", "True", "Bound", &format!("PVC {own} Bound")),
        ("Lost", _) => conditions.set("Bound", "False", "ClaimLost", &format!("PVC {own} Lost")),
        (_, Some(prime)) => {
            let (prime, phase) = (name(&prime), text(&prime, "/status/phase"));
            let message = format!("target PVC {own} Pending and prime PVC {prime} {phase}");
            conditions.set("Bound", "False", "Pending", &message);
        }
        _ => conditions.set("Bound", "False", "Pending", &format!("PVC {own} Pending")),
    }
    let running = Some(of_claim(cdi::RUNNING)).filter(|status| !status.is_empty()).unwrap_or("false");
    let running = if running == "true" { "True" } else { "False" };
    conditions.set("Running", running, of_claim(cdi::RUNNING_REASON), of_claim(cdi::RUNNING_MESSAGE));
    match phase {
        "Succeeded" => conditions.set("Ready", "True", "", ""),
        _ => conditions.set("Ready", "False", "TransferRunning", ""),
    }
    let progress = match phase {
        "Succeeded" => "100.0%",
        _ => Some(of_claim(cdi::PROGRESS)).filter(|progress| !progress.is_empty()).unwrap_or("N/A"),
    };
    if phase != text(volume, "/status/phase") {
        tell(turn, key, phase);
    }
    turn.status(
        key,
        volume,
        json!({
            "phase": phase,
            "claimName": own,
            "progress": progress,
            "restartCount": of_claim(cdi::RESTARTS).parse::<u64>().unwrap_or(0),
            "conditions": conditions.into_value(),
        }),
    );
}

/// The event of a new phase, in CDI's words.
fn tell(turn: &mut Turn<'_>, key: &Key, phase: &str) {
    let claim = &key.name;
    let message = match phase {
        "ImportScheduled" => format!("Import into {claim} scheduled"),
        "ImportInProgress" => format!("Import into {claim} in progress"),
        "CloneScheduled" => format!("Cloning into {claim} scheduled"),
        "CloneInProgress" => format!("Cloning into {claim} in progress"),
        "Succeeded" => format!("Successfully populated PVC {claim}"),
        _ => return,
    };
    turn.event(key, "Normal", phase, &message);
}

/// A claim that others have filled is as good as an import, and goes with its DataVolume from now on (domain.md §2.4).
fn adopt(turn: &mut Turn<'_>, key: &Key, volume: &Value, claim: &Value) {
    if text(claim, "/status/phase") == "Bound" {
        if items(claim, "/metadata/ownerReferences").is_empty() {
            let claim_key = Key { resource: CLAIMS, ..key.clone() };
            turn.patch(&claim_key, claim, json!({ "metadata": { "ownerReferences": [owned_by(volume)] } }));
        }
        let mut conditions = Conditions::of(volume, turn.now());
        conditions.set("Bound", "True", "Bound", &format!("PVC {} Bound", key.name));
        conditions.set("Ready", "True", "", "");
        conditions.set("Running", "False", "Completed", "");
        let conditions = conditions.into_value();
        let status = json!({ "phase": "Succeeded", "claimName": &*key.name, "progress": "100.0%", "conditions": conditions });
        turn.status(key, volume, status);
    } else {
        turn.again_after(POLL);
    }
}

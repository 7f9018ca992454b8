//! The pods that fill claims: one for an import, one for a clone. What goes on in them follows a table of courses.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::cdi;
use crate::sim::controller::cdi::Source;
use crate::sim::controller::longhorn::bytes;
use crate::sim::controller::node;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::IMPORT_404;
use crate::sim::fault::IMPORT_PERMISSION_DENIED;
use crate::sim::fault::IMPORT_RESET;
use crate::sim::fault::IMPORT_RWX_NO_SHARE;
use crate::sim::fault::IMPORT_STALL;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::PODS;
use crate::sim::object::Conditions;
use crate::sim::object::annotation;
use crate::sim::object::claims;
use crate::sim::object::deleting;
use crate::sim::object::items;
use crate::sim::object::label;
use crate::sim::object::moment;
use crate::sim::object::owned_by;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::patch;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Fault;
use crate::sim::world::Key;
use crate::sim::world::POD_LOG;
use crate::sim::world::Reconciled;
use crate::sim::world::Resource;
use crate::time::Timestamp;
use crate::time::shorten;

/// The kind of its source, on a pod.
const SOURCE: &str = "cdi.kubevirt.io/storage.import.source";
/// The first and the last number that an import shows (manual §3.2: 2.5 % to 99.6 %).
const FIRST: f64 = 2.5;
const LAST: f64 = 99.62;
/// In how many steps progress shows: each is a change that controllers react to.
const STEPS: u32 = 20;
/// Where a stalled import stands.
const STALLED: f64 = 45.2;
/// How long a blank disk takes.
const BLANK_TAKES: Duration = Duration::from_secs(3);
/// How long a copy from elsewhere takes, if the disk is no larger than [`COPIED`]; a larger one takes longer.
const COPY_TAKES: Duration = Duration::from_secs(40);
/// How many bytes are copied in [`COPY_TAKES`].
const COPIED: u64 = 10 << 30;
/// The first pause before a container is restarted; it doubles, up to the longest.
const BACK_OFF: Duration = Duration::from_secs(10);
const BACK_OFF_MAX: Duration = Duration::from_mins(5);

/// How the work of a pod goes.
struct Course {
    /// From a running container to its end.
    takes: Duration,
    ends: End,
}

#[derive(Debug, Clone, Copy)]
enum End {
    /// The claim is filled.
    Done,
    /// The container fails, each time.
    Fails(&'static str),
    /// It runs for ever and gets nowhere.
    Never,
}

/// What goes wrong, with the claims that it concerns and the message that the container leaves.
struct Mishap {
    fault: Fault,
    concerns: fn(kind: &str, claim: &Value) -> bool,
    takes: Duration,
    ends: End,
}

const MISHAPS: [Mishap; 5] = [
    Mishap {
        fault: IMPORT_RESET,
        concerns: |kind, _| kind == "http",
        takes: COPY_TAKES,
        // Manual §5.2.
        ends: End::Fails(
            "nbdkit: curl[1]: error: problem doing HEAD request to fetch size of URL: SSL connect error: Recv failure: \
             Connection reset by peer",
        ),
    },
    Mishap {
        fault: IMPORT_404,
        concerns: |kind, _| kind == "http",
        takes: Duration::from_secs(1),
        ends: End::Fails(
            "Unable to connect to http data source: expected status code 200, got 404. Status: 404 Not Found",
        ),
    },
    Mishap {
        fault: IMPORT_PERMISSION_DENIED,
        concerns: |kind, claim| kind != "pvc" && is_block(claim),
        takes: Duration::from_secs(1),
        // Manual §5.4, domain.md §2.6.
        ends: End::Fails("blockdev: cannot open /dev/cdi-block-volume: Permission denied"),
    },
    Mishap {
        fault: IMPORT_RWX_NO_SHARE,
        concerns: |kind, claim| {
            let shared = items(claim, "/spec/accessModes").iter().any(|mode| mode == "ReadWriteMany");
            kind != "pvc" && shared && !is_block(claim)
        },
        takes: Duration::from_secs(2),
        // Manual §5.4.
        ends: End::Fails(
            "could not create raw image with size 2147483648 in /data/disk.img: qemu-img execution failed",
        ),
    },
    Mishap { fault: IMPORT_STALL, concerns: |kind, _| kind != "blank", takes: COPY_TAKES, ends: End::Never },
];

fn is_block(claim: &Value) -> bool {
    text(claim, "/spec/volumeMode") == "Block"
}

impl Course {
    fn of(turn: &Turn<'_>, pod: &Value, claim: &Value) -> Self {
        let kind = annotation(pod, SOURCE).unwrap_or_default();
        let mishap = MISHAPS.iter().find(|mishap| turn.fault(mishap.fault) && (mishap.concerns)(kind, claim));
        match mishap {
            Some(mishap) => Self { takes: mishap.takes, ends: mishap.ends },
            None if kind == "blank" => Self { takes: BLANK_TAKES, ends: End::Done },
            None => {
                let size = bytes(text(claim, "/spec/resources/requests/storage"));
                let parts = u32::try_from(size.div_ceil(COPIED)).unwrap_or(u32::MAX).max(1);
                Self { takes: COPY_TAKES.saturating_mul(parts), ends: End::Done }
            }
        }
    }
}

/// The pod that fills a prime claim: the importer, or the one that reads the source of a clone.
pub(super) fn pod_key(prime_key: &Key, prime: &Value, source: &Source) -> Key {
    match source {
        Source::Import { .. } => {
            Key::new(PODS, &prime_key.namespace, &format!("importer-{}", prime_key.name))
        }
        Source::Claim { namespace, .. } => Key::new(PODS, namespace, &format!("{}-source-pod", uid(prime))),
    }
}

/// The pod that receives a clone.
pub(super) fn server_key(prime_key: &Key) -> Key {
    Key::new(PODS, &prime_key.namespace, &format!("cdi-upload-{}", prime_key.name))
}

/// The pods that fill a prime claim, and the scratch claim that an import converts on (domain.md §2.2, §2.4).
pub(super) fn objects_for(prime_key: &Key, prime: &Value, source: &Source) -> Vec<(Resource, Value)> {
    let worker = pod_key(prime_key, prime, source);
    match source {
        Source::Claim { name: from, .. } => vec![
            (PODS, pod(&server_key(prime_key), "cdi-upload-server", "pvc", &[&prime_key.name], Some(prime))),
            (PODS, pod(&worker, "cdi-clone-source", "pvc", &[from], None)),
        ],
        Source::Import { kind: "blank", .. } => {
            vec![(PODS, pod(&worker, "importer", "blank", &[&prime_key.name], Some(prime)))]
        }
        Source::Import { kind, .. } => {
            let scratch = format!("{}-scratch", prime_key.name);
            let pod = pod(&worker, "importer", kind, &[&prime_key.name, &scratch], Some(prime));
            vec![(CLAIMS, scratch_claim(&scratch, prime)), (PODS, pod)]
        }
    }
}

fn pod(key: &Key, role: &str, source: &str, mounts: &[&str], owner: Option<&Value>) -> Value {
    let mounted = |claim: &&str| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } });
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": &*key.name,
            "namespace": &*key.namespace,
            "labels": { "app": cdi::APP, (cdi::ROLE): role },
            "annotations": { SOURCE: source },
        },
        "spec": {
            "restartPolicy": "OnFailure",
            "containers": [{ "name": role, "image": format!("registry.suse.com/suse/sles/15.7/{role}:1.64.0") }],
            "volumes": mounts.iter().map(mounted).collect::<Vec<_>>(),
        },
    });
    if let Some(owner) = owner {
        pod["metadata"]["ownerReferences"] = json!([owned_by(owner)]);
    }
    pod
}

fn scratch_claim(name: &str, prime: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": prime["metadata"]["namespace"],
            "labels": { "app": cdi::APP },
            "ownerReferences": [owned_by(prime)],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": prime["spec"]["resources"],
            "storageClassName": prime["spec"]["storageClassName"],
        },
    })
}

/// How often it is worth asking the pod how far it is: a large copy has no news every second.
pub(super) fn news_every(turn: &Turn<'_>, pod: &Value, claim: &Value) -> Duration {
    Course::of(turn, pod, claim).takes / STEPS
}

/// How far the pod is, as its metrics tell; none if nobody answers.
pub(super) fn progress(turn: &Turn<'_>, pod: &Value, claim: &Value) -> Option<String> {
    let container = items(pod, "/status/containerStatuses").first()?;
    let since = moment(container, "/state/running/startedAt")?;
    let course = Course::of(turn, pod, claim);
    let whole = shorten(course.takes, turn.context.speed).as_secs_f64();
    let part = (turn.now().since(since).as_secs_f64() / whole).min(1.0);
    let part = (part * f64::from(STEPS)).round() / f64::from(STEPS);
    let reached = FIRST + part * (LAST - FIRST);
    let reached = if matches!(course.ends, End::Never) { reached.min(STALLED) } else { reached };
    Some(format!("{reached:.2}%"))
}

/// What runs in the pods of CDI.
pub(super) struct Workers;

impl Controller for Workers {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        let works = matches!(label(object, cdi::ROLE), Some("importer" | "cdi-clone-source"));
        (changed.resource == PODS && works).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "kubelet");
        let Some(pod) =
            context.view.get(key).filter(|pod| text(pod, "/status/phase") == "Running" && !deleting(pod))
        else {
            return turn.end();
        };
        if node::is_down(context, text(&pod, "/spec/nodeName")) {
            turn.again_after(node::DOWN_POLL);
            return turn.end();
        }
        let claim = claims(&pod, "/spec/volumes").next().unwrap_or_default();
        let claim = context.view.get(&Key::new(CLAIMS, &key.namespace, claim)).unwrap_or_default();
        work(&mut turn, key, &pod, &claim);
        turn.end()
    }
}

fn work(turn: &mut Turn<'_>, key: &Key, pod: &Value, claim: &Value) {
    let Some(container) = items(pod, "/status/containerStatuses").first() else { return };
    let restarts = container["restartCount"].as_u64().unwrap_or(0);
    if let Some(since) = moment(container, "/state/running/startedAt") {
        let course = Course::of(turn, pod, claim);
        match course.ends {
            End::Never => {}
            _ if !turn.passed(since, course.takes) => {}
            End::Done => done(turn, key, pod, container),
            End::Fails(message) => fail(turn, key, pod, container, since, message),
        }
    } else if let Some(since) = moment(container, "/lastState/terminated/finishedAt") {
        let factor = 2_u32.saturating_pow(u32::try_from(restarts).unwrap_or(u32::MAX));
        if turn.passed(since, BACK_OFF.saturating_mul(factor).min(BACK_OFF_MAX)) {
            let state = json!({ "running": { "startedAt": turn.now().to_string() }, "waiting": null });
            let changed =
                json!({ "ready": true, "started": true, "restartCount": restarts + 1, "state": state });
            put(turn, key, pod, container, &changed, true);
        }
    }
}

/// Writes the state of the container and whether the pod is ready.
fn put(turn: &mut Turn<'_>, key: &Key, pod: &Value, container: &Value, changed: &Value, ready: bool) {
    let mut container = container.clone();
    patch::merge(&mut container, changed);
    let mut conditions = Conditions::of(pod, turn.now());
    for kind in ["ContainersReady", "Ready"] {
        match ready {
            true => conditions.set(kind, "True", "", ""),
            false => conditions.set(kind, "False", "ContainersNotReady", ""),
        }
    }
    let status = json!({ "containerStatuses": [container], "conditions": conditions.into_value() });
    turn.status(key, pod, status);
}

fn done(turn: &mut Turn<'_>, key: &Key, pod: &Value, container: &Value) {
    let ended = json!({
        "exitCode": 0, "reason": "Completed", "message": "Import Complete", "finishedAt": turn.now().to_string(),
    });
    let changed =
        json!({ "ready": false, "started": false, "state": { "running": null, "terminated": ended } });
    put(turn, key, pod, container, &changed, false);
    turn.status(key, pod, json!({ "phase": "Succeeded" }));
}

fn fail(turn: &mut Turn<'_>, key: &Key, pod: &Value, container: &Value, since: Timestamp, message: &str) {
    let ended = json!({
        "exitCode": 1,
        "reason": "Error",
        "message": message,
        "startedAt": since.to_string(),
        "finishedAt": turn.now().to_string(),
    });
    let waiting = json!({
        "reason": "CrashLoopBackOff",
        "message": format!("back-off restarting failed container={} pod={}", text(container, "/name"), key.name),
    });
    let changed = json!({
        "ready": false,
        "started": false,
        "state": { "running": null, "waiting": waiting },
        "lastState": { "terminated": ended },
    });
    put(turn, key, pod, container, &changed, false);
    turn.patch(key, pod, json!({ "metadata": { "annotations": { POD_LOG: format!("{message}\n") } } }));
    let text = format!("Back-off restarting failed container in pod {}", key.name);
    turn.event(key, "Warning", "BackOff", &text);
}

//! CDI's populators: a claim that names one of CDI's sources is filled through a claim of its own, whose volume it gets
//! at the end (domain.md §2.2).

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::CONTENT_STAMP;
use crate::sim::controller::cdi;
use crate::sim::controller::cdi::Source;
use crate::sim::controller::cdi::importer;
use crate::sim::controller::longhorn;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::CLONE_SOURCE_IN_USE;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::CLONE_SOURCES;
use crate::sim::kinds::IMPORT_SOURCES;
use crate::sim::kinds::PODS;
use crate::sim::kinds::VOLUMES;
use crate::sim::object::annotation;
use crate::sim::object::claims;
use crate::sim::object::condition;
use crate::sim::object::deleting;
use crate::sim::object::is_final;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::key_of;
use crate::sim::object::label;
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

/// How often the pod is asked how far it is, at most.
const ASK: Duration = Duration::from_secs(2);

/// True for a claim that a populator fills: no provisioner makes a volume for it.
pub(in crate::sim::controller) fn is_populated(claim: &Value) -> bool {
    text(claim, "/spec/dataSourceRef/apiGroup") == cdi::GROUP
}

/// The claim that gets the data first (CDI pkg/controller/populators/util.go:91).
pub(super) fn prime_key(space: &str, target: &Value) -> Key {
    Key::new(CLAIMS, space, &format!("prime-{}", uid(target)))
}

/// CDI's populators.
pub(super) struct Populators;

impl Controller for Populators {
    fn name(&self) -> &'static str {
        "cdi-deployment"
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(300)
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        if changed.resource != CLAIMS {
            return None;
        }
        match owner(object, "PersistentVolumeClaim") {
            Some(target) => Some(Key::new(CLAIMS, &changed.namespace, text(target, "/name"))),
            None => is_populated(object).then(|| changed.clone()),
        }
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "populator-controller");
        let Some(target) = context.view.get(key).filter(|target| is_populated(target) && !deleting(target))
        else {
            return turn.end();
        };
        let prime_key = prime_key(&key.namespace, &target);
        let bound = text(&target, "/status/phase") == "Bound";
        match (source(&turn, key, &target), context.view.get(&prime_key)) {
            (_, None) if bound => {}
            (Some(source), Some(prime)) if bound => {
                clear(&mut turn, &prime_key, &prime, &source);
                let tells = source_key(key, &target);
                if tells.namespace != key.namespace {
                    turn.delete(&tells);
                }
            }
            (Some(source), Some(prime)) => fill(&mut turn, key, &target, &prime_key, &prime, &source),
            (Some(source), None) => turn.create(CLAIMS, prime_for(&target, &prime_key, &source)),
            (None, _) => turn.again_after(ASK),
        }
        turn.end()
    }
}

/// The other end of a prime claim: it was deleted with its target. CDI takes its pods away, which would hold it for ever
/// (CDI pkg/controller/import-controller.go; domain.md §2.2).
pub(super) struct Abandoned;

impl Controller for Abandoned {
    fn name(&self) -> &'static str {
        "cdi-deployment"
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(300)
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        let is_prime = changed.resource == CLAIMS && owner(object, "PersistentVolumeClaim").is_some();
        (is_prime && deleting(object)).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "populator-controller");
        let Some(prime) = context.view.get(key) else { return turn.end() };
        let reader = format!("{}-source-pod", uid(&prime));
        let mounts = |pod: &Value| claims(pod, "/spec/volumes").any(|claim| claim == &*key.name);
        for pod in context.view.list(PODS, None) {
            let is_own = name(&pod) == reader || namespace(&pod) == &*key.namespace && mounts(&pod);
            if is_own && label(&pod, "app") == Some(cdi::APP) && !deleting(&pod) {
                turn.delete(&key_of(PODS, &pod));
            }
        }
        turn.end()
    }
}

/// The prime claim has done its work, and so have the pods; what they own goes with them.
fn clear(turn: &mut Turn<'_>, prime_key: &Key, prime: &Value, source: &Source) {
    let pods = [importer::pod_key(prime_key, prime, source), importer::server_key(prime_key)];
    for key in pods.iter().chain([prime_key]) {
        if turn.context.view.get(key).is_some_and(|object| !deleting(&object)) {
            turn.delete(key);
        }
    }
}

/// The object that tells what the claim is to be filled with. That of a clone is where the source is (CDI
/// pkg/controller/populators/clone-populator.go).
fn source_key(key: &Key, target: &Value) -> Key {
    let reference = &target["spec"]["dataSourceRef"];
    match text(reference, "/kind") {
        "VolumeCloneSource" => {
            let space = annotation(target, cdi::SOURCE_NAMESPACE).unwrap_or(&key.namespace);
            Key::new(CLONE_SOURCES, space, text(reference, "/name"))
        }
        _ => Key::new(IMPORT_SOURCES, &key.namespace, text(reference, "/name")),
    }
}

/// What the claim is to be filled with.
fn source(turn: &Turn<'_>, key: &Key, target: &Value) -> Option<Source> {
    let told = source_key(key, target);
    let object = turn.context.view.get(&told)?;
    let source = &object["spec"]["source"];
    if told.resource == CLONE_SOURCES {
        Source::of(&json!({ "pvc": source }), &told.namespace)
    } else {
        Source::of(source, &key.namespace)
    }
}

fn prime_for(target: &Value, key: &Key, source: &Source) -> Value {
    let mut spec = target["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|field, _| !["dataSource", "dataSourceRef", "volumeName"].contains(&field.as_str()));
    }
    let mut annotations =
        json!({ "cdi.kubevirt.io/storage.populator.kind": text(target, "/spec/dataSourceRef/kind") });
    if let Source::Import { url, .. } = source
        && !url.is_empty()
    {
        annotations[cdi::ENDPOINT] = url.as_str().into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": &*key.name,
            "namespace": &*key.namespace,
            "labels": { "app": cdi::APP },
            "annotations": annotations,
            "ownerReferences": [owned_by(target)],
        },
        "spec": spec,
    })
}

/// The prime claim is there: it gets a pod, and the target what the pod has written.
fn fill(turn: &mut Turn<'_>, key: &Key, target: &Value, prime_key: &Key, prime: &Value, source: &Source) {
    if text(prime, "/status/phase") != "Bound" {
        return turn.again_after(ASK);
    }
    let pod_key = importer::pod_key(prime_key, prime, source);
    match turn.context.view.get(&pod_key) {
        None => {
            if let Some(user) = user_of(turn, source) {
                let Source::Claim { name, .. } = source else { return };
                let message = format!("pod {user} using PersistentVolumeClaim {name}");
                turn.event(key, "Warning", "CloneSourceInUse", &message);
                show(turn, key, target, json!({ (cdi::POD_PHASE): "Pending", (cdi::PROGRESS): "N/A" }));
                return turn.again_after(ASK * 5);
            }
            for (resource, object) in importer::objects_for(prime_key, prime, source) {
                turn.create(resource, object);
            }
            turn.again_after(ASK);
        }
        Some(pod) => {
            let news = news(turn, &pod, prime);
            if let Some((percent, _)) =
                news[cdi::PROGRESS].as_str().and_then(|progress| progress.split_once('.'))
            {
                longhorn::written(turn, text(prime, "/spec/volumeName"), percent.parse().unwrap_or(0));
            }
            show(turn, key, target, news);
            if text(&pod, "/status/phase") == "Succeeded" {
                rebind(turn, key, target, prime, source);
            } else {
                turn.again_after(ASK.max(importer::news_every(turn, &pod, prime)));
            }
        }
    }
}

/// The pod that uses the source of a clone, if one does (CDI pkg/controller/clone/common.go:104).
fn user_of(turn: &Turn<'_>, source: &Source) -> Option<String> {
    let Source::Claim { namespace, name: claim } = source else { return None };
    let pods = turn.context.view.list(PODS, Some(namespace));
    let user = pods.iter().find(|pod| {
        let ended = is_final(pod);
        !ended
            && label(pod, "app") != Some(cdi::APP)
            && claims(pod, "/spec/volumes").any(|used| used == claim)
    });
    let somebody = || turn.fault(CLONE_SOURCE_IN_USE).then(|| format!("{namespace}/backup-of-{claim}"));
    user.map(|pod| format!("{namespace}/{}", name(pod))).or_else(somebody)
}

/// Tells on the target what the pod does.
fn show(turn: &mut Turn<'_>, key: &Key, target: &Value, annotations: Value) {
    turn.patch(key, target, json!({ "metadata": { "annotations": annotations } }));
}

/// What the target says about the pod. Progress that begins with 100 is held back until the pod has succeeded (CDI
/// pkg/controller/populators/import-populator.go:283-340).
fn news(turn: &Turn<'_>, pod: &Value, prime: &Value) -> Value {
    let container = items(pod, "/status/containerStatuses").first().cloned().unwrap_or_default();
    let phase = Some(text(pod, "/status/phase")).filter(|phase| !phase.is_empty()).unwrap_or("Pending");
    let progress = match phase {
        "Succeeded" => Some("100.0%".to_owned()),
        _ => importer::progress(turn, pod, prime).filter(|progress| !progress.starts_with("100")),
    };
    let last = &container["lastState"]["terminated"];
    let (running, reason, message) = match phase {
        "Succeeded" => ("false", "Completed", text(&container, "/state/terminated/message")),
        _ if container["state"]["running"].is_object() => ("true", "Pod is running", ""),
        _ if last.is_object() => ("false", text(last, "/reason"), text(last, "/message")),
        _ => ("false", unschedulable(pod), ""),
    };
    let mut news = json!({
        (cdi::POD_PHASE): phase,
        (cdi::RESTARTS): container["restartCount"].as_u64().unwrap_or(0).to_string(),
        (cdi::RUNNING): running,
        (cdi::RUNNING_REASON): reason,
        (cdi::RUNNING_MESSAGE): message,
    });
    if let Some(progress) = progress {
        news[cdi::PROGRESS] = progress.into();
    }
    news
}

fn unschedulable(pod: &Value) -> &'static str {
    match condition(pod, "PodScheduled") {
        Some(_) if !is_true(pod, "PodScheduled") => "Unschedulable",
        _ => "Pending",
    }
}

/// The volume of the prime claim becomes that of the target.
fn rebind(turn: &mut Turn<'_>, key: &Key, target: &Value, prime: &Value, source: &Source) {
    let volume_key = Key::new(VOLUMES, "", text(prime, "/spec/volumeName"));
    let Some(volume) = turn.context.view.get(&volume_key) else { return };
    let stamp = match source {
        Source::Claim { namespace, name } => stamp_of(turn, namespace, name),
        Source::Import { .. } => source.stamp(),
    };
    let owner = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": &*key.namespace,
        "name": &*key.name,
        "uid": uid(target),
    });
    turn.patch(
        &volume_key,
        &volume,
        json!({ "metadata": { "annotations": { CONTENT_STAMP: stamp } }, "spec": { "claimRef": owner } }),
    );
    let annotations =
        json!({ "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes" });
    turn.patch(
        key,
        target,
        json!({ "metadata": { "annotations": annotations }, "spec": { "volumeName": &*volume_key.name } }),
    );
}

/// What is on the volume of a claim.
fn stamp_of(turn: &Turn<'_>, space: &str, claim: &str) -> String {
    let view = turn.context.view;
    let claim = view.get(&Key::new(CLAIMS, space, claim));
    let volume = claim.and_then(|claim| view.get(&Key::new(VOLUMES, "", text(&claim, "/spec/volumeName"))));
    volume.and_then(|volume| annotation(&volume, CONTENT_STAMP).map(str::to_owned)).unwrap_or_default()
}

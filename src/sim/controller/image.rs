//! Harvester's VirtualMachineImages: each is a backing image of Longhorn and a storage class whose volumes begin with it
//! (domain.md §2.5; HV pkg/image/common/operator.go:328-400, pkg/controller/master/image/vm_image_controller.go).
//!
//! Served are the backend `backingimage` and the sources `download` and `export-from-volume`. Other images stay as they
//! are; one without a status is told so by an event.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::HARVESTER;
use crate::sim::controller::longhorn;
use crate::sim::controller::longhorn::backing;
use crate::sim::controller::longhorn::backing::Content;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::IMPORT_404;
use crate::sim::kinds::BACKING_IMAGES;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::IMAGES;
use crate::sim::kinds::STORAGE_CLASSES;
use crate::sim::object::Conditions;
use crate::sim::object::annotation;
use crate::sim::object::condition;
use crate::sim::object::deleting;
use crate::sim::object::has_finalizer;
use crate::sim::object::is_true;
use crate::sim::object::moment;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::object::with_finalizer;
use crate::sim::object::without_finalizers;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// Names the image of a claim or a backing image, as `namespace/name` (HCON:15).
pub(in crate::sim) const IMAGE_ID: &str = "harvesterhci.io/imageId";
/// Keeps an image until its backing image and its class are gone.
const FINALIZER: &str = "wrangler.cattle.io/vm-image-controller";
/// How long after a failed attempt the next one begins (domain.md §2.5).
const RETRY: Duration = Duration::from_secs(10);
/// How often what waits for the backing image looks again.
const POLL: Duration = Duration::from_secs(1);
/// How many attempts may be repeated where the image does not say.
const RETRIES: u64 = 3;

/// Harvester's image controller.
pub(super) struct Images;

impl Controller for Images {
    fn name(&self) -> &'static str {
        HARVESTER
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(400)
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        match changed.resource {
            IMAGES => Some(changed.clone()),
            BACKING_IMAGES => {
                let (space, name) = annotation(object, IMAGE_ID)?.split_once('/')?;
                Some(Key::new(IMAGES, space, name))
            }
            _ => None,
        }
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "vm-image-controller");
        let Some(image) = context.view.get(key) else { return turn.end() };
        if deleting(&image) {
            release(&mut turn, key, &image);
        } else if is_served(&image) {
            if !has_finalizer(&image, FINALIZER) {
                turn.patch(key, &image, with_finalizer(&image, FINALIZER));
            }
            follow(&mut turn, key, &image);
        } else if image["status"].is_null() {
            let (backend, source) = (text(&image, "/spec/backend"), text(&image, "/spec/sourceType"));
            let message =
                format!("the rehearsal cluster makes no images of backend {backend:?} from {source:?}");
            turn.event(key, "Warning", "NotRehearsed", &message);
        }
        turn.end()
    }
}

fn is_served(image: &Value) -> bool {
    text(image, "/spec/backend") == "backingimage"
        && ["download", "export-from-volume"].contains(&text(image, "/spec/sourceType"))
}

/// The backing image of an image.
pub(in crate::sim) fn backing_key(image: &Value) -> Key {
    Key::new(BACKING_IMAGES, longhorn::SPACE, &format!("vmi-{}", uid(image)))
}

/// The class of an image.
pub(in crate::sim) fn class_name(image: &Value) -> String {
    format!("lh-{}", uid(image))
}

fn class_key(image: &Value) -> Key {
    Key::new(STORAGE_CLASSES, "", &class_name(image))
}

/// Deletes what was made for the image; true once it is gone.
fn clear(turn: &mut Turn<'_>, image: &Value) -> bool {
    let mut gone = true;
    for key in [backing_key(image), class_key(image)] {
        if let Some(object) = turn.context.view.get(&key) {
            gone = false;
            if !deleting(&object) {
                turn.delete(&key);
            }
        }
    }
    if !gone {
        turn.again_after(POLL);
    }
    gone
}

fn release(turn: &mut Turn<'_>, key: &Key, image: &Value) {
    if clear(turn, image) {
        turn.patch(key, image, without_finalizers(image, &[FINALIZER]));
    }
}

fn follow(turn: &mut Turn<'_>, key: &Key, image: &Value) {
    let backing = turn.context.view.get(&backing_key(image));
    // What is over stays over: after the limit only a new image helps (domain.md §2.5).
    if is_true(image, "RetryLimitExceeded") {
        return;
    }
    if is_true(image, "Imported") {
        if backing.is_none() {
            let message = format!("Failed to get backing image: {} not found", backing_key(image).name);
            say(turn, key, image, &[("BackingImageMissing", "True", "", &message)], json!({}));
        }
        return;
    }
    let failed = ["Initialized", "Imported"]
        .iter()
        .any(|kind| condition(image, kind).is_some_and(|found| text(found, "/status") == "False"));
    if failed {
        let since = moment(image, "/status/lastFailedTime").unwrap_or(turn.now());
        if turn.passed(since, RETRY) && clear(turn, image) {
            initialize(turn, key, image);
        }
        return;
    }
    match backing {
        None => initialize(turn, key, image),
        Some(backing) => report(turn, key, image, &backing),
    }
}

/// Asks the server of the image for its size, then makes backing image and class.
fn initialize(turn: &mut Turn<'_>, key: &Key, image: &Value) {
    let parameters = match source(turn, image) {
        Ok(parameters) => parameters,
        Err(why) => return fail(turn, key, image, "Initialized", &why, 0),
    };
    let class = &image["spec"]["storageClassParameters"];
    let copies: u64 = text(class, "/numberOfReplicas").parse().unwrap_or(3);
    turn.create(
        BACKING_IMAGES,
        json!({
            "apiVersion": "longhorn.io/v1beta2",
            "kind": "BackingImage",
            "metadata": {
                "name": &*backing_key(image).name,
                "namespace": longhorn::SPACE,
                "annotations": { IMAGE_ID: format!("{}/{}", key.namespace, key.name) },
            },
            "spec": {
                "sourceType": image["spec"]["sourceType"],
                "sourceParameters": parameters,
                "checksum": text(image, "/spec/checksum"),
                "minNumberOfCopies": copies,
                "dataEngine": "v1",
            },
        }),
    );
    let mut parameters = class.clone();
    parameters["backingImage"] = (*backing_key(image).name).into();
    turn.create(
        STORAGE_CLASSES,
        json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": { "name": class_name(image) },
            "provisioner": longhorn::DRIVER,
            "parameters": parameters,
            "allowVolumeExpansion": true,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
        }),
    );
    let status = json!({
        "appliedUrl": text(image, "/spec/url"), "storageClassName": class_name(image), "progress": 0,
    });
    let told = [("Initialized", "True", "Initialized", ""), ("Imported", "Unknown", "Importing", "")];
    say(turn, key, image, &told, status);
}

/// Where Longhorn gets the data from, or why it cannot.
fn source(turn: &Turn<'_>, image: &Value) -> Result<Value, String> {
    if text(image, "/spec/sourceType") == "download" {
        let url = text(image, "/spec/url");
        return match turn.fault(IMPORT_404) {
            true => Err(format!("got 404 status code from {url}")),
            false => Ok(json!({ "url": url })),
        };
    }
    let (space, claim) = (text(image, "/spec/pvcNamespace"), text(image, "/spec/pvcName"));
    let found = turn.context.view.get(&Key::new(CLAIMS, space, claim));
    match found.as_deref().map_or("", |claim| text(claim, "/spec/volumeName")) {
        "" => Err(format!(
            "failed to get pvc {space}/{claim}, error: persistentvolumeclaims \"{claim}\" not found"
        )),
        volume => Ok(json!({ "volume-name": volume, "export-type": "raw" })),
    }
}

/// What the backing image has come to.
fn report(turn: &mut Turn<'_>, key: &Key, image: &Value, backing: &Value) {
    match backing::content(backing) {
        Content::Ready => {
            let status = json!({
                "progress": 100,
                "size": backing["status"]["size"],
                "virtualSize": backing["status"]["virtualSize"],
            });
            let told = [("Imported", "True", "Imported", ""), ("RetryLimitExceeded", "False", "", "")];
            say(turn, key, image, &told, status);
        }
        Content::Failed { message, progress } => fail(turn, key, image, "Imported", &message, progress),
        // 100 is shown only once the backing image is ready.
        Content::Coming { progress } => {
            let told = [("Imported", "Unknown", "Importing", "")];
            say(turn, key, image, &told, json!({ "progress": progress.min(99) }));
        }
    }
}

/// Counts an attempt that failed.
fn fail(turn: &mut Turn<'_>, key: &Key, image: &Value, what: &str, why: &str, progress: u64) {
    let failed = image["status"]["failed"].as_u64().unwrap_or(0) + 1;
    let retries = image["spec"]["retry"].as_u64().unwrap_or(RETRIES);
    let mut message = format!("failed due to error: {why}");
    if failed > 1 {
        message = format!("retry attempted {}/{retries} {message}", failed - 1);
    }
    let over = if failed > retries { "True" } else { "False" };
    let told = [(what, "False", "", message.as_str()), ("RetryLimitExceeded", over, "", message.as_str())];
    let status = json!({ "failed": failed, "lastFailedTime": turn.now().to_string(), "progress": progress });
    say(turn, key, image, &told, status);
    turn.again_after(RETRY);
}

/// Writes conditions (type, status, reason, message) and the rest of the status.
fn say(turn: &mut Turn<'_>, key: &Key, image: &Value, told: &[(&str, &str, &str, &str)], mut status: Value) {
    let mut conditions = Conditions::of(image, turn.now());
    for (kind, is, reason, message) in told {
        conditions.set(kind, is, reason, message);
    }
    status["conditions"] = conditions.into_value();
    turn.status(key, image, status);
}

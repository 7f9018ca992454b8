//! Harvester's webhooks for VirtualMachineImages (domain.md §2.5; HV pkg/image/common/validator.go:111,280-411).

use std::sync::Arc;

use serde_json::Value;

use crate::sim::admission::HARVESTER;
use crate::sim::admission::denied;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::IMAGES;
use crate::sim::kinds::STORAGE_CLASSES;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::label;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Admission;
use crate::sim::world::Key;
use crate::sim::world::Operation;
use crate::sim::world::Refusal;

/// The label that makes an image found by the name that people see.
const DISPLAY_NAME: &str = "harvesterhci.io/imageDisplayName";
/// The class whose parameters the image takes over.
const CLASS: &str = "harvesterhci.io/storageClassName";
/// What cannot be changed any more: the field of the spec, and the refusal.
const FIXED: [(&str, &str); 6] = [
    ("displayName", "displayName cannot be modified"),
    ("sourceType", "sourceType cannot be modified"),
    ("url", "url cannot be modified"),
    ("pvcNamespace", "pvcNamespace cannot be modified"),
    ("pvcName", "pvcName cannot be modified"),
    ("storageClassParameters", "storageClassParameters of the VM Image cannot be modified"),
];

/// Defaults, and what the image takes over from its class.
pub(super) fn mutate(admission: &Admission<'_>, new: &mut Value) {
    let spec = &mut new["spec"];
    if spec["backend"].is_null() {
        spec["backend"] = "backingimage".into();
    }
    if spec["retry"].is_null() {
        spec["retry"] = 3.into();
    }
    if spec["storageClassParameters"].is_null()
        && let Some(class) = class_of(admission, new)
    {
        new["spec"]["storageClassParameters"] = class["parameters"].clone();
    }
    let shown = text(new, "/spec/displayName").to_owned();
    if !shown.is_empty() {
        new["metadata"]["labels"][DISPLAY_NAME] = shown.into();
    }
}

fn class_of(admission: &Admission<'_>, image: &Value) -> Option<Arc<Value>> {
    if let Some(named) = annotation(image, CLASS) {
        return admission.view.get(&Key::new(STORAGE_CLASSES, "", named));
    }
    let default = "storageclass.kubernetes.io/is-default-class";
    let classes = admission.view.list(STORAGE_CLASSES, None);
    classes.into_iter().find(|class| annotation(class, default) == Some("true"))
}

/// The first refusal, if there is one.
pub(super) fn validate(
    admission: &Admission<'_>,
    image: &Value,
    operation: Operation,
) -> Result<(), Refusal> {
    let complaint = match (operation, admission.old) {
        (Operation::Delete, _) => used_by(admission, image),
        (_, Some(old)) if !deleting(image) => changed(old, image),
        (_, Some(_)) => None,
        (_, None) if has_twin(admission, image) => {
            let message = "A resource with the same name exists";
            return Err(Refusal { code: 409, reason: "Conflict", ..denied(HARVESTER, message) });
        }
        (_, None) => source_complaint(admission, image),
    };
    complaint.map_or(Ok(()), |message| Err(denied(HARVESTER, &message)))
}

/// The same name for people twice in a namespace.
fn has_twin(admission: &Admission<'_>, image: &Value) -> bool {
    let shown = text(image, "/spec/displayName");
    let images = admission.view.list(IMAGES, Some(namespace(image)));
    images.iter().any(|other| uid(other) != uid(image) && label(other, DISPLAY_NAME) == Some(shown))
}

fn source_complaint(admission: &Admission<'_>, image: &Value) -> Option<String> {
    let of = |field: &str| text(image, &format!("/spec/{field}"));
    let kind = of("sourceType");
    if of("displayName").is_empty() {
        return Some("displayName is required".to_owned());
    }
    match (["download", "restore"].contains(&kind), of("url").is_empty()) {
        (true, true) => return Some("url is required".to_owned()),
        (false, false) => {
            return Some(format!("url should be empty when image source type is {kind:?}"));
        }
        _ => {}
    }
    if kind != "export-from-volume" {
        return None;
    }
    for field in ["pvcNamespace", "pvcName"] {
        if of(field).is_empty() {
            return Some(format!("{field} is required when image source type is {kind:?}"));
        }
    }
    let (space, claim) = (of("pvcNamespace"), of("pvcName"));
    admission.view.get(&Key::new(CLAIMS, space, claim)).is_none().then(|| {
        format!("failed to get pvc {claim}/{space}, error: persistentvolumeclaims {claim:?} not found")
    })
}

fn changed(old: &Value, new: &Value) -> Option<String> {
    let found = FIXED.iter().find(|(field, _)| old["spec"][*field] != new["spec"][*field]);
    found.map(|(_, message)| (*message).to_owned())
}

/// A claim whose volume begins with the image.
fn used_by(admission: &Admission<'_>, image: &Value) -> Option<String> {
    let class = text(image, "/status/storageClassName");
    let claims = admission.view.list(CLAIMS, None);
    let used = |claim: &&Arc<Value>| !class.is_empty() && text(claim, "/spec/storageClassName") == class;
    let claim = claims.iter().find(used)?;
    Some(format!(
        "Cannot delete image {}/{}: being used by volume {}/{}",
        namespace(image),
        text(image, "/spec/displayName"),
        namespace(claim),
        name(claim)
    ))
}

//! What becomes of VirtualMachineImages (domain.md §2.5).

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::sim::contents;
use crate::sim::controller::image;
use crate::sim::controller::scenarios::Scene;
use crate::sim::fault::IMPORT_404;
use crate::sim::fault::IMPORT_RESET;
use crate::sim::fault::IMPORT_STALL;
use crate::sim::kinds::BACKING_IMAGES;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::IMAGES;
use crate::sim::kinds::STORAGE_CLASSES;
use crate::sim::object::condition;
use crate::sim::object::text;
use crate::sim::strategy::Strategy;
use crate::sim::world::Fault;
use crate::sim::world::Key;
use crate::sim::world::Write;

const IMAGE: &str = "https://mirror.example/os.img";

fn download() -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1",
        "kind": "VirtualMachineImage",
        "metadata": { "name": "os", "namespace": "default" },
        "spec": { "displayName": "os", "sourceType": "download", "url": IMAGE },
    })
}

fn key() -> Key {
    Key::new(IMAGES, "default", "os")
}

impl Scene {
    fn with_image(image: Value, faults: &[Fault]) -> Self {
        let mut scene = Self::with(contents::vm("a", Strategy::Halted), &[]);
        scene.wait(30);
        scene.0.faults = faults.to_vec();
        scene.0.write(Write::Create(IMAGES, image), "test");
        scene
    }

    fn image(&self) -> Arc<Value> {
        self.0.view().get(&key()).expect("is there")
    }

    /// Status and message of a condition of the image.
    fn told(&self, kind: &str) -> (String, String) {
        let image = self.image();
        let found = condition(&image, kind);
        let of = |place| found.map_or("", |found| text(found, place)).to_owned();
        (of("/status"), of("/message"))
    }

    fn imported(&self) -> String {
        self.told("Imported").0
    }

    /// A claim `c` of the image's class.
    fn claim_of_image(&mut self, size: &str) {
        let mut claim = contents::claim("c");
        claim["spec"]["storageClassName"] = image::class_name(&self.image()).into();
        claim["spec"]["resources"]["requests"]["storage"] = size.into();
        self.0.write(Write::Create(CLAIMS, claim), "test");
    }
}

#[test]
fn an_image_is_imported_and_its_class_makes_volumes_that_begin_with_it() {
    let mut scene = Scene::with_image(download(), &[]);
    scene.wait(10);
    assert_eq!((scene.told("Initialized").0.as_str(), scene.imported().as_str()), ("True", "Unknown"));
    let mut progress = vec![];
    for _ in 0..50 {
        scene.wait(1);
        progress.push(scene.image()["status"]["progress"].as_u64().expect("a number"));
    }
    assert!(progress.is_sorted() && progress.iter().any(|now| (1..100).contains(now)), "{progress:?}");
    let image = scene.image();
    assert_eq!(scene.imported(), "True");
    assert_eq!(image["status"]["progress"], 100);
    assert_eq!(text(&image, "/status/storageClassName"), image::class_name(&image));
    assert_eq!(image["spec"]["storageClassParameters"]["migratable"], "true");

    scene.claim_of_image("10Gi");
    scene.wait(20);
    let claim = scene.0.get(CLAIMS, "default", "c").expect("is there");
    assert_eq!(text(&claim, "/status/phase"), "Bound");
    assert_eq!(scene.content("c"), IMAGE);

    scene.0.write(Write::Delete(key()), "test");
    assert_eq!(
        scene.0.refusals.last().map(String::as_str),
        Some(
            "admission webhook \"validator.harvesterhci.io\" denied the request: Cannot delete image default/os: being \
             used by volume default/c"
        )
    );
    scene.0.write(Write::Delete(Key::new(CLAIMS, "default", "c")), "test");
    scene.wait(30);
    scene.0.write(Write::Delete(key()), "test");
    scene.wait(10);
    assert!(scene.0.list(IMAGES).is_empty() && scene.0.list(BACKING_IMAGES).is_empty());
    assert_eq!(scene.0.list(STORAGE_CLASSES).len(), 1, "only Harvester's own class is left");
}

#[test]
fn a_volume_is_exported_with_what_is_on_it() {
    let mut export = download();
    export["spec"] = json!({
        "displayName": "os", "sourceType": "export-from-volume", "pvcNamespace": "default", "pvcName": "a-disk",
    });
    let mut scene = Scene::with_image(download(), &[]);
    scene.set_content("a-disk", "database");
    export["metadata"]["name"] = "copy".into();
    export["spec"]["displayName"] = "copy".into();
    scene.0.write(Write::Create(IMAGES, export), "test");
    scene.wait(60);
    let copy = scene.0.get(IMAGES, "default", "copy").expect("is there");
    let backing = scene.0.view().get(&image::backing_key(&copy)).expect("is there");
    assert_eq!(crate::sim::controller::longhorn::backing::stamp(&backing), "database");
    assert_eq!(copy["status"]["virtualSize"], 10_u64 << 30);
}

#[test]
fn a_claim_that_is_smaller_than_the_image_gets_no_volume() {
    let mut scene = Scene::with_image(download(), &[]);
    scene.wait(60);
    scene.claim_of_image("1Gi");
    scene.wait(20);
    let claim = scene.0.get(CLAIMS, "default", "c").expect("is there");
    assert_eq!(text(&claim, "/status/phase"), "Pending");
    let why = scene.0.events.iter().find(|(_, reason, _)| reason == "ProvisioningFailed");
    assert!(why.is_some_and(|(_, _, why)| why.contains("is less than the backing image size")), "{why:?}");
}

/// Attempts are repeated after a pause, and only `RetryLimitExceeded` ends them (domain.md §2.5).
#[test]
fn failed_attempts_are_repeated_until_the_limit() {
    let mut wrong = download();
    wrong["spec"]["checksum"] = "0".repeat(128).into();
    for (image, faults, condition, expected, seconds) in [
        (
            download(),
            &[IMPORT_404][..],
            "Initialized",
            "got 404 status code from https://mirror.example/os.img",
            60,
        ),
        (download(), &[IMPORT_RESET], "Imported", "read: connection reset by peer", 300),
        (wrong, &[], "Imported", "the expected checksum 0000", 300),
    ] {
        let mut scene = Scene::with_image(image, faults);
        let mut counts = vec![];
        let mut states = vec![];
        for _ in 0..seconds {
            scene.wait(1);
            counts.push(scene.image()["status"]["failed"].as_u64().unwrap_or(0));
            states.push(scene.told(condition).0);
        }
        counts.retain(|count| *count > 0);
        counts.dedup();
        assert_eq!(counts, [1, 2, 3, 4], "{expected}");
        let (limit, message) = scene.told("RetryLimitExceeded");
        assert_eq!(limit, "True");
        assert!(message.starts_with("retry attempted 3/3 failed due to error: "), "{message}");
        assert!(message.contains(expected), "{message}");
        if condition == "Imported" {
            states.dedup();
            let pauses = states.iter().filter(|state| *state == "False").count();
            assert_eq!(pauses, 4, "false before the limit is a pause: {states:?}");
        }
    }
}

#[test]
fn a_failure_that_passes_is_forgotten_and_one_that_stalls_stays() {
    let mut scene = Scene::with_image(download(), &[IMPORT_404]);
    scene.wait(5);
    scene.0.faults.clear();
    scene.wait(90);
    assert_eq!((scene.imported().as_str(), scene.told("RetryLimitExceeded").0.as_str()), ("True", "False"));

    let mut scene = Scene::with_image(download(), &[IMPORT_STALL]);
    scene.wait(600);
    assert_eq!((scene.imported().as_str(), &scene.image()["status"]["progress"]), ("Unknown", &json!(45)));
}

#[test]
fn an_image_without_its_backing_image_says_so() {
    let mut scene = Scene::with_image(download(), &[]);
    scene.wait(60);
    let backing = image::backing_key(&scene.image());
    scene.0.write(Write::Delete(backing), "test");
    scene.wait(5);
    assert_eq!(scene.told("BackingImageMissing").0, "True");
}

#[test]
fn images_that_contradict_themselves_or_others_are_refused() {
    let with = |change: Value| {
        let mut image = download();
        image["metadata"]["name"] = "second".into();
        image["spec"]["displayName"] = "second".into();
        crate::sim::patch::merge(&mut image["spec"], &change);
        image
    };
    for (image, expected) in [
        (with(json!({ "displayName": null })), "displayName is required"),
        (with(json!({ "displayName": "os" })), "A resource with the same name exists"),
        (with(json!({ "url": null })), "url is required"),
        (with(json!({ "sourceType": "export-from-volume" })), "url should be empty"),
        (with(json!({ "sourceType": "export-from-volume", "url": null })), "pvcNamespace is required"),
        (
            with(json!({
                "sourceType": "export-from-volume", "url": null, "pvcNamespace": "default", "pvcName": "no",
            })),
            "failed to get pvc no/default",
        ),
    ] {
        let mut scene = Scene::with_image(download(), &[]);
        scene.0.write(Write::Create(IMAGES, image), "test");
        let refused = scene.0.refusals.last().expect("is refused");
        assert!(refused.contains(expected), "{refused}");
    }
    for (field, expected) in
        [("url", "url cannot be modified"), ("displayName", "displayName cannot be modified")]
    {
        let mut scene = Scene::with_image(download(), &[]);
        scene.0.write(Write::Patch(key(), json!({ "spec": { field: "other" } })), "test");
        assert!(scene.0.refusals.last().is_some_and(|refused| refused.ends_with(expected)), "{expected}");
    }
}

#[test]
fn an_image_that_is_not_rehearsed_says_so() {
    let mut image = download();
    image["spec"]["backend"] = "cdi".into();
    let mut scene = Scene::with_image(image, &[]);
    scene.wait(60);
    assert_eq!((scene.happened("NotRehearsed"), &scene.image()["status"]), (1, &Value::Null));
}

//! Longhorn's backing images: the file of an image of Harvester on the disks (domain.md §2.5).

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;
use sha2::Digest as _;
use sha2::Sha512;

use crate::sim::controller::CONTENT_STAMP;
use crate::sim::controller::longhorn;
use crate::sim::controller::longhorn::SPACE;
use crate::sim::controller::turn::Turn;
use crate::sim::controller::volume::BLANK;
use crate::sim::fault::IMPORT_RESET;
use crate::sim::fault::IMPORT_STALL;
use crate::sim::kinds::BACKING_IMAGES;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::moment;
use crate::sim::object::text;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::sim::world::View;
use crate::time::shorten;

/// The disk that has the first copy of each file.
const DISK: &str = "default-disk-node-1";
/// How long the data source takes to start.
const START: Duration = Duration::from_secs(2);
/// How long a file takes to arrive.
const ARRIVAL: Duration = Duration::from_secs(40);
/// How often a file that arrives is looked at.
const POLL: Duration = Duration::from_secs(2);
/// Where the fault `import-stall` stops a file, in percent.
const STALLED: u64 = 45;
/// How large a downloaded file is, and the disk that is in it.
const FILE_SIZE: u64 = 60 << 20;
const DISK_SIZE: u64 = 2 << 30;

/// What there is of the file.
pub(in crate::sim::controller) enum Content {
    /// It is on its way.
    Coming {
        /// In percent.
        progress: u64,
    },
    /// All of it.
    Ready,
    /// It will not come.
    Failed {
        /// Why.
        message: String,
        /// In percent.
        progress: u64,
    },
}

/// What there is of a backing image's file.
pub(in crate::sim::controller) fn content(image: &Value) -> Content {
    let file = &image["status"]["diskFileStatusMap"][DISK];
    let progress = file["progress"].as_u64().unwrap_or(0);
    match text(file, "/state") {
        "ready" => Content::Ready,
        "failed" => Content::Failed { message: text(file, "/message").to_owned(), progress },
        _ => Content::Coming { progress },
    }
}

/// The backing image that a class's volumes begin with, if it names one.
pub(in crate::sim::controller) fn of_class(class: &Value) -> Option<Key> {
    let name = text(class, "/parameters/backingImage");
    (!name.is_empty()).then(|| Key::new(BACKING_IMAGES, SPACE, name))
}

/// What is in the file.
pub(in crate::sim) fn stamp(image: &Value) -> &str {
    annotation(image, CONTENT_STAMP).unwrap_or_default()
}

/// Longhorn's backing image controller.
pub(super) struct BackingImages;

impl Controller for BackingImages {
    fn name(&self) -> &'static str {
        "longhorn-manager"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        (changed.resource == BACKING_IMAGES).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "longhorn-backing-image-controller");
        let Some(image) = context.view.get(key).filter(|image| !deleting(image)) else { return turn.end() };
        let file = &image["status"]["diskFileStatusMap"][DISK];
        let since = moment(file, "/lastStateTransitionTime").unwrap_or(turn.now());
        match text(file, "/state") {
            "" => enter(&mut turn, key, &image, "pending", 0, ""),
            "pending" => enter(&mut turn, key, &image, "starting", 0, ""),
            "starting" if turn.passed(since, START) => enter(&mut turn, key, &image, "in-progress", 0, ""),
            "in-progress" => arrive(&mut turn, key, &image),
            _ => {}
        }
        turn.end()
    }
}

/// Writes a state of the file and when it began.
fn enter(turn: &mut Turn<'_>, key: &Key, image: &Value, state: &str, progress: u64, message: &str) {
    let mut file = json!({ "state": state, "progress": progress, "message": message, "dataEngine": "v1" });
    if text(&image["status"]["diskFileStatusMap"][DISK], "/state") != state {
        file["lastStateTransitionTime"] = turn.now().to_string().into();
    }
    turn.status(key, image, json!({ "diskFileStatusMap": { DISK: file } }));
}

fn arrive(turn: &mut Turn<'_>, key: &Key, image: &Value) {
    let file = &image["status"]["diskFileStatusMap"][DISK];
    let Some(since) = moment(file, "/lastStateTransitionTime") else { return };
    let downloads = text(image, "/spec/sourceType") == "download";
    let (data, size) = match data(turn.context.view, image) {
        Ok(found) => found,
        Err(why) => return enter(turn, key, image, "failed", 0, &why),
    };
    let whole = shorten(ARRIVAL, turn.context.speed).as_millis().max(1);
    let part = turn.now().since(since).as_millis() * 100 / whole;
    let progress = u64::try_from(part).unwrap_or(100).min(100);
    if turn.fault(IMPORT_STALL) {
        enter(turn, key, image, "in-progress", progress.min(STALLED), "");
        return turn.again_after(POLL);
    }
    if progress < 100 {
        enter(turn, key, image, "in-progress", progress, "");
        return turn.again_after(POLL);
    }
    if downloads && turn.fault(IMPORT_RESET) {
        let message = format!("Get \"{data}\": read: connection reset by peer");
        return enter(turn, key, image, "failed", 99, &message);
    }
    let (wanted, actual) = (text(image, "/spec/checksum"), checksum(&data));
    if !wanted.is_empty() && wanted != actual {
        let message =
            format!("the expected checksum {wanted} doesn't match the file actual checksum {actual}");
        return enter(turn, key, image, "failed", 99, &message);
    }
    turn.patch(key, image, json!({ "metadata": { "annotations": { CONTENT_STAMP: data } } }));
    enter(turn, key, image, "ready", 100, "");
    let file = if downloads { FILE_SIZE } else { size };
    turn.status(key, image, json!({ "checksum": actual, "size": file, "virtualSize": size }));
}

/// What the file will hold, and how many bytes of disk that is.
fn data(view: &dyn View, image: &Value) -> Result<(String, u64), String> {
    let of = |name: &str| text(image, &format!("/spec/sourceParameters/{name}"));
    if text(image, "/spec/sourceType") == "download" {
        return Ok((of("url").to_owned(), DISK_SIZE));
    }
    let volume = of("volume-name");
    let stored = longhorn::volume(view, volume)
        .ok_or_else(|| format!("volumes.longhorn.io \"{volume}\" not found"))?;
    let stamp = longhorn::stamp(view, volume).unwrap_or_else(|| BLANK.to_owned());
    Ok((stamp, text(&stored, "/spec/size").parse().unwrap_or(0)))
}

/// The SHA-512 of a file: here that of the word for its content.
fn checksum(data: &str) -> String {
    let mut hex = String::new();
    for byte in Sha512::digest(data) {
        _ = write!(hex, "{byte:02x}");
    }
    hex
}

//! Harvester as a platform behind the API server.

use crate::sim::admission;
use crate::sim::contents;
use crate::sim::controller;
use crate::sim::fault;
use crate::sim::subresource;
use crate::sim::world::Platform;

/// Harvester v1.8.2 with KubeVirt 1.7.4, as far as it is rehearsed.
pub(super) fn harvester() -> Platform {
    Platform {
        controllers: controller::all(),
        mutate: admission::mutate,
        validate: admission::validate,
        subresource: subresource::serve,
        contents: contents::contents,
        faults: fault::ALL,
    }
}

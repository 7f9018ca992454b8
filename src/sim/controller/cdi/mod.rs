//! CDI: DataVolumes are filled through populators, for every class of a CSI driver (domain.md §2.1 to §2.4).
//!
//! Sources: http, registry, blank and pvc. A clone is host-assisted, as Harvester configures it (domain.md §0).

mod datavolume;
mod importer;
mod populator;
mod profile;

use std::sync::Arc;

use serde_json::Value;

use crate::sim::controller::volume::BLANK;
use crate::sim::object::text;
use crate::sim::world::Controller;

pub(super) use populator::is_populated;

/// The phase of the pod that fills the claim.
const POD_PHASE: &str = "cdi.kubevirt.io/storage.pod.phase";
/// How often its container was restarted (domain.md §2.3, DVB:971-972).
const RESTARTS: &str = "cdi.kubevirt.io/storage.pod.restarts";
/// How far it is.
const PROGRESS: &str = "cdi.kubevirt.io/storage.populator.progress";
/// Whether its container runs, why not, and what it said.
const RUNNING: &str = "cdi.kubevirt.io/storage.condition.running";
const RUNNING_REASON: &str = "cdi.kubevirt.io/storage.condition.running.reason";
const RUNNING_MESSAGE: &str = "cdi.kubevirt.io/storage.condition.running.message";
/// Where the data of an import comes from.
const ENDPOINT: &str = "cdi.kubevirt.io/storage.import.endpoint";
/// Where the object is that tells what a clone is made of; the claim's reference to it has no room for that.
const SOURCE_NAMESPACE: &str = "cdi.kubevirt.io/dataSourceNamespace";
/// The labels of everything that CDI makes (domain.md §2.2).
const APP: &str = "containerized-data-importer";
const ROLE: &str = "cdi.kubevirt.io";
/// The API of CDI.
const API_VERSION: &str = "cdi.kubevirt.io/v1beta1";
const GROUP: &str = "cdi.kubevirt.io";

/// CDI's controllers, and what runs in its pods.
pub(super) fn all() -> Vec<Arc<dyn Controller>> {
    vec![
        Arc::new(datavolume::DataVolumes),
        Arc::new(populator::Populators),
        Arc::new(populator::Abandoned),
        Arc::new(importer::Workers),
        Arc::new(profile::Profiles),
        Arc::new(profile::AnnotatedClasses),
    ]
}

/// Where the data of a DataVolume comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// From outside, or nowhere for a blank disk.
    Import {
        /// `http`, `registry` or `blank`.
        kind: &'static str,
        /// The URL; empty for a blank disk.
        url: String,
    },
    /// From another claim.
    Claim {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl Source {
    /// What `spec.source` of a DataVolume in `space`, or of a VolumeImportSource, names.
    fn of(source: &Value, space: &str) -> Option<Self> {
        if let Some(claim) = source.get("pvc") {
            let namespace = Some(text(claim, "/namespace")).filter(|own| !own.is_empty()).unwrap_or(space);
            return Some(Self::Claim {
                namespace: namespace.to_owned(),
                name: text(claim, "/name").to_owned(),
            });
        }
        let kind = ["http", "registry", "blank"].into_iter().find(|kind| source.get(*kind).is_some())?;
        Some(Self::Import { kind, url: text(source, &format!("/{kind}/url")).to_owned() })
    }

    /// Where the claim is that is cloned.
    fn namespace(&self) -> Option<&str> {
        match self {
            Self::Claim { namespace, .. } => Some(namespace),
            Self::Import { .. } => None,
        }
    }

    /// What is on the volume once it is filled.
    fn stamp(&self) -> String {
        match self {
            Self::Import { kind: "blank", .. } => BLANK.to_owned(),
            Self::Import { url, .. } => url.clone(),
            Self::Claim { namespace, name } => format!("{namespace}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_source_is_named_by_the_field_that_is_there() {
        let http = json!({ "http": { "url": "https://mirror.example/os.img" } });
        assert_eq!(
            Source::of(&http, "a").map(|source| source.stamp()),
            Some("https://mirror.example/os.img".to_owned())
        );
        assert_eq!(
            Source::of(&json!({ "blank": {} }), "a").map(|source| source.stamp()),
            Some("blank".to_owned())
        );
        let claim = Source::Claim { namespace: "a".to_owned(), name: "disk".to_owned() };
        assert_eq!(Source::of(&json!({ "pvc": { "name": "disk" } }), "a"), Some(claim));
        assert_eq!(Source::of(&json!({ "upload": {} }), "a"), None);
    }
}

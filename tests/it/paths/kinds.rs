//! The kinds of the rehearsal cluster, as its discovery tells them.

use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Client;
use windrow::sim::Cluster;
use windrow::sim::Options;
use windrow::sim::Platform;
use windrow::time::SystemClock;

/// The groups that a Kubernetes API server serves by itself.
const BUILT_IN: &[&str] = &[
    "",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "coordination.k8s.io",
    "events.k8s.io",
    "storage.k8s.io",
];
/// The aggregated API: it has no kinds of its own.
const SUBRESOURCES: &str = "subresources.kubevirt.io";

/// A kind.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) group: String,
    /// The preferred one first.
    pub(crate) versions: Vec<String>,
    pub(crate) resource: APIResource,
    /// Whether it has a status subresource.
    pub(crate) status: bool,
}

impl Kind {
    /// Its plural and group: short names clash, and so do kinds (domain.md §3.3).
    pub(crate) fn full_name(&self) -> String {
        format!("{}.{}", self.resource.name, self.group).trim_end_matches('.').to_owned()
    }

    /// Whether a definition brings it.
    pub(crate) fn is_custom(&self) -> bool {
        !BUILT_IN.contains(&self.group.as_str())
    }

    /// `apiVersion` of its objects.
    pub(crate) fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.versions[0]).trim_start_matches('/').to_owned()
    }

    /// The URL of its collection.
    pub(crate) fn url(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let space = if self.resource.namespaced { format!("/namespaces/{namespace}") } else { String::new() };
        format!("{root}/{}{space}/{}", self.api_version(), self.resource.name)
    }
}

/// All of them.
pub(crate) static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(discover())
    })
    .join()
    .unwrap()
});

/// The kind of that name in an `apiVersion`.
pub(crate) fn find(api_version: &str, name: &str) -> Option<&'static Kind> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    KINDS.iter().find(|kind| {
        kind.group == group && kind.resource.kind == name && kind.versions.iter().any(|one| one == version)
    })
}

async fn discover() -> Vec<Kind> {
    let options = Options { empty: true, ..Options::default() };
    let clock = std::sync::Arc::new(SystemClock::new());
    let cluster = Cluster::start_with(options, Platform::default(), clock).unwrap();
    let client = Client::new(cluster.service(), "default");
    let groups = client.list_api_groups().await.unwrap().groups.into_iter();
    let mut groups: Vec<(String, Vec<String>)> = groups
        .map(|group| (group.name, group.versions.into_iter().map(|version| version.version).collect()))
        .collect();
    groups.push((String::new(), vec!["v1".to_owned()]));
    groups.retain(|(group, _)| group != SUBRESOURCES);
    let mut kinds: Vec<Kind> = vec![];
    for (group, versions) in groups {
        for version in versions {
            let list = if group.is_empty() {
                client.list_core_api_resources(&version).await
            } else {
                client.list_api_group_resources(&format!("{group}/{version}")).await
            };
            let resources = list.unwrap().resources;
            let has_status = |name: &str| resources.iter().any(|r| r.name == format!("{name}/status"));
            let objects =
                resources.iter().filter(|r| !r.name.contains('/') && r.verbs.contains(&"list".into()));
            for resource in objects {
                let known =
                    kinds.iter_mut().find(|kind| kind.group == group && kind.resource.name == resource.name);
                match known {
                    Some(kind) => kind.versions.push(version.clone()),
                    None => kinds.push(Kind {
                        group: group.clone(),
                        versions: vec![version.clone()],
                        status: has_status(&resource.name),
                        resource: resource.clone(),
                    }),
                }
            }
        }
    }
    kinds.sort_by_key(Kind::full_name);
    kinds
}

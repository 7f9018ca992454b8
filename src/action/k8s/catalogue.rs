//! Kinds as people name them: `vm`, `VirtualMachine`, `virtualmachines.kubevirt.io`.

use http::header::ACCEPT;
use serde_json::Value;

use crate::action::codes;
use crate::action::k8s::client::Ask;
use crate::action::k8s::client::Cluster;
use crate::action::k8s::client::bad_request;
use crate::definition::suggest::did_you_mean;
use crate::failure::Failure;

/// Everything that is served, in one answer; older servers than 1.30 do not know it.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A kind with all its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedKind {
    /// The preferred apiVersion.
    pub api: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// Its objects live in namespaces.
    pub namespaced: bool,
    group: String,
    /// Plural, singular and short names.
    names: Vec<String>,
}

impl NamedKind {
    /// The name that fits no other kind: `virtualmachines.kubevirt.io`.
    pub fn full_name(&self) -> String {
        let plural = self.names.first().map_or(self.kind.as_str(), String::as_str);
        if self.group.is_empty() { plural.to_owned() } else { format!("{plural}.{}", self.group) }
    }

    fn is_called(&self, name: &str, group: Option<&str>) -> bool {
        let mut names = self.names.iter().chain([&self.kind]);
        group.is_none_or(|group| group == self.group) && names.any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// The kind that a person calls `text`.
///
/// # Errors
/// There is none, or there are several; a kind of the core group goes before others.
pub async fn find(cluster: &Cluster, text: &str) -> Result<NamedKind, Failure> {
    let kinds = all(cluster).await?;
    let (name, group) = text.split_once('.').map_or((text, None), |(name, group)| (name, Some(group)));
    let mut found: Vec<&NamedKind> = kinds.iter().filter(|kind| kind.is_called(name, group)).collect();
    if let Some(core) = found.iter().find(|kind| kind.group.is_empty()) {
        found = vec![*core];
    }
    match found.as_slice() {
        [kind] => Ok((*kind).clone()),
        [] => {
            let names = kinds.iter().flat_map(|kind| [&kind.kind].into_iter().chain(&kind.names));
            let hint = did_you_mean(name, names.map(String::as_str));
            let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
            let text = format!("the cluster has no kind `{text}`{hint}");
            Err(Failure::permanent(codes::UNKNOWN_KIND, text))
        }
        several => {
            let names: Vec<String> = several.iter().map(|kind| kind.full_name()).collect();
            let text = format!("`{text}` may be any of {}", names.join(", "));
            Err(Failure::permanent(codes::AMBIGUOUS_KIND, text))
        }
    }
}

/// Every kind, each in its preferred version.
async fn all(cluster: &Cluster) -> Result<Vec<NamedKind>, Failure> {
    let mut kinds: Vec<NamedKind> = vec![];
    for path in ["/api", "/apis"] {
        let ask = Ask::read(format!("look up the kinds under {path}"));
        let request = http::Request::get(path).header(ACCEPT, AGGREGATED).body(vec![]);
        let answer = cluster.json(request.map_err(|error| bad_request(&error))?, &ask).await?;
        let list = |value: &'_ Value, key: &str| value.get(key).and_then(Value::as_array).cloned();
        let Some(groups) = list(&answer, "items") else {
            let text = format!("{}: the server does not tell all kinds at once", ask.what);
            return Err(Failure::permanent(codes::BAD_ANSWER, text));
        };
        for group in &groups {
            for version in list(group, "versions").unwrap_or_default() {
                for resource in list(&version, "resources").unwrap_or_default() {
                    let kind = named(group, &version, &resource);
                    // The versions of a group come in the order of preference.
                    kinds.extend(kind.filter(|kind| !kinds.iter().any(|known| same(known, kind))));
                }
            }
        }
    }
    Ok(kinds)
}

fn same(one: &NamedKind, other: &NamedKind) -> bool {
    one.group == other.group && one.names.first() == other.names.first()
}

fn named(group: &Value, version: &Value, resource: &Value) -> Option<NamedKind> {
    let text = |value: &Value, pointer: &str| value.pointer(pointer)?.as_str().map(str::to_owned);
    let group = text(group, "/metadata/name").unwrap_or_default();
    let version = text(version, "/version")?;
    let api = if group.is_empty() { version } else { format!("{group}/{version}") };
    let kind = text(resource, "/responseKind/kind").filter(|kind| !kind.is_empty())?;
    let names = [text(resource, "/resource")?].into_iter().chain(text(resource, "/singularResource"));
    let short = resource.get("shortNames").and_then(Value::as_array).into_iter().flatten();
    let names = names.chain(short.filter_map(Value::as_str).map(str::to_owned));
    let names = names.filter(|name| !name.is_empty()).collect();
    let namespaced = text(resource, "/scope")? == "Namespaced";
    Some(NamedKind { api, kind, namespaced, group, names })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::action::k8s::script::Script;

    fn resource(plural: &str, singular: &str, kind: &str, short: &[&str]) -> Value {
        json!({"resource": plural, "singularResource": singular, "responseKind": {"kind": kind},
               "scope": "Namespaced", "shortNames": short})
    }

    fn script() -> Script {
        let core = json!({"items": [{"metadata": {}, "versions": [{"version": "v1", "resources": [
            resource("pods", "pod", "Pod", &["po"]), resource("events", "event", "Event", &["ev"])]}]}]});
        let vms = |version: &str| {
            json!({"version": version, "resources": [resource("virtualmachines", "virtualmachine",
                   "VirtualMachine", &["vm", "vms"])]})
        };
        let group = |name: &str, versions: Value| json!({"metadata": {"name": name}, "versions": versions});
        let one = |resource: Value| json!([{"version": "v1", "resources": [resource]}]);
        let groups = json!({"items": [
            group("kubevirt.io", json!([vms("v1"), vms("v1alpha3")])),
            group("events.k8s.io", one(resource("events", "event", "Event", &["ev"]))),
            group("a.io", one(resource("restores", "restore", "Restore", &[]))),
            group("b.io", one(resource("restores", "restore", "Restore", &[]))),
        ]});
        Script::new(vec![Ok((200, core)), Ok((200, groups))])
    }

    #[tokio::test]
    async fn a_kind_is_found_by_each_of_its_names() {
        for (text, api, kind) in [
            ("VirtualMachine", "kubevirt.io/v1", "VirtualMachine"),
            ("virtualmachine", "kubevirt.io/v1", "VirtualMachine"),
            ("virtualmachines", "kubevirt.io/v1", "VirtualMachine"),
            ("vm", "kubevirt.io/v1", "VirtualMachine"),
            ("virtualmachines.kubevirt.io", "kubevirt.io/v1", "VirtualMachine"),
            ("Restore.b.io", "b.io/v1", "Restore"),
            ("event", "v1", "Event"),
            ("events.events.k8s.io", "events.k8s.io/v1", "Event"),
        ] {
            let found = find(&script().cluster, text).await.expect(text);
            assert_eq!((found.api.as_str(), found.kind.as_str()), (api, kind), "{text}");
        }
    }

    #[tokio::test]
    async fn what_was_not_meant_is_helped_with() {
        for (text, code, words) in [
            ("virtualmachin", codes::UNKNOWN_KIND, "did you mean `virtualmachine`?"),
            ("restore", codes::AMBIGUOUS_KIND, "restores.a.io, restores.b.io"),
            ("pods.apps", codes::UNKNOWN_KIND, "no kind `pods.apps`"),
            ("", codes::UNKNOWN_KIND, "no kind ``"),
        ] {
            let failure = find(&script().cluster, text).await.expect_err(text);
            assert_eq!(failure.code, code, "{text}");
            assert!(failure.message.contains(words), "{}", failure.message);
        }
    }
}

//! Who owns which field: the `managedFields` of an object.

use serde_json::{Value, json};

use crate::sim::failure::Failure;
use crate::sim::fields::Comparison;
use crate::sim::fields::FieldSet;
use crate::sim::fields::compare;
use crate::sim::kinds::Kind;
use crate::sim::meta;
use crate::time::Timestamp;

/// How many managers that update (not apply) an object lists before the oldest are merged into one, as in
/// kube-apiserver.
const UPDATERS_MAX: usize = 10;
const ANCIENT: &str = "ancient-changes";
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Whether a manager has applied a manifest or written otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum How {
    /// Server-side apply.
    Apply,
    /// Everything else.
    Update,
}

/// One manager of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its name.
    pub manager: String,
    /// How it writes.
    pub how: How,
    /// `status` or empty.
    pub subresource: String,
    /// The version of the kind that it wrote.
    pub api_version: String,
    /// When it last changed something.
    pub time: String,
    /// What it owns.
    pub fields: FieldSet,
}

impl Entry {
    fn parse(json: &Value) -> Self {
        let field = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            manager: field("manager"),
            how: if field("operation") == "Apply" { How::Apply } else { How::Update },
            subresource: field("subresource"),
            api_version: field("apiVersion"),
            time: field("time"),
            fields: FieldSet::parse(json.get("fieldsV1").unwrap_or(&Value::Null)),
        }
    }

    fn to_json(&self) -> Value {
        let mut json = json!({
            "manager": self.manager,
            "operation": if self.how == How::Apply { "Apply" } else { "Update" },
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.to_json(),
        });
        if !self.subresource.is_empty() {
            json["subresource"] = self.subresource.as_str().into();
        }
        json
    }

    /// The manager as messages about conflicts name it.
    fn shown(&self) -> String {
        let mut shown = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            shown = format!("{shown} with subresource {:?}", self.subresource);
        }
        if self.how == How::Update {
            shown = format!("{shown} using {}", self.api_version);
        }
        shown
    }
}

/// Who writes, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writer<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// Apply or update.
    pub how: How,
    /// `status` or empty.
    pub subresource: &'a str,
    /// `apiVersion` of the request.
    pub api_version: &'a str,
    /// When.
    pub now: Timestamp,
}

impl Writer<'_> {
    fn is(&self, entry: &Entry) -> bool {
        entry.manager == self.manager
            && entry.how == self.how
            && entry.subresource == self.subresource
            && (self.how == How::Apply || entry.api_version == self.api_version)
    }

    /// The entry of this writer among `entries`; made if missing.
    fn entry<'e>(&self, entries: &'e mut Vec<Entry>) -> &'e mut Entry {
        let at = entries.iter().position(|entry| self.is(entry)).unwrap_or_else(|| {
            entries.push(Entry {
                manager: self.manager.to_owned(),
                how: self.how,
                subresource: self.subresource.to_owned(),
                api_version: self.api_version.to_owned(),
                time: meta::rfc3339(self.now),
                fields: FieldSet::default(),
            });
            entries.len() - 1
        });
        &mut entries[at]
    }
}

/// The managers of an object.
pub(super) fn entries(object: &Value) -> Vec<Entry> {
    let list = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    list.into_iter().flatten().map(Entry::parse).collect()
}

/// Writes the managers into an object, in the order of kube-apiserver.
pub(super) fn set_entries(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    entries.sort_by(|a, b| (a.how, &a.time, &a.manager).cmp(&(b.how, &b.time, &b.manager)));
    merge_ancient(&mut entries);
    let list: Vec<Value> = entries.iter().map(Entry::to_json).collect();
    meta::set(object, "managedFields", (!list.is_empty()).then(|| list.into()));
}

fn merge_ancient(entries: &mut Vec<Entry>) {
    let first = entries.iter().position(|entry| entry.how == How::Update).unwrap_or(entries.len());
    while entries.len() - first > UPDATERS_MAX {
        let oldest = entries.remove(first);
        let next = &mut entries[first];
        next.fields = next.fields.union(&oldest.fields);
        ANCIENT.clone_into(&mut next.manager);
        next.subresource.clear();
    }
}

/// What nobody owns: the server's own metadata and the names of the kind.
pub(super) fn strip_unowned(set: &mut FieldSet) {
    const SYSTEM: &[&[&str]] = &[
        &["apiVersion"],
        &["kind"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "deletionTimestamp"],
        &["metadata", "deletionGracePeriodSeconds"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
    ];
    for path in SYSTEM {
        set.remove(path);
    }
}

fn comparison(kind: &Kind, old: &Value, new: &Value) -> Comparison {
    let mut found = compare(kind, old, new);
    strip_unowned(&mut found.changed);
    strip_unowned(&mut found.removed);
    found
}

/// Before the first apply to an object without managers: whatever is there belongs to one of a name of its own.
pub(super) fn adopt(kind: &Kind, object: &mut Value, writer: &Writer<'_>) {
    if meta::uid(object).is_empty() || !entries(object).is_empty() {
        return;
    }
    let found = comparison(kind, &json!({}), object);
    let first = Writer { manager: BEFORE_FIRST_APPLY, how: How::Update, subresource: "", ..*writer };
    let mut all = vec![];
    first.entry(&mut all).fields = found.changed;
    set_entries(object, all);
}

/// Records an update: what changed belongs to the writer alone, what is gone to nobody.
pub(super) fn record_update(kind: &Kind, old: &Value, new: &mut Value, writer: &Writer<'_>) {
    let found = comparison(kind, old, new);
    let mut all = entries(old);
    if all.is_empty() && !meta::uid(old).is_empty() {
        // Nobody has kept track so far: only an apply begins to.
        return;
    }
    if found.is_same() {
        set_entries(new, all);
        return;
    }
    for entry in &mut all {
        let kept = entry.fields.without_trees(&found.removed);
        entry.fields = if writer.is(entry) { kept } else { kept.difference(&found.changed) };
    }
    let mine = writer.entry(&mut all);
    mine.fields = mine.fields.union(&found.changed);
    mine.time = meta::rfc3339(writer.now);
    set_entries(new, all);
}

/// Records an apply of the fields `applied`, which turned `old` into `new`. Without `force`, changing what others
/// own is a conflict.
pub(super) fn record_apply(
    kind: &Kind,
    old: &Value,
    new: &mut Value,
    applied: FieldSet,
    writer: &Writer<'_>,
    force: bool,
) -> Result<(), Failure> {
    let found = comparison(kind, old, new);
    let mut all = entries(old);
    if !force {
        let others = all.iter().filter(|entry| !writer.is(entry));
        let conflicts: Vec<(String, Vec<String>)> = others
            .map(|entry| (entry.shown(), entry.fields.intersection(&found.changed).paths()))
            .filter(|(_, paths)| !paths.is_empty())
            .collect();
        if !conflicts.is_empty() {
            return Err(apply_conflict(conflicts));
        }
    }
    for entry in all.iter_mut().filter(|entry| !writer.is(entry)) {
        entry.fields = entry.fields.difference(&found.changed).without_trees(&found.removed);
    }
    let mine = writer.entry(&mut all);
    if mine.fields != applied || !found.is_same() {
        mine.time = meta::rfc3339(writer.now);
    }
    mine.fields = applied;
    writer.api_version.clone_into(&mut mine.api_version);
    set_entries(new, all);
    Ok(())
}

fn apply_conflict(mut conflicts: Vec<(String, Vec<String>)>) -> Failure {
    conflicts.sort();
    let count: usize = conflicts.iter().map(|(_, paths)| paths.len()).sum();
    let message = if let ([(manager, paths)], 1) = (conflicts.as_slice(), count) {
        format!("Apply failed with 1 conflict: conflict with {manager}: {}", paths[0])
    } else {
        let mut lines = vec![];
        for (manager, paths) in &conflicts {
            lines.push(format!("conflicts with {manager}:"));
            lines.extend(paths.iter().map(|path| format!("- {path}")));
        }
        format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
    };
    let mut causes = vec![];
    for (manager, paths) in &conflicts {
        for path in paths {
            causes.push(json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {manager}"),
                "field": path,
            }));
        }
    }
    let mut failure = Failure::new(409, "Conflict", message);
    failure.details = Some(Box::new(json!({"causes": causes})));
    failure
}

//! The rules by which objects are created, changed and deleted. Synchronous: the caller holds the one lock.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::sim::audit::Audit;
use crate::sim::audit::AuditEntry;
use crate::sim::defaults;
use crate::sim::failure::Failure;
use crate::sim::kinds;
use crate::sim::kinds::Kind;
use crate::sim::kinds::NAMESPACES;
use crate::sim::managed;
use crate::sim::managed::How;
use crate::sim::managed::Writer;
use crate::sim::meta;
use crate::sim::parts;
use crate::sim::parts::Part;
use crate::sim::patch;
use crate::sim::patch::Patch;
use crate::sim::store::Store;
use crate::sim::typed;
use crate::sim::validate;
use crate::sim::world::Admission;
use crate::sim::world::Fault;
use crate::sim::world::Key;
use crate::sim::world::Operation;
use crate::sim::world::Platform;
use crate::sim::world::View as _;
use crate::time::Timestamp;

/// Who writes, and when.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// The field manager.
    pub manager: String,
    /// What the client calls itself; empty for a controller.
    pub agent: String,
    /// Whether it is a controller of the cluster.
    pub controller: bool,
    /// Only say what would happen.
    pub dry_run: bool,
    /// Refuse fields that the kind does not have, instead of dropping them.
    pub strict: bool,
    /// The time.
    pub now: Timestamp,
}

impl Caller {
    /// A controller of the cluster.
    pub(super) fn controller(manager: &str, now: Timestamp) -> Self {
        Self {
            manager: manager.to_owned(),
            agent: String::new(),
            controller: true,
            dry_run: false,
            strict: false,
            now,
        }
    }
}

/// The objects and everything that has a say when they change.
pub(super) struct Registry {
    /// The objects.
    pub store: Store,
    /// The accepted writes.
    pub audit: Audit,
    /// What stands behind the API.
    pub platform: Platform,
    /// The faults that are switched on.
    pub faults: Vec<Fault>,
    seed: u64,
    names: u64,
}

impl Registry {
    /// An empty cluster.
    pub(super) fn new(platform: Platform, faults: Vec<Fault>, audit: Audit, seed: u64) -> Self {
        Self { store: Store::default(), audit, platform, faults, seed, names: 0 }
    }

    /// A unique value that only the seed and the number of earlier ones decide.
    fn unique(&mut self) -> [u8; 32] {
        self.names += 1;
        let mut digest = Sha256::new();
        digest.update(self.seed.to_be_bytes());
        digest.update(self.names.to_be_bytes());
        digest.finalize().into()
    }

    fn new_uid(&mut self) -> String {
        let bytes = self.unique();
        let mut hex = String::new();
        for byte in &bytes[..16] {
            _ = write!(hex, "{byte:02x}");
        }
        // The marks of a random (version 4) UUID.
        format!("{}-{}-4{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
    }

    /// Five letters for a generated name.
    pub(super) fn new_suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let bytes = self.unique();
        bytes.iter().take(5).map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
    }

    /// The object, or 404.
    pub(super) fn get(&self, kind: &Kind, key: &Key) -> Result<Arc<Value>, Failure> {
        self.store.get(key).ok_or_else(|| Failure::not_found(kind, &key.name))
    }

    /// Creates an object. `namespace` is that of the request.
    pub(super) fn create(
        &mut self,
        kind: &'static Kind,
        namespace: &str,
        body: Value,
        caller: &Caller,
    ) -> Result<Arc<Value>, Failure> {
        let sent = body.clone();
        let (key, mut object) = self.prepare(kind, namespace, body, caller)?;
        meta::set(&mut object, "uid", None);
        if kind.status {
            parts::drop_status(kind, &mut object);
        }
        defaults::fill(kind, &mut object);
        self.insert(kind, &key, object, "create", &sent, How::Update, caller)
    }

    /// Creates an object with the status and the uid that it brings: the contents of a new cluster, its fixtures, and
    /// what its own parts report.
    pub(super) fn seed(
        &mut self,
        kind: &'static Kind,
        body: Value,
        caller: &Caller,
    ) -> Result<Arc<Value>, Failure> {
        let namespace = meta::namespace(&body).to_owned();
        let (key, mut object) = self.prepare(kind, &namespace, body, caller)?;
        defaults::fill(kind, &mut object);
        self.insert(kind, &key, object, "create", &Value::Null, How::Update, caller)
    }

    /// The checks and the metadata of a new object.
    fn prepare(
        &mut self,
        kind: &'static Kind,
        namespace: &str,
        mut object: Value,
        caller: &Caller,
    ) -> Result<(Key, Value), Failure> {
        if !meta::version(&object).is_empty() {
            return Err(Failure::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        if meta::name(&object).is_empty() {
            let prefix = meta::text(&object, "/metadata/generateName").to_owned();
            if !prefix.is_empty() {
                let name = format!("{prefix}{}", self.new_suffix());
                meta::set(&mut object, "name", Some(name.into()));
            }
        }
        let name = meta::name(&object).to_owned();
        let key = Key::new(kind.resource, namespace, &name);
        if kind.namespaced {
            self.check_namespace(kind, &key)?;
            meta::set(&mut object, "namespace", Some(namespace.into()));
        } else {
            meta::set(&mut object, "namespace", None);
        }
        validate::object(kind, &object, None, caller)?;
        if self.store.get(&key).is_some() {
            return Err(Failure::already_exists(kind, &name));
        }
        for field in [
            "selfLink",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "resourceVersion",
        ] {
            meta::set(&mut object, field, None);
        }
        Ok((key, object))
    }

    fn check_namespace(&self, kind: &Kind, key: &Key) -> Result<(), Failure> {
        let namespaces = kinds::of(NAMESPACES).expect("the table has namespaces");
        let namespace = self.get(namespaces, &Key::new(NAMESPACES, "", &key.namespace))?;
        if meta::is_deleting(&namespace) {
            return Err(Failure::terminating(kind, &key.name, &key.namespace));
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the last step of three ways to create")]
    fn insert(
        &mut self,
        kind: &'static Kind,
        key: &Key,
        mut object: Value,
        verb: &'static str,
        sent: &Value,
        how: How,
        caller: &Caller,
    ) -> Result<Arc<Value>, Failure> {
        if meta::uid(&object).is_empty() {
            let uid = self.new_uid();
            meta::set(&mut object, "uid", Some(uid.into()));
        }
        meta::set(&mut object, "creationTimestamp", Some(meta::rfc3339(caller.now).into()));
        meta::set(&mut object, "generation", kind.counts_generations().then(|| 1.into()));
        self.admit(key, None, &mut object, Operation::Create, Part::Main, caller)?;
        if how == How::Update {
            let writer = writer(kind, how, Part::Main, &object, caller);
            managed::record_update(kind, &json!({}), &mut object, &writer.as_ref());
        }
        let stored = if caller.dry_run { Arc::new(object) } else { self.store.put(key, object) };
        self.record(verb, key, Part::Main.subresource(), &stored, sent, caller);
        Ok(stored)
    }

    /// Asks the webhooks.
    fn admit(
        &self,
        key: &Key,
        old: Option<&Value>,
        object: &mut Value,
        operation: Operation,
        part: Part,
        caller: &Caller,
    ) -> Result<(), Failure> {
        let admission = Admission {
            view: &self.store,
            key,
            old,
            subresource: part.subresource(),
            manager: &caller.manager,
            faults: &self.faults,
        };
        if operation != Operation::Delete {
            (self.platform.mutate)(&admission, object);
        }
        (self.platform.validate)(&admission, object, operation).map_err(Failure::from)
    }

    /// Replaces an object or its status (PUT).
    pub(super) fn replace(
        &mut self,
        kind: &'static Kind,
        key: &Key,
        part: Part,
        body: Value,
        caller: &Caller,
    ) -> Result<Arc<Value>, Failure> {
        let old = self.get(kind, key)?;
        validate::same_place(key, &body)?;
        if kind.custom && meta::version(&body).is_empty() {
            return Err(Failure::unconditional(kind, &key.name));
        }
        let uid = meta::uid(&body);
        if !uid.is_empty() && uid != meta::uid(&old) {
            return Err(uid_mismatch(kind, key, uid, meta::uid(&old)));
        }
        let sent = body.clone();
        self.write(kind, key, part, "update", &sent, &old, body, How::Update, caller)
    }

    /// Patches an object or its status. The second value says whether an apply created it.
    pub(super) fn patch(
        &mut self,
        kind: &'static Kind,
        key: &Key,
        part: Part,
        patch: &Patch,
        caller: &Caller,
    ) -> Result<(Arc<Value>, bool), Failure> {
        let old = match (self.store.get(key), patch) {
            (Some(old), _) => old,
            (None, Patch::Apply { manifest, .. }) if part == Part::Main => {
                return self.create_by_apply(kind, key, manifest, caller).map(|object| (object, true));
            }
            (None, _) => return Err(Failure::not_found(kind, &key.name)),
        };
        let mut new = (*old).clone();
        let (verb, how) = match patch {
            Patch::Json(patch) => {
                patch::json(kind, &key.name, &mut new, patch)?;
                ("patch", How::Update)
            }
            Patch::Merge(patch) => {
                patch::merge(&mut new, patch);
                ("patch", How::Update)
            }
            Patch::Strategic(patch) => {
                patch::strategic(kind, &mut new, patch)?;
                ("patch", How::Update)
            }
            Patch::Apply { manifest, force } => {
                let (version, uid) = (meta::version(manifest), meta::uid(manifest));
                if !version.is_empty() && version != meta::version(&old) {
                    return Err(Failure::modified(kind, &key.name));
                }
                if !uid.is_empty() && uid != meta::uid(&old) {
                    return Err(uid_mismatch(kind, key, uid, meta::uid(&old)));
                }
                let manifest = parts::restricted(kind, part, manifest);
                let writer = writer(kind, How::Apply, part, &manifest, caller);
                patch::apply(kind, &mut new, &manifest, &writer.as_ref(), *force)?;
                ("apply", How::Apply)
            }
        };
        if !caller.controller {
            let unknown = typed::conform(kind, &mut new)
                .map_err(|why| Failure::bad_patch(kind, &key.name, patch.body(), &why))?;
            if caller.strict && !unknown.is_empty() {
                let why = unknown_fields(&unknown);
                return Err(Failure::bad_patch(kind, &key.name, patch.body(), &why));
            }
        }
        let stored = self.write(kind, key, part, verb, patch.body(), &old, new, how, caller)?;
        Ok((stored, false))
    }

    fn create_by_apply(
        &mut self,
        kind: &'static Kind,
        key: &Key,
        manifest: &Value,
        caller: &Caller,
    ) -> Result<Arc<Value>, Failure> {
        let mut body = manifest.clone();
        meta::set(&mut body, "name", Some((*key.name).into()));
        let uid = meta::uid(&body);
        if !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Failure::conflict(kind, &key.name, &why));
        }
        let (key, body) = self.prepare(kind, &key.namespace, body, caller)?;
        let manifest = parts::restricted(kind, Part::Main, &body);
        let mut object = json!({});
        let writer = writer(kind, How::Apply, Part::Main, &manifest, caller);
        patch::apply(kind, &mut object, &manifest, &writer.as_ref(), false)?;
        typed::conform(kind, &mut object)
            .map_err(|why| Failure::bad_patch(kind, &key.name, &manifest, &why))?;
        defaults::fill(kind, &mut object);
        self.insert(kind, &key, object, "apply", &manifest, How::Apply, caller)
    }

    /// The common end of every change: what the client must not change is put back, the webhooks are asked, the
    /// result is stored.
    #[expect(clippy::too_many_arguments, reason = "the last step of replace and patch")]
    fn write(
        &mut self,
        kind: &'static Kind,
        key: &Key,
        part: Part,
        verb: &'static str,
        sent: &Value,
        old: &Arc<Value>,
        new: Value,
        how: How,
        caller: &Caller,
    ) -> Result<Arc<Value>, Failure> {
        let version = meta::version(&new);
        if !version.is_empty() && version != meta::version(old) {
            return Err(Failure::modified(kind, &key.name));
        }
        validate::same_place(key, &new)?;
        let forgets = new.pointer("/metadata/managedFields").is_some_and(|list| *list == json!([{}]));
        let mut new = parts::merged(kind, part, old, new, how);
        parts::restore_metadata(old, &mut new);
        if kind.resource == kinds::SECRETS {
            defaults::encode_string_data(&mut new);
        }
        validate::object(kind, &new, Some(old), caller)?;
        self.admit(key, Some(old), &mut new, Operation::Update, part, caller)?;
        if kind.counts_generations() && parts::spec_differs(kind, old, &new) {
            meta::set(&mut new, "generation", Some((meta::generation(old) + 1).into()));
        }
        if forgets {
            meta::set(&mut new, "managedFields", None);
        } else if how == How::Update {
            let writer = writer(kind, how, part, &new, caller);
            managed::record_update(kind, old, &mut new, &writer.as_ref());
        }
        let stored = if **old == new {
            old.clone()
        } else if caller.dry_run {
            Arc::new(new)
        } else if parts::is_done(kind, &new) {
            self.store.remove(key);
            Arc::new(new)
        } else {
            self.store.put(key, new)
        };
        if !caller.controller || !Arc::ptr_eq(&stored, old) {
            self.record(verb, key, part.subresource(), &stored, sent, caller);
        }
        Ok(stored)
    }

    /// Notes an accepted write.
    pub(super) fn record(
        &mut self,
        verb: &'static str,
        key: &Key,
        subresource: &str,
        object: &Value,
        body: &Value,
        caller: &Caller,
    ) {
        if caller.dry_run {
            return;
        }
        let kind = kinds::of(key.resource);
        self.audit.record(AuditEntry {
            at: caller.now.to_string(),
            verb,
            resource: kind.map(Kind::qualified).unwrap_or_default(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            subresource: subresource.to_owned(),
            manager: caller.manager.clone(),
            user_agent: caller.agent.clone(),
            controller: caller.controller,
            uid: meta::uid(object).to_owned(),
            resource_version: meta::version(object).to_owned(),
            body: body.clone(),
        });
    }

    /// Asks the webhooks whether the object may be deleted.
    pub(super) fn admit_delete(&self, key: &Key, object: &Value, caller: &Caller) -> Result<(), Failure> {
        let mut object = object.clone();
        self.admit(key, Some(&object.clone()), &mut object, Operation::Delete, Part::Main, caller)
    }
}

/// Why unknown fields are refused.
pub(super) fn unknown_fields(unknown: &[String]) -> String {
    let fields: Vec<String> = unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
    format!("strict decoding error: {}", fields.join(", "))
}

fn uid_mismatch(kind: &Kind, key: &Key, given: &str, own: &str) -> Failure {
    let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {own}");
    Failure::conflict(kind, &key.name, &why)
}

/// A [`Writer`] that owns its texts.
struct OwnedWriter<'a> {
    manager: &'a str,
    how: How,
    part: Part,
    api_version: String,
    now: Timestamp,
}

impl OwnedWriter<'_> {
    fn as_ref(&self) -> Writer<'_> {
        Writer {
            manager: self.manager,
            how: self.how,
            subresource: self.part.subresource(),
            api_version: &self.api_version,
            now: self.now,
        }
    }
}

fn writer<'a>(kind: &Kind, how: How, part: Part, object: &Value, caller: &'a Caller) -> OwnedWriter<'a> {
    let api_version = match meta::text(object, "/apiVersion") {
        "" => kind.api_version(),
        given => given.to_owned(),
    };
    OwnedWriter { manager: &caller.manager, how, part, api_version, now: caller.now }
}

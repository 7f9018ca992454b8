//! Did an attempt whose answer was lost take effect? What the object itself proves (E3).

use serde_json::Value;

use crate::action::k8s::changes;
use crate::action::k8s::delete;
use crate::action::naming::last_writer;
use crate::action::request::Origin;
use crate::action::request::Request;
use crate::definition::model::ActionKind;

/// `Some(true)`: the effect is there and is provably this attempt's. `Some(false)`: it provably is not there, so the
/// action may run again. `None`: the object does not tell; `check` has to.
///
/// `object` is the target as it is now: null if it does not exist, `None` if it was not read. `before` is the uid and the
/// resource version of the target as it was before the attempt.
pub fn of(
    uses: ActionKind,
    origin: &Origin,
    object: Option<&Value>,
    before: Option<(&str, &str)>,
) -> Option<bool> {
    match uses {
        ActionKind::K8sGet
        | ActionKind::K8sList
        | ActionKind::K8sDryRun
        | ActionKind::K8sLogs
        | ActionKind::K8sEvents
        | ActionKind::K8sWait
        | ActionKind::Tcp => Some(false),
        ActionKind::K8sCreate => created(origin, object?),
        ActionKind::K8sApply | ActionKind::K8sPatch | ActionKind::K8sRestore => {
            written(origin, object?).or_else(|| untouched(object?, before?.1))
        }
        ActionKind::K8sDelete | ActionKind::K8sEvict => deleted(object?, before.map(|(uid, _)| uid)),
        _ => None,
    }
}

/// True for an action that answers with the object as it has written it.
pub const fn writes_object(uses: ActionKind) -> bool {
    matches!(
        uses,
        ActionKind::K8sCreate | ActionKind::K8sApply | ActionKind::K8sPatch | ActionKind::K8sRestore
    )
}

/// What a request whose answer was lost has changed, as its answer would have told; none where nothing can put it back.
/// `before` is the object as it was (null if it was not there), `after` as it is.
pub fn changes(request: &Request, before: &Value, after: &Value) -> Option<Value> {
    let changes = match request.uses {
        ActionKind::K8sCreate => vec![delete::creation(after)],
        ActionKind::K8sApply if before.is_null() => vec![delete::creation(after)],
        ActionKind::K8sApply => changes::of_merge(request.args.get("manifest")?, before, after),
        ActionKind::K8sPatch => {
            let patch = |key: &str| request.args.get(key).filter(|patch| !patch.is_null());
            let merged =
                || Some(changes::of_merge(patch("merge").or_else(|| patch("strategic"))?, before, after));
            patch("json").map(|patch| changes::of_json_patch(patch, before, after)).or_else(merged)?
        }
        _ => return None,
    };
    serde_json::to_value(changes).ok()
}

fn created(origin: &Origin, object: &Value) -> Option<bool> {
    if object.is_null() {
        return Some(false);
    }
    // One that is not ours does not prove that nothing was done; to create it again names its owner.
    if origin.wrote(object) { Some(true) } else { Some(false).filter(|_| last_writer(object).is_some()) }
}

/// The annotation was written together with the change. If another write of this run, or none, stands there, ours did
/// not happen: a run writes one object at a time. The annotation of another run may have covered ours.
fn written(origin: &Origin, object: &Value) -> Option<bool> {
    match last_writer(object) {
        _ if origin.wrote(object) => Some(true),
        Some(writer) if writer.split('/').next() == Some(&origin.run) => Some(false),
        // A VMI, or a JSON patch of an object without annotations, carries no mark (C4).
        Some(_) | None => None,
    }
}

/// Nobody has written the object since it was read for the attempt.
fn untouched(object: &Value, version: &str) -> Option<bool> {
    let now = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    (now == Some(version)).then_some(false)
}

fn deleted(object: &Value, uid: Option<&str>) -> Option<bool> {
    let now = object.pointer("/metadata/uid").and_then(Value::as_str);
    match (now, uid) {
        (None, _) if object.is_null() => Some(true),
        (Some(now), Some(before)) if now != before => Some(true),
        // Finalizers hold it, but the request has been accepted.
        (Some(_), Some(_)) => Some(object.pointer("/metadata/deletionTimestamp").is_some()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::action::naming::LAST_WRITE;

    fn origin() -> Origin {
        Origin { run: "01run".into(), workflow: "w".into(), unit: "halt".into(), attempt: 2 }
    }

    fn object(mark: Option<&str>) -> Value {
        let mut object = json!({"metadata": {"uid": "u1"}});
        if let Some(mark) = mark {
            object["metadata"]["annotations"] = json!({LAST_WRITE: mark});
        }
        object
    }

    #[test]
    fn a_write_is_proven_by_its_mark_only() {
        use ActionKind::{K8sCreate, K8sPatch, K8sRestore};
        let rows = [
            (K8sPatch, Some("01run/halt#2"), Some(true)),
            (K8sPatch, Some("01run/halt#1"), Some(false)),
            (K8sPatch, Some("01run/other#1"), Some(false)),
            (K8sPatch, Some("02run/halt#2"), None),
            (K8sPatch, None, None),
            (K8sRestore, Some("01run/halt#2"), Some(true)),
            (K8sCreate, Some("01run/halt#2"), Some(true)),
            (K8sCreate, Some("02run/halt#2"), Some(false)),
            (K8sCreate, None, None),
        ];
        let before = Some(("u1", "7"));
        for (uses, mark, expected) in rows {
            assert_eq!(of(uses, &origin(), Some(&object(mark)), before), expected, "{uses} {mark:?}");
        }
        assert_eq!(of(K8sCreate, &origin(), Some(&Value::Null), None), Some(false));
        assert_eq!(of(K8sPatch, &origin(), None, None), None, "it was not read");
    }

    #[test]
    fn an_object_that_nobody_has_written_since_was_not_written_by_this_attempt_either() {
        let mut object = object(Some("02run/halt#2"));
        object["metadata"]["resourceVersion"] = "7".into();
        let of = |version| of(ActionKind::K8sRestore, &origin(), Some(&object), Some(("u1", version)));
        assert_eq!((of("7"), of("6")), (Some(false), None));
    }

    #[test]
    fn a_delete_is_proven_by_the_uid() {
        let of = |object: &Value, uid: Option<&str>| {
            of(ActionKind::K8sDelete, &origin(), Some(object), uid.map(|uid| (uid, "7")))
        };
        assert_eq!(of(&Value::Null, Some("u1")), Some(true));
        assert_eq!(of(&object(None), Some("u0")), Some(true), "another object of that name");
        assert_eq!(of(&object(None), Some("u1")), Some(false));
        let mut leaving = object(None);
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(of(&leaving, Some("u1")), Some(true));
        assert_eq!(of(&object(None), None), None);
    }

    #[test]
    fn reads_have_no_effect_and_verbs_prove_nothing() {
        for uses in [ActionKind::K8sGet, ActionKind::K8sLogs, ActionKind::Tcp] {
            assert_eq!(of(uses, &origin(), None, None), Some(false));
        }
        for uses in [ActionKind::K8sSubresource, ActionKind::K8sRaw, ActionKind::Http, ActionKind::Process] {
            assert_eq!(of(uses, &origin(), Some(&object(Some("01run/halt#2"))), None), None);
        }
    }
}

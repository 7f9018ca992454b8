use json_patch::{AddOperation, PatchOperation};
use serde_json::Value;

use crate::sim::failure::Failure;
use crate::sim::kinds::Kind;

/// Applies a JSON patch (RFC 6902), all of it or nothing. Against the RFC, but as kube-apiserver does, replacing a
/// member that an object does not have adds it, and a test finds null there.
pub(crate) fn json(kind: &Kind, name: &str, object: &mut Value, patch: &Value) -> Result<(), Failure> {
    if !patch.is_array() {
        let message = "json: cannot unmarshal the patch into a list of operations";
        return Err(Failure::bad_request(message));
    }
    let operations: json_patch::Patch =
        serde_json::from_value(patch.clone()).map_err(|_| Failure::unprocessable(kind, name))?;
    let mut changed = object.clone();
    for operation in operations.0 {
        if finds_null(&changed, &operation) {
            continue;
        }
        let operation = as_applied(&changed, operation);
        json_patch::patch(&mut changed, &[operation]).map_err(|_| Failure::unprocessable(kind, name))?;
    }
    *object = changed;
    Ok(())
}

/// Whether the operation tests for null a member that an object does not have.
fn finds_null(object: &Value, operation: &PatchOperation) -> bool {
    let PatchOperation::Test(test) = operation else { return false };
    let parent = test.path.parent().and_then(|parent| parent.resolve(object).ok());
    test.value.is_null() && parent.is_some_and(Value::is_object) && test.path.resolve(object).is_err()
}

fn as_applied(object: &Value, operation: PatchOperation) -> PatchOperation {
    match operation {
        PatchOperation::Replace(replace) if replace.path.resolve(object).is_err() => {
            let parent = replace.path.parent().and_then(|parent| parent.resolve(object).ok());
            if parent.is_some_and(Value::is_object) {
                PatchOperation::Add(AddOperation { path: replace.path, value: replace.value })
            } else {
                PatchOperation::Replace(replace)
            }
        }
        operation => operation,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json as value;

    use super::*;
    use crate::sim::kinds::VIRTUAL_MACHINES;
    use crate::sim::kinds::of;

    #[test]
    fn a_miss_changes_nothing_and_says_what_the_real_server_says() {
        let kind = of(VIRTUAL_MACHINES).expect("a row");
        let before = value!({"spec": {"runStrategy": "Always", "running": null}});
        for miss in [
            value!([{"op": "replace", "path": "/spec/runStrategy", "value": "x"}, {"op": "remove", "path": "/spec/no"}]),
            value!([{"op": "test", "path": "/spec/runStrategy", "value": "Halted"}]),
        ] {
            let mut object = before.clone();
            let failure = json(kind, "demo", &mut object, &miss).expect_err("a miss");
            assert_eq!((failure.code, failure.reason), (422, "Invalid"));
            assert_eq!(failure.message, "the server rejected our request due to an error in our request");
            assert_eq!(object, before);
        }
        let mut object = before.clone();
        let hit = value!([
            {"op": "test", "path": "/spec/runStrategy", "value": "Always"},
            {"op": "replace", "path": "/spec/runStrategy", "value": "Halted"}
        ]);
        json(kind, "demo", &mut object, &hit).expect("a hit");
        assert_eq!(object["spec"]["runStrategy"], "Halted");
    }

    #[test]
    fn what_is_no_patch_is_a_bad_request() {
        let kind = of(VIRTUAL_MACHINES).expect("a row");
        let failure = json(kind, "demo", &mut value!({}), &value!({"op": "add"})).expect_err("no list");
        assert_eq!(failure.code, 400);
    }
}

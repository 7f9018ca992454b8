use json_patch::PatchOperation;
use serde_json::Value;

use crate::sim::failure::Failure;

/// Applies a JSON patch (RFC 6902), all of it or nothing. As in kube-apiserver, and against the RFC, `replace` may name
/// a field that is not there yet.
pub fn json(object: &mut Value, patch: &Value) -> Result<(), Failure> {
    let Value::Array(operations) = patch else {
        return Err(Failure::not_a(patch, "[]handlers.jsonPatchOp"));
    };
    let mut patched = object.clone();
    for operation in operations {
        let operation = serde_json::from_value(operation.clone()).map_err(|_| Failure::unprocessable())?;
        let operation = lenient(operation, &patched);
        json_patch::patch(&mut patched, &[operation]).map_err(|_| Failure::unprocessable())?;
    }
    *object = patched;
    Ok(())
}

/// Turns the replacement of a missing field into its addition.
fn lenient(operation: PatchOperation, object: &Value) -> PatchOperation {
    match operation {
        PatchOperation::Replace(replace) => {
            let parent = replace.path.parent().and_then(|parent| object.pointer(parent.as_str()));
            match parent {
                Some(Value::Object(_)) => {
                    PatchOperation::Add(json_patch::AddOperation { path: replace.path, value: replace.value })
                }
                _ => PatchOperation::Replace(replace),
            }
        }
        operation => operation,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json as value;

    use super::*;

    #[test]
    fn a_miss_changes_nothing_and_says_what_the_real_server_says() {
        let before = value!({"spec": {"runStrategy": "Always", "running": null}});
        for miss in [
            value!([{"op": "replace", "path": "/spec/runStrategy", "value": "x"}, {"op": "remove", "path": "/spec/no"}]),
            value!([{"op": "test", "path": "/spec/runStrategy", "value": "Halted"}]),
        ] {
            let mut object = before.clone();
            let failure = json(&mut object, &miss).expect_err("a miss");
            assert_eq!((failure.code, failure.reason), (422, "Invalid"));
            assert_eq!(failure.message, "the server rejected our request due to an error in our request");
            assert_eq!(object, before);
        }
        let mut object = before.clone();
        let hit = value!([
            {"op": "test", "path": "/spec/runStrategy", "value": "Always"},
            {"op": "replace", "path": "/spec/runStrategy", "value": "Halted"}
        ]);
        json(&mut object, &hit).expect("a hit");
        assert_eq!(object["spec"]["runStrategy"], "Halted");
    }

    #[test]
    fn what_is_no_patch_is_a_bad_request() {
        let failure = json(&mut value!({}), &value!({"op": "add"})).expect_err("no list");
        assert_eq!(failure.code, 400);
        let failure =
            json(&mut value!({}), &value!([{"op": "multiply", "path": "/a"}])).expect_err("no operation");
        assert_eq!(failure.code, 422);
    }

    #[test]
    fn a_replacement_may_add_to_a_map_but_not_to_a_list() {
        let mut object = value!({"a": {}, "b": []});
        json(&mut object, &value!([{"op": "replace", "path": "/a/c", "value": 1}])).expect("lenient");
        assert_eq!(object["a"]["c"], 1);
        let miss = value!([{"op": "replace", "path": "/b/0", "value": 1}]);
        assert_eq!(json(&mut object, &miss).expect_err("a miss").code, 422);
    }
}

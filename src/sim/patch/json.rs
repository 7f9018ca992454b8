use serde_json::Value;

use crate::sim::failure::Failure;
use crate::sim::kinds::Kind;

/// Applies a JSON patch (RFC 6902), all of it or nothing.
pub fn json(kind: &Kind, name: &str, object: &mut Value, patch: &Value) -> Result<(), Failure> {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))?;
    json_patch::patch(object, &patch).map_err(|_| Failure::unprocessable(kind, name))
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

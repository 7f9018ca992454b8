use std::os::unix::fs::PermissionsExt;

use base64::prelude::BASE64_STANDARD;
use base64::prelude::BASE64_URL_SAFE;
use serde_json::json;

use super::*;

fn sealing(dir: &tempfile::TempDir) -> Secrets {
    Secrets::new(Some(Sealer::open_or_create(&dir.path().join("seal.key")).expect("a key")))
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[tokio::test]
async fn a_secret_is_resolved_within_a_text_and_masked_in_every_form_afterwards() {
    let dir = dir();
    let path = dir.path().join("password");
    std::fs::write(&path, "p@ss w\"rd/1\n").expect("written");
    let secrets = Secrets::default();
    let reference = format!("file:{}", path.display());
    let request =
        json!({"headers": {"Authorization": format!("Bearer {}", placeholder(&reference))}, "n": 1});
    assert!(holds_secret(&request));
    let resolved = secrets.resolve(&request, None).await.expect("resolved");
    assert_eq!(resolved["headers"]["Authorization"], "Bearer p@ss w\"rd/1");

    let secret = "p@ss w\"rd/1";
    let forms = [
        secret.to_owned(),
        format!("a{secret}b"),
        "https://x/?q=p%40ss%20w%22rd%2F1&r=2".to_owned(),
        "q=p%40ss+w%22rd%2F1".to_owned(),
        json!({"password": secret}).to_string(),
        BASE64_STANDARD.encode(secret),
        BASE64_STANDARD.encode(format!("u:{secret}")),
        BASE64_STANDARD.encode(format!("us:{secret}")),
        BASE64_STANDARD.encode(format!("use:{secret}: and more")),
        BASE64_URL_SAFE.encode(format!("user:{secret}")),
    ];
    for form in forms {
        let masked = secrets.masker().mask(&form).into_owned();
        assert!(masked.contains(MASK), "{form}");
        for leak in ["p@ss", "w\"rd", "p%40ss", "cEBzcy", "BAc3M", "AQHNz"] {
            assert!(!masked.contains(leak), "{form} became {masked}");
        }
    }
    let mut value = json!({"out": [secret], secret: 1});
    secrets.masker().mask_value(&mut value);
    assert_eq!(value, json!({"out": [MASK], MASK: 1}));
    assert_eq!(secrets.masker().mask("nothing here"), "nothing here");
}

#[tokio::test]
async fn what_cannot_be_resolved_is_refused_by_name_and_never_shows_a_value() {
    let dir = dir();
    let short = dir.path().join("short");
    std::fs::write(&short, "abc").expect("written");
    let secrets = Secrets::default();
    let short = format!("file:{}", short.display());
    let rows = [
        ("env:WINDROW_NO_SUCH_VARIABLE", codes::SECRET),
        ("file:/no/such/file", codes::SECRET),
        (short.as_str(), codes::SECRET),
        ("k8s:a/b/c", codes::SECRET),
        ("other", codes::SECRET),
        ("sealed:AAAA", codes::SEALED),
    ];
    for (reference, code) in rows {
        let failure = secrets.resolve(&placeholder(reference).into(), None).await.expect_err(reference);
        assert_eq!(failure.code, code, "{reference}");
        assert!(!failure.message.contains("abc"));
    }
    let failure = secrets.resolve(&json!({"data": {"k": MASK}}), None).await.expect_err("masked");
    assert_eq!(failure.code, codes::MASKED);
    let plain = json!(["⟦", "⟦other⟧", "a ⟦ b"]);
    assert_eq!(secrets.resolve(&plain, None).await, Ok(plain));
}

fn objects() -> Value {
    json!([
        {"kind": "Secret", "metadata": {"name": "s", "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{\"data\":{\"k\":\"dmFsdWU=\"}}"}},
         "data": {"k": "dmFsdWU="}, "stringData": {"l": "value"}, "type": "Opaque"},
        {"kind": "ConfigMap", "data": {"k": "public"}},
        {"kind": "VirtualMachine", "spec": {"volumes": [
            {"cloudInitNoCloud": {"userData": "#cloud-config pw", "networkDataBase64": "bmV0"}}]}},
    ])
}

#[tokio::test]
async fn leaves_of_objects_are_sealed_and_come_back_when_they_are_sent() {
    let dir = dir();
    let secrets = sealing(&dir);
    let mut hidden = objects();
    secrets.hide(&mut hidden);
    let text = hidden.to_string();
    for leak in ["dmFsdWU", "\"value\"", "cloud-config", "bmV0"] {
        assert!(!text.contains(leak), "{text}");
    }
    assert_eq!(hidden[1], objects()[1]);
    let mut again = objects();
    secrets.hide(&mut again);
    assert_eq!(hidden, again, "equal values have equal seals");
    let twice = hidden.clone();
    secrets.hide(&mut hidden);
    assert_eq!(hidden, twice, "a seal is not sealed again");
    assert_eq!(sealing(&dir).resolve(&hidden, None).await, Ok(objects()), "with the key of the directory");

    let other = tempfile::tempdir().expect("a directory");
    let failure = sealing(&other).resolve(&hidden, None).await.expect_err("another key");
    assert_eq!(failure.code, codes::SEALED);
}

#[tokio::test]
async fn without_a_key_leaves_are_masked_and_cannot_be_sent() {
    let secrets = Secrets::default();
    let mut hidden = objects();
    secrets.hide(&mut hidden);
    assert_eq!(hidden[0]["data"]["k"], MASK);
    assert_eq!(secrets.resolve(&hidden, None).await.expect_err("masked").code, codes::MASKED);
    assert_eq!(secrets.seal_literal("hunter22").expect_err("no key").code, codes::NO_SEALING_KEY);
}

#[tokio::test]
async fn changes_of_secret_places_are_hidden() {
    let secrets = sealing(&dir());
    let mut changes =
        json!([{"path": "/data/k", "before": "b2xk", "after": "bmV3"}, {"path": "/type", "after": "x"}]);
    let before = changes.clone();
    secrets.hide_changes("Secret", &mut changes);
    assert!(!changes.to_string().contains("b2xk") && changes[1]["after"] == "x", "{changes}");
    assert_eq!(secrets.resolve(&changes, None).await, Ok(before));
    let mut plain =
        json!([{"path": "/data/k", "after": "v"}, {"path": "/spec/volumes/0/x/userData", "after": "pw"}]);
    secrets.hide_changes("ConfigMap", &mut plain);
    assert!(plain[0]["after"] == "v" && plain[1]["after"] != "pw", "{plain}");
}

#[tokio::test]
async fn a_literal_becomes_a_reference_and_equal_secrets_have_equal_fingerprints() {
    let dir = dir();
    let secrets = sealing(&dir);
    let reference = secrets.seal_literal("hunter22").expect("a key");
    assert!(reference.starts_with("sealed:") && !reference.contains("hunter22"));
    let fingerprint = secrets.fingerprint(&reference, None).await.expect("resolved").expect("a key");
    assert_eq!(fingerprint.len(), 12);
    for text in [placeholder(&reference), placeholder_with_hash(&reference, &fingerprint)] {
        assert_eq!(reference_of(&text), Some(reference.as_str()));
        assert_eq!(secrets.resolve(&text.into(), None).await, Ok("hunter22".into()));
    }
    assert_eq!(secrets.seal_literal("abc").expect_err("too short").code, codes::SECRET);
    let path = dir.path().join("same");
    std::fs::write(&path, "hunter22").expect("written");
    let same = secrets.fingerprint(&format!("file:{}", path.display()), None).await;
    assert_eq!(same, Ok(Some(fingerprint)));
}

#[test]
fn the_key_is_for_its_owner_only_and_a_short_one_is_no_key() {
    let dir = dir();
    let path = dir.path().join("seal.key");
    Sealer::open_or_create(&path).expect("made");
    let mode = std::fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::write(&path, "short").expect("written");
    assert!(Sealer::open_or_create(&path).is_err());
}

//! The writes against a scripted server: what is sent, and what is made of the answer.

use std::sync::Arc;

use expect_test::expect;
use serde_json::{Value, json};

use crate::action::codes;
use crate::action::k8s::execute;
use crate::action::k8s::script::Script;
use crate::action::k8s::script::Step;
use crate::action::k8s::script::absent;
use crate::action::k8s::script::origin;
use crate::action::k8s::script::status;
use crate::action::k8s::script::vm;
use crate::action::naming::LAST_WRITE;
use crate::action::request::ATTEMPT_TIMEOUT_DEFAULT;
use crate::action::request::Answer;
use crate::action::request::ObjectRef;
use crate::action::request::Request;
use crate::action::request::Selector;
use crate::definition::model::ActionKind;
use crate::failure::Failure;
use crate::failure::FailureClass;

fn web(strategy: &str, version: &str) -> Value {
    json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "spec": {"runStrategy": strategy},
           "metadata": {"name": "web", "namespace": "default", "uid": "u1", "resourceVersion": version,
                        "annotations": {"a": "b"}}})
}

fn request(uses: ActionKind, object: Option<Value>, args: Value) -> Request {
    Request { uses, target: Some(vm("web")), object: object.map(Arc::new), args }
}

async fn run(script: &Script, request: &Request) -> Result<Answer, Failure> {
    execute(&script.cluster, &origin(), request, ATTEMPT_TIMEOUT_DEFAULT).await
}

/// Runs against one scripted exchange; returns the answer and the last write as text.
async fn exchange(steps: Vec<Step>, request: &Request) -> (Result<Answer, Failure>, String) {
    let script = Script::new(steps);
    let answer = run(&script, request).await;
    let (method, url, body) = script.asked().pop().unwrap_or_default();
    (answer, format!("{method} {url}\n{body}\n"))
}

fn changed(answer: &Result<Answer, Failure>) -> bool {
    match answer {
        Ok(Answer::Done { changed, .. }) => *changed,
        other => panic!("not done: {other:?}"),
    }
}

fn changes(answer: &Result<Answer, Failure>) -> Value {
    match answer {
        Ok(Answer::Done { changes: Some(changes), .. }) => changes.clone(),
        other => panic!("no changes: {other:?}"),
    }
}

#[tokio::test]
async fn a_merge_patch_is_signed_and_tells_what_it_changed() {
    let merge = json!({"merge": {"spec": {"runStrategy": "Halted", "running": null}}});
    let patch = request(ActionKind::K8sPatch, Some(web("Always", "1")), merge);
    let (answer, sent) = exchange(vec![Ok((200, web("Halted", "2")))], &patch).await;
    expect![[r#"
        PATCH /apis/kubevirt.io/v1/namespaces/default/virtualmachines/web?fieldManager=windrow-vm-stop-halt
        {"spec":{"runStrategy":"Halted","running":null},"metadata":{"annotations":{"windrow.io/last-write":"01run/halt#1"}}}
    "#]]
    .assert_eq(&sent);
    assert!(changed(&answer));
    let expected = json!([{"path": "/spec/runStrategy", "before": "Always", "after": "Halted"},
                          {"path": "/spec/running"}]);
    assert_eq!(changes(&answer), expected);
    let (answer, _) = exchange(vec![Ok((200, web("Always", "2")))], &patch).await;
    assert!(!changed(&answer), "the annotation alone is no change");
}

#[tokio::test]
async fn an_optimistic_patch_carries_the_version_that_was_read() {
    let object = || Some(web("Always", "7"));
    let merge = json!({"merge": {"spec": {}}, "optimistic": true});
    let (answer, sent) = exchange(
        vec![Ok((409, status(409, "Conflict", "the object has been modified")))],
        &request(ActionKind::K8sPatch, object(), merge),
    )
    .await;
    assert!(sent.contains(r#""resourceVersion":"7""#), "{sent}");
    let failure = answer.expect_err("a conflict");
    assert_eq!((failure.class, failure.code.as_str()), (FailureClass::Retryable, codes::CONFLICT));

    let json = json!({"json": [{"op": "remove", "path": "/spec/x"}], "optimistic": true});
    let (_, sent) =
        exchange(vec![Ok((200, web("Always", "8")))], &request(ActionKind::K8sPatch, object(), json)).await;
    expect![[r#"
        PATCH /apis/kubevirt.io/v1/namespaces/default/virtualmachines/web?fieldManager=windrow-vm-stop-halt
        [{"op":"remove","path":"/spec/x"},{"op":"add","path":"/metadata/annotations/windrow.io~1last-write","value":"01run/halt#1"},{"op":"replace","path":"/metadata/resourceVersion","value":"7"}]
    "#]]
    .assert_eq(&sent);
}

#[tokio::test]
async fn a_patch_is_exactly_one_form_of_an_object_that_exists() {
    let two = json!({"merge": {}, "json": []});
    for args in [json!({}), two, json!({"json": {}}), json!({"merge": {"metadata": 1}}), json!({"other": 1})]
    {
        let (answer, sent) =
            exchange(vec![], &request(ActionKind::K8sPatch, Some(web("Always", "1")), args.clone())).await;
        assert_eq!(answer.expect_err("refused").code, codes::BAD_REQUEST, "{args}");
        assert_eq!(sent, " \nnull\n", "nothing is sent");
    }
    let patch = request(ActionKind::K8sPatch, None, json!({"merge": {"spec": {}}}));
    let (answer, sent) = exchange(vec![Ok((404, absent("virtualmachines", "web")))], &patch).await;
    assert_eq!(answer.expect_err("missing").code, codes::NOT_FOUND);
    assert!(sent.starts_with("GET"), "{sent}");
}

#[tokio::test]
async fn a_vmi_and_a_subresource_are_never_signed() {
    let vmi = ObjectRef { kind: "VirtualMachineInstance".into(), ..vm("web") };
    let mut patch = request(ActionKind::K8sPatch, Some(web("", "1")), json!({"merge": {"metadata": {}}}));
    patch.target = Some(vmi);
    let (_, sent) = exchange(vec![Ok((200, web("", "2")))], &patch).await;
    assert!(!sent.contains(LAST_WRITE), "{sent}");
}

#[tokio::test]
async fn kubevirts_verbs_are_put_to_its_aggregated_api_and_answer_nothing() {
    let start = request(ActionKind::K8sSubresource, None, json!({"path": "start"}));
    let (answer, sent) = exchange(vec![Ok((202, json!("")))], &start).await;
    expect![[r"
        PUT /apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/web/start?fieldManager=windrow-vm-stop-halt
        null
    "]]
    .assert_eq(&sent);
    assert_eq!(answer, Ok(Answer::done(true, Value::Null)));

    let body = json!({"path": "status", "body": {"status": {"x": 1}}});
    let (_, sent) =
        exchange(vec![Ok((200, json!({})))], &request(ActionKind::K8sSubresource, None, body)).await;
    expect![[r#"
        PATCH /apis/kubevirt.io/v1/namespaces/default/virtualmachines/web/status?fieldManager=windrow-vm-stop-halt
        {"status":{"x":1}}
    "#]]
    .assert_eq(&sent);

    let refused = status(409, "Conflict", "VM is already running");
    let (answer, _) = exchange(vec![Ok((409, refused))], &start).await;
    assert_eq!(answer.expect_err("refused").class, FailureClass::Unknown, "the world is looked at first");
    let escape = request(ActionKind::K8sSubresource, None, json!({"path": "../other"}));
    assert_eq!(exchange(vec![], &escape).await.0.expect_err("refused").code, codes::BAD_REQUEST);
}

fn create() -> Request {
    let manifest =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "x"}});
    Request { target: None, ..request(ActionKind::K8sCreate, None, json!({"manifest": manifest})) }
}

#[tokio::test]
async fn a_created_object_is_signed_and_its_creation_can_be_undone() {
    let made = json!({"metadata": {"name": "c", "uid": "u9", "resourceVersion": "1"}});
    let (answer, sent) = exchange(vec![Ok((201, made))], &create()).await;
    expect![[r#"
        POST /api/v1/namespaces/x/configmaps?fieldManager=windrow-vm-stop-halt
        {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"x","annotations":{"windrow.io/last-write":"01run/halt#1"}}}
    "#]]
    .assert_eq(&sent);
    assert!(changed(&answer));
    assert_eq!(changes(&answer), json!([{"path": "", "after": {"metadata": {"uid": "u9"}}}]));
}

#[tokio::test]
async fn an_object_that_exists_is_adopted_only_if_it_is_ours_and_alive() {
    let existing = |mark: &str, phase: &str| {
        json!({"metadata": {"name": "c", "uid": "u9", "resourceVersion": "1", "annotations": {LAST_WRITE: mark},
                            "managedFields": [{"manager": "kubectl", "time": "2026-01-01T00:00:00Z"}]},
               "status": {"phase": phase}})
    };
    let rows = [
        ("01run/halt#1", "Running", None),
        ("01run/halt#0", "Running", None),
        ("01run/halt#1", "Failed", None),
        ("01run/halt#0", "Failed", Some(codes::EXISTS_FINISHED)),
        ("01run/other#1", "Running", Some(codes::ALREADY_EXISTS)),
        ("", "Running", Some(codes::ALREADY_EXISTS)),
    ];
    for (mark, phase, refused) in rows {
        let exists = status(409, "AlreadyExists", "configmaps \"c\" already exists");
        let steps = vec![Ok((409, exists)), Ok((200, existing(mark, phase)))];
        let (answer, _) = exchange(steps, &create()).await;
        match refused {
            None => assert!(changed(&answer), "{mark} {phase}"),
            Some(code) => {
                let failure = answer.expect_err("refused");
                assert_eq!(
                    (failure.class, failure.code.as_str()),
                    (FailureClass::Permanent, code),
                    "{mark} {phase}"
                );
            }
        }
    }
    let exists = status(409, "AlreadyExists", "configmaps \"c\" already exists");
    let mut foreign = existing("", "");
    foreign["metadata"]["annotations"] = json!({});
    let (answer, _) = exchange(vec![Ok((409, exists)), Ok((200, foreign))], &create()).await;
    let message = answer.expect_err("refused").message;
    assert!(message.contains("kubectl at 2026-01-01T00:00:00Z"), "{message}");
}

#[tokio::test]
async fn an_apply_tells_creation_from_change() {
    let manifest =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}});
    let apply = |object: Option<Value>| Request {
        target: None,
        ..request(ActionKind::K8sApply, object, json!({"manifest": manifest, "force": true}))
    };
    let with = |value: &str| json!({"metadata": {"name": "c", "uid": "u", "resourceVersion": "1"}, "data": {"k": value}});
    let (answer, sent) =
        exchange(vec![Ok((404, absent("configmaps", "c"))), Ok((201, with("v")))], &apply(None)).await;
    assert!(sent.starts_with(
        "PATCH /api/v1/namespaces/default/configmaps/c?fieldManager=windrow-vm-stop-halt&force=true\n"
    ));
    assert!(changed(&answer));
    let (answer, _) = exchange(vec![Ok((200, with("v")))], &apply(Some(with("old")))).await;
    assert_eq!(changes(&answer), json!([{"path": "/data/k", "before": "old", "after": "v"}]));
    let (answer, _) = exchange(vec![Ok((200, with("v")))], &apply(Some(with("v")))).await;
    assert!(!changed(&answer));
}

#[tokio::test]
async fn a_delete_names_the_uid_and_forgives_absence() {
    let args = json!({"propagation": "foreground", "grace": 0});
    let delete = |object: Option<Value>| request(ActionKind::K8sDelete, object, args.clone());
    let (answer, sent) =
        exchange(vec![Ok((200, json!({"kind": "Status"})))], &delete(Some(web("Halted", "1")))).await;
    expect![[r#"
        DELETE /apis/kubevirt.io/v1/namespaces/default/virtualmachines/web?fieldManager=windrow-vm-stop-halt
        {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"u1"},"gracePeriodSeconds":0,"propagationPolicy":"Foreground"}
    "#]]
    .assert_eq(&sent);
    assert!(changed(&answer));

    let gone = || Ok((404, absent("virtualmachines", "web")));
    assert!(!changed(&exchange(vec![gone()], &delete(Some(web("Halted", "1")))).await.0), "gone in between");
    let (answer, sent) = exchange(vec![gone()], &delete(None)).await;
    assert!(!changed(&answer) && sent.starts_with("GET"), "never there");

    let mismatch = || Ok((409, status(409, "Conflict", "the UID in the precondition does not match")));
    let mut other = web("Halted", "9");
    other["metadata"]["uid"] = "u2".into();
    let (answer, _) = exchange(vec![mismatch(), Ok((200, other))], &delete(Some(web("Halted", "1")))).await;
    assert!(!changed(&answer), "the one that was meant is gone");
    let (answer, _) =
        exchange(vec![mismatch(), Ok((200, web("Halted", "2")))], &delete(Some(web("Halted", "1")))).await;
    assert_eq!(answer.expect_err("the same object").code, codes::CONFLICT);
}

#[tokio::test]
async fn a_delete_of_a_list_deletes_each_by_its_uid() {
    let item = |name: &str, uid: &str| json!({"metadata": {"name": name, "namespace": "n", "uid": uid}});
    let list =
        json!({"kind": "VirtualMachineList", "metadata": {}, "items": [item("a", "u1"), item("b", "u2")]});
    let mut delete = request(ActionKind::K8sDelete, None, json!({}));
    let by_label = Selector::Match { labels: Some("app=x".into()), fields: None };
    delete.target = Some(ObjectRef { select: by_label, all_namespaces: true, ..vm("") });
    let gone = Ok((404, absent("virtualmachines", "b")));
    let (answer, sent) = exchange(vec![Ok((200, list)), Ok((200, json!({}))), gone], &delete).await;
    assert!(sent.starts_with("DELETE /apis/kubevirt.io/v1/namespaces/n/virtualmachines/b?"), "{sent}");
    assert!(sent.contains(r#""uid":"u2""#), "{sent}");
    assert_eq!(answer, Ok(Answer::done(true, json!({"uids": ["u1"]}))), "the second was gone already");
}

#[tokio::test]
async fn a_restore_writes_only_where_the_run_has_written() {
    let args = json!({"changes": [{"path": "/spec/runStrategy", "before": "Always", "after": "Halted"}]});
    let restore = request(ActionKind::K8sRestore, None, args);
    let (answer, sent) =
        exchange(vec![Ok((200, web("Halted", "5"))), Ok((200, web("Always", "6")))], &restore).await;
    expect![[r#"
        PATCH /apis/kubevirt.io/v1/namespaces/default/virtualmachines/web?fieldManager=windrow-vm-stop-halt
        [{"op":"replace","path":"/spec/runStrategy","value":"Always"},{"op":"add","path":"/metadata/annotations/windrow.io~1last-write","value":"01run/halt#1"},{"op":"replace","path":"/metadata/resourceVersion","value":"5"}]
    "#]]
    .assert_eq(&sent);
    assert!(changed(&answer));

    let (answer, sent) = exchange(vec![Ok((200, web("Manual", "5")))], &restore).await;
    let failure = answer.expect_err("somebody else wrote");
    assert_eq!((failure.class, failure.code.as_str()), (FailureClass::Permanent, codes::RESTORE_CONFLICT));
    assert!(failure.message.contains("/spec/runStrategy") && sent.starts_with("GET"), "{failure:?}");

    let (answer, _) = exchange(vec![Ok((200, web("Always", "5")))], &restore).await;
    assert!(!changed(&answer), "it is back already");
}

#[tokio::test]
async fn restoring_a_creation_deletes_that_object_and_no_other() {
    let args = json!({"changes": [{"path": "", "after": {"metadata": {"uid": "u1"}}}]});
    let restore = request(ActionKind::K8sRestore, None, args);
    let (answer, sent) = exchange(vec![Ok((200, web("Halted", "5"))), Ok((200, json!({})))], &restore).await;
    assert!(changed(&answer) && sent.contains(r#""preconditions":{"uid":"u1"}"#), "{sent}");
    let (answer, _) = exchange(vec![Ok((404, absent("virtualmachines", "web")))], &restore).await;
    assert!(!changed(&answer));
}

#[tokio::test]
async fn a_dry_run_asks_the_server_and_changes_nothing() {
    let merge = json!({"merge": {"spec": {"runStrategy": "Halted"}}});
    let dry = request(ActionKind::K8sDryRun, Some(web("Always", "1")), merge);
    let (answer, sent) = exchange(vec![Ok((200, web("Halted", "1")))], &dry).await;
    assert!(sent.contains("&dryRun=All") && !sent.contains(LAST_WRITE), "{sent}");
    assert!(!changed(&answer));
    let manifest = create().args;
    let exists = status(409, "AlreadyExists", "configmaps \"c\" already exists");
    let applied = json!({"metadata": {"name": "c", "uid": "u", "resourceVersion": "1"}});
    let steps = vec![Ok((409, exists)), Ok((200, applied.clone())), Ok((200, applied))];
    let (answer, sent) = exchange(steps, &request(ActionKind::K8sDryRun, None, manifest)).await;
    assert!(!changed(&answer) && sent.starts_with("PATCH") && sent.contains("dryRun=All"), "{sent}");
    let delete = request(ActionKind::K8sDryRun, Some(web("Always", "1")), json!({"delete": true}));
    let (answer, sent) = exchange(vec![Ok((200, web("Always", "1")))], &delete).await;
    assert!(!changed(&answer) && sent.contains(r#""dryRun":["All"]"#), "it would be deleted: {sent}");
}

#[tokio::test]
async fn logs_and_raw_requests_return_what_was_answered() {
    let pod = ObjectRef { api: "v1".into(), kind: "Pod".into(), ..vm("web") };
    let logs = Request {
        target: Some(pod),
        ..request(ActionKind::K8sLogs, None, json!({"container": "c", "tail": 5}))
    };
    let (answer, sent) = exchange(vec![Ok((200, json!("line 1\nline 2\n")))], &logs).await;
    assert!(sent.starts_with("GET /api/v1/namespaces/default/pods/web/log?"), "{sent}");
    assert!(sent.contains("tailLines=5") && sent.contains("container=c"), "{sent}");
    assert_eq!(answer, Ok(Answer::done(false, "line 1\nline 2\n".into())));

    let raw = request(ActionKind::K8sRaw, None, json!({"path": "/version"}));
    let (answer, sent) = exchange(vec![Ok((200, json!({"major": "1"})))], &raw).await;
    assert_eq!(sent, "GET /version\nnull\n");
    assert_eq!(answer, Ok(Answer::done(false, json!({"status": 200, "body": {"major": "1"}}))));
    let post = request(ActionKind::K8sRaw, None, json!({"path": "/x", "method": "POST", "body": {"a": 1}}));
    let (answer, _) = exchange(vec![Ok((504, status(504, "Timeout", "late")))], &post).await;
    assert_eq!(answer.expect_err("late").class, FailureClass::Unknown);
}

#[tokio::test]
async fn events_are_those_of_this_object_the_latest_last() {
    let event = |name: &str, last: &str| json!({"metadata": {"name": name}, "lastTimestamp": last});
    let list = json!({"kind": "EventList", "metadata": {},
        "items": [event("b", "2026-01-01T00:00:02Z"), event("a", "2026-01-01T00:00:01Z")]});
    let warnings = request(ActionKind::K8sEvents, None, json!({"type": "Warning"}));
    let (answer, sent) =
        exchange(vec![Ok((200, web("Always", "1"))), Ok((200, list.clone()))], &warnings).await;
    assert!(sent.starts_with("GET /api/v1/namespaces/default/events?"), "{sent}");
    assert!(sent.contains("involvedObject.uid%3Du1%2Ctype%3DWarning"), "{sent}");
    let Ok(Answer::Done { changed: false, result, .. }) = answer else { panic!("{answer:?}") };
    let names: Vec<_> =
        result.as_array().into_iter().flatten().map(|event| &event["metadata"]["name"]).collect();
    assert_eq!(names, ["a", "b"]);

    let all = request(ActionKind::K8sEvents, None, json!({}));
    let gone = Ok((404, absent("virtualmachines", "web")));
    let (_, sent) = exchange(vec![gone, Ok((200, list))], &all).await;
    assert!(sent.contains("involvedObject.kind%3DVirtualMachine%2CinvolvedObject.name%3Dweb"), "{sent}");
}

#[tokio::test]
async fn an_eviction_is_of_the_pod_that_was_read_and_may_be_refused() {
    let pod = ObjectRef { api: "v1".into(), kind: "Pod".into(), ..vm("web") };
    let evict = |object: Value| Request {
        target: Some(pod.clone()),
        ..request(ActionKind::K8sEvict, Some(object), json!({"grace": 5}))
    };
    let (answer, sent) =
        exchange(vec![Ok((201, json!({"kind": "Status"})))], &evict(web("Always", "1"))).await;
    assert!(changed(&answer));
    expect![[r#"
        POST /api/v1/namespaces/default/pods/web/eviction?fieldManager=windrow-vm-stop-halt
        {"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"web","namespace":"default"},"deleteOptions":{"preconditions":{"uid":"u1"},"gracePeriodSeconds":5}}
    "#]]
    .assert_eq(&sent);

    let mut leaving = web("Always", "1");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (answer, sent) = exchange(vec![], &evict(leaving)).await;
    assert!(!changed(&answer) && sent == " \nnull\n", "nothing was asked: {sent}");
    let (answer, _) = exchange(vec![Ok((404, absent("pods", "web")))], &evict(web("Always", "1"))).await;
    assert!(!changed(&answer));

    let denied = "admission webhook \"virt-launcher-eviction-interceptor\" denied the request: ";
    for (text, class) in [
        ("Eviction triggered evacuation of VMI \"default/web\"", FailureClass::Retryable),
        (
            "VMI web is configured with an eviction strategy but is not live-migratable",
            FailureClass::Permanent,
        ),
    ] {
        let refused = status(429, "TooManyRequests", &format!("{denied}{text}"));
        let (answer, _) = exchange(vec![Ok((429, refused))], &evict(web("Always", "1"))).await;
        let failure = answer.expect_err("refused");
        assert_eq!((failure.class, failure.code.as_str()), (class, codes::EVICTION_BLOCKED));
    }
}

#[tokio::test]
async fn a_broken_write_is_unknown_and_a_write_that_was_never_sent_is_not() {
    let merge = json!({"merge": {"spec": {}}});
    let patch = request(ActionKind::K8sPatch, Some(web("Always", "1")), merge);
    let (answer, _) = exchange(vec![Err(std::io::ErrorKind::ConnectionReset)], &patch).await;
    assert_eq!(answer.expect_err("lost").class, FailureClass::Unknown);
    let (answer, _) = exchange(vec![Err(std::io::ErrorKind::ConnectionRefused)], &patch).await;
    assert_eq!(answer.expect_err("refused").class, FailureClass::Retryable);
}

//! Lists: selectors, chunks, tables.

use serde_json::{Value, json};

use crate::conformance::fixtures::{config_map, config_maps, pod, pods, virtual_machine, virtual_machines};
use crate::conformance::server::{Server, names, text};

/// What kubectl asks for when it prints.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Three config maps `a`, `b`, `c`; returns the URL of the collection.
async fn three(server: &Server) -> String {
    let url = config_maps(&server.namespace().await);
    for (name, labels) in [
        ("c", json!({"colour": "red", "size": "s"})),
        ("a", json!({"colour": "red"})),
        ("b", json!({"colour": "blue", "size": "l"})),
    ] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = labels;
        server.post(&url, &object).await.ok(201);
    }
    url
}

pub(crate) async fn a_list_is_in_name_order_and_has_a_version(server: &Server) {
    let url = three(server).await;
    let list = server.get(&url).await.ok(200);
    assert_eq!((text(&list, "/kind"), text(&list, "/apiVersion")), ("ConfigMapList", "v1"));
    assert_eq!(names(&list), ["a", "b", "c"]);
    assert!(text(&list, "/metadata/resourceVersion").parse::<u64>().is_ok());
    assert!(list["items"][0].get("kind").is_none(), "items of core kinds do not repeat their kind");
    let everywhere = server.get("/api/v1/configmaps").await.ok(200);
    assert!(names(&everywhere).len() >= 3);
    let empty = server.get(&config_maps("no-such-namespace")).await.ok(200);
    assert_eq!(empty["items"], json!([]));
}

pub(crate) async fn items_of_custom_resources_carry_their_kind(server: &Server) {
    let ns = server.namespace().await;
    server.post(&virtual_machines(&ns), &virtual_machine("a")).await.ok(201);
    let list = server.get(&virtual_machines(&ns)).await.ok(200);
    assert_eq!(text(&list, "/kind"), "VirtualMachineList");
    let item = &list["items"][0];
    assert_eq!((text(item, "/kind"), text(item, "/apiVersion")), ("VirtualMachine", "kubevirt.io/v1"));
}

pub(crate) async fn label_selectors_select(server: &Server) {
    let url = three(server).await;
    for (selector, expected) in [
        ("colour=red", &["a", "c"][..]),
        ("colour==red,size", &["c"]),
        ("colour!=red", &["b"]),
        ("size!=s", &["a", "b"]),
        ("!size", &["a"]),
        ("colour in (red,blue),size in (l)", &["b"]),
        ("colour notin (red)", &["b"]),
        ("colour=green", &[]),
    ] {
        let encoded = selector.replace('=', "%3D").replace(' ', "%20").replace('!', "%21");
        let list = server.get(&format!("{url}?labelSelector={encoded}")).await.ok(200);
        assert_eq!(names(&list), expected, "{selector}");
    }
    let answer = server.get(&format!("{url}?labelSelector=a%3D%3D%3Db")).await;
    assert_eq!((answer.status, answer.text("/reason")), (400, "BadRequest"));
}

pub(crate) async fn field_selectors_select(server: &Server) {
    let url = three(server).await;
    let namespace = url.split('/').nth(4).unwrap();
    for (selector, expected) in [
        ("metadata.name%3Db".to_owned(), &["b"][..]),
        ("metadata.name%21%3Db".to_owned(), &["a", "c"]),
        (format!("metadata.namespace%3D{namespace}"), &["a", "b", "c"]),
        ("metadata.namespace%3Ddefault".to_owned(), &[]),
    ] {
        let list = server.get(&format!("{url}?fieldSelector={selector}")).await.ok(200);
        assert_eq!(names(&list), expected, "{selector}");
    }
    let message = "\"data.a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
    server.get(&format!("{url}?fieldSelector=data.a%3D1")).await.refused(400, "BadRequest", message);
    let answer =
        server.get(&format!("{}?fieldSelector=spec.runStrategy%3D1", virtual_machines(namespace))).await;
    answer.refused(400, "BadRequest", "field label not supported: spec.runStrategy");
}

pub(crate) async fn pods_are_selected_by_node_and_phase(server: &Server) {
    let ns = server.namespace().await;
    for (name, node) in [("a", "here"), ("b", "there"), ("c", "here")] {
        server.post(&pods(&ns), &pod(name, node)).await.ok(201);
    }
    let list = server.get(&format!("{}?fieldSelector=spec.nodeName%3Dhere", pods(&ns))).await.ok(200);
    assert_eq!(names(&list), ["a", "c"]);
    let selector = "spec.nodeName%3Dhere,status.phase%21%3DSucceeded,metadata.name%3Dc";
    let list = server.get(&format!("{}?fieldSelector={selector}", pods(&ns))).await.ok(200);
    assert_eq!(names(&list), ["c"]);
}

pub(crate) async fn a_long_list_comes_in_chunks_of_one_version(server: &Server) {
    let url = three(server).await;
    let first = server.get(&format!("{url}?limit=2")).await.ok(200);
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    server.post(&url, &config_map("d")).await.ok(201);
    let token = text(&first, "/metadata/continue");
    let rest = server.get(&format!("{url}?limit=2&continue={token}")).await.ok(200);
    assert_eq!(names(&rest), ["c"], "the list is that of the first request");
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!(text(&rest, "/metadata/continue"), "");
    assert_eq!(rest["metadata"].get("remainingItemCount"), None);

    let selected = server.get(&format!("{url}?limit=1&labelSelector=colour%3Dred")).await.ok(200);
    assert_eq!(names(&selected), ["a"]);
    assert_eq!(selected["metadata"].get("remainingItemCount"), None, "unknown under a selector");
    assert!(!text(&selected, "/metadata/continue").is_empty());
    let answer = server.get(&format!("{url}?continue=nonsense")).await;
    assert_eq!((answer.status, answer.text("/reason")), (400, "BadRequest"));
}

/// `forget` makes the server forget its history, now or within a minute or two.
pub(crate) async fn a_late_chunk_is_refused_and_the_rest_can_be_had(server: &Server, forget: impl FnOnce()) {
    let url = three(server).await;
    let first = server.get(&format!("{url}?limit=2")).await.ok(200);
    server.post(&url, &config_map("d")).await.ok(201);
    server.delete(&format!("{url}/c")).await.ok(200);
    let token = text(&first, "/metadata/continue");
    forget();
    let expired =
        server.until(&format!("{url}?limit=2&continue={token}"), |answer| answer.status != 200).await;
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                   new list without the continue parameter, or use the continue token in this response to retrieve the \
                   remainder of the results. Continuing with the provided token results in an inconsistent list - \
                   objects that were created, modified, or deleted between the time the first chunk was returned and \
                   now may show up in the list.";
    assert_eq!(
        (expired.status, expired.text("/reason"), expired.text("/message")),
        (410, "Expired", message)
    );
    let rest =
        server.get(&format!("{url}?limit=2&continue={}", expired.text("/metadata/continue"))).await.ok(200);
    assert_eq!(names(&rest), ["d"], "the rest is that of now");
}

/// The names of a table's columns.
fn columns(table: &Value) -> Vec<&str> {
    table["columnDefinitions"].as_array().unwrap().iter().map(|c| text(c, "/name")).collect()
}

pub(crate) async fn a_table_has_rows_with_metadata(server: &Server) {
    let url = three(server).await;
    let table = server.get_as(&url, TABLE).await.ok(200);
    assert_eq!((text(&table, "/kind"), text(&table, "/apiVersion")), ("Table", "meta.k8s.io/v1"));
    assert_eq!(columns(&table), ["Name", "Data", "Age"]);
    let row = &table["rows"][0];
    assert_eq!((&row["cells"][0], &row["cells"][1]), (&json!("a"), &json!(1)));
    assert_eq!(
        (text(row, "/object/kind"), text(row, "/object/metadata/name")),
        ("PartialObjectMetadata", "a")
    );
    let one = server.get_as(&format!("{url}/b"), TABLE).await.ok(200);
    assert_eq!((text(&one, "/kind"), &one["rows"][0]["cells"][0]), ("Table", &json!("b")));
    let whole = server.get_as(&format!("{url}?includeObject=Object"), TABLE).await.ok(200);
    assert_eq!(text(&whole, "/rows/0/object/kind"), "ConfigMap");
}

pub(crate) async fn pods_have_their_columns(server: &Server) {
    let ns = server.namespace().await;
    server.post(&pods(&ns), &pod("a", "nowhere")).await.ok(201);
    let table = server.get_as(&pods(&ns), TABLE).await.ok(200);
    let expected =
        ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"];
    assert_eq!(columns(&table), expected);
    let cells = &table["rows"][0]["cells"];
    assert_eq!((&cells[0], &cells[1], &cells[2]), (&json!("a"), &json!("0/1"), &json!("Pending")));
}

pub(crate) async fn custom_resources_have_the_columns_of_their_definition(server: &Server) {
    let ns = server.namespace().await;
    server.post(&virtual_machines(&ns), &virtual_machine("a")).await.ok(201);
    let table = server.get_as(&virtual_machines(&ns), TABLE).await.ok(200);
    assert_eq!(columns(&table), ["Name", "Age", "Status", "Ready"]);
}

pub(crate) async fn metadata_can_be_asked_for_alone(server: &Server) {
    let url = three(server).await;
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
    let one = server.get_as(&format!("{url}/a"), accept).await.ok(200);
    assert_eq!((text(&one, "/kind"), one.get("data")), ("PartialObjectMetadata", None));
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
    let all = server.get_as(&url, accept).await.ok(200);
    assert_eq!((text(&all, "/kind"), names(&all)), ("PartialObjectMetadataList", vec!["a", "b", "c"]));
}

//! `windrow plan` with a cluster: what holds now. It reads, and writes nothing.

use super::clusters::cluster;
use super::site::Site;

/// Whether each precondition of a step holds.
fn standing(plan: &serde_json::Value, step: usize) -> Vec<Option<bool>> {
    let conditions = plan["steps"][step]["preconditions"].as_array().unwrap();
    conditions.iter().map(|condition| condition["holds"].as_bool()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_says_which_preconditions_hold_now_and_touches_nothing() {
    let site = Site::new();
    let cluster = cluster(&site, "own", 1).await;
    let plan = async |args: &[&str]| {
        let args = [&["plan"], args, &["--kubeconfig", "own", "--output", "json"]].concat();
        site.expect(0, &args).await.json()
    };
    let writes = || cluster.audit().into_iter().filter(|entry| !entry.controller).count();
    let before = writes();

    let demo = plan(&["vm-stop", "-i", "vm=demo"]).await;
    assert!(demo["cluster"].is_string() && demo.get("unreachable").is_none(), "{demo:#}");
    assert!(standing(&demo, 0).iter().all(|holds| *holds == Some(true)), "{demo:#}");

    let nobody = plan(&["vm-restart", "-i", "vm=nobody"]).await;
    assert_eq!(standing(&nobody, 0)[0], Some(false), "{nobody:#}");
    assert_eq!(nobody["steps"][0]["preconditions"][0]["why"]["en"], "there is no VM default/nobody");

    // Steps of a workflow that is called are looked at, too.
    let forced = plan(&["vm-force-restart", "-i", "vm=nobody"]).await;
    let child = &forced["steps"][2]["child"];
    assert_eq!(standing(child, 0)[0], Some(false), "{forced:#}");

    let shown = site.expect(0, &["plan", "vm-restart", "-i", "vm=nobody", "--kubeconfig", "own"]).await;
    assert!(
        shown.out.contains("✗ needs") && shown.out.contains("there is no VM default/nobody"),
        "{shown:?}"
    );
    assert_eq!(writes(), before, "nothing was written");
    assert!(!site.path("state").exists(), "a plan opens no store");
}

#[tokio::test]
async fn what_only_earlier_steps_bring_is_not_known_yet() {
    let site = Site::new();
    let plan = site.expect(0, &["plan", "later", "--output", "json"]).await.json();
    assert_eq!(standing(&plan, 0), [Some(true), Some(false)], "{plan:#}");
    assert_eq!(standing(&plan, 1), [None, Some(true)], "{plan:#}");
    let shown = site.expect(0, &["plan", "later"]).await;
    assert!(shown.out.contains("? needs") && shown.out.contains("earlier steps"), "{shown:?}");
}

#[tokio::test]
async fn without_a_cluster_the_plan_stands_and_says_so() {
    let site = Site::new();
    site.write("away", &windrow::sim::Cluster::kubeconfig("127.0.0.1:1".parse().unwrap()));
    for kubeconfig in ["away", "missing"] {
        let args = ["plan", "vm-stop", "-i", "vm=demo", "--kubeconfig", kubeconfig];
        let said = site.expect(0, &args).await;
        assert!(said.out.contains("patch VirtualMachine default/demo"), "{said:?}");
        assert!(said.err.contains("is not known") && said.err.contains("kubeconfig"), "{said:?}");
        let said = site.expect(0, &[&args[..], &["--output", "json"]].concat()).await.json();
        assert!(said["unreachable"]["code"].is_string(), "{said:#}");
        assert!(standing(&said, 0).iter().all(Option::is_none), "{said:#}");
    }
}

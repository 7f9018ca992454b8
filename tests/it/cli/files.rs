//! Commands about files: workflows, codes, the store.

use windrow::id::RunId;

use super::site::Site;
use crate::store::support::tamper;

#[tokio::test]
async fn every_code_that_is_listed_is_explained() {
    let site = Site::new();
    let listed = site.expect(0, &["explain", "--output", "json"]).await.json();
    let listed = listed.as_array().unwrap();
    let texts: Vec<&str> = listed.iter().filter_map(|row| row["code"].as_str()).collect();
    assert!(texts.contains(&"wrong-cluster") && texts.contains(&"lost-record"), "{texts:?}");
    assert!(listed.iter().all(|row| row["en"].as_str().is_some_and(|text| text.len() > 10)), "{listed:#?}");
    let mut codes = texts.clone();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), texts.len(), "a code has one meaning");
    let said = site.expect(0, &["explain", "paused"]).await;
    assert!(said.out.starts_with("paused ") && said.out.contains("unpause"), "{said:?}");
}

#[tokio::test]
async fn workflows_are_validated_planned_and_drawn() {
    let site = Site::new();
    site.expect(0, &["validate"]).await;
    site.write("wrong.toml", "schema = 1\nname = \"wrong\"\ntitle = \"t\"\n[steps.a]\nuses = \"aproval\"\n");
    let said = site.expect(2, &["validate", "wrong.toml", "--output", "json"]).await;
    let found = said.json();
    let error = found.as_array().unwrap().iter().find(|row| row["level"] == "error").unwrap();
    assert!(error["code"].as_str().is_some_and(|code| code.starts_with("WF")), "{error:#}");
    assert_eq!((&error["file"], &error["line"]), (&"wrong.toml".into(), &5.into()), "{error:#}");
    assert!(error.to_string().contains("approval"), "what was meant: {error:#}");
    let said = site.expect(2, &["validate", "wrong.toml"]).await;
    assert!(said.err.contains("wrong.toml:5") && said.err.contains("did you mean"), "{}", said.err);

    let plan = site.expect(0, &["plan", "undone", "-i", "file=/tmp/x"]).await;
    assert!(plan.out.contains("make") && plan.out.contains("look"), "{plan:?}");
    let plan = site.expect(0, &["plan", "undone", "-i", "file=/tmp/x", "--output", "json"]).await.json();
    assert!(plan.to_string().contains("/tmp/x"), "{plan:#}");
    site.expect(2, &["plan", "undone"]).await;

    assert!(site.expect(0, &["graph", "undone"]).await.out.starts_with("flowchart"));
    assert!(site.expect(0, &["graph", "undone", "--format", "dot"]).await.out.starts_with("digraph"));
    let schema = site.expect(0, &["schema"]).await.json();
    assert!(schema["properties"]["steps"].is_object(), "{schema:#}");
    let names = site.expect(0, &["workflows", "--output", "json"]).await.json();
    let has = |name: &str| names.as_array().unwrap().iter().any(|row| row["name"] == name);
    assert!(has("good") && has("vm-stop"), "own and built-in ones: {names:#}");
    site.expect(0, &["completions", "bash"]).await;
}

#[tokio::test]
async fn a_store_can_be_checked_taken_away_and_brought_back() {
    let site = Site::new();
    site.expect(0, &["run", "good", "-i", "text=kept"]).await;
    site.expect(5, &["run", "asks"]).await;
    let (good, held) = (site.newest("good").await, site.newest("asks").await);
    site.expect(0, &["note", &held, "ticket 4711"]).await;
    let before = (site.show(&good).await, site.show(&held).await);
    site.expect(0, &["store", "check"]).await;
    site.expect(0, &["store", "export", "all.windrow"]).await;
    site.expect(0, &["store", "import", "all.windrow", "--state", "elsewhere"]).await;
    site.expect(0, &["store", "check", "--state", "elsewhere"]).await;
    for (run, before) in [(&good, before.0), (&held, before.1)] {
        let after = site.expect(0, &["show", run, "--state", "elsewhere", "--output", "json"]).await.json();
        assert_eq!(after, before);
    }
    assert!(site.show(&held).await.to_string().contains("ticket 4711"));
    site.expect(0, &["approve", &held, "--state", "elsewhere"]).await;
    assert_eq!(site.show(&held).await["state"], "Held", "the first store knows nothing of it");
}

#[tokio::test]
async fn a_lost_record_holds_its_run_and_no_other() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    site.expect(5, &["run", "asks"]).await;
    let (keep, asks) = (site.newest("keep").await, site.newest("asks").await);
    super::programs::is_running(&site).await;
    owner.signal(rustix::process::Signal::KILL);
    owner.ended().await;
    let damaged: RunId = asks.parse().unwrap();
    tamper(&site.path("state"), |tree| {
        let prefix = [&b"j"[..], &damaged.to_be_bytes()].concat();
        let (key, mut row) = tree.scan_prefix(prefix).last().unwrap().unwrap();
        row[40] ^= 1;
        tree.insert(key, row).unwrap();
    });
    site.expect(8, &["store", "check"]).await;
    site.write("go", "");
    let said = site.expect(6, &["resume"]).await;
    assert!(said.err.contains("windrow explain lost-record"), "{said:?}");
    assert_eq!(site.show(&keep).await["state"], "Succeeded", "the other run has gone on");
    let mine = site.expect(0, &["runs", "--needs-me", "--output", "json"]).await.json();
    assert_eq!((&mine[0]["run"], &mine[0]["held_reason"]), (&asks.clone().into(), &"lost-record".into()));
    site.expect(6, &["show", &asks]).await;
}

//! Commands about files: workflows, codes, the store.

use windrow::id::RunId;

use super::site::Site;
use crate::store::support::tamper;

#[tokio::test]
async fn workflows_are_validated_planned_and_drawn() {
    let site = Site::new();
    site.expect(0, &["validate"]).await;
    std::fs::create_dir(site.path("empty")).unwrap();
    let said = site.expect(2, &["validate", "empty"]).await;
    assert!(said.err.contains("there are no workflow files in empty"), "{said:?}");
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

/// Damages the last record of a run, whose store is closed.
fn damage(site: &Site, run: &str) {
    let run: RunId = run.parse().unwrap();
    tamper(&site.path("state"), |tree| {
        let prefix = [&b"j"[..], &run.to_be_bytes()].concat();
        let (key, mut row) = tree.scan_prefix(prefix).last().unwrap().unwrap();
        row[40] ^= 1;
        tree.insert(key, row).unwrap();
    });
}

#[tokio::test]
async fn a_lost_record_holds_its_run_and_no_other() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    site.expect(5, &["run", "asks"]).await;
    let terminated = site.newest("asks").await;
    site.expect(5, &["run", "asks"]).await;
    let (keep, asks) = (site.newest("keep").await, site.newest("asks").await);
    super::programs::is_running(&site).await;
    // Of the one run the end will be lost, of the other all.
    site.expect(0, &["note", &asks, "this will be lost"]).await;
    owner.signal(rustix::process::Signal::KILL);
    owner.ended().await;
    damage(&site, &asks);
    damage(&site, &terminated);
    site.expect(8, &["store", "check"]).await;
    site.write("go", "");
    let said = site.expect(6, &["resume"]).await;
    assert!(said.err.contains("lost-record: A record of the run's journal is bad"), "{said:?}");
    assert_eq!(site.show(&keep).await["state"], "Succeeded", "the other run has gone on");
    let mine = site.expect(0, &["runs", "--needs-me", "--output", "json"]).await.json();
    assert_eq!(mine[0]["run"], asks.as_str(), "{mine:#}");
    assert!(mine[0]["held_reason"].as_str().unwrap().starts_with("lost-record: "), "{mine:#}");

    let view = site.show(&asks).await;
    let reasons: Vec<_> = view["asks"].as_array().unwrap().iter().map(|ask| &ask["reason"]).collect();
    assert!(view["state"] == "Held" && reasons.contains(&&"lost_record".into()), "{view:#}");
    let said = site.expect(0, &["show", &asks]).await;
    assert!(said.out.contains(&format!("windrow decide {asks} fail")), "{said:?}");
    site.expect(6, &["note", &asks, "nothing but a decision is taken"]).await;
    site.expect(1, &["decide", &asks, "fail", "--reason", "start again"]).await;
    let view = site.show(&asks).await;
    assert_eq!(
        (&view["state"], &view["failure"]["code"]),
        (&"Failed".into(), &"lost-record".into()),
        "{view:#}"
    );

    let view = site.show(&terminated).await;
    assert_eq!((&view["state"], &view["workflow"]), (&"Held".into(), &"asks".into()), "{view:#}");
    site.expect(6, &["decide", &terminated, "fail"]).await;
    site.expect(9, &["terminate", &terminated, "--reason", "start again"]).await;
    let view = site.show(&terminated).await;
    assert_eq!(view["state"], "Cancelled", "{view:#}");
    assert!(view["held_reason"].as_str().unwrap().contains("start again"), "{view:#}");
    site.expect(0, &["show", &terminated]).await;
    site.expect(0, &["store", "check"]).await;
    for run in [&asks, &terminated] {
        assert!(site.path("state/lost").join(run).exists(), "what was cut off is kept");
    }
}

#[tokio::test]
async fn ten_thousand_steps_are_checked_to_the_last_one() {
    use std::fmt::Write as _;
    let site = Site::new();
    let mut text = "schema = 1\nname = \"large\"\ntitle = \"Large\"\ntitle_zh = \"大\"\n".to_owned();
    for i in 0..10_000 {
        write!(text, "[steps.s{i}]\nuses = \"assert\"\nthat = 'run.name != \"x{i}\"'\nmessage = \"no\"\n")
            .unwrap();
        if i > 0 {
            writeln!(text, "after = [\"s{}\"]", i - 1).unwrap();
        }
    }
    site.write("large.toml", &text);
    let said = site.expect(0, &["validate", "large.toml", "--output", "json"]).await;
    assert_eq!(said.json(), serde_json::json!([]));
    site.write("large.toml", &text.replace("run.name != \"x9999\"", "run.nme != \"x9999\""));
    let said = site.expect(2, &["validate", "large.toml", "--output", "json"]).await.json();
    let line = text.lines().position(|line| line.contains("x9999")).unwrap() + 1;
    assert_eq!(
        (said[0]["line"].as_u64(), said.as_array().map(Vec::len)),
        (Some(line as u64), Some(1)),
        "{said:#}"
    );
}

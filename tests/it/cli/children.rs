//! Workflows that call others: whose verdict it is, and who asks (E9, L6).

use std::time::Duration;

use serde_json::json;
use windrow::time::Timestamp;

use super::site::Site;
use super::site::until;

#[tokio::test]
async fn a_verdict_that_warns_is_seen_at_the_run_and_at_the_one_that_called_it() {
    let site = Site::new();
    site.expect(7, &["run", "warns"]).await;
    site.expect(7, &["run", "calls-warns"]).await;
    for (workflow, step) in [("warns", "look"), ("calls-warns", "call")] {
        let view = site.show(&site.newest(workflow).await).await;
        let verdict = &view["verdict"];
        assert_eq!(view["state"], "Succeeded", "{view:#}");
        assert_eq!(
            (&verdict["step"], &verdict["name"], &verdict["severity"]),
            (&step.into(), &"look".into(), &"warn".into()),
            "{view:#}"
        );
        assert_eq!(verdict["message"]["zh"], "这不是另一个工作流");
        assert_eq!(view["warnings"][0]["step"], step, "{view:#}");
        assert_eq!(view["warnings"].as_array().map(Vec::len), Some(1), "{view:#}");
    }
}

#[tokio::test]
async fn what_items_must_cover_is_judged_by_those_that_succeeded() {
    let site = Site::new();
    site.expect(7, &["run", "covers", "-i", "least=2"]).await;
    site.expect(1, &["run", "covers", "-i", "least=3"]).await;
    let view = site.show(&site.newest("covers").await).await;
    assert_eq!(
        (&view["state"], &view["failure"]["code"]),
        (&"Failed".into(), &"not-covered".into()),
        "{view:#}"
    );
    let row = &view["steps"][0];
    assert_eq!((&row["state"], &row["item"]), (&"Failed".into(), &serde_json::Value::Null), "{view:#}");
}

#[tokio::test]
async fn a_child_that_asks_holds_its_caller_and_may_be_answered_there() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    site.expect(5, &["run", "calls"]).await;
    let (calls, asks) = (site.newest("calls").await, site.newest("asks").await);
    let mine = site.expect(0, &["runs", "--needs-me", "--output", "json"]).await.json();
    let ids: Vec<_> = mine.as_array().unwrap().iter().filter_map(|line| line["run"].as_str()).collect();
    assert!(ids.contains(&calls.as_str()) && ids.contains(&asks.as_str()), "{mine:#}");

    let view = site.show(&calls).await;
    let reason = view["held_reason"].as_str().unwrap();
    assert!(reason.contains(&asks) && reason.contains("may it go on?"), "{view:#}");
    assert_eq!((&view["state"], &view["asks"][0]["run"]), (&"Held".into(), &asks.clone().into()), "{view:#}");
    let shown = site.expect(0, &["show", &calls]).await;
    assert!(shown.out.contains(&format!("windrow approve {asks}")), "{shown:?}");

    let said = site.expect(0, &["approve", &calls]).await;
    assert!(said.err.contains(&asks), "it is said who was answered: {said:?}");
    site.in_state(&calls, "Succeeded").await;
    site.in_state(&asks, "Succeeded").await;
    let said = site.expect(3, &["approve", &calls]).await;
    assert!(said.err.contains("ended"), "{said:?}");

    site.expect(5, &["run", "calls"]).await;
    let (calls, asks) = (site.newest("calls").await, site.newest("asks").await);
    site.expect(0, &["reject", &asks]).await;
    // The child's own undo is asked for, and finds nothing to do.
    assert_eq!(site.in_state(&calls, "RolledBack").await["failure"]["code"], "child-failed");

    site.expect(5, &["run", "calls"]).await;
    let (calls, asks) = (site.newest("calls").await, site.newest("asks").await);
    site.expect(0, &["terminate", &calls, "--reason", "enough"]).await;
    let view = site.in_state(&asks, "Cancelled").await;
    assert!(view["notes"][0]["text"].as_str().unwrap().contains(&calls), "{view:#}");
    site.write("go", "");
    assert_eq!(owner.ended().await.0, 0);
}

#[tokio::test]
async fn an_answer_to_either_of_them_takes_both_to_their_end() {
    let site = Site::new();
    for caller_is_answered in [true, false] {
        site.expect(5, &["run", "calls"]).await;
        let (calls, asks) = (site.newest("calls").await, site.newest("asks").await);
        site.expect(0, &["approve", if caller_is_answered { &calls } else { &asks }]).await;
        site.windrow(&["resume"]).await;
        assert_eq!(site.show(&calls).await["state"], "Succeeded");
        assert_eq!(site.show(&asks).await["state"], "Succeeded");
    }
}

#[tokio::test]
async fn a_child_waits_for_further_locks_as_long_as_it_says_and_has_those_of_its_caller() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let keep = site.newest("keep").await;
    let call = |further: &str, patience: &str| {
        let inputs = ["lock=own".to_owned(), format!("further={further}"), format!("patience={patience}")];
        let inputs: Vec<_> = inputs.into_iter().flat_map(|input| ["-i".to_owned(), input]).collect();
        ["run", "calls-brief"].map(str::to_owned).into_iter().chain(inputs).collect::<Vec<_>>()
    };
    let run = async |code: i32, further: &str, patience: &str| {
        let args = call(further, patience);
        site.expect(code, &args.iter().map(String::as_str).collect::<Vec<_>>()).await;
        site.show(&site.newest("calls-brief").await).await
    };
    assert_eq!(run(0, "own", "0s").await["state"], "Succeeded", "what the caller holds is there at once");

    let view = run(1, "slot", "0s").await;
    assert_eq!(view["failure"]["code"], "child-not-started", "{view:#}");
    assert!(view["failure"]["message"].as_str().unwrap().contains(&keep), "it is said who has it: {view:#}");

    let view = run(1, "slot", "1s").await;
    assert_eq!(view["failure"]["code"], "child-failed", "{view:#}");
    let brief = site.show(&site.newest("brief").await).await;
    assert_eq!(brief["failure"]["code"], "lock-timeout", "{brief:#}");
    let at = |key: &str| brief[key].as_str().unwrap().parse::<Timestamp>().unwrap();
    assert!(at("finished_at").since(at("created_at")) >= Duration::from_secs(1), "{brief:#}");
    let rows = site.expect(0, &["locks", "--output", "json"]).await.json();
    assert_eq!(rows, json!([{ "key": "slot", "holder": keep, "queue": [] }]), "nobody is left in the queue");

    let args = call("slot", "1h");
    let mut patient = site.command(&args.iter().map(String::as_str).collect::<Vec<_>>()).spawn().unwrap();
    until("the child queues", async || {
        let rows = site.expect(0, &["locks", "--output", "json"]).await.json();
        let slot = rows.as_array()?.iter().find(|row| row["key"] == "slot")?;
        (slot["queue"].as_array()?.len() == 1).then_some(())
    })
    .await;
    let calls = site.newest("calls-brief").await;
    site.write("go", "");
    assert_eq!(owner.ended().await.0, 0);
    assert_eq!(patient.wait().await.unwrap().code(), Some(0));
    assert_eq!(site.show(&calls).await["state"], "Succeeded");
}

#[tokio::test]
async fn two_runs_whose_children_would_wait_for_each_other_are_told_so() {
    let site = Site::new();
    let args = |own: &str, further: &str| {
        let file = format!("file={}", site.text(own));
        ["run", "calls-brief", "-i", &format!("lock={own}"), "-i", &format!("further={further}"), "-i", &file]
            .map(str::to_owned)
    };
    let first = args("left", "right");
    let owner = site.stay(&first.each_ref().map(String::as_str)).await;
    let left = site.newest("calls-brief").await;
    let second = args("right", "left");
    let mut other = site.command(&second.each_ref().map(String::as_str)).spawn().unwrap();
    let right = until("the second run", async || {
        let newest = site.newest("calls-brief").await;
        (newest != left).then_some(newest)
    })
    .await;
    site.in_state(&right, "Running").await;
    site.write("left", "");
    let queued = site.newest("brief").await;
    site.in_state(&queued, "Queued").await;
    site.write("right", "");
    // The one that would close the circle fails, and with that frees the other.
    assert_eq!(other.wait().await.unwrap().code(), Some(1));
    let view = site.show(&right).await;
    let message = view["failure"]["message"].as_str().unwrap();
    assert_eq!(view["failure"]["code"], "child-not-started", "{view:#}");
    assert!(message.contains(&left) && message.contains(&right), "both are named: {message}");
    assert_eq!(owner.ended().await.0, 0);
    assert_eq!(site.show(&left).await["state"], "Succeeded");
}

//! Workflows that call others: whose verdict it is, and who asks (E9, L6).

use super::site::Site;

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

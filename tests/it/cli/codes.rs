//! Exit codes, and what `show` tells after each of them.

use super::clusters::cluster;
use super::site::Site;
use super::site::said;
use super::site::until;

#[tokio::test]
async fn every_end_of_a_run_has_its_exit_code() {
    let site = Site::new();
    let file = format!("file={}", site.text("made"));
    site.write("made.allowed", "");
    let rows: &[(i32, &str, &[&str])] = &[
        (0, "Succeeded", &["run", "good", "-i", "text=hello"]),
        (1, "Failed", &["run", "bad"]),
        (4, "RolledBack", &["run", "undone", "-i", &file]),
        (5, "Held", &["run", "asks"]),
        (7, "Succeeded", &["run", "left"]),
    ];
    for (code, state, args) in rows {
        site.expect(*code, args).await;
        let run = site.newest(args[1]).await;
        let view = site.show(&run).await;
        assert_eq!(view["state"], *state, "{args:?}: {view:#}");
    }
    assert!(!site.path("made").exists(), "undone");

    let held = site.newest("asks").await;
    let mine = site.expect(0, &["runs", "--needs-me", "--output", "json"]).await.json();
    assert_eq!((mine.as_array().map(Vec::len), mine[0]["run"].as_str()), (Some(1), Some(held.as_str())));
    site.expect(9, &["cancel", &held, "--reason", "not today"]).await;
    site.expect(3, &["cancel", &held]).await;

    let debts = site.expect(0, &["debts"]).await;
    assert!(debts.out.contains("the cellar is to be swept"), "{debts:?}");
    let left = site.newest("left").await;
    site.expect(0, &["debts", "close", &format!("{left}/1"), "--reason", "swept"]).await;
    assert_eq!(site.expect(0, &["debts", "--output", "json"]).await.json(), serde_json::json!([]));
}

#[tokio::test]
async fn what_is_asked_in_vain_has_an_exit_code_too() {
    let site = Site::new();
    let nothing = site.expect(6, &["runs"]).await;
    assert!(nothing.err.contains("is --state right?") && !site.path("state").exists(), "{nothing:?}");
    site.expect(0, &["run", "good"]).await;
    for args in [
        &["run", "goood"] as &[&str],
        &["show", "nothing-like-it"],
        &["show", "x"],
        &["explain", "no-such-code"],
        &["decide", "0000", "perhaps"],
        &["frobnicate"],
        &["terminate", "0000"],
    ] {
        let said = site.expect(2, args).await;
        assert!(said.out.is_empty() && !said.err.is_empty(), "{said:?}");
    }
    let said = site.expect(2, &["run", "goood"]).await;
    assert!(said.err.contains("good"), "the name that was meant: {said:?}");

    site.expect(0, &["pause", "--all"]).await;
    let refused = site.expect(3, &["run", "good", "--output", "json"]).await.json();
    assert_eq!(refused["error"]["code"], "paused");
    site.expect(0, &["unpause", "--all"]).await;
    site.expect(0, &["run", "good"]).await;

    // No kubeconfig anywhere.
    let said = site.expect(6, &["run", "vm-stop", "-i", "vm=demo"]).await;
    assert!(said.err.contains("Give --kubeconfig FILE"), "{said:?}");
    // A rehearsal that is judged wrong.
    site.expect(8, &["rehearse", "misjudged"]).await;
}

#[tokio::test]
async fn all_mistakes_of_inputs_are_one_error() {
    let site = Site::new();
    let args =
        ["run", "strict", "-i", "name=a", "-i", "name=b", "-i", "nmae=c", "-i", "count=many", "-i", "x"];
    let said = site.expect(2, &args).await;
    for part in [
        "`name` is given twice",
        "`nmae`, did you mean `name`",
        "`count` must be an integer",
        "`mode` is missing",
        "`x` is not of the form",
    ] {
        assert!(said.err.contains(part), "{part} in {}", said.err);
    }
    assert_eq!(said.err.matches("error").count(), 1, "{}", said.err);
}

#[tokio::test]
async fn show_as_json_has_every_promised_field() {
    let site = Site::new();
    site.write("made.allowed", "");
    site.expect(4, &["run", "undone", "-i", &format!("file={}", site.text("made"))]).await;
    let run = site.newest("undone").await;
    let said = site.expect(0, &["show", &run[run.len() - 6..], "--events", "--output", "json"]).await;
    let view = said.json();
    let fields = "id workflow digest cluster state held_reason inputs trigger created_at finished_at verdict warnings \
                  debts failure steps events";
    for field in fields.split_whitespace() {
        assert!(view.get(field).is_some(), "{field} in {view:#}");
    }
    for field in ["class", "code", "message"] {
        assert!(view["failure"][field].is_string(), "failure.{field} in {view:#}");
    }
    let step = &view["steps"][0];
    let fields = "name item state attempts started_at finished_at changed outputs verdict failure rollback";
    for field in fields.split_whitespace() {
        assert!(step.get(field).is_some(), "steps[].{field} in {view:#}");
    }
    assert_eq!(
        (&step["name"], &step["attempts"], &step["changed"]),
        (&"make".into(), &1.into(), &true.into())
    );
    assert_eq!(step["rollback"]["state"], "Compensated", "{step:#}");
    let numbers: Vec<_> = view["events"].as_array().unwrap().iter().map(|event| &event["seq"]).collect();
    assert_eq!(
        numbers,
        (1..=numbers.len()).map(serde_json::Value::from).collect::<Vec<_>>().iter().collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_finished_run_can_be_rolled_back_and_one_that_failed_tried_again() {
    let site = Site::new();
    site.expect(0, &["run", "makes", "-i", &format!("file={}", site.text("made"))]).await;
    assert!(site.path("made").exists());
    let makes = site.newest("makes").await;
    let said = site.windrow(&["rollback", &makes]).await;
    assert!(!site.path("made").exists(), "{said:?}");
    let undo = site.newest("makes").await;
    let view = site.show(&undo).await;
    assert_eq!((said.code, &view["state"]), (4, &"RolledBack".into()), "{view:#}");
    assert_eq!(
        (&view["trigger"]["kind"], &view["trigger"]["run"]),
        (&"rollback".into(), &makes.clone().into())
    );
    assert_eq!(site.show(&makes).await["state"], "Succeeded", "what it was, it stays");

    site.expect(1, &["run", "bad"]).await;
    let bad = site.newest("bad").await;
    site.expect(1, &["retry", &bad]).await;
    let again = site.newest("bad").await;
    assert_ne!(bad, again);
    let trigger = &site.show(&again).await["trigger"];
    assert_eq!((&trigger["kind"], &trigger["run"]), (&"retry".into(), &bad.into()));
}

#[tokio::test]
async fn the_reader_s_language_is_spoken_and_nobody_gets_colour_who_cannot_see_it() {
    let site = Site::new();
    site.expect(5, &["run", "asks"]).await;
    let run = site.newest("asks").await;
    let zh = said(site.command(&["show", &run]).env("LC_ALL", "zh_CN.UTF-8")).await;
    assert!(zh.out.contains("继续前请求审批") && zh.out.contains("可以继续吗？"), "{zh:?}");
    let en = said(site.command(&["show", &run]).env("NO_COLOR", "1")).await;
    assert!(en.out.contains("Asks before it goes on") && en.out.contains("may it go on?"), "{en:?}");
    for said in [&zh, &en] {
        assert!(!said.out.contains('\u{1b}') && !said.err.contains('\u{1b}'), "{said:?}");
    }
    let zh = said(site.command(&["run", "goood"]).env("LANG", "zh_CN.UTF-8")).await;
    assert!(zh.err.contains("错误"), "{zh:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_and_what_is_waited_for_is_told_in_chinese() {
    let site = Site::new();
    let _cluster = cluster(&site, "config", 1).await;
    let chinese = |args: &[&str]| {
        let mut command = site.command(args);
        command.envs([("LANG", "zh_CN.UTF-8"), ("KUBECONFIG", "config")]);
        command
    };
    let failed = said(&mut chinese(&["run", "demands", "-i", "name=other"])).await;
    assert_eq!(failed.code, 1, "{failed:?}");
    for line in
        ["✗ look               Failed        名称是 other，不是 demo", "因为: 名称是 other，不是 demo"]
    {
        assert!(failed.err.contains(line), "{line} in {}", failed.err);
    }
    let view = site.show(&site.newest("demands").await).await;
    assert_eq!(view["failure"]["message"], "it is called other, not demo");

    let waiting = site.stay_as(&mut chinese(&["run", "demands", "-i", "name=demo"])).await;
    let run = site.newest("demands").await;
    site.in_state(&run, "Waiting").await;
    let shown = until("what it waits for", async || {
        let shown = said(&mut chinese(&["show", &run])).await;
        shown.out.contains("demo 还没有出现").then_some(shown)
    });
    let shown = shown.await;
    assert!(shown.out.contains("◷ look               Waiting       demo 还没有出现 (最迟 "), "{shown:?}");
    let cancelled = said(&mut chinese(&["cancel", &run, "--reason", "演练"])).await;
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    let (code, log) = waiting.ended().await;
    assert!(code == 9 && log.contains("(演练)；没有留下任何改动"), "{code} {log}");
}

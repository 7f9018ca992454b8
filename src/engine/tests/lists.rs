//! `for_each`: opening, parallel items, failures, half-done lists.

use expect_test::expect;

use crate::engine::Effect;
use crate::engine::ask::Choice;
use crate::engine::state::RunStatus;
use crate::engine::testing::*;

fn list(name: &str, more: &str) -> String {
    step(name, &[], &format!("for_each = '[\"x\", \"y\", \"z\"]'\n{more}"))
}

#[test]
fn items_run_as_many_at_once_as_allowed_and_the_step_ends_with_the_last() {
    let mut run = Driver::new(&(list("a", "max_parallel = 2") + &step("b", &["a"], "")));
    run.on("act a[x]", &[Reply::Silence]).on("act a[y]", &[Reply::Silence]).settle();
    let open = |run: &Driver| run.run.open_units;
    assert_eq!(open(&run), 2);
    run.on("act a[y]", &[Reply::Changed]).settle();
    expect![[r#"
        created
        opened a ["x", "y", "z"]
        attempt_started a[x] 1
        attempt_started a[y] 1
        attempt_finished a[y] changed
        succeeded a[y]
        attempt_started a[z] 1
        attempt_finished a[z] changed
        succeeded a[z]
    "#]]
    .assert_eq(&run.log());
    run.on("act a[x]", &[Reply::Changed]).go();
    assert_eq!(run.run.status(), RunStatus::Succeeded);
}

#[test]
fn an_empty_list_is_a_failure_unless_it_is_allowed() {
    let mut run = Driver::new(&list("a", ""));
    run.on("open a", &[Reply::Items(vec![])]).go();
    expect![[r#"
        created
        failed a empty-list
        rollback_started empty-list
        finished Failed, left []
    "#]]
    .assert_eq(&run.log());
    let mut run = Driver::new(&list("a", "allow_empty = true"));
    run.on("open a", &[Reply::Items(vec![])]).go();
    expect![[r#"
        created
        opened a []
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log());
}

#[test]
fn a_list_that_cannot_be_read_is_tried_again() {
    let mut run = Driver::new(&list("a", ""));
    run.on("open a", &[passing(), Reply::Items(vec!["x"])]).go();
    expect![[r#"
        created
        retry_scheduled a busy
        opened a ["x"]
        attempt_started a[x] 1
        attempt_finished a[x] changed
        succeeded a[x]
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log());
    let mut run = Driver::new(&list("a", ""));
    run.on("open a", &[lasting()]).go();
    expect![[r#"
        created
        failed a broken
        rollback_started broken
        finished Failed, left []
    "#]]
    .assert_eq(&run.log());
    let mut run = Driver::new(&list("a", ""));
    run.on("open a", &[Reply::Skip]).go();
    expect![[r#"
        created
        skipped a When
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log());
}

#[test]
fn more_failures_than_allowed_stop_further_items_and_half_done_lists_are_undone() {
    let mut run = Driver::new(&(list("a", "") + &undo("a", "")));
    run.on("act a[y]", &[lasting()]).go();
    expect![[r#"
        created
        opened a ["x", "y", "z"]
        attempt_started a[x] 1
        attempt_finished a[x] changed
        succeeded a[x]
        attempt_started a[y] 1
        attempt_finished a[y] failed
        failed a[y] broken
        rollback_started broken
        attempt_started a[y]/undo.0 1
        attempt_finished a[y]/undo.0 changed
        succeeded a[y]/undo.0
        compensated a[y]
        attempt_started a[x]/undo.0 1
        attempt_finished a[x]/undo.0 changed
        succeeded a[x]/undo.0
        compensated a[x]
        finished RolledBack, left []
    "#]]
    .assert_eq(&run.log());

    let mut run = Driver::new(&(list("a", "max_failures = 1") + &undo("a", "")));
    run.on("act a[y]", &[lasting()]).go();
    expect![[r#"
        created
        opened a ["x", "y", "z"]
        attempt_started a[x] 1
        attempt_finished a[x] changed
        succeeded a[x]
        attempt_started a[y] 1
        attempt_finished a[y] failed
        failed a[y] broken
        attempt_started a[z] 1
        attempt_finished a[z] changed
        succeeded a[z]
        warned broken
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log());

    let mut run = Driver::new(&(list("a", "max_failures = \"all\"") + &undo("a", "")));
    run.on("act a[x]", &[lasting()]).on("act a[y]", &[lasting()]).on("act a[z]", &[lasting()]).go();
    assert_eq!(run.run.status(), RunStatus::Succeeded);
}

#[test]
fn what_must_hold_over_all_items_is_looked_at_when_they_are_over() {
    let covering = |more: &str| list("a", &format!("covers = 'items.size() > 1'\n{more}")) + &undo("a", "");
    let mut run = Driver::new(&(covering("") + &step("b", &["a"], "")));
    run.on("cover a", &[Reply::Silence]).go();
    assert_eq!(run.effects(), [Effect::Cover(unit("a").block)], "b waits for it");
    run.restart().on("cover a", &[Reply::Changed]).go();
    expect![[r#"
        succeeded a[z]
        covered a yes
        attempt_started b 1
        attempt_finished b changed
        succeeded b
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log_from("succeeded a[z]"));

    let mut run = Driver::new(&covering("max_failures = \"all\""));
    run.on("act a[x]", &[lasting()]).on("cover a", &[lasting()]).go();
    expect![[r#"
        succeeded a[z]
        covered a broken
        rollback_started broken
        attempt_started a[z]/undo.0 1
        attempt_finished a[z]/undo.0 changed
        succeeded a[z]/undo.0
        compensated a[z]
        attempt_started a[y]/undo.0 1
        attempt_finished a[y]/undo.0 changed
        succeeded a[y]/undo.0
        compensated a[y]
        attempt_started a[x]/undo.0 1
        attempt_finished a[x]/undo.0 changed
        succeeded a[x]/undo.0
        compensated a[x]
        finished RolledBack, left []
    "#]]
    .assert_eq(&run.log_from("succeeded a[z]"));

    let mut run = Driver::new(&covering("on_error = \"continue\""));
    run.on("cover a", &[lasting()]).go();
    expect![[r#"
        succeeded a[z]
        covered a broken
        warned broken
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log_from("succeeded a[z]"));

    let mut run = Driver::new(&covering(""));
    run.on("act a[z]", &[lasting()]).go();
    assert!(!run.log().contains("covered"), "it has failed already");
}

#[test]
fn a_rollback_entry_with_a_list_of_its_own_runs_once_and_last() {
    let own = undo("a", "for_each = '[\"p\", \"q\"]'");
    let mut run = Driver::new(&(list("a", "") + &undo("a", "") + &own + &step("b", &["a"], "")));
    run.on("act b", &[lasting()]).on("open a/undo.1", &[Reply::Items(vec!["p", "q"])]).go();
    expect![[r#"
        rollback_started broken
        attempt_started a[z]/undo.0 1
        attempt_finished a[z]/undo.0 changed
        succeeded a[z]/undo.0
        compensated a[z]
        attempt_started a[y]/undo.0 1
        attempt_finished a[y]/undo.0 changed
        succeeded a[y]/undo.0
        compensated a[y]
        attempt_started a[x]/undo.0 1
        attempt_finished a[x]/undo.0 changed
        succeeded a[x]/undo.0
        opened a/undo.1 ["p", "q"]
        attempt_started a/undo.1[p] 1
        attempt_finished a/undo.1[p] changed
        succeeded a/undo.1[p]
        attempt_started a/undo.1[q] 1
        attempt_finished a/undo.1[q] changed
        succeeded a/undo.1[q]
        compensated a[x]
        finished RolledBack, left []
    "#]]
    .assert_eq(&run.log_from("rollback"));
    assert_eq!(run.run.status(), RunStatus::RolledBack);
}

#[test]
fn an_item_that_asks_holds_only_itself() {
    let mut run = Driver::new(&list("a", "max_parallel = 3"));
    run.on("act a[x]", &[Reply::Unknown]).on("observe a[x]", &[Reply::CannotTell]).go();
    expect![[r#"
        created
        opened a ["x", "y", "z"]
        attempt_started a[x] 1
        attempt_finished a[x] unknown
        attempt_started a[y] 1
        attempt_finished a[y] changed
        succeeded a[y]
        attempt_started a[z] 1
        attempt_finished a[z] changed
        succeeded a[z]
        ask_opened a[x] cannot_tell: retry | done | skip | rollback | fail
    "#]]
    .assert_eq(&run.log());
    assert_eq!(run.run.status(), RunStatus::Held);
    run.answer(Some("a[x]"), Choice::Skip).go();
    assert_eq!(run.run.status(), RunStatus::Succeeded);
}

#[test]
fn effects_come_in_the_order_of_the_list_and_do_not_depend_on_asking_twice() {
    let mut run = Driver::new(&list("a", "max_parallel = 2"));
    run.on("prepare a[x]", &[Reply::Silence]).on("prepare a[y]", &[Reply::Silence]).settle();
    let expected = [Effect::Prepare(unit("a[x]")), Effect::Prepare(unit("a[y]"))];
    assert_eq!(run.effects(), expected);
    assert_eq!(run.effects(), expected);
}

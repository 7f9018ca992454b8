//! The shipped workflows and the knowledge files.

use std::path::Path;

use windrow::definition::Library;
use windrow::definition::diagnostic::Look;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workflows")
}

#[test]
fn every_shipped_workflow_validates_without_errors_and_warnings() {
    let library = Library::load_only(&[folder()]);
    let found: Vec<String> = library
        .diagnostics()
        .iter()
        .map(|diagnostic| diagnostic.render(library.sources(), Look::default()))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    let names: Vec<&str> = library.workflows().map(|workflow| workflow.name.as_str()).collect();
    let shipped = [
        "capacity-check",
        "disk-spec-check",
        "image-import",
        "import-diagnose",
        "node-failure-watch",
        "node-maintenance-enter",
        "node-maintenance-exit",
        "platform-gate",
        "platform-healthcheck",
        "residue-check",
        "restore-discard",
        "restore-verify",
        "snapshot-check",
        "snapshot-delete",
        "snapshot-delete-stuck",
        "snapshot-path-fix",
        "snapshot-preflight",
        "snapshot-prune",
        "vm-backup",
        "vm-backup-restore",
        "vm-check",
        "vm-cold-migrate",
        "vm-create",
        "vm-delete",
        "vm-delete-stuck",
        "vm-force-restart",
        "vm-force-stop",
        "vm-live-migrate",
        "vm-network-check",
        "vm-placement-check",
        "vm-reattach-disks",
        "vm-restart",
        "vm-restore",
        "vm-restore-as-new",
        "vm-snapshot",
        "vm-start",
        "vm-stop",
        "volume-release",
    ];
    assert_eq!(names, shipped);
}

#[test]
fn every_text_for_people_is_there_in_chinese_too() {
    let library = Library::built_in();
    for workflow in library.workflows() {
        let name = &workflow.name;
        assert!(workflow.title.zh.is_some(), "{name}: title");
        assert!(workflow.description.as_ref().is_some_and(|text| text.zh.is_some()), "{name}: description");
        for (input, described) in &workflow.inputs {
            assert!(described.description.zh.is_some(), "{name}: input {input}");
        }
        for step in workflow.steps.iter().flat_map(|step| std::iter::once(step).chain(&step.rollback)) {
            assert!(step.title.zh.is_some(), "{name}: title of {}", step.name);
            assert!(step.preconditions.iter().all(|p| p.message_zh.is_some()), "{name}: {}", step.name);
            let verdicts = step.wait.iter().flat_map(|wait| &wait.verdicts);
            let named = verdicts.filter(|verdict| verdict.message.is_some());
            assert!(named.into_iter().all(|v| v.message_zh.is_some()), "{name}: verdicts of {}", step.name);
        }
        assert!(workflow.guards.iter().all(|guard| guard.message_zh.is_some()), "{name}: guards");
    }
}

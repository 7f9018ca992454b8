//! Every shipped workflow's own rehearsals.

use std::sync::Arc;

use serde_json::Value;
use windrow::action::secret::Secrets;
use windrow::definition::Library;
use windrow::journal::memory::MemoryStore;
use windrow::rehearsal::Stage;
use windrow::time::SharedClock;
use windrow::time::SystemClock;
use windrow::time::Timestamp;

async fn rehearse(workflow: &str, case: &str) -> (Value, windrow::rehearsal::Judgement) {
    let library = Arc::new(Library::built_in());
    let definition = library.get(workflow).unwrap().clone();
    let case = definition.rehearsals.iter().find(|c| c.name == case).unwrap();
    let clock: SharedClock =
        Arc::new(SystemClock::starting_at(Timestamp::from_millis(1_800_000_000_000), 1.0));
    let stage =
        Stage::set(case, library, Arc::new(MemoryStore::new()), Secrets::new(None), clock, 1).await.unwrap();
    let run = stage.start(workflow, case).await.unwrap();
    let mut changes = stage.handle.watch(run).unwrap();
    let mut last = Value::Null;
    while let Some(change) = changes.recv().await {
        for event in &change.events {
            eprintln!("{event}");
        }
        last = change.view;
        if last["state"] == "Held" {
            break;
        }
    }
    let judgement = stage.judge(&last, &case.expect).await;
    (last, judgement)
}

#[tokio::test(start_paused = true)]
async fn vm_stop_stops_a_vm() {
    let library = Library::built_in();
    for case in &library.get("vm-stop").unwrap().rehearsals {
        eprintln!("== {}", case.name);
        let (view, judgement) = rehearse("vm-stop", &case.name).await;
        eprintln!("{view:#}\n{judgement:#?}");
    }
}

//! What every shipped workflow must stand, whatever is in it (design.md section 8): each step fails, each undo fails and
//! is repeated, the process dies after each event and the next one finds the step done or half done.
//!
//! Nothing here knows a workflow. The scenes are the workflow's own rehearsals; the failures are refusals of the
//! cluster's API and conditions added to the pinned definition; a death is a journal that takes no more. All of it goes
//! through the runner, the journal and the API of the rehearsal cluster, on a paused clock.

mod play;
mod process;
mod spot;
mod survey;
mod world;

use windrow::engine::state::RunStatus;

pub(crate) use self::play::LIBRARY;
pub(crate) use self::play::Scene;
pub(crate) use self::play::in_parallel;
pub(crate) use self::play::workers;
use self::process::Death;
use self::spot::Sabotage;
pub(crate) use self::spot::Spot;
pub(crate) use self::survey::Act;
pub(crate) use self::survey::SURVEY;
use self::survey::distinct;
use self::survey::names;

#[test]
fn each_step_that_fails_leaves_what_the_workflow_promises() {
    let mut wrong = vec![];
    for (number, act) in &SURVEY.broken {
        let calm = &SURVEY.calm[*number];
        wrong.extend(
            broken_promises(act, calm)
                .iter()
                .map(|line| format!("{}: {line}\n{}", act.scene, act.ending.story)),
        );
    }
    let forward = SURVEY.forward();
    let unreached = SURVEY.unreached(&forward, false);
    eprintln!("{} steps of {:?} failed in {} scenes", forward.len(), names(), SURVEY.broken.len());
    assert!(wrong.is_empty(), "{} broken promises:\n{}", wrong.len(), wrong.join("\n"));
    assert!(unreached.is_empty(), "no rehearsal that ends well reaches {unreached:#?}");
}

/// What a run with a failed step does not keep. The promise follows from the plan: a step that may fail changes
/// nothing for the others; behind a commit point the run has failed and names what is left; everywhere else the
/// cluster is as before.
fn broken_promises(act: &Act, calm: &Act) -> Vec<String> {
    let (scene, ending) = (&act.scene, &act.ending);
    let mut broken = vec![];
    let spot = &scene.sabotages[0].spot;
    if !ending.log.failed.contains(spot) {
        broken.push("it did not fail".to_owned());
    }
    let is_tolerated = spot.step(&scene.plan).is_some_and(|step| step.continue_on_error);
    if ending.status == RunStatus::Succeeded && is_tolerated {
        return broken.into_iter().chain(ending.differs_from(&calm.ending)).collect();
    }
    // A failure at the very end changes no outcome and leaves a debt (E14).
    let is_final = scene.plan.workflow.finally.iter().any(|step| step.name == spot.block.step);
    if ending.status == RunStatus::Succeeded && is_final {
        broken.extend((ending.debts == 0).then(|| "it has no debt".to_owned()));
        return broken;
    }
    let is_written = !ending.writes.is_empty();
    let is_committed = is_written && scene.is_committed(&ending.log);
    let promised = match ending.status {
        RunStatus::Failed => is_committed || !is_written,
        RunStatus::RolledBack => !is_committed,
        _ => false,
    };
    if !promised {
        broken.push(format!("the run is {}", ending.status.word()));
    }
    if is_committed == ending.left.is_empty() {
        broken.push(format!("it says that it left {:?}", ending.left));
    }
    if !is_committed {
        broken.extend(ending.differences.iter().cloned());
    }
    broken
}

#[test]
fn each_undo_that_fails_holds_the_run_and_comes_to_the_same_end_when_it_is_repeated() {
    let backward = SURVEY.backward();
    let mut jobs = vec![];
    for (spot, act) in &backward {
        let ways = spot.ways(&act.scene.plan).into_iter();
        jobs.extend(ways.map(|way| (*act, Sabotage { spot: spot.clone(), way })));
    }
    let wrong = in_parallel(workers(), &jobs, |(act, sabotage)| {
        let scene = act.scene.with(sabotage.clone());
        let ending = scene.play(None);
        let differences = ending.differs_from(&act.ending);
        (!differences.is_empty()).then(|| format!("{scene}: {}\n{}", differences.join("\n"), ending.story))
    });
    let wrong: Vec<_> = wrong.into_iter().flatten().collect();
    let unreached = SURVEY.unreached(&backward, true);
    eprintln!("{} undo entries failed and were repeated in {} scenes", backward.len(), jobs.len());
    assert!(wrong.is_empty(), "{} other ends:\n{}", wrong.len(), wrong.join("\n"));
    assert!(unreached.is_empty(), "no scene runs {unreached:?}");
}

/// Where a process dies if not everywhere: around each write, and at every so manyth other append, counted from
/// `WINDROW_SEED`: sixteen seeds reach each.
const OTHERS: usize = 16;
/// At so many other appends of one scene at most: the longest have more than a thousand events.
const OTHERS_MAX: usize = 8;

/// It dies after an append: what is appended together is durable together. Early, the last event has had no effect yet:
/// what it announces is done by the next process. Late, all of its effect is there and its result is lost: the step is
/// carried out twice, as far as nothing tells that it is done. `WINDROW_DEATHS=all` leaves out nothing.
#[test]
fn whoever_follows_a_process_that_died_comes_to_the_same_end_and_writes_nothing_twice() {
    let everywhere = std::env::var("WINDROW_DEATHS").is_ok_and(|wanted| wanted == "all");
    let (forward, backward) = (SURVEY.forward(), SURVEY.backward());
    let acts = distinct(forward.values().chain(backward.values()));
    let mut jobs = vec![];
    let mut others = std::env::var("WINDROW_SEED").map_or(0, |seed| seed.parse().unwrap());
    for act in &acts {
        let every = OTHERS.max(act.ending.log.appends.len() / OTHERS_MAX);
        for (&events, acts) in &act.ending.log.appends {
            let writes = acts.as_ref().is_some_and(|spot| spot.writes(&act.scene.plan));
            others += usize::from(!writes);
            if everywhere || writes || others.is_multiple_of(every) {
                jobs.push((*act, Death { events, late: true }));
            }
            if writes || everywhere && acts.is_some() {
                jobs.push((*act, Death { events, late: false }));
            }
        }
    }
    let wrong = in_parallel(workers(), &jobs, |(act, death)| {
        let ending = act.scene.play(Some(*death));
        let mut differences = ending.differs_from(&act.ending);
        // Fewer is fine: meanwhile the platform may have done what is then found done.
        let calm = |write: &String| act.ending.writes.get(write).copied().unwrap_or_default();
        let repeated = ending.writes.iter().filter(|(write, times)| **times > calm(write));
        differences.extend(repeated.map(|(write, times)| format!("{times} times: {write}")));
        let what = || format!("{}, {death:?}: {}\n{}", act.scene, differences.join("\n"), ending.story);
        (!differences.is_empty()).then(what)
    });
    let wrong: Vec<_> = wrong.into_iter().flatten().collect();
    eprintln!("{} deaths in {} scenes", jobs.len(), acts.len());
    acts.iter().for_each(|act| eprintln!("  {}: {} events", act.scene, act.ending.log.events));
    assert!(wrong.is_empty(), "{} other ends:\n{}", wrong.len(), wrong.join("\n"));
}

//! Which scenes there are: every rehearsal that ends well, and each of them with each of its steps failing.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::LazyLock;

use windrow::definition::Workflow;
use windrow::engine::state::RunStatus;
use windrow::id::WorkflowName;
use windrow::plan;
use windrow::plan::Plan;

use super::play::Ending;
use super::play::LIBRARY;
use super::play::Scene;
use super::play::in_parallel;
use super::play::workers;
use super::spot::Sabotage;
use super::spot::Spot;

/// A scene and how it ended.
pub(crate) struct Act {
    pub(crate) scene: Scene,
    pub(crate) ending: Ending,
}

/// All scenes, played once.
pub(crate) struct Survey {
    /// Rehearsals that end well: of each workflow the first, and those in which further steps act.
    pub(crate) calm: Vec<Act>,
    /// The same with one step that fails, by the number of the calm one.
    pub(super) broken: Vec<(usize, Act)>,
    /// Rehearsals that are rolled back by themselves, as far as they run undo entries that no broken one runs.
    rolled_back: Vec<Act>,
}

/// The shipped workflows. `WINDROW_REHEARSE=vm-stop` leaves one of them.
fn concerned() -> impl Iterator<Item = &'static Arc<Workflow>> {
    let only = std::env::var("WINDROW_REHEARSE").ok();
    LIBRARY
        .workflows()
        .filter(move |workflow| only.as_deref().is_none_or(|only| only == workflow.name.as_str()))
}

/// Played by whoever needs it first.
pub(crate) static SURVEY: LazyLock<Survey> = LazyLock::new(|| {
    let workflows: Vec<_> = concerned().collect();
    let calm: Vec<_> =
        in_parallel(workers(), &workflows, |workflow| calm(workflow)).into_iter().flatten().collect();
    let mut seen = BTreeSet::new();
    let mut sabotages = vec![];
    for (number, act) in calm.iter().enumerate() {
        let attempted = act.ending.log.attempted.iter();
        for spot in attempted.filter(|spot| seen.insert((act.scene.workflow.clone(), (*spot).clone()))) {
            let ways = spot.ways(&act.scene.plan).into_iter();
            sabotages.extend(ways.map(|way| (number, Sabotage { spot: spot.clone(), way })));
        }
    }
    let broken = in_parallel(workers(), &sabotages, |(number, sabotage)| {
        (*number, Act::play(calm[*number].scene.with(sabotage.clone())))
    });
    let mut survey = Survey { calm, broken, rolled_back: vec![] };
    let missing = survey.unreached(&survey.backward(), true);
    let further = in_parallel(workers(), &workflows, |workflow| {
        let missing = missing.iter().filter(|spot| spot.workflow == workflow.name).cloned().collect();
        further(workflow, "RolledBack", missing)
    });
    survey.rolled_back = further.into_iter().flatten().collect();
    survey
});

/// The first rehearsal of a workflow, and those in which further steps act, its children's included.
fn calm(workflow: &Workflow) -> Vec<Act> {
    let plan = plan::from_library(&LIBRARY, &workflow.name).unwrap();
    let missing = every_spot(&plan).into_iter().filter(|spot| !spot.is_undo()).collect();
    further(workflow, "Succeeded", missing)
}

/// The spots of a workflow and of those that it calls.
fn every_spot(plan: &Plan) -> BTreeSet<Spot> {
    let children = plan.children.values().map(|child| &child.workflow);
    std::iter::once(&plan.workflow).chain(children).flat_map(Spot::all).collect()
}

/// Rehearsals that end so, until every one of `missing` has acted; those in which none of them does are left out.
fn further(workflow: &Workflow, state: &str, mut missing: BTreeSet<Spot>) -> Vec<Act> {
    let mut acts: Vec<Act> = vec![];
    for case in workflow.rehearsals.iter().filter(|case| case.expect.state.as_deref() == Some(state)) {
        if missing.is_empty() {
            break;
        }
        let act = Act::play(Scene::new(&workflow.name, case));
        let before = missing.len();
        missing.retain(|spot| !act.ending.log.attempted.contains(spot));
        if missing.len() < before || acts.is_empty() {
            acts.push(act);
        }
    }
    acts
}

impl Survey {
    /// For each step the first rehearsal in which it acts.
    pub(crate) fn forward(&self) -> BTreeMap<Spot, &Act> {
        let mut found = BTreeMap::new();
        for act in &self.calm {
            for spot in act.own_spots().filter(|spot| !spot.is_undo()) {
                found.entry(spot.clone()).or_insert(act);
            }
        }
        found
    }

    /// For each rollback entry a scene in which it acts, as few scenes as possible.
    pub(super) fn backward(&self) -> BTreeMap<Spot, &Act> {
        let acts = self.broken.iter().map(|(_, act)| act).chain(&self.rolled_back);
        let mut acts: Vec<_> = acts.filter(|act| act.ending.status == RunStatus::RolledBack).collect();
        acts.sort_by_key(|act| std::cmp::Reverse(act.own_spots().filter(|spot| spot.is_undo()).count()));
        let mut found = BTreeMap::new();
        for act in acts {
            for spot in act.own_spots().filter(|spot| spot.is_undo()) {
                found.entry(spot.clone()).or_insert(act);
            }
        }
        found
    }

    /// The first rehearsal of a workflow.
    pub(crate) fn good(&self, workflow: &str) -> &Scene {
        let mut scenes = self.calm.iter().map(|act| &act.scene);
        scenes.find(|scene| scene.workflow.as_str() == workflow).unwrap()
    }

    /// For each write of each workflow, its children's included, the first rehearsal in which it is made.
    pub(crate) fn writes(&self) -> Vec<(Spot, &Scene)> {
        let mut found = BTreeMap::new();
        for act in &self.calm {
            for spot in
                act.ending.log.attempted.iter().filter(|spot| !spot.is_undo() && spot.writes(&act.scene.plan))
            {
                found.entry((&act.scene.workflow, spot)).or_insert(&act.scene);
            }
        }
        found.into_iter().map(|((_, spot), scene)| (spot.clone(), scene)).collect()
    }

    /// The writes that no rehearsal makes. Those of a workflow that another one calls, perhaps only to undo something, are
    /// its own: it is shipped as well.
    pub(crate) fn unreached_writes(&self, found: &[(Spot, &Scene)]) -> Vec<String> {
        let mut missing = vec![];
        for workflow in concerned() {
            let plan = &self.good(workflow.name.as_str()).plan;
            let wanted = Spot::all(workflow).into_iter().filter(|spot| !spot.is_undo() && spot.writes(plan));
            let is_found = |spot: &Spot| found.iter().any(|(made, _)| made == spot);
            missing.extend(wanted.filter(|spot| !is_found(spot)).map(|spot| spot.to_string()));
        }
        missing
    }

    /// What no scene reaches.
    pub(super) fn unreached<T>(&self, found: &BTreeMap<Spot, T>, undo: bool) -> BTreeSet<Spot> {
        let all = concerned().flat_map(|workflow| Spot::all(workflow));
        all.filter(|spot| spot.is_undo() == undo && !found.contains_key(spot)).collect()
    }
}

impl Act {
    fn play(scene: Scene) -> Self {
        let ending = scene.play(None);
        Self { scene, ending }
    }

    fn own_spots(&self) -> impl Iterator<Item = &Spot> {
        self.ending.log.attempted.iter().filter(|spot| spot.workflow == self.scene.workflow)
    }
}

/// Different acts, each once.
pub(super) fn distinct<'a>(acts: impl Iterator<Item = &'a &'a Act>) -> Vec<&'a Act> {
    let mut names = BTreeSet::new();
    acts.copied().filter(|act| names.insert(act.scene.to_string())).collect()
}

/// The workflows, for a line that says what was covered.
pub(super) fn names() -> Vec<&'static WorkflowName> {
    concerned().map(|workflow| &workflow.name).collect()
}

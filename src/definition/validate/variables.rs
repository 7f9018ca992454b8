//! Which variables exist where (L3, L9).

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::definition::expr::Expr;
use crate::definition::expr::Use;
use crate::definition::model::Step;
use crate::definition::model::Workflow;
use crate::definition::read::Owner;
use crate::definition::read::Phase;

/// Variables of the language; reads, `let`s and captures may not have their names.
pub(super) const VARIABLES: [&str; 14] = [
    "inputs", "item", "items", "object", "before", "captured", "result", "changed", "failure", "elapsed",
    "gone", "track", "steps", "run",
];

/// What an expression may name.
pub(super) struct Available<'d> {
    pub(super) names: BTreeSet<&'d str>,
    lets: Vec<&'d BTreeMap<String, Expr>>,
}

impl<'d> Available<'d> {
    /// The names that an expression of `owner` may use when it is evaluated in `phase`.
    pub(super) fn of(workflow: &'d Workflow, owner: Owner, phase: Phase) -> Self {
        let mut available = Self { names: BTreeSet::from(["inputs", "run"]), lets: vec![&workflow.lets] };
        if phase != Phase::Start {
            available.names.insert("steps");
        }
        match owner {
            Owner::Workflow => {}
            Owner::Guard(i) => available.add_reads(workflow.guards.get(i).map(|guard| &guard.reads[..])),
            Owner::Step(i) => available.step(workflow.steps.get(i), None, phase),
            Owner::Finally(i) => {
                available.names.insert("failure");
                available.step(workflow.finally.get(i), None, phase);
            }
            Owner::Undo(i, j) => {
                available.names.extend(["failure", "before", "captured", "changed", "result"]);
                let forward = workflow.steps.get(i);
                available.step(forward.and_then(|step| step.rollback.get(j)), forward, phase);
            }
        }
        available
    }

    fn add_reads(&mut self, reads: Option<&'d [(String, crate::definition::model::Target)]>) {
        self.names.extend(reads.into_iter().flatten().map(|(name, _)| name.as_str()));
    }

    fn step(&mut self, step: Option<&'d Step>, forward: Option<&'d Step>, phase: Phase) {
        let Some(step) = step else { return };
        self.lets.push(&step.lets);
        let own_items = step.for_each.is_some();
        let has_item = own_items || forward.is_some_and(|step| step.for_each.is_some());
        let before_items = matches!(phase, Phase::When | Phase::ForEach | Phase::Covers) && own_items;
        if has_item && !before_items {
            self.names.insert("item");
        }
        match phase {
            // L3: evaluated before the targets are read; an undo looks at the live object first (L9).
            Phase::When if forward.is_none() || own_items => {}
            Phase::ForEach | Phase::ItemKey | Phase::Covers => {
                let without_item =
                    step.reads.iter().filter(|(_, target)| !target.references().contains("item"));
                self.names.extend(without_item.map(|(name, _)| name.as_str()));
                if phase == Phase::Covers {
                    self.names.insert("items");
                }
            }
            Phase::When | Phase::Target | Phase::Capture | Phase::ElseDebt | Phase::GoneWhen => {
                self.live(step);
            }
            Phase::Check | Phase::Precondition | Phase::Act | Phase::Limits => {
                self.live(step);
                self.names.extend(["captured", "before"]);
            }
            Phase::WaitTarget | Phase::Wait | Phase::Arm | Phase::Outputs => {
                self.after_the_action(step, phase);
            }
            _ => {}
        }
    }

    /// What was read before the action.
    fn live(&mut self, step: &'d Step) {
        self.names.extend(step.target.is_some().then_some("object"));
        self.add_reads(Some(&step.reads));
    }

    fn after_the_action(&mut self, step: &'d Step, phase: Phase) {
        self.names.extend(["captured", "before", "result", "changed"]);
        self.lets.extend(step.wait.as_ref().map(|wait| &wait.lets));
        if phase == Phase::Arm {
            return;
        }
        let target = step.wait.as_ref().and_then(|wait| wait.target.as_ref()).or(step.target.as_ref());
        self.names.extend(target.map(|_| "object"));
        self.add_reads(Some(step.wait.as_ref().map_or(&step.reads[..], |wait| &wait.reads)));
        if phase == Phase::Wait {
            self.names.extend(["elapsed", "gone", "track"]);
        }
    }

    /// The `let` that a name means here.
    fn named(&self, name: &str) -> Option<&'d Expr> {
        if self.names.contains(name) {
            return None;
        }
        self.lets.iter().rev().find_map(|lets| lets.get(name))
    }

    /// Every name of a `let` that may be used here.
    pub(super) fn let_names(&self) -> impl Iterator<Item = &'d str> {
        self.lets.iter().flat_map(|lets| lets.keys().map(String::as_str))
    }

    /// Every use of a variable that evaluating `expr` leads to: directly, or in a `let` that it uses.
    pub(super) fn expanded<'e>(&self, expr: &'e Expr) -> Vec<Found<'e>>
    where
        'd: 'e,
    {
        let mut found = vec![];
        for used in expr.uses() {
            match self.named(&used.name) {
                None => found.push(Found { used, outer: used, via: None }),
                Some(named) => self.inside(named, used, &used.name, &mut BTreeSet::new(), &mut found),
            }
        }
        found
    }

    fn inside<'e>(
        &self,
        expr: &'e Expr,
        outer: &'e Use,
        via: &'e str,
        seen: &mut BTreeSet<&'e str>,
        found: &mut Vec<Found<'e>>,
    ) where
        'd: 'e,
    {
        if !seen.insert(via) {
            return;
        }
        for used in expr.uses() {
            match self.named(&used.name) {
                None => found.push(Found { used, outer, via: Some(via) }),
                Some(named) => self.inside(named, outer, &used.name, seen, found),
            }
        }
    }
}

/// A use of a variable, and how the expression came to it.
pub(super) struct Found<'e> {
    pub(super) used: &'e Use,
    /// What stands in the expression itself.
    pub(super) outer: &'e Use,
    /// The `let` that holds the use, if it is not in the expression itself.
    pub(super) via: Option<&'e str>,
}

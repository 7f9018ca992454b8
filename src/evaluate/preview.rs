//! What holds before there is a run: for `windrow plan`.

use std::collections::BTreeSet;

use crate::definition::model::Precondition;
use crate::definition::model::Step;
use crate::definition::model::Target;
use crate::engine::unit::UnitId;
use crate::evaluate::Evaluator;
use crate::evaluate::ReadPlan;
use crate::evaluate::Reading;
use crate::evaluate::Readings;
use crate::evaluate::message;
use crate::evaluate::scope::NO_LETS;
use crate::evaluate::scope::Wanted;
use crate::evaluate::scope::wanted_by_exprs;
use crate::evaluate::target::wanted_by_target;
use crate::failure::Bilingual;
use crate::failure::Failure;

/// What only a run brings: a condition that needs it cannot be told before.
const OF_A_RUN: [&str; 6] = ["steps", "item", "items", "failure", "changed", "result"];

/// Whether a precondition holds now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Holds,
    /// It does not; what is wrong.
    Unmet(Bilingual),
    /// It cannot be told, and why not.
    Unknown(Bilingual),
}

impl Evaluator<'_> {
    /// What has to be read to tell which preconditions of a step hold.
    pub fn reads_to_preview(&self, unit: &UnitId) -> Result<ReadPlan, Failure> {
        let step = self.step(&unit.block)?;
        let (mut needed, mut wanted) = (BTreeSet::new(), Wanted::new());
        for condition in step.preconditions.iter().filter(|condition| self.knowable(step, condition)) {
            let names = self.names_behind(step, condition);
            needed.extend(names.iter().copied().filter(|name| target_of(step, name).is_some()));
            wanted.extend(names);
        }
        let reading =
            |name: &str| Some(Reading { target: target_of(step, name)?.clone(), name: name.to_owned() });
        let readings = needed.into_iter().filter_map(reading).collect();
        let scope = self.unit_scope(step, unit, &Readings::default(), NO_LETS, wanted)?;
        Ok(ReadPlan::new(scope, readings))
    }

    /// Which preconditions of a step hold in the world as read, in their order.
    pub fn preview(&self, unit: &UnitId, readings: &Readings) -> Result<Vec<Standing>, Failure> {
        let step = self.step(&unit.block)?;
        step.preconditions.iter().map(|condition| self.standing(step, unit, condition, readings)).collect()
    }

    fn standing(
        &self,
        step: &Step,
        unit: &UnitId,
        condition: &Precondition,
        readings: &Readings,
    ) -> Result<Standing, Failure> {
        if !self.knowable(step, condition) {
            return Ok(Standing::Unknown(Bilingual::new(
                "it needs what earlier steps bring",
                "需要之前步骤的结果",
            )));
        }
        if let Some(failure) = &readings.unreadable {
            return Ok(Standing::Unknown(failure.text()));
        }
        let messages = [&condition.message].into_iter().chain(&condition.message_zh);
        let mut wanted = self.names_behind(step, condition);
        wanted.extend(messages.flat_map(|text| text.references()));
        let mut scope = self.unit_scope(step, unit, readings, NO_LETS, wanted)?;
        let mut captured = serde_json::Map::new();
        for (name, expr) in &step.captures {
            // One that has no value is missed by the condition that names it.
            captured.extend(expr.eval(&scope).ok().map(|value| (name.clone(), value)));
        }
        scope.bind("captured", serde_json::Value::Object(captured));
        // One that has no value is unmet, as in a run (L7).
        if condition.that.eval_bool(&scope) == Ok(true) {
            return Ok(Standing::Holds);
        }
        let text = |template| message(Some(template), &scope, condition.that.source());
        let zh = condition.message_zh.as_ref().map(text);
        Ok(Standing::Unmet(Bilingual { en: text(&condition.message), zh }))
    }

    /// True if nothing that the condition needs comes from a run.
    fn knowable(&self, step: &Step, condition: &Precondition) -> bool {
        let names = self.names_behind(step, condition);
        !OF_A_RUN.iter().any(|name| names.contains(*name))
    }

    /// All names that a condition needs: those behind named expressions, captures and targets too.
    fn names_behind<'t>(&'t self, step: &'t Step, condition: &'t Precondition) -> Wanted<'t> {
        let mut names = Wanted::new();
        let mut open = wanted_by_exprs([&condition.that]);
        while let Some(name) = open.pop_first() {
            if !names.insert(name) {
                continue;
            }
            open.extend(self.expanded(step, NO_LETS, Wanted::from([name])));
            if name == "captured" {
                open.extend(wanted_by_exprs(step.captures.values()));
            }
            open.extend(target_of(step, name).into_iter().flat_map(wanted_by_target));
        }
        names
    }
}

/// The target that a name of a step stands for.
fn target_of<'s>(step: &'s Step, name: &str) -> Option<&'s Target> {
    match name {
        "object" => step.target.as_ref(),
        _ => step.reads.iter().find(|(read, _)| read == name).map(|(_, target)| target),
    }
}

//! An approval is for what was there when it was asked for: the next step looks again (E12).

use std::collections::BTreeMap;

use crate::definition::model::Step;
use crate::engine::ask::Approval;
use crate::engine::ask::AskReason;
use crate::engine::ask::Choice;
use crate::engine::unit::UnitId;
use crate::evaluate::Evaluator;
use crate::evaluate::ReadPlan;
use crate::evaluate::Readings;
use crate::evaluate::codes;
use crate::evaluate::rendered;
use crate::evaluate::request::texts;
use crate::evaluate::scope::NO_LETS;
use crate::evaluate::scope::wanted_by;
use crate::failure::Bilingual;
use crate::failure::Failure;

impl Evaluator<'_> {
    /// What the approvals right before a step have read: it is read again.
    pub(super) fn reads_of_approvals(&self, step: &Step) -> Result<BTreeMap<UnitId, ReadPlan>, Failure> {
        let plan = |(unit, _): (&UnitId, _)| {
            let (scope, readings) = self.reads(unit, self.step(&unit.block)?, None)?;
            Ok((unit.clone(), ReadPlan::new(scope, readings)))
        };
        self.approved_before(step).map(plan).collect()
    }

    /// Fails if something else is there now than was approved.
    pub(super) fn check_approvals(&self, step: &Step, readings: &Readings) -> Result<(), Failure> {
        for (unit, approval) in self.approved_before(step) {
            let seen = readings.again.get(unit).cloned().unwrap_or_default();
            let subject = self.subject(unit, &Readings { values: seen, ..Readings::default() })?;
            if self.binds(&subject) != approval.binds {
                let (was, is) = (approval.subject.join(", "), subject.join(", "));
                let text = Bilingual::new(
                    format!("the approval {unit} is void: {was} was approved, now it is {is}"),
                    format!("审批 {unit} 已失效：批准的是 {was}，现在是 {is}"),
                );
                return Err(Failure::permanent(codes::APPROVAL_VOID, text));
            }
        }
        Ok(())
    }

    /// The approvals that somebody has given and that `step` comes right after.
    fn approved_before(&self, step: &Step) -> impl Iterator<Item = (&UnitId, &Approval)> {
        self.run.answers.iter().filter_map(|answer| match (&answer.unit, &answer.reason) {
            (Some(unit), AskReason::Approval(approval))
                if answer.choice == Choice::Approve
                    && step.after.iter().any(|after| after.step == unit.block.step) =>
            {
                Some((unit, approval.as_ref()))
            }
            _ => None,
        })
    }

    /// What an approval is about, rendered with what was read for it.
    fn subject(&self, unit: &UnitId, readings: &Readings) -> Result<Vec<String>, Failure> {
        let step = self.step(&unit.block)?;
        let Some(subject) = step.action.args.get("subject") else { return Ok(vec![]) };
        let scope = self.unit_scope(step, unit, readings, NO_LETS, wanted_by([subject]))?;
        Ok(texts(&rendered(subject, &scope, "subject")?.unwrap_or_default()))
    }
}

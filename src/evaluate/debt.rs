//! Whether what a run has left is gone (E14).

use serde_json::Value;

use crate::definition::expr::Expr;
use crate::engine::event::Debt;
use crate::engine::unit::Block;
use crate::evaluate::Evaluator;
use crate::evaluate::ReadPlan;
use crate::evaluate::Readings;
use crate::evaluate::scope::NO_LETS;
use crate::evaluate::scope::wanted_by_exprs;
use crate::evaluate::truth;
use crate::failure::Failure;

impl Evaluator<'_> {
    /// What has to be read to tell whether a debt is gone; none if nothing but a person can tell.
    pub fn reads_to_settle(&self, debt: &Debt) -> Result<Option<ReadPlan>, Failure> {
        if gone_when(debt).is_none() {
            return Ok(None);
        }
        let unit = Block::forward(debt.step.clone()).unit(None);
        let (scope, readings) = self.reads(&unit, self.step(&unit.block)?, None)?;
        Ok(Some(ReadPlan::new(scope, readings)))
    }

    /// True if it is gone. What cannot be told is not gone.
    pub fn is_gone(&self, debt: &Debt, readings: &Readings) -> Result<bool, Failure> {
        let Some(gone_when) = gone_when(debt).filter(|_| readings.unreadable.is_none()) else {
            return Ok(false);
        };
        let unit = Block::forward(debt.step.clone()).unit(None);
        let step = self.step(&unit.block)?;
        let wanted = wanted_by_exprs([&gone_when]);
        let scope = self.unit_scope(step, &unit, readings, NO_LETS, wanted)?;
        truth(&gone_when, &scope, "gone_when")
    }
}

/// The condition, as it was written in the workflow.
fn gone_when(debt: &Debt) -> Option<Expr> {
    Expr::compile(debt.gone_when.as_deref().and_then(Value::as_str)?).ok()
}

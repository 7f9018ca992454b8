//! Debts end when the world says that they are gone (E14).

use std::sync::Arc;

use crate::engine::Command;
use crate::engine::RunState;
use crate::engine::event::Debt;
use crate::id::RunId;
use crate::plan::Plan;
use crate::runner::Error;
use crate::runner::Host;

/// Lines of the index that are read at once.
const PAGE: usize = 256;

impl Host {
    /// Looks at every debt that has a `gone_when`, and closes those for which it is true.
    pub(super) async fn settle_debts(&self) -> Result<(), Error> {
        let mut before = None;
        loop {
            let lines = self.shared.store.runs(before, PAGE)?;
            for line in lines.iter().filter(|line| line.debts > 0) {
                // One bad run keeps none of the others from it.
                if let Err(error) = self.settle_debts_of(line.run).await {
                    tracing::warn!(run = %line.run, %error, "its debts cannot be looked at");
                }
            }
            match lines.last().filter(|_| lines.len() == PAGE) {
                Some(last) => before = Some(last.run),
                None => return Ok(()),
            }
        }
    }

    async fn settle_debts_of(&self, run: RunId) -> Result<(), Error> {
        let (plan, state) = self.load(run)?;
        let looks = state.debts.iter().any(|debt| debt.gone_when.is_some());
        let elsewhere = match &state.created.cluster {
            Some(cluster) if looks => self.cluster_uid().await? != *cluster,
            _ => false,
        };
        if !looks || elsewhere {
            return Ok(());
        }
        for debt in &state.debts {
            if self.is_gone(&plan, &state, debt).await? {
                let reason = "its `gone_when` is true".to_owned();
                self.command(run, Command::CloseDebt { id: debt.id, by: None, reason }).await?;
            }
        }
        Ok(())
    }

    async fn is_gone(&self, plan: &Arc<Plan>, state: &RunState, debt: &Debt) -> Result<bool, Error> {
        let reads = self.evaluate(plan, state, |evaluator| evaluator.reads_to_settle(debt));
        let Some(reads) = reads.map_err(Error::Refused)? else { return Ok(false) };
        let readings = self.shared.observer(reads).read().await;
        self.evaluate(plan, state, |evaluator| evaluator.is_gone(debt, &readings)).map_err(Error::Refused)
    }
}

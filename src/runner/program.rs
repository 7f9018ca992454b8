//! Programs: started behind a gate that opens when their mark is durable, and found again after a crash.

use std::time::Duration;

use crate::action::process::Mark;
use crate::action::request::Origin;
use crate::action::request::Request;
use crate::engine::Command;
use crate::engine::Effect;
use crate::engine::command::Finding;
use crate::engine::event::ProcessMark;
use crate::engine::unit::UnitId;
use crate::runner::effects::acted;
use crate::runner::effects::end_of;
use crate::runner::effects::failed;
use crate::runner::run_task::RunTask;
use crate::runner::tasks::Task;

/// How long a program that an earlier process has started may still run.
const ADOPTED_MAX: Duration = Duration::from_hours(1);

impl RunTask {
    /// Starts the gate, makes the mark durable, opens the gate, waits for the end.
    pub(super) fn start_process(
        &mut self,
        effect: &Effect,
        unit: &UnitId,
        origin: Origin,
        request: Request,
        limit: Duration,
    ) -> Task {
        let (executor, values, unit) = (self.shared.executor.clone(), self.shared.values(), unit.clone());
        self.spawn(effect, |reporter| async move {
            let attempt = origin.attempt;
            let gated = match executor.start_process(&origin, &request).await {
                Ok(gated) => gated,
                Err(failure) => return reporter.done(acted(&unit, attempt, failed(failure))),
            };
            let mark = gated.mark();
            let process = ProcessMark {
                pid: mark.pid,
                start_ticks: mark.start_ticks,
                boot_id: mark.boot_id.as_str().into(),
            };
            // A gate whose mark is not durable never opens: it ends when it is dropped.
            if reporter.request(Command::ProcessStarted { unit: unit.clone(), attempt, process }).await {
                let answer = executor.release_process(gated, limit).await;
                reporter.done(acted(&unit, attempt, end_of(answer, &values)));
            }
        })
    }

    /// Waits for a program that an earlier process has started; it is never started a second time.
    pub(super) fn observe_process(
        &mut self,
        effect: &Effect,
        unit: &UnitId,
        attempt: u32,
        process: ProcessMark,
    ) -> Task {
        let (executor, values, unit) = (self.shared.executor.clone(), self.shared.values(), unit.clone());
        let origin = self.origin(&unit, attempt);
        let mark =
            Mark { pid: process.pid, start_ticks: process.start_ticks, boot_id: process.boot_id.to_string() };
        self.spawn(effect, |reporter| async move {
            let answer = executor.adopt_process(&origin, &mark, ADOPTED_MAX).await;
            let finding = Finding::Ended(end_of(answer, &values));
            reporter.done(Command::Observed { unit, attempt, finding });
        })
    }
}

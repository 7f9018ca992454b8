//! Orders to the runner. Derived from the state: asking twice gives the same ones.

use crate::engine::unit::Block;
use crate::engine::unit::UnitId;

/// Something that the runner is to do, and to report with a command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Evaluate `when` and the list of a `for_each` block.
    Open(Block),
    /// Read the target and `read.*`; evaluate `when`, captures, `check` and preconditions; render the request.
    /// While a precondition is unmet this is repeated until `due` has passed and one confirmed reading was made after it.
    Prepare(UnitId),
    /// Carry out the prepared request.
    Act {
        /// Which unit.
        unit: UnitId,
        /// Which attempt.
        attempt: u32,
    },
    /// The run stops: cancel the child workflow that this attempt started. The attempt still ends by its own report.
    StopChild {
        /// Which unit.
        unit: UnitId,
        /// Which attempt.
        attempt: u32,
    },
    /// Look at the world: did this attempt, whose result is unknown, take effect?
    Observe {
        /// Which unit.
        unit: UnitId,
        /// Which attempt.
        attempt: u32,
    },
    /// Evaluate the durations of the wait.
    Arm(UnitId),
    /// Evaluate the wait at each change of its targets, at a slow beat, and when its deadline has come.
    Watch(UnitId),
    /// Evaluate the outputs.
    Conclude(UnitId),
    /// Watch a guard; report when it does not hold.
    Guard(u16),
    /// Evaluate the outputs of the workflow.
    Summarize,
}

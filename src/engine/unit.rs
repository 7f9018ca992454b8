//! How the parts of a run are addressed.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::StepName;

/// The key of one item of a `for_each`.
pub type ItemKey = Arc<str>;

/// A step, or one entry of the rollback list of a step's item. A block is what may have a `for_each`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Block {
    /// The step.
    pub step: StepName,
    /// Set for a rollback entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Undo>,
}

/// Which rollback entry of which item of a step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Undo {
    /// The item of the step that is undone; none if the step has no `for_each`, or the entry one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<ItemKey>,
    /// Position in the step's rollback list, from 0.
    pub entry: u16,
}

/// One execution of the lifecycle of E2: a block, or one item of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnitId {
    /// The block.
    #[serde(flatten)]
    pub block: Block,
    /// The item, if the block has a `for_each`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<ItemKey>,
}

impl Block {
    /// The block that runs a step forward.
    pub const fn forward(step: StepName) -> Self {
        Self { step, undo: None }
    }

    /// The unit of this block for one item, or the only one.
    pub const fn unit(self, item: Option<ItemKey>) -> UnitId {
        UnitId { block: self, item }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.step)?;
        match &self.undo {
            Some(Undo { item: Some(item), entry }) => write!(f, "[{item}]/undo.{entry}"),
            Some(Undo { item: None, entry }) => write!(f, "/undo.{entry}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.block)?;
        match &self.item {
            Some(item) => write!(f, "[{item}]"),
            None => Ok(()),
        }
    }
}

//! From a document to a [`Workflow`]: shape first, then values, with every mistake on the way.

mod build;
mod check;
mod knowledge;
mod manifest;
mod site;
mod step;

use std::ops::Range;

use crate::definition::Workflow;
use crate::definition::keys;
use crate::definition::node::Node;
use crate::definition::report::Report;
use crate::definition::shape::Shape;

pub(in crate::definition) use build::one_or_more;
pub(in crate::definition) use knowledge::read_knowledge;
pub(in crate::definition) use manifest::Files;
pub(in crate::definition) use manifest::inline;
pub(in crate::definition) use site::Origin;
pub(in crate::definition) use site::Owner;
pub(in crate::definition) use site::Phase;
pub(in crate::definition) use site::Site;

/// A workflow that was read but not yet validated.
#[derive(Debug)]
pub(in crate::definition) struct Draft<'n> {
    pub(in crate::definition) workflow: Workflow,
    /// The document; steps and entries of the workflow stand in the order of its tables.
    pub(in crate::definition) root: &'n Node,
    /// The table of each step.
    pub(in crate::definition) steps: Vec<&'n Node>,
    /// The table of each `finally` step.
    pub(in crate::definition) finally: Vec<&'n Node>,
    pub(in crate::definition) sites: Vec<Site>,
    /// Its file and those of its manifests.
    pub(in crate::definition) files: Range<usize>,
}

/// Reads a workflow. None if so much is wrong that there is nothing to validate.
pub(in crate::definition) fn read_workflow<'n>(
    report: &mut Report,
    root: &'n Node,
    files: Range<usize>,
) -> Option<Draft<'n>> {
    check::check(report, root, &Shape::Table(keys::WORKFLOW));
    build::Builder::new(report).workflow(root, files)
}

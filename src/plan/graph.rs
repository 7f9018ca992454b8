//! Order and reachability of a workflow's steps.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use petgraph::algo::toposort;
use petgraph::graph::DiGraph;

use crate::definition::model::Step;
use crate::id::StepName;

/// The graph of a list of steps, all questions answered beforehand.
#[derive(Debug, Clone)]
pub struct Graph {
    order: Vec<StepName>,
    ancestors: BTreeMap<StepName, BTreeSet<StepName>>,
    groups: Vec<Vec<StepName>>,
}

impl Graph {
    /// Builds the graph of `steps`.
    ///
    /// # Errors
    /// A cycle: one step on it. Validation finds and explains it before (L1).
    pub fn new(steps: &[Step]) -> Result<Self, StepName> {
        let mut graph = DiGraph::<&StepName, ()>::new();
        let nodes: BTreeMap<_, _> =
            steps.iter().map(|step| (&step.name, graph.add_node(&step.name))).collect();
        for step in steps {
            for after in step.after.iter().filter_map(|after| nodes.get(&after.step)) {
                graph.add_edge(*after, nodes[&step.name], ());
            }
        }
        let sorted = toposort(&graph, None).map_err(|cycle| graph[cycle.node_id()].clone())?;
        let mut ancestors: BTreeMap<StepName, BTreeSet<StepName>> = BTreeMap::new();
        let mut depths: BTreeMap<&StepName, usize> = BTreeMap::new();
        for node in &sorted {
            let mut above = BTreeSet::new();
            let mut depth = 0;
            for parent in graph.neighbors_directed(*node, petgraph::Direction::Incoming) {
                above.extend(ancestors[graph[parent]].iter().cloned());
                above.insert(graph[parent].clone());
                depth = depth.max(depths[graph[parent]] + 1);
            }
            depths.insert(graph[*node], depth);
            ancestors.insert(graph[*node].clone(), above);
        }
        let mut groups = vec![vec![]; depths.values().max().map_or(0, |deepest| deepest + 1)];
        for step in steps {
            groups[depths[&step.name]].push(step.name.clone());
        }
        Ok(Self { order: groups.concat(), ancestors, groups })
    }

    /// The steps, each after all those before it; steps of equal depth in the order of the file.
    pub fn order(&self) -> &[StepName] {
        &self.order
    }

    /// The steps by depth: those of one group have no path between them.
    pub fn groups(&self) -> &[Vec<StepName>] {
        &self.groups
    }

    /// True if `earlier` is before `later` on some path.
    pub fn is_before(&self, earlier: &StepName, later: &StepName) -> bool {
        self.ancestors.get(later).is_some_and(|above| above.contains(earlier))
    }

    /// Every step before `step`.
    pub fn before(&self, step: &StepName) -> impl Iterator<Item = &StepName> {
        self.ancestors.get(step).into_iter().flatten()
    }
}

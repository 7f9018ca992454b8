//! Order and reachability of a list of steps.

use std::collections::BTreeMap;

use petgraph::Direction;
use petgraph::algo::kosaraju_scc;
use petgraph::algo::toposort;
use petgraph::graph::DiGraph;
use petgraph::graph::NodeIndex;

use crate::definition::model::Step;
use crate::id::StepName;

/// Bits in a word of a [`Set`].
const WORD: usize = u64::BITS as usize;

/// A set of steps, a bit each: for all steps of the largest workflow together 12.5 MB.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Set(Vec<u64>);

impl Set {
    fn of(size: usize) -> Self {
        Self(vec![0; size.div_ceil(WORD)])
    }

    fn insert(&mut self, index: usize) {
        self.0[index / WORD] |= 1 << (index % WORD);
    }

    fn contains(&self, index: usize) -> bool {
        self.0[index / WORD] >> (index % WORD) & 1 == 1
    }

    fn extend(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }
}

/// The graph of a list of steps, all questions answered beforehand.
#[derive(Debug, Clone)]
pub struct Graph {
    /// In the order of the file.
    names: Vec<StepName>,
    indices: BTreeMap<StepName, usize>,
    /// For each step those before it.
    ancestors: Vec<Set>,
    order: Vec<StepName>,
    groups: Vec<Vec<StepName>>,
}

impl Graph {
    /// Builds the graph of `steps`. Edges from unknown steps count as absent.
    ///
    /// # Errors
    /// A cycle: one step on it. Validation finds and explains it before (L1).
    pub fn new(steps: &[Step]) -> Result<Self, StepName> {
        let graph = edges(steps);
        let sorted = toposort(&graph, None).map_err(|cycle| steps[cycle.node_id().index()].name.clone())?;
        let mut ancestors = vec![Set::of(0); steps.len()];
        let mut depths = vec![0; steps.len()];
        for node in &sorted {
            let mut above = Set::of(steps.len());
            for parent in graph.neighbors_directed(*node, Direction::Incoming) {
                above.extend(&ancestors[parent.index()]);
                above.insert(parent.index());
                depths[node.index()] = depths[node.index()].max(depths[parent.index()] + 1);
            }
            ancestors[node.index()] = above;
        }
        let mut groups = vec![vec![]; depths.iter().max().map_or(0, |deepest| deepest + 1)];
        for (step, depth) in steps.iter().zip(&depths) {
            groups[*depth].push(step.name.clone());
        }
        let (names, indices) = named(steps);
        Ok(Self { names, indices, ancestors, order: groups.concat(), groups })
    }

    /// A stand-in for steps that wait for each other: each is before every one, so that nothing is said of their order.
    pub fn without_order(steps: &[Step]) -> Self {
        let (names, indices) = named(steps);
        let ancestors = vec![Set(vec![u64::MAX; steps.len().div_ceil(WORD)]); steps.len()];
        Self { indices, ancestors, order: names.clone(), groups: vec![names.clone()], names }
    }

    /// Position of a step in the list that the graph was built from.
    pub fn index(&self, step: &StepName) -> Option<usize> {
        self.indices.get(step).copied()
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
        match (self.indices.get(earlier), self.indices.get(later)) {
            (Some(earlier), Some(later)) => self.ancestors[*later].contains(*earlier),
            _ => false,
        }
    }

    /// Every step before `step`, in the order of the file.
    pub fn before(&self, step: &StepName) -> impl Iterator<Item = &StepName> {
        let above = self.indices.get(step).map(|index| &self.ancestors[*index]);
        let names = self.names.iter().enumerate();
        names
            .filter(move |(index, _)| above.is_some_and(|above| above.contains(*index)))
            .map(|(_, name)| name)
    }
}

/// The names of steps in the order of the file, and the place of each.
fn named(steps: &[Step]) -> (Vec<StepName>, BTreeMap<StepName, usize>) {
    let names: Vec<_> = steps.iter().map(|step| step.name.clone()).collect();
    let indices = names.iter().cloned().enumerate().map(|(index, name)| (name, index)).collect();
    (names, indices)
}

fn edges(steps: &[Step]) -> DiGraph<(), ()> {
    let indices: BTreeMap<&StepName, usize> =
        steps.iter().enumerate().map(|(index, step)| (&step.name, index)).collect();
    let mut graph = DiGraph::new();
    for _ in steps {
        graph.add_node(());
    }
    for (index, step) in steps.iter().enumerate() {
        for after in step.after.iter().filter_map(|after| indices.get(&after.step)) {
            graph.add_edge(NodeIndex::new(*after), NodeIndex::new(index), ());
        }
    }
    graph
}

/// For each knot of steps that wait for each other one shortest circle through its first step, as indices in the order
/// of execution. Steps that wait for themselves alone are not among them.
pub fn cycles(steps: &[Step]) -> Vec<Vec<usize>> {
    let graph = edges(steps);
    let mut cycles: Vec<Vec<usize>> = vec![];
    for knot in kosaraju_scc(&graph).into_iter().filter(|knot| knot.len() > 1) {
        let mut inside = vec![false; steps.len()];
        for node in &knot {
            inside[node.index()] = true;
        }
        if let Some(start) = knot.iter().min() {
            cycles.push(circle(&graph, *start, &inside));
        }
    }
    cycles.sort();
    cycles
}

/// A shortest way from `start` back to itself by breadth-first search.
fn circle(graph: &DiGraph<(), ()>, start: NodeIndex, inside: &[bool]) -> Vec<usize> {
    let mut came_from: BTreeMap<NodeIndex, NodeIndex> = BTreeMap::new();
    let mut open = std::collections::VecDeque::from([start]);
    while let Some(node) = open.pop_front() {
        for next in graph.neighbors(node).filter(|next| inside[next.index()] && *next != node) {
            if next == start {
                let mut path = vec![node.index()];
                let mut at = node;
                while let Some(previous) = came_from.get(&at) {
                    path.push(previous.index());
                    at = *previous;
                }
                path.reverse();
                return path;
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = came_from.entry(next) {
                entry.insert(node);
                open.push_back(next);
            }
        }
    }
    vec![start.index()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Library;

    /// Steps `a` to …, each after the steps that its text names.
    fn steps(after: &[&str]) -> Vec<Step> {
        let tables = ('a'..).zip(after).map(|(name, after)| {
            let list: Vec<_> = after.chars().map(|name| format!("\"{name}\"")).collect();
            format!("[steps.{name}]\nuses = \"sleep\"\nduration = \"1s\"\nafter = [{}]", list.join(", "))
        });
        let text =
            format!("schema = 1\nname = \"w\"\ntitle = \"W\"\n{}", tables.collect::<Vec<_>>().join("\n"));
        let library = Library::from_texts([("w.toml", text.as_str())]);
        library.get("w").expect("no mistakes").steps.clone()
    }

    fn name(name: &str) -> StepName {
        name.parse().expect("a name")
    }

    #[test]
    fn order_groups_and_reachability_follow_the_edges() {
        let graph = Graph::new(&steps(&["", "a", "a", "bc", ""])).expect("no cycle");
        let groups: Vec<Vec<&str>> =
            graph.groups().iter().map(|g| g.iter().map(StepName::as_str).collect()).collect();
        assert_eq!(groups, [vec!["a", "e"], vec!["b", "c"], vec!["d"]]);
        assert!(graph.is_before(&name("a"), &name("d")) && !graph.is_before(&name("d"), &name("a")));
        assert!(!graph.is_before(&name("b"), &name("c")) && !graph.is_before(&name("a"), &name("a")));
        assert_eq!(graph.before(&name("d")).map(StepName::as_str).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(graph.before(&name("nowhere")).count(), 0);
    }

    #[test]
    fn a_circle_is_an_error_and_shown_in_the_order_of_execution() {
        let mut steps = steps(&["", "a", "b", "c"]);
        let back = steps[3].after[0].clone();
        steps[0].after.push(crate::definition::model::After { step: name("c"), ..back });
        assert!(Graph::new(&steps).is_err());
        assert_eq!(cycles(&steps), [vec![0, 1, 2]]);
    }
}

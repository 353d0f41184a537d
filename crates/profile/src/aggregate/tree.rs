//! Call trees of a row.

use rustc_hash::FxHashMap;

use super::paths::StepId;
use super::{Profile, Row, Weight};
use crate::resolve::Frame;

/// In which direction a call tree is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the outermost caller down to the row's symbol; of a row of a caller, from its symbol down to what it called.
    Caller,
    /// From the row's symbol up to who called it.
    Callee,
}

/// What tells the frames of a call chain apart, as the keys of perf's `-g`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChainKey {
    /// The function.
    #[default]
    Function,
    /// The address: one place in a function is another frame than the next.
    Address,
    /// The function and the line of source code.
    Srcline,
}

/// Deepest call tree: of longer stacks the outermost frames are left out, so that a tree can be walked by recursion. The
/// kernel's own limit is 127 unless somebody raised it.
const DEEPEST: usize = 1024;

/// A call tree.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Its roots, heaviest first.
    pub nodes: Vec<Node>,
}

/// One symbol in a call tree; one text, line or address of it, where those tell rows or frames apart.
#[derive(Clone, Debug)]
pub struct Node {
    /// A frame in the symbol.
    pub frame: Frame,
    /// Samples whose path ends here.
    pub own: Weight,
    /// Samples whose path goes through here or ends here.
    pub total: Weight,
    /// What comes next, heaviest first.
    pub nodes: Vec<Node>,
}

/// A node while the tree grows.
struct Growing<'p> {
    frame: &'p Frame,
    own: Weight,
    total: Weight,
    next: Vec<usize>,
}

/// Entries of a row that go the same way through its tree: the first of them, and what all weigh.
struct Same {
    first: u32,
    is_own: bool,
    weight: Weight,
}

/// Where the roots of a tree hang.
const ROOT: u32 = u32::MAX;

impl Profile {
    /// The call tree of a row of [`Profile::rows`]. A row's own samples are in it with their whole stacks. Those of a row
    /// of a caller (`children`) begin with the row's symbol where it is outermost on the stack: upwards from there to who
    /// called it ([`Order::Callee`]), or down to where the samples were taken ([`Order::Caller`]). Each sample is in the
    /// tree once.
    pub fn tree(&self, row: &Row, order: Order) -> Tree {
        let paths = self.paths();
        let mut grown: Vec<Growing<'_>> = Vec::new();
        let mut roots: Vec<usize> = Vec::new();
        // By the number of the node above, and the step from there.
        let mut index: FxHashMap<u64, u32> = FxHashMap::default();
        let mut path: Vec<(&Frame, StepId)> = Vec::new();
        for same in self.same_ways(row) {
            let Some(entry) = self.entries.get(same.first as usize) else { continue };
            path.clear();
            path.extend(self.locs_of(entry).filter_map(|loc| Some((self.frame(loc)?, paths.step(loc)))));
            let of_row = row.sym.and_then(|sym| path.iter().rposition(|(frame, _)| frame.sym == sym));
            // The row's own samples show their whole stack.
            if let (Some(start), false) = (of_row, same.is_own) {
                match order {
                    Order::Callee => drop(path.drain(..start)),
                    Order::Caller => path.truncate(start + 1),
                }
            }
            path.truncate(DEEPEST);
            if order == Order::Caller {
                path.reverse();
            }
            let mut at = ROOT;
            for (frame, step) in &path {
                let next = u32::try_from(grown.len()).unwrap_or(ROOT);
                let node = *index.entry(u64::from(at) << 32 | u64::from(*step)).or_insert(next);
                if node == next {
                    grown.push(Growing { frame, own: Weight::default(), total: Weight::default(), next: Vec::new() });
                    match grown.get_mut(at as usize) {
                        Some(parent) => parent.next.push(node as usize),
                        None => roots.push(node as usize),
                    }
                }
                if let Some(node) = grown.get_mut(node as usize) {
                    node.total.add(same.weight);
                }
                at = node;
            }
            if let Some(last) = grown.get_mut(at as usize) {
                last.own.add(same.weight);
            }
        }
        Tree { nodes: finish(&grown, &roots) }
    }

    /// The entries of a row, those of one path together, in the order of the first of each.
    fn same_ways(&self, row: &Row) -> Vec<Same> {
        let paths = self.paths();
        let mut ways: Vec<Same> = Vec::new();
        let mut index: FxHashMap<u64, u32> = FxHashMap::default();
        for number in &row.entries {
            let Some(entry) = self.entries.get(*number as usize) else { continue };
            let leaf = self.frame(entry.key.leaf);
            let is_own = leaf.is_some_and(|leaf| row.sym.is_none_or(|sym| leaf.sym == sym));
            let next = u32::try_from(ways.len()).unwrap_or(u32::MAX);
            let key = u64::from(paths.of_entry(*number)) << 1 | u64::from(is_own);
            let at = *index.entry(key).or_insert(next);
            if at == next {
                ways.push(Same { first: *number, is_own, weight: Weight::default() });
            }
            if let Some(way) = ways.get_mut(at as usize) {
                way.weight.add(entry.weight);
            }
        }
        ways
    }
}

fn finish(grown: &[Growing<'_>], level: &[usize]) -> Vec<Node> {
    let mut nodes: Vec<Node> = level
        .iter()
        .filter_map(|i| grown.get(*i))
        .map(|node| Node {
            frame: node.frame.clone(),
            own: node.own,
            total: node.total,
            nodes: finish(grown, &node.next),
        })
        .collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(node.total.period));
    nodes
}

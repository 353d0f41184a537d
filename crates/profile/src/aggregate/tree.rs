//! Call trees of a row.

use afterimage_kernel_text::TextId;
use rustc_hash::FxHashMap;

use super::{Profile, Row, SortKey, Weight};
use crate::resolve::{Frame, SymId};

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

impl Profile {
    /// The call tree of a row of [`Profile::rows`]. A row's own samples are in it with their whole stacks. Those of a row
    /// of a caller (`children`) begin with the row's symbol where it is outermost on the stack: upwards from there to who
    /// called it ([`Order::Callee`]), or down to where the samples were taken ([`Order::Caller`]). Each sample is in the
    /// tree once.
    pub fn tree(&self, row: &Row, order: Order) -> Tree {
        let mut grown: Vec<Growing<'_>> = Vec::new();
        let mut roots: Vec<usize> = Vec::new();
        let mut index: FxHashMap<(usize, Step), usize> = FxHashMap::default();
        let mut path: Vec<&Frame> = Vec::new();
        for entry in row.entries.iter().filter_map(|number| self.entries.get(*number as usize)) {
            path.clear();
            path.extend(self.frames_of(entry));
            let of_row = row.sym.and_then(|sym| path.iter().rposition(|frame| frame.sym == sym));
            let is_own = self.frame(entry.key.leaf).is_some_and(|leaf| row.sym.is_none_or(|sym| leaf.sym == sym));
            // The row's own samples show their whole stack.
            if let (Some(start), false) = (of_row, is_own) {
                match order {
                    Order::Callee => drop(path.drain(..start)),
                    Order::Caller => path.truncate(start + 1),
                }
            }
            path.truncate(DEEPEST);
            if order == Order::Caller {
                path.reverse();
            }
            let mut at = usize::MAX;
            for frame in &path {
                let next = grown.len();
                let node = *index.entry((at, self.step(frame))).or_insert(next);
                if node == next {
                    grown.push(Growing { frame, own: Weight::default(), total: Weight::default(), next: Vec::new() });
                    match grown.get_mut(at) {
                        Some(parent) => parent.next.push(node),
                        None => roots.push(node),
                    }
                }
                if let Some(node) = grown.get_mut(node) {
                    node.total.add(entry.weight);
                }
                at = node;
            }
            if let Some(last) = grown.get_mut(at) {
                last.own.add(entry.weight);
            }
        }
        Tree { nodes: finish(&grown, &roots) }
    }

    /// What tells a node from its neighbours: the symbol, and of texts, lines and addresses those that rows or frames are told
    /// apart by.
    fn step(&self, frame: &Frame) -> Step {
        let text = frame.text.filter(|_| self.sort.contains(&SortKey::Text));
        let by_line = self.sort.contains(&SortKey::Srcline) || self.chain_key == ChainKey::Srcline;
        let line = if by_line { frame.line } else { 0 };
        let addr = if self.chain_key == ChainKey::Address { frame.addr } else { 0 };
        (frame.sym, text, line, addr)
    }
}

type Step = (SymId, Option<TextId>, u32, u64);

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

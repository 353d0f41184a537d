//! Call trees of a row.

use rustc_hash::FxHashMap;

use super::paths::{Paths, StepId};
use super::trie::TrieNode;
use super::{Profile, Row, Weight};
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
pub struct Tree<'p> {
    /// Its roots, heaviest first.
    pub nodes: Vec<Node<'p>>,
}

/// One symbol in a call tree; one text, line or address of it, where those tell rows or frames apart.
#[derive(Clone, Debug)]
pub struct Node<'p> {
    /// A frame in the symbol.
    pub frame: &'p Frame,
    /// Samples whose path ends here.
    pub own: Weight,
    /// Samples whose path goes through here or ends here.
    pub total: Weight,
    /// What comes next, heaviest first.
    pub nodes: Vec<Node<'p>>,
}

/// A node while the tree grows.
struct Growing<'p> {
    frame: &'p Frame,
    own: Weight,
    total: Weight,
    next: Vec<u32>,
}

/// A tree while it grows.
#[derive(Default)]
struct Grown<'p> {
    nodes: Vec<Growing<'p>>,
    roots: Vec<u32>,
    /// By the number of the node above, and the step from there.
    index: FxHashMap<u64, u32>,
}

/// Entries of a row that go the same way through its tree: where their path ends, and what all weigh.
struct Same {
    end: TrieNode,
    is_own: bool,
    weight: Weight,
}

/// Where the roots of a tree hang; of a node that has no place in a tree.
const ROOT: u32 = u32::MAX;

/// Where in a path its tree begins.
#[derive(Clone, Copy)]
enum Start {
    /// With its first frame.
    First,
    /// With the outermost frame of this symbol; in a trie from the outermost frame on.
    FirstOf(SymId),
    /// With the same frame, in a trie from the innermost one on, where it is the last of the symbol.
    LastOf(SymId),
}

/// A node of the trie that a row's paths go through.
struct Through {
    node: TrieNode,
    /// Its parent among these; [`ROOT`] for none.
    parent: u32,
    /// Its node in the tree.
    grown: u32,
    own: Weight,
    total: Weight,
}

/// Makes the call trees of a profile's rows, one after the other.
pub struct Trees<'p> {
    profile: &'p Profile,
    paths: &'p Paths,
    /// By node of the trie: the round in which it was gone through last, and its number among those of the round.
    seen: Vec<(u32, u32)>,
    round: u32,
    through: Vec<Through>,
}

impl Profile {
    /// The call tree of one row: see [`Trees::of`].
    pub fn tree(&self, row: &Row, order: Order) -> Tree<'_> {
        self.trees().of(row, order)
    }

    /// For the call trees of many rows.
    pub fn trees(&self) -> Trees<'_> {
        Trees { profile: self, paths: self.paths(), seen: Vec::new(), round: 0, through: Vec::new() }
    }
}

impl<'p> Trees<'p> {
    /// The call tree of a row of [`Profile::rows`]. A row's own samples are in it with their whole stacks. Those of a row
    /// of a caller (`children`) begin with the row's symbol where it is outermost on the stack: upwards from there to who
    /// called it ([`Order::Callee`]), or down to where the samples were taken ([`Order::Caller`]). Each sample is in the
    /// tree once.
    pub fn of(&mut self, row: &Row, order: Order) -> Tree<'p> {
        let mut grown = Grown::default();
        let (own, others): (Vec<Same>, Vec<Same>) = self.same_ways(row).into_iter().partition(|same| same.is_own);
        let start = match (row.sym, order) {
            (None, _) => Start::First,
            (Some(sym), Order::Caller) => Start::FirstOf(sym),
            (Some(sym), Order::Callee) => Start::LastOf(sym),
        };
        for (start, ways) in [(Start::First, own), (start, others)] {
            let (short, long): (Vec<Same>, Vec<Same>) =
                ways.into_iter().partition(|same| self.paths.trie(Order::Caller).depth(same.end) <= DEEPEST);
            self.grow(&mut grown, start, order, &short);
            long.iter().for_each(|same| self.grow_long(&mut grown, start, order, same));
        }
        Tree { nodes: finish(&grown.nodes, &grown.roots) }
    }

    /// The entries of a row, those of one path together, in the order of the first of each.
    fn same_ways(&self, row: &Row) -> Vec<Same> {
        let mut ways: Vec<Same> = Vec::new();
        let mut index: FxHashMap<u64, u32> = FxHashMap::default();
        for number in &row.entries {
            let Some(entry) = self.profile.entries.get(*number as usize) else { continue };
            let leaf = self.profile.frame(entry.key.leaf);
            let is_own = leaf.is_some_and(|leaf| row.sym.is_none_or(|sym| leaf.sym == sym));
            let next = u32::try_from(ways.len()).unwrap_or(u32::MAX);
            let end = self.paths.of_entry(*number);
            let at = *index.entry(u64::from(end) << 1 | u64::from(is_own)).or_insert(next);
            if at == next {
                ways.push(Same { end, is_own, weight: Weight::default() });
            }
            if let Some(way) = ways.get_mut(at as usize) {
                way.weight.add(entry.weight);
            }
        }
        ways
    }

    /// Adds ways to a tree. What they share is gone through once.
    fn grow(&mut self, grown: &mut Grown<'p>, start: Start, order: Order, ways: &[Same]) {
        self.go_through(order, ways);
        // Parents come before their children.
        let mut by_node: Vec<u32> = (0_u32..).take(self.through.len()).collect();
        by_node.sort_unstable_by_key(|at| self.through.get(*at as usize).map(|through| through.node));
        let trie = self.paths.trie(order);
        for at in &by_node {
            let Some(Through { node, parent, .. }) = self.through.get(*at as usize) else { continue };
            let Some((_, step)) = trie.node(*node) else { continue };
            let Some(frame) = self.profile.frame(self.paths.place(step)) else { continue };
            let above = self.through.get(*parent as usize).map_or(ROOT, |parent| parent.grown);
            let starts = match start {
                Start::First => *parent == ROOT,
                Start::FirstOf(sym) => above == ROOT && frame.sym == sym,
                Start::LastOf(sym) => frame.sym == sym,
            };
            if !starts && above == ROOT {
                continue;
            }
            let here = grown.child(if starts { ROOT } else { above }, step, frame);
            if let Some(through) = self.through.get_mut(*at as usize) {
                through.grown = here;
                if starts {
                    through.parent = ROOT;
                }
            }
        }
        for at in by_node.iter().rev() {
            let Some(Through { parent, grown: here, own, total, .. }) = self.through.get(*at as usize) else {
                continue;
            };
            let (parent, total) = (*parent, *total);
            if let Some(node) = grown.nodes.get_mut(*here as usize) {
                node.own.add(*own);
                node.total.add(total);
            }
            if let Some(parent) = self.through.get_mut(parent as usize) {
                parent.total.add(total);
            }
        }
    }

    /// Lists the nodes of the trie that these ways go through, with what ends at each.
    fn go_through(&mut self, order: Order, ways: &[Same]) {
        let trie = self.paths.trie(order);
        self.seen.resize(trie.len().max(self.seen.len()), (0, 0));
        self.round += 1;
        self.through.clear();
        for way in ways {
            let (mut at, mut below) = (self.paths.end(way.end, order), ROOT);
            let mut end = ROOT;
            while let (Some((parent, _)), Some(seen)) = (trie.node(at), self.seen.get_mut(at as usize)) {
                let next = u32::try_from(self.through.len()).unwrap_or(ROOT);
                let is_new = seen.0 != self.round;
                if is_new {
                    *seen = (self.round, next);
                    let (own, total) = Default::default();
                    self.through.push(Through { node: at, parent: ROOT, grown: ROOT, own, total });
                }
                let this = seen.1;
                if let Some(below) = self.through.get_mut(below as usize) {
                    below.parent = this;
                }
                end = if end == ROOT { this } else { end };
                if !is_new {
                    break;
                }
                (at, below) = (parent, this);
            }
            if let Some(end) = self.through.get_mut(end as usize) {
                end.own.add(way.weight);
                end.total.add(way.weight);
            }
        }
    }

    /// Adds a way that is longer than a tree is deep.
    fn grow_long(&self, grown: &mut Grown<'p>, start: Start, order: Order, way: &Same) {
        let steps = self.paths.trie(Order::Caller).up_from(way.end).map(|(_, step)| step);
        let frames = steps.filter_map(|step| Some((step, self.profile.frame(self.paths.place(step))?)));
        let mut path: Vec<(StepId, &Frame)> = frames.collect();
        if let Start::FirstOf(sym) | Start::LastOf(sym) = start {
            let outermost = path.iter().rposition(|(_, frame)| frame.sym == sym);
            match (outermost, order) {
                (Some(at), Order::Callee) => drop(path.drain(..at)),
                (Some(at), Order::Caller) => path.truncate(at + 1),
                (None, _) => (),
            }
        }
        path.truncate(DEEPEST);
        if order == Order::Caller {
            path.reverse();
        }
        let mut at = ROOT;
        for (step, frame) in path {
            at = grown.child(at, step, frame);
            if let Some(node) = grown.nodes.get_mut(at as usize) {
                node.total.add(way.weight);
            }
        }
        if let Some(last) = grown.nodes.get_mut(at as usize) {
            last.own.add(way.weight);
        }
    }
}

impl<'p> Grown<'p> {
    /// The node below `at` at this step, which may be new.
    fn child(&mut self, at: u32, step: StepId, frame: &'p Frame) -> u32 {
        let next = u32::try_from(self.nodes.len()).unwrap_or(ROOT);
        let node = *self.index.entry(u64::from(at) << 32 | u64::from(step)).or_insert(next);
        if node == next {
            self.nodes.push(Growing { frame, own: Weight::default(), total: Weight::default(), next: Vec::new() });
            match self.nodes.get_mut(at as usize) {
                Some(parent) => parent.next.push(node),
                None => self.roots.push(node),
            }
        }
        node
    }
}

fn finish<'p>(grown: &[Growing<'p>], level: &[u32]) -> Vec<Node<'p>> {
    let mut nodes: Vec<Node<'p>> = level
        .iter()
        .filter_map(|at| grown.get(*at as usize))
        // What lies between two frames of a symbol, the inner of which begins no tree.
        .filter(|node| node.total.records != 0)
        .map(|node| Node { frame: node.frame, own: node.own, total: node.total, nodes: finish(grown, &node.next) })
        .collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(node.total.period));
    nodes
}

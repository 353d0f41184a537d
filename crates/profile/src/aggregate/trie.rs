//! Paths that share what they begin with.

use rustc_hash::FxHashMap;

use super::paths::StepId;

/// Number of a node; a node's parent has a smaller one.
pub(crate) type TrieNode = u32;

/// The parent of the nodes at the top.
pub(crate) const TOP: TrieNode = TrieNode::MAX;

/// All paths of a profile from one end on. A path is known by the node that it ends at.
#[derive(Debug, Default)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
    /// While it grows: by parent and step.
    index: FxHashMap<u64, TrieNode>,
    /// The path that was put in last, and its nodes: the next one most often begins like it.
    last: Vec<(StepId, TrieNode)>,
    /// Of one that was made from another: by the node there, the end of the same path here.
    ends: Vec<TrieNode>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    parent: TrieNode,
    step: StepId,
    depth: u32,
}

impl Trie {
    /// The node that a path ends at; [`TOP`] for the empty one.
    pub(crate) fn end_of(&mut self, path: &[StepId]) -> TrieNode {
        let same = self.last.iter().zip(path).take_while(|((known, _), step)| known == *step).count();
        self.last.truncate(same);
        let mut at = self.last.last().map_or(TOP, |(_, node)| *node);
        for (depth, step) in path.iter().enumerate().skip(same) {
            let next = TrieNode::try_from(self.nodes.len()).unwrap_or(TOP);
            let node = *self.index.entry(u64::from(at) << 32 | u64::from(*step)).or_insert(next);
            if node == next {
                self.nodes.push(Node { parent: at, step: *step, depth: depth as u32 + 1 });
            }
            self.last.push((*step, node));
            at = node;
        }
        at
    }

    /// Nothing is put in any more.
    pub(crate) fn is_complete(&mut self) {
        (self.index, self.last) = Default::default();
        self.nodes.shrink_to_fit();
    }

    /// The paths that end at these nodes, each from its other end on.
    pub(crate) fn reversed(&self, ends: &[TrieNode]) -> Trie {
        let mut trie = Trie { ends: vec![TOP; self.nodes.len()], ..Trie::default() };
        let mut path = Vec::new();
        for end in ends {
            if trie.of_other(*end) != TOP || *end == TOP {
                continue;
            }
            path.clear();
            path.extend(self.up_from(*end).map(|(_, step)| step));
            let node = trie.end_of(&path);
            if let Some(known) = trie.ends.get_mut(*end as usize) {
                *known = node;
            }
        }
        trie.is_complete();
        trie
    }

    /// The end of the path that ends at `node` of the trie that this one was made from.
    pub(crate) fn of_other(&self, node: TrieNode) -> TrieNode {
        self.ends.get(node as usize).copied().unwrap_or(TOP)
    }

    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The nodes from one up to the top, with their steps.
    pub(crate) fn up_from(&self, node: TrieNode) -> impl Iterator<Item = (TrieNode, StepId)> + use<'_> {
        let mut at = node;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            let this = (at, node.step);
            at = node.parent;
            Some(this)
        })
    }

    /// A node's parent and step.
    #[inline]
    pub(crate) fn node(&self, node: TrieNode) -> Option<(TrieNode, StepId)> {
        self.nodes.get(node as usize).map(|node| (node.parent, node.step))
    }

    /// How many steps the path to a node has.
    #[inline]
    pub(crate) fn depth(&self, node: TrieNode) -> usize {
        self.nodes.get(node as usize).map_or(0, |node| node.depth as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_paths_end_at_one_node() {
        let mut trie = Trie::default();
        let ends: Vec<_> = [&[1, 2][..], &[2, 1], &[], &[1, 2], &[1]].map(|path| trie.end_of(path)).into();
        assert_eq!(ends, [1, 3, TOP, 1, 0]);
        assert_eq!((trie.len(), trie.depth(1), trie.depth(TOP)), (4, 2, 0));
        trie.is_complete();
        let other = trie.reversed(&ends);
        let steps = |trie: &Trie, end| trie.up_from(end).map(|(_, step)| step).collect::<Vec<_>>();
        for end in ends {
            let mut path = steps(&other, other.of_other(end));
            path.reverse();
            assert_eq!(path, steps(&trie, end));
        }
    }
}

//! What a process has mapped: disjoint ranges by start address, as a list of few or a persistent treap of many.
//!
//! A fork copies the map in one step, and a change afterwards copies a short list or O(log n) nodes, so that neither many
//! forks nor many maps in a recording cost more than they are long. Most processes map code a few dozen times, which a list
//! holds in a third of the memory and finds in a tenth of the time. Priorities of the tree are drawn at random: no
//! recording can choose addresses that make it deep.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::ObjectId;

/// One mapped range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// First address.
    pub(crate) start: u64,
    /// First address behind it; more than `start`.
    pub(crate) end: u64,
    /// What is mapped.
    pub(crate) object: ObjectId,
    /// Added to an address, wrapping, it gives the address inside the object.
    pub(crate) delta: u64,
}

impl Mapping {
    /// Whether both say the same about an address that lies in both.
    fn agrees(&self, other: &Mapping) -> bool {
        self.object == other.object && self.delta == other.delta
    }
}

type Tree = Option<Arc<Node>>;

#[derive(Debug)]
struct Node {
    mapping: Mapping,
    priority: u64,
    left: Tree,
    right: Tree,
}

/// Priorities for new nodes.
#[derive(Debug)]
pub(crate) struct Priorities(u64);

impl Priorities {
    pub(crate) fn new() -> Priorities {
        Priorities(RandomState::new().hash_one(0) | 1)
    }

    /// xorshift64.
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The maps of a process. A clone is one step and independent of the original.
#[derive(Clone, Debug)]
pub(crate) enum Maps {
    Few(Arc<Vec<Mapping>>),
    Many(Treap),
}

/// The longest list: with more it becomes a tree.
const FEW: usize = 256;

impl Default for Maps {
    fn default() -> Maps {
        Maps::Few(Arc::default())
    }
}

impl Maps {
    /// The mapping that covers `addr`.
    pub(crate) fn find(&self, addr: u64) -> Option<&Mapping> {
        match self {
            Maps::Few(list) => {
                let behind = list.partition_point(|mapping| mapping.start <= addr);
                list.get(behind.checked_sub(1)?).filter(|mapping| addr < mapping.end)
            }
            Maps::Many(tree) => tree.find(addr),
        }
    }

    /// Whether nothing is mapped.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Maps::Few(list) if list.is_empty())
    }

    /// Maps a range over whatever was there, as mmap(2) with MAP_FIXED does: parts of older mappings beside it stay.
    /// Answers whether an address that was mapped before is now mapped to something else.
    pub(crate) fn insert(&mut self, new: Mapping, priorities: &mut Priorities) -> bool {
        match self {
            Maps::Few(list) => {
                let list = Arc::make_mut(list);
                let changed = put(list, new);
                if list.len() > FEW {
                    *self = Maps::Many(Treap::of(list, priorities));
                }
                changed
            }
            Maps::Many(tree) => tree.insert(new, priorities),
        }
    }

    /// All mappings by address.
    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<Mapping> {
        match self {
            Maps::Few(list) => list.to_vec(),
            Maps::Many(tree) => tree.all(),
        }
    }
}

/// [`Maps::insert`] in a list.
fn put(list: &mut Vec<Mapping>, new: Mapping) -> bool {
    let from = list.partition_point(|mapping| mapping.end <= new.start);
    let until = list.partition_point(|mapping| mapping.start < new.end).max(from);
    let covered = list.get(from..until).unwrap_or_default();
    let changed = covered.iter().any(|old| !old.agrees(&new));
    let before = covered.first().filter(|old| old.start < new.start).map(|old| Mapping { end: new.start, ..*old });
    let behind = covered.last().filter(|old| old.end > new.end).map(|old| Mapping { start: new.end, ..*old });
    if list.capacity() == list.len() {
        // Lists stay short: none has twice the room that it needs.
        list.reserve_exact(8);
    }
    list.splice(from..until, before.into_iter().chain([new]).chain(behind));
    changed
}

/// Many mappings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Treap {
    root: Tree,
}

impl Treap {
    /// Of mappings by address.
    fn of(list: &[Mapping], priorities: &mut Priorities) -> Treap {
        let one = |tree: Tree, mapping: &Mapping| merge(tree, leaf(*mapping, priorities.next()));
        Treap { root: list.iter().fold(None, one) }
    }

    fn find(&self, addr: u64) -> Option<&Mapping> {
        let mut tree = &self.root;
        let mut best = None;
        while let Some(node) = tree {
            if node.mapping.start <= addr {
                best = Some(&node.mapping);
                tree = &node.right;
            } else {
                tree = &node.left;
            }
        }
        best.filter(|mapping| addr < mapping.end)
    }

    fn insert(&mut self, new: Mapping, priorities: &mut Priorities) -> bool {
        let (before, rest) = split(self.root.take(), new.start);
        let (covered, after) = split(rest, new.end);
        let (before, reaching_in) = cut_last(before, new.start);
        let mut changed = false;
        // The part of a mapping that lies behind the new one.
        let mut behind = None;
        if let Some(old) = reaching_in {
            changed |= !old.agrees(&new);
            behind = (old.end > new.end).then_some(Mapping { start: new.end, ..old });
        }
        let mut covered = covered;
        while covered.is_some() {
            let (rest, last) = pop_last(covered);
            covered = rest;
            if let Some(old) = last {
                changed |= !old.agrees(&new);
                if old.end > new.end {
                    behind = Some(Mapping { start: new.end, ..old });
                }
            }
        }
        let mut tree = merge(before, leaf(new, priorities.next()));
        if let Some(mapping) = behind {
            tree = merge(tree, leaf(mapping, priorities.next()));
        }
        self.root = merge(tree, after);
        changed
    }

    /// All mappings by address.
    #[cfg(test)]
    fn all(&self) -> Vec<Mapping> {
        fn visit(tree: &Tree, out: &mut Vec<Mapping>) {
            if let Some(node) = tree {
                visit(&node.left, out);
                out.push(node.mapping);
                visit(&node.right, out);
            }
        }
        let mut out = Vec::new();
        visit(&self.root, &mut out);
        out
    }
}

fn leaf(mapping: Mapping, priority: u64) -> Tree {
    Some(Arc::new(Node { mapping, priority, left: None, right: None }))
}

fn node(of: &Node, left: Tree, right: Tree) -> Tree {
    Some(Arc::new(Node { mapping: of.mapping, priority: of.priority, left, right }))
}

/// Mappings that start below `addr`, and the others.
fn split(tree: Tree, addr: u64) -> (Tree, Tree) {
    match tree {
        None => (None, None),
        Some(this) if this.mapping.start < addr => {
            let (left, right) = split(this.right.clone(), addr);
            (node(&this, this.left.clone(), left), right)
        }
        Some(this) => {
            let (left, right) = split(this.left.clone(), addr);
            (left, node(&this, right, this.right.clone()))
        }
    }
}

/// Joins two trees; everything in `left` lies below everything in `right`.
fn merge(left: Tree, right: Tree) -> Tree {
    match (left, right) {
        (None, tree) | (tree, None) => tree,
        (Some(a), Some(b)) if a.priority > b.priority => node(&a, a.left.clone(), merge(a.right.clone(), Some(b))),
        (Some(a), Some(b)) => node(&b, merge(Some(a), b.left.clone()), b.right.clone()),
    }
}

/// Takes the last mapping out.
fn pop_last(tree: Tree) -> (Tree, Option<Mapping>) {
    match tree {
        None => (None, None),
        Some(this) if this.right.is_none() => (this.left.clone(), Some(this.mapping)),
        Some(this) => {
            let (rest, last) = pop_last(this.right.clone());
            (node(&this, this.left.clone(), rest), last)
        }
    }
}

/// Shortens the last mapping so that it ends at `end`; answers it as it was if it reached beyond.
fn cut_last(tree: Tree, end: u64) -> (Tree, Option<Mapping>) {
    let mut last = &tree;
    while let Some(Node { right: right @ Some(_), .. }) = last.as_deref() {
        last = right;
    }
    match last.as_deref() {
        Some(Node { mapping, .. }) if mapping.end > end => {
            let whole = *mapping;
            (with_last_end(tree, end), Some(whole))
        }
        _ => (tree, None),
    }
}

fn with_last_end(tree: Tree, end: u64) -> Tree {
    let this = tree?;
    if this.right.is_some() {
        return node(&this, this.left.clone(), with_last_end(this.right.clone(), end));
    }
    let mapping = Mapping { end, ..this.mapping };
    Some(Arc::new(Node { mapping, priority: this.priority, left: this.left.clone(), right: None }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mapping(start: u64, end: u64, object: u32, delta: u64) -> Mapping {
        Mapping { start, end, object: ObjectId(object), delta }
    }

    #[test]
    fn few_become_many() {
        let mut priorities = Priorities::new();
        let mut maps = Maps::default();
        let at = |nth: u64| mapping(nth * 100, nth * 100 + 50, 1, 0);
        for nth in 0..2 * FEW as u64 {
            assert_eq!(matches!(maps, Maps::Many(_)), nth > FEW as u64);
            assert!(!maps.insert(at(nth), &mut priorities));
        }
        assert_eq!(maps.all(), (0..2 * FEW as u64).map(at).collect::<Vec<_>>());
        assert_eq!((maps.find(725), maps.find(750), maps.find(799)), (Some(&at(7)), None, None));
    }

    #[test]
    fn a_map_in_the_middle_splits_what_was_there() {
        one_in_the_middle(Maps::default());
        one_in_the_middle(Maps::Many(Treap::default()));
    }

    fn one_in_the_middle(mut maps: Maps) {
        let mut priorities = Priorities::new();
        assert!(!maps.insert(mapping(100, 200, 1, 5), &mut priorities));
        let parent = maps.clone();
        assert!(maps.insert(mapping(140, 160, 2, 0), &mut priorities));
        assert_eq!(
            maps.all(),
            [mapping(100, 140, 1, 5), mapping(140, 160, 2, 0), mapping(160, 200, 1, 5)],
            "the parts beside it stay"
        );
        assert_eq!(parent.all(), [mapping(100, 200, 1, 5)], "the copy does not see it");
        assert!(!maps.insert(mapping(150, 155, 2, 0), &mut priorities), "the same again changes nothing");
    }

    proptest! {
        #[test]
        fn equals_an_array_of_addresses(steps in prop::collection::vec((0u64..60, 1u64..20, 0u32..3), 0..40)) {
            let mut priorities = Priorities::new();
            let mut maps = Maps::default();
            let mut many = Maps::Many(Treap::default());
            let mut slow: Vec<Option<u32>> = vec![None; 80];
            for (start, len, object) in steps {
                let old = &slow[start as usize..(start + len) as usize];
                let differs = old.iter().any(|was| was.is_some_and(|was| was != object));
                prop_assert_eq!(maps.insert(mapping(start, start + len, object, 0), &mut priorities), differs);
                prop_assert_eq!(many.insert(mapping(start, start + len, object, 0), &mut priorities), differs);
                slow[start as usize..(start + len) as usize].fill(Some(object));
                for (addr, was) in slow.iter().enumerate() {
                    prop_assert_eq!(maps.find(addr as u64).map(|m| m.object.0), *was);
                    prop_assert_eq!(many.find(addr as u64).map(|m| m.object.0), *was);
                }
                prop_assert!(maps.all().windows(2).all(|pair| pair[0].end <= pair[1].start));
            }
        }
    }
}

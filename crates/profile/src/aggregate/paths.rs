//! Stacks as rows and trees see them: by steps, which are what tells frames apart, so that the many stacks that differ in
//! nothing but addresses are gone through once.

use std::sync::OnceLock;

use afterimage_kernel_text::TextId;
use rustc_hash::FxHashMap;

use super::places::LocId;
use super::tree::Order;
use super::trie::{Trie, TrieNode};
use super::{ChainKey, Profile, SortKey};
use crate::resolve::{Frame, SymId};

/// Number of what tells a frame from others: its symbol, and of texts, lines and addresses those that rows or frames are
/// told apart by.
pub(crate) type StepId = u32;

/// Number of a stack as its steps: where it ends in the trie of all of them from the outermost frame on.
pub(crate) type PathId = TrieNode;

type Step = (SymId, Option<TextId>, u32, u64);

/// The steps of a profile's places, and the paths of its entries.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// By step, the first place that has it.
    first: Vec<LocId>,
    /// By entry.
    of_entry: Vec<PathId>,
    from_outermost: Trie,
    /// The same from the innermost frame on. Made when somebody asks for trees in that order.
    from_innermost: OnceLock<Trie>,
}

/// Of a stack or place whose path is not known yet.
const UNKNOWN: PathId = PathId::MAX;

impl Paths {
    pub(crate) fn new(profile: &Profile) -> Paths {
        let mut numbers: FxHashMap<Step, StepId> = FxHashMap::default();
        let mut first = Vec::new();
        let mut number = |(loc, frame): (usize, &Frame)| {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            let step = *numbers.entry(step(profile, frame)).or_insert(next);
            if step == next {
                first.push(u32::try_from(loc).unwrap_or(u32::MAX));
            }
            step
        };
        let steps: Vec<StepId> = profile.frames.iter().enumerate().map(&mut number).collect();
        let mut trie = Trie::default();
        // Of entries without a stack the path is that of their own place.
        let (mut of_stack, mut of_leaf): (Vec<PathId>, Vec<PathId>) = (Vec::new(), Vec::new());
        let mut path: Vec<StepId> = Vec::new();
        let of_entry = profile.entries.iter().map(|entry| {
            let (list, at) = match entry.key.stack {
                0 => (&mut of_leaf, entry.key.leaf as usize),
                stack => (&mut of_stack, stack as usize),
            };
            if list.len() <= at {
                list.resize(at + 1, UNKNOWN);
            }
            let Some(id) = list.get_mut(at) else { return UNKNOWN };
            if *id == UNKNOWN {
                path.clear();
                path.extend(profile.locs_of(entry).rev().filter_map(|loc| steps.get(loc as usize).copied()));
                *id = trie.end_of(&path);
            }
            *id
        });
        let of_entry = of_entry.collect();
        trie.is_complete();
        Paths { first, of_entry, from_outermost: trie, from_innermost: OnceLock::new() }
    }

    /// The first place that has a step.
    #[inline]
    pub(crate) fn place(&self, step: StepId) -> LocId {
        self.first.get(step as usize).copied().unwrap_or(LocId::MAX)
    }

    /// The path of an entry, by its number.
    #[inline]
    pub(crate) fn of_entry(&self, number: u32) -> PathId {
        self.of_entry.get(number as usize).copied().unwrap_or(UNKNOWN)
    }

    /// All paths in this order, from the first frame on.
    pub(crate) fn trie(&self, order: Order) -> &Trie {
        match order {
            Order::Caller => &self.from_outermost,
            Order::Callee => self.from_innermost.get_or_init(|| self.from_outermost.reversed(&self.of_entry)),
        }
    }

    /// Where a path ends in the trie of this order.
    pub(crate) fn end(&self, path: PathId, order: Order) -> TrieNode {
        match order {
            Order::Caller => path,
            Order::Callee => self.trie(order).of_other(path),
        }
    }
}

fn step(profile: &Profile, frame: &Frame) -> Step {
    let text = frame.text.filter(|_| profile.sort.contains(&SortKey::Text));
    let by_line = profile.sort.contains(&SortKey::Srcline) || profile.chain_key == ChainKey::Srcline;
    let line = if by_line { frame.line } else { 0 };
    let addr = if profile.chain_key == ChainKey::Address { frame.addr } else { 0 };
    (frame.sym, text, line, addr)
}

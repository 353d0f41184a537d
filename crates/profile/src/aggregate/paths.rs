//! Stacks as rows and trees see them: by steps, which are what tells frames apart, so that the many stacks that differ in
//! nothing but addresses are gone through once.

use std::hash::Hasher;

use afterimage_kernel_text::TextId;
use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};

use super::places::LocId;
use super::{ChainKey, Profile, SortKey};
use crate::resolve::{Frame, SymId};

/// Number of what tells a frame from others: its symbol, and of texts, lines and addresses those that rows or frames are
/// told apart by.
pub(crate) type StepId = u32;

/// Number of a stack as its steps.
pub(crate) type PathId = u32;

type Step = (SymId, Option<TextId>, u32, u64);

/// The steps of a profile's places, and the paths of its entries.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// By place.
    steps: Vec<StepId>,
    /// By entry.
    of_entry: Vec<PathId>,
}

/// Of a stack or place whose path is not known yet.
const UNKNOWN: PathId = PathId::MAX;

impl Paths {
    pub(crate) fn new(profile: &Profile) -> Paths {
        let mut numbers: FxHashMap<Step, StepId> = FxHashMap::default();
        let mut number = |step: Step| {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(step).or_insert(next)
        };
        let steps: Vec<StepId> = profile.frames.iter().map(|frame| number(step(profile, frame))).collect();
        let mut known = Known::default();
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
                path.extend(profile.locs_of(entry).filter_map(|loc| steps.get(loc as usize).copied()));
                *id = known.number(&path);
            }
            *id
        });
        let of_entry = of_entry.collect();
        Paths { steps, of_entry }
    }

    /// The step at a place.
    #[inline]
    pub(crate) fn step(&self, loc: LocId) -> StepId {
        self.steps.get(loc as usize).copied().unwrap_or(StepId::MAX)
    }

    /// The path of an entry, by its number.
    #[inline]
    pub(crate) fn of_entry(&self, number: u32) -> PathId {
        self.of_entry.get(number as usize).copied().unwrap_or(UNKNOWN)
    }
}

fn step(profile: &Profile, frame: &Frame) -> Step {
    let text = frame.text.filter(|_| profile.sort.contains(&SortKey::Text));
    let by_line = profile.sort.contains(&SortKey::Srcline) || profile.chain_key == ChainKey::Srcline;
    let line = if by_line { frame.line } else { 0 };
    let addr = if profile.chain_key == ChainKey::Address { frame.addr } else { 0 };
    (frame.sym, text, line, addr)
}

/// Paths while they are numbered.
#[derive(Default)]
struct Known {
    steps: Vec<StepId>,
    table: HashTable<(u64, usize, usize, PathId)>,
}

impl Known {
    fn number(&mut self, path: &[StepId]) -> PathId {
        let mut hasher = FxHasher::default();
        path.iter().for_each(|step| hasher.write_u32(*step));
        let hash = hasher.finish();
        let steps = &self.steps;
        let same =
            |(of, start, end, _): &(u64, usize, usize, PathId)| *of == hash && steps.get(*start..*end) == Some(path);
        if let Some((.., id)) = self.table.find(hash, same) {
            return *id;
        }
        let id = u32::try_from(self.table.len()).unwrap_or(UNKNOWN);
        let start = self.steps.len();
        self.steps.extend_from_slice(path);
        self.table.insert_unique(hash, (hash, start, self.steps.len(), id), |(hash, ..)| *hash);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_paths_have_one_number() {
        let mut known = Known::default();
        let ids: Vec<_> = [&[1, 2][..], &[2, 1], &[], &[1, 2], &[1]].map(|path| known.number(path)).into();
        assert_eq!(ids, [0, 1, 2, 0, 3]);
    }
}

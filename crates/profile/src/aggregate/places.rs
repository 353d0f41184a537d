//! Distinct places, and distinct stacks of them.

use std::hash::Hasher;

use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};

use crate::loc::{CpuMode, Loc, Place};
use crate::sample::TimedSample;
use crate::state::{Mapping, SpaceId, State};

/// Number of a [`Loc`] in [`Places::locs`].
pub(crate) type LocId = u32;

/// Every place once.
#[derive(Default)]
pub(crate) struct Places {
    pub(crate) locs: Vec<Loc>,
    by_loc: FxHashMap<Loc, LocId>,
    mappings: RecentMappings,
}

impl Places {
    /// The number of the place of an address; of a return address, the place of the call before it.
    #[inline]
    pub(crate) fn of(
        &mut self,
        state: &State,
        sample: &TimedSample<'_>,
        mode: CpuMode,
        addr: u64,
        caller: bool,
    ) -> LocId {
        let addr = addr.wrapping_sub(u64::from(caller));
        let loc = match mode {
            CpuMode::User => match self.mappings.find(state, sample, addr) {
                Some(mapping) => Loc { place: Place::Object(mapping.object), addr: addr.wrapping_add(mapping.delta) },
                None => Loc { place: Place::Unmapped, addr },
            },
            _ => state.locate(sample.process, mode, addr),
        };
        match self.by_loc.get(&loc) {
            Some(id) => *id,
            None => self.add(loc),
        }
    }

    #[inline(never)]
    fn add(&mut self, loc: Loc) -> LocId {
        let id = u32::try_from(self.locs.len()).unwrap_or(u32::MAX);
        self.locs.push(loc);
        self.by_loc.insert(loc, id);
        id
    }

    /// Whether nothing is mapped at a place. Something may be later, without a new number for the address space.
    pub(crate) fn is_unmapped(&self, id: LocId) -> bool {
        self.locs.get(id as usize).is_some_and(|loc| loc.place == Place::Unmapped)
    }
}

/// Mappings that were found lately. While the number of an address space stays the same, so does what was mapped in it;
/// finding a mapping in its tree takes ten times as long as finding it here.
#[derive(Default)]
struct RecentMappings(Vec<(SpaceId, Mapping)>);

/// Samples of one process fall into a few mappings, and those of a machine into a few times as many.
const MAPPINGS: usize = 1 << 12;
/// Addresses that lie closer together than this share a slot: code of one library mostly.
const GRAIN: u32 = 14;

impl RecentMappings {
    #[inline]
    fn find(&mut self, state: &State, sample: &TimedSample<'_>, addr: u64) -> Option<Mapping> {
        let mixed = (addr >> GRAIN ^ u64::from(sample.space.0) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = (mixed >> 32) as usize % MAPPINGS;
        if let Some((space, mapping)) = self.0.get(slot) {
            if *space == sample.space && mapping.start <= addr && addr < mapping.end {
                return Some(*mapping);
            }
        }
        let found = *state.mapping(sample.process, addr)?;
        if self.0.is_empty() {
            // An empty range, which holds no address.
            let nothing = Mapping { start: 1, end: 0, ..found };
            self.0 = vec![(sample.space, nothing); MAPPINGS];
        }
        if let Some(recent) = self.0.get_mut(slot) {
            *recent = (sample.space, found);
        }
        Some(found)
    }
}

/// Number of a stack in [`Stacks`]; 0 is the empty one.
pub(crate) type StackId = u32;

/// Every stack once, as places, innermost first.
#[derive(Debug)]
pub(crate) struct Stacks {
    /// The stacks one after the other.
    locs: Vec<LocId>,
    ranges: Vec<(usize, u32)>,
    table: HashTable<Known>,
}

/// A stack in the table. With its hash and place, so that most look-ups touch nothing else.
#[derive(Clone, Copy, Debug)]
struct Known {
    hash: u64,
    start: usize,
    depth: u32,
    id: StackId,
}

impl Default for Stacks {
    fn default() -> Stacks {
        Stacks { locs: Vec::new(), ranges: vec![(0, 0)], table: HashTable::new() }
    }
}

impl Stacks {
    /// The number of the stack with these places; some.
    pub(crate) fn intern(&mut self, stack: &[LocId]) -> StackId {
        let mut hasher = FxHasher::default();
        stack.iter().for_each(|loc| hasher.write_u32(*loc));
        let hash = hasher.finish();
        let locs = &self.locs;
        let same = |known: &Known| {
            known.hash == hash && locs.get(known.start..known.start + known.depth as usize) == Some(stack)
        };
        if let Some(known) = self.table.find(hash, same) {
            return known.id;
        }
        let (start, id) = (self.locs.len(), u32::try_from(self.ranges.len()).unwrap_or(u32::MAX));
        let depth = u32::try_from(stack.len()).unwrap_or(u32::MAX);
        self.locs.extend_from_slice(stack);
        self.ranges.push((start, depth));
        self.table.insert_unique(hash, Known { hash, start, depth, id }, |known| known.hash);
        id
    }

    /// The places of a stack, innermost first.
    pub(crate) fn get(&self, id: StackId) -> &[LocId] {
        let (start, depth) = self.ranges.get(id as usize).copied().unwrap_or_default();
        self.locs.get(start..start.saturating_add(depth as usize)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_have_one_number() {
        let mut stacks = Stacks::default();
        let ids: Vec<_> = [&[1, 2, 3][..], &[1, 2], &[3, 2, 1], &[1, 2, 3], &[1]].map(|s| stacks.intern(s)).into();
        assert_eq!(ids, [1, 2, 3, 1, 4]);
        assert_eq!(stacks.get(2), [1, 2]);
        assert_eq!(stacks.get(3), [3, 2, 1]);
        assert_eq!(stacks.get(0), [0; 0]);
        assert_eq!(stacks.get(99), [0; 0]);
    }
}

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
    /// Where they are asked for: by place, bytes of what was mapped there when it was seen first; 0 where that is not known.
    pub(crate) sizes: Vec<u64>,
    keeps_sizes: bool,
    by_loc: FxHashMap<Loc, LocId>,
    mappings: RecentMappings,
}

impl Places {
    /// `keeps_sizes`: whether sizes are asked for.
    pub(crate) fn new(keeps_sizes: bool) -> Places {
        Places { keeps_sizes, ..Places::default() }
    }

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
        let (loc, size) = match mode {
            CpuMode::User => match self.mappings.find(state, sample, addr) {
                Some(Mapping { start, end, object, delta }) => {
                    (Loc { place: Place::Object(object), addr: addr.wrapping_add(delta) }, end.wrapping_sub(start))
                }
                None => (Loc { place: Place::Unmapped, addr }, 0),
            },
            _ => (state.locate(sample.process, mode, addr), 0),
        };
        match self.by_loc.get(&loc) {
            Some(id) => *id,
            None => self.add(state, loc, size),
        }
    }

    #[inline(never)]
    fn add(&mut self, state: &State, loc: Loc, size: u64) -> LocId {
        let id = u32::try_from(self.locs.len()).unwrap_or(u32::MAX);
        if self.keeps_sizes {
            let of_kernel = || state.kernel_map().map_or(0, |map| map.len);
            self.sizes.push(if loc.place == Place::Kernel { of_kernel() } else { size });
        }
        self.locs.push(loc);
        self.by_loc.insert(loc, id);
        id
    }

    fn is_at(&self, id: LocId, fits: impl Fn(Place) -> bool) -> bool {
        self.locs.get(id as usize).is_some_and(|loc| fits(loc.place))
    }

    /// Whether nothing is mapped at a place. Something may be later, without a new number for the address space.
    pub(crate) fn is_unmapped(&self, id: LocId) -> bool {
        self.is_at(id, |place| place == Place::Unmapped)
    }

    /// Whether a place lies in the kernel.
    pub(crate) fn is_kernel(&self, id: LocId) -> bool {
        self.is_at(id, |place| matches!(place, Place::Kernel | Place::Text(_)))
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

/// Number of a part of a stack in [`Stacks`]; 0 is the empty one.
pub(crate) type PartId = u32;

/// Number of a stack in [`Stacks`]; 0 is the empty one.
pub(crate) type StackId = u32;

/// Every stack once, as places, innermost first: a part in the kernel, then the rest, each of which many stacks share.
#[derive(Debug)]
pub(crate) struct Stacks {
    /// The parts one after the other.
    locs: Vec<LocId>,
    parts: Vec<(usize, u32)>,
    table: HashTable<Known>,
    stacks: Vec<Pair>,
    pairs: HashTable<(u64, StackId)>,
}

/// A part in the table. With its hash and place, so that most look-ups touch nothing else.
#[derive(Clone, Copy, Debug)]
struct Known {
    hash: u64,
    start: usize,
    depth: u32,
    id: PartId,
}

/// A stack.
#[derive(Clone, Copy, Debug)]
struct Pair {
    kernel: PartId,
    rest: PartId,
    /// The entry that the last sample with it went to: most often the next one's too.
    entry: u32,
}

/// The entry of a stack that has none yet.
pub(crate) const NO_ENTRY: u32 = u32::MAX;

impl Default for Stacks {
    fn default() -> Stacks {
        let none = Pair { kernel: 0, rest: 0, entry: NO_ENTRY };
        Stacks {
            locs: Vec::new(),
            parts: vec![(0, 0)],
            table: HashTable::new(),
            stacks: vec![none],
            pairs: HashTable::new(),
        }
    }
}

impl Stacks {
    /// The number of the part with these places.
    pub(crate) fn part(&mut self, locs: &[LocId]) -> PartId {
        if locs.is_empty() {
            return 0;
        }
        let mut hasher = FxHasher::default();
        locs.iter().for_each(|loc| hasher.write_u32(*loc));
        let hash = hasher.finish();
        let all = &self.locs;
        let same = |known: &Known| {
            known.hash == hash && all.get(known.start..known.start + known.depth as usize) == Some(locs)
        };
        if let Some(known) = self.table.find(hash, same) {
            return known.id;
        }
        let (start, id) = (self.locs.len(), u32::try_from(self.parts.len()).unwrap_or(u32::MAX));
        let depth = u32::try_from(locs.len()).unwrap_or(u32::MAX);
        self.locs.extend_from_slice(locs);
        self.parts.push((start, depth));
        self.table.insert_unique(hash, Known { hash, start, depth, id }, |known| known.hash);
        id
    }

    /// The number of the stack of these parts.
    ///
    /// A stack has one number only if what is in the kernel part is decided by the places: all at its inner end that lie
    /// in the kernel.
    #[inline]
    pub(crate) fn stack(&mut self, kernel: PartId, rest: PartId) -> StackId {
        let key = u64::from(kernel) << 32 | u64::from(rest);
        let hash = hash_of_pair(key);
        if let Some((_, id)) = self.pairs.find(hash, |(of, _)| *of == key) {
            return *id;
        }
        let id = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX);
        self.stacks.push(Pair { kernel, rest, entry: NO_ENTRY });
        self.pairs.insert_unique(hash, (key, id), |(key, _)| hash_of_pair(*key));
        id
    }

    /// The entry that the last sample with a stack went to.
    #[inline]
    pub(crate) fn entry(&self, id: StackId) -> u32 {
        self.stacks.get(id as usize).map_or(NO_ENTRY, |pair| pair.entry)
    }

    /// Remembers to which entry the last sample with a stack went.
    #[inline]
    pub(crate) fn went_to(&mut self, id: StackId, entry: u32) {
        if let Some(pair) = self.stacks.get_mut(id as usize) {
            pair.entry = entry;
        }
    }

    /// The places of a stack, innermost first, in two pieces.
    pub(crate) fn get(&self, id: StackId) -> (&[LocId], &[LocId]) {
        let Some(pair) = self.stacks.get(id as usize) else { return (&[], &[]) };
        (self.places_of(pair.kernel), self.places_of(pair.rest))
    }

    /// Puts several places where one was, in all parts. Nothing is to be added afterwards.
    pub(crate) fn expand<'s>(&mut self, with: impl Fn(LocId) -> Option<&'s [LocId]>) {
        let mut locs = Vec::with_capacity(self.locs.len());
        for (start, depth) in &mut self.parts {
            let from = locs.len();
            let old = self.locs.get(*start..start.saturating_add(*depth as usize)).unwrap_or_default();
            for loc in old {
                match with(*loc) {
                    Some(several) => locs.extend_from_slice(several),
                    None => locs.push(*loc),
                }
            }
            (*start, *depth) = (from, u32::try_from(locs.len() - from).unwrap_or(u32::MAX));
        }
        self.locs = locs;
    }

    /// The places of a part.
    pub(crate) fn places_of(&self, part: PartId) -> &[LocId] {
        let (start, depth) = self.parts.get(part as usize).copied().unwrap_or_default();
        self.locs.get(start..start.saturating_add(depth as usize)).unwrap_or_default()
    }
}

#[inline]
fn hash_of_pair(key: u64) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(key);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_have_one_number() {
        let mut stacks = Stacks::default();
        let parts: Vec<_> = [&[1, 2, 3][..], &[1, 2], &[3, 2, 1], &[1, 2, 3], &[1], &[]].map(|s| stacks.part(s)).into();
        assert_eq!(parts, [1, 2, 3, 1, 4, 0]);
        let ids: Vec<_> = [(1, 2), (2, 1), (1, 2), (0, 3)].map(|(kernel, rest)| stacks.stack(kernel, rest)).into();
        assert_eq!(ids, [1, 2, 1, 3]);
        assert_eq!(stacks.get(1), (&[1, 2, 3][..], &[1, 2][..]));
        assert_eq!(stacks.get(3), (&[][..], &[3, 2, 1][..]));
        assert_eq!(stacks.get(0), (&[][..], &[][..]));
        assert_eq!(stacks.get(99), (&[][..], &[][..]));
        stacks.went_to(2, 5);
        assert_eq!((stacks.entry(1), stacks.entry(2), stacks.entry(99)), (NO_ENTRY, 5, NO_ENTRY));
        stacks.expand(|loc| (loc == 2).then_some(&[7, 8][..]));
        assert_eq!(stacks.get(1), (&[1, 7, 8, 3][..], &[1, 7, 8][..]));
        assert_eq!(stacks.get(3), (&[][..], &[3, 7, 8, 1][..]));
    }
}

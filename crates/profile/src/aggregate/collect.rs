//! Samples to entries: one entry for all samples that no row, tree or stack tells apart.
//!
//! The hot path. Per sample: the stack's bytes are hashed and found, the key is hashed and found, three numbers are
//! added. Places are looked up only when a key is new, and that is when the maps are those of the sample's time.

use std::hash::{Hash, Hasher};

use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};

use super::chains::{Bindings, Chains, UserPart, user_part};
use super::{AggregateOptions, SortKey, Weight};
use crate::loc::{CpuMode, Loc, Place};
use crate::replay::Sink;
use crate::sample::TimedSample;
use crate::state::{CommId, SpaceId, State, walk_chain};

/// What tells entries apart. Fields that the request does not ask for stay 0, so that they tell nothing apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EntryKey {
    ip: u64,
    pub(crate) cgroup: u64,
    chain: u32,
    space: u32,
    binding: u32,
    pub(crate) comm: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) cpu: u32,
    pub(crate) event: u32,
    mode: u32,
}

/// The value of [`EntryKey::cpu`] for samples without one.
pub(crate) const NO_CPU: u32 = u32::MAX;

/// All samples of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) key: EntryKey,
    pub(crate) weight: Weight,
    /// Where the sample's own address lies.
    pub(crate) leaf: LocId,
    /// The stack, as a range of [`Collected::stacks`]; empty unless stacks are asked for.
    pub(crate) stack: (usize, u32),
}

/// Number of a [`Loc`] in [`Collected::locs`].
pub(crate) type LocId = u32;

/// What is known of an event's samples altogether.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventSums {
    pub(crate) weight: Weight,
    pub(crate) user_stacks: u64,
    pub(crate) short_user_stacks: u64,
}

/// Which fields the request needs.
#[derive(Clone, Copy, Debug)]
struct Needs {
    chains: bool,
    comm: bool,
    pid: bool,
    tid: bool,
    cpu: bool,
    cgroup: bool,
}

/// The sink that aggregates.
pub(crate) struct Collector<'f> {
    needs: Needs,
    chains: Chains<'f>,
    bindings: Bindings,
    table: HashTable<u32>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) events: Vec<EventSums>,
    pub(crate) places: Places,
}

/// Distinct places, and stacks of them.
#[derive(Default)]
pub(crate) struct Places {
    pub(crate) locs: Vec<Loc>,
    /// Stacks one after the other, innermost place first.
    pub(crate) stacks: Vec<LocId>,
    by_loc: FxHashMap<Loc, LocId>,
    /// Places of user addresses in an address space, which stay right while its number stays the same.
    by_addr: FxHashMap<(SpaceId, u64), LocId>,
}

#[inline]
fn hash_of(key: &EntryKey) -> u64 {
    let mut hasher = FxHasher::default();
    key.hash(&mut hasher);
    hasher.finish()
}

impl<'f> Collector<'f> {
    pub(crate) fn new(events: usize, options: &AggregateOptions) -> Collector<'f> {
        let has = |key| options.sort.contains(&key);
        Collector {
            needs: Needs {
                chains: options.chains || options.children,
                // Rows of a process or thread show its name, and folded stacks begin with it.
                comm: has(SortKey::Comm) || options.chains,
                pid: has(SortKey::Pid),
                tid: has(SortKey::Tid),
                cpu: has(SortKey::Cpu),
                cgroup: has(SortKey::Cgroup),
            },
            chains: Chains::new(),
            bindings: Bindings::default(),
            table: HashTable::new(),
            entries: Vec::new(),
            events: vec![EventSums::default(); events],
            places: Places::default(),
        }
    }

    #[inline(never)]
    fn add(&mut self, state: &State, sample: &TimedSample<'f>, key: EntryKey, hash: u64, weight: Weight) {
        let leaf = self.places.of(state, sample, sample.mode(), sample.ip, false);
        let start = self.places.stacks.len();
        if self.needs.chains {
            walk_chain(sample.chain, sample.mode(), sample.ip, |addr, mode, caller| {
                let loc = self.places.of(state, sample, mode, addr, caller);
                self.places.stacks.push(loc);
            });
        }
        let depth = u32::try_from(self.places.stacks.len() - start).unwrap_or(u32::MAX);
        let index = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        self.entries.push(Entry { key, weight, leaf, stack: (start, depth) });
        let entries = &self.entries;
        self.table.insert_unique(hash, index, |i| entries.get(*i as usize).map_or(0, |entry| hash_of(&entry.key)));
    }
}

impl<'f> Sink<'f> for Collector<'f> {
    #[inline]
    fn sample(&mut self, state: &State, sample: &TimedSample<'f>) {
        let weight = Weight { period: sample.period, samples: sample.count, records: 1 };
        if let Some(sums) = self.events.get_mut(sample.event) {
            sums.weight.add(weight);
            if let Some(part) = user_part(sample.chain) {
                sums.user_stacks = sums.user_stacks.saturating_add(sample.count);
                if part == UserPart::Short {
                    sums.short_user_stacks = sums.short_user_stacks.saturating_add(sample.count);
                }
            }
        }
        let chain = if self.needs.chains { self.chains.intern(sample.chain) } else { self.chains.none() };
        let binding = chain.binding(&mut self.bindings, state, sample);
        let key = self.needs.key(sample, chain.id, chain.user, binding);
        let entries = &mut self.entries;
        if let Some(entry) = entries.get_mut(chain.last_entry as usize).filter(|entry| entry.key == key) {
            return entry.weight.add(weight);
        }
        let hash = hash_of(&key);
        let found = self.table.find(hash, |i| entries.get(*i as usize).is_some_and(|entry| entry.key == key)).copied();
        match found.and_then(|i| Some((i, entries.get_mut(i as usize)?))) {
            Some((index, entry)) => {
                entry.weight.add(weight);
                chain.last_entry = index;
            }
            None => {
                chain.last_entry = u32::try_from(entries.len()).unwrap_or(u32::MAX);
                self.add(state, sample, key, hash, weight);
            }
        }
    }
}

impl Needs {
    #[inline]
    fn key(&self, sample: &TimedSample<'_>, chain: u32, user: bool, binding: u32) -> EntryKey {
        let mode = sample.mode();
        let pick = |wanted: bool, value: u32| if wanted { value } else { 0 };
        EntryKey {
            ip: sample.ip,
            cgroup: if self.cgroup { sample.cgroup.unwrap_or(0) } else { 0 },
            chain,
            // What a process had mapped matters to its own addresses only.
            space: pick(user || matches!(mode, CpuMode::User | CpuMode::Unknown), sample.space.0),
            binding,
            comm: pick(self.comm, sample.comm.0),
            pid: pick(self.pid, sample.pid),
            tid: pick(self.tid, sample.tid),
            cpu: pick(self.cpu, sample.cpu.unwrap_or(NO_CPU)),
            event: u32::try_from(sample.event).unwrap_or(u32::MAX),
            mode: mode as u32,
        }
    }
}

impl Places {
    /// The number of the place of an address; of a return address, the place of the call before it.
    fn of(&mut self, state: &State, sample: &TimedSample<'_>, mode: CpuMode, addr: u64, caller: bool) -> LocId {
        let addr = addr.wrapping_sub(u64::from(caller));
        if mode != CpuMode::User {
            return self.of_loc(state.locate(sample.process, mode, addr));
        }
        if let Some(id) = self.by_addr.get(&(sample.space, addr)) {
            return *id;
        }
        let loc = state.locate(sample.process, mode, addr);
        let id = self.of_loc(loc);
        // Where nothing is mapped yet, something may be later without a new number.
        if loc.place != Place::Unmapped {
            self.by_addr.insert((sample.space, addr), id);
        }
        id
    }

    fn of_loc(&mut self, loc: Loc) -> LocId {
        match self.by_loc.get(&loc) {
            Some(id) => *id,
            None => {
                let id = u32::try_from(self.locs.len()).unwrap_or(u32::MAX);
                self.locs.push(loc);
                self.by_loc.insert(loc, id);
                id
            }
        }
    }
}

impl EntryKey {
    pub(crate) fn comm(&self) -> CommId {
        CommId(self.comm)
    }
}

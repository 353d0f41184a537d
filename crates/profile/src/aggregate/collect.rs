//! Samples to entries: one entry for all samples that no row, tree or stack tells apart.
//!
//! The hot path. Per sample: its place and stack are found, at best by comparing the raw stack with one seen lately; the
//! key is hashed and found; three numbers are added. Places are looked up while the maps are those of the sample's time.

use std::hash::{Hash, Hasher};

use afterimage_perf_data::Private;
use hashbrown::HashTable;
use rustc_hash::FxHasher;

use super::chains::{Found, NO_ENTRY, RecentChains, Slot, UserPart, user_part};
use super::labels::{Labels, LabelsId};
use super::places::{LocId, Places, StackId, Stacks};
use super::{AggregateOptions, SortKey, Weight};
use crate::loc::CpuMode;
use crate::replay::Sink;
use crate::said::Said;
use crate::sample::TimedSample;
use crate::state::{CommId, State, walk_chain};

/// What tells entries apart. Fields that the request does not ask for stay 0, so that they tell nothing apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EntryKey {
    pub(crate) cgroup: u64,
    /// Where the sample's own address lies.
    pub(crate) leaf: LocId,
    /// Its stack; the empty one unless stacks are asked for.
    pub(crate) stack: StackId,
    pub(crate) comm: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) cpu: u32,
    pub(crate) event: u32,
    pub(crate) labels: LabelsId,
}

/// The value of [`EntryKey::cpu`] for samples without one.
pub(crate) const NO_CPU: u32 = u32::MAX;

/// All samples of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) key: EntryKey,
    pub(crate) weight: Weight,
}

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
    recent: RecentChains,
    /// Parts of the hashes of the entries, and their numbers.
    table: HashTable<(u32, u32)>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) events: Vec<EventSums>,
    pub(crate) places: Places,
    pub(crate) stacks: Stacks,
    pub(crate) labels: Labels<'f>,
    /// Labels of the sample that is being looked at.
    label: LabelsId,
    /// The stack that is being looked at.
    walked: Vec<LocId>,
}

#[inline]
fn hash_of(key: &EntryKey) -> u64 {
    let mut hasher = FxHasher::default();
    key.hash(&mut hasher);
    hasher.finish()
}

impl<'f> Collector<'f> {
    pub(crate) fn new(events: usize, private: Option<&'f Private>, options: &AggregateOptions) -> Collector<'f> {
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
            recent: RecentChains::new(),
            table: HashTable::new(),
            entries: Vec::new(),
            events: vec![EventSums::default(); events],
            places: Places::default(),
            stacks: Stacks::default(),
            labels: Labels::new(&options.labels, private),
            label: 0,
            walked: Vec::new(),
        }
    }

    /// Where a sample was taken, and its stack.
    #[inline]
    fn find(&mut self, state: &State, sample: &TimedSample<'_>) -> (Slot, Found) {
        if !self.needs.chains {
            let leaf = self.places.of(state, sample, sample.mode(), sample.ip, false);
            return (Slot::NONE, Found { leaf, stack: 0, entry: NO_ENTRY });
        }
        match self.recent.find(state, sample) {
            (slot, Some(found)) => (slot, found),
            (slot, None) => self.walk(slot, state, sample),
        }
    }

    #[inline(never)]
    fn walk(&mut self, slot: Slot, state: &State, sample: &TimedSample<'_>) -> (Slot, Found) {
        let leaf = self.places.of(state, sample, sample.mode(), sample.ip, false);
        let mut user = matches!(sample.mode(), CpuMode::User | CpuMode::Unknown);
        let mut stays = !self.places.is_unmapped(leaf);
        self.walked.clear();
        walk_chain(sample.chain, sample.mode(), sample.ip, |addr, mode, caller| {
            let loc = self.places.of(state, sample, mode, addr, caller);
            user |= matches!(mode, CpuMode::User | CpuMode::Unknown);
            stays &= !self.places.is_unmapped(loc);
            self.walked.push(loc);
        });
        let found = Found { leaf, stack: self.stacks.intern(&self.walked), entry: NO_ENTRY };
        if !stays {
            return (Slot::NONE, found);
        }
        self.recent.keep(slot, state, sample, user, found);
        (slot, found)
    }
}

impl Sink for Collector<'_> {
    #[inline]
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>) {
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
        let (slot, found) = self.find(state, sample);
        let key = self.needs.key(sample, found, self.label);
        let entries = &mut self.entries;
        if let Some(entry) = entries.get_mut(found.entry as usize).filter(|entry| entry.key == key) {
            return entry.weight.add(weight);
        }
        let hash = hash_of(&key);
        let same = |(tag, index): &(u32, u32)| {
            *tag == hash as u32 && entries.get(*index as usize).is_some_and(|entry| entry.key == key)
        };
        let known = self.table.find(hash, same).map(|(_, index)| *index);
        let index = known.unwrap_or(u32::try_from(entries.len()).unwrap_or(u32::MAX));
        match known.and_then(|index| entries.get_mut(index as usize)) {
            Some(entry) => entry.weight.add(weight),
            None => {
                entries.push(Entry { key, weight });
                let of = |(_, index): &(u32, u32)| entries.get(*index as usize).map_or(0, |entry| hash_of(&entry.key));
                self.table.insert_unique(hash, (hash as u32, index), of);
            }
        }
        self.recent.went_to(slot, index);
    }

    fn said(&mut self, state: &State, sample: &TimedSample<'_>, said: &[Said<'_>]) {
        self.label = self.labels.take(sample.event, said);
        self.sample(state, sample);
        self.label = 0;
    }
}

impl Needs {
    #[inline]
    fn key(&self, sample: &TimedSample<'_>, found: Found, labels: LabelsId) -> EntryKey {
        let pick = |wanted: bool, value: u32| if wanted { value } else { 0 };
        EntryKey {
            cgroup: if self.cgroup { sample.cgroup.unwrap_or(0) } else { 0 },
            leaf: found.leaf,
            stack: found.stack,
            comm: pick(self.comm, sample.comm.0),
            pid: pick(self.pid, sample.pid),
            tid: pick(self.tid, sample.tid),
            cpu: pick(self.cpu, sample.cpu.unwrap_or(NO_CPU)),
            event: u32::try_from(sample.event).unwrap_or(u32::MAX),
            labels,
        }
    }
}

impl EntryKey {
    pub(crate) fn comm(&self) -> CommId {
        CommId(self.comm)
    }
}

//! Samples to entries: one entry for all samples that no row, tree or stack tells apart.
//!
//! The hot path. Per sample: its place and stack are found, at best by the bytes of the raw stack's two parts; the key is
//! hashed and found; three numbers are added. Places are looked up while the maps are those of the sample's time.

use std::hash::{Hash, Hasher};

use afterimage_perf_data::record::{BranchEntry, Sample};
use afterimage_perf_data::{Callchain, FileReader, context};
use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};

use super::history::History;
use super::labels::{Labels, LabelsId};
use super::more::{Columns, More, MoreId, Sampled};
use super::places::{LocId, PartId, Places, StackId, Stacks};
use super::recent::{Recent, Slot};
use super::user_part::{UserPart, user_part};
use super::{AggregateOptions, SortKey, Weight};
use crate::filter::{FilterKind, Filters, SampleFilter};
use crate::loc::{CpuMode, Place};
use crate::parts::{KnownParts, Split, Under, has_return_addresses};
use crate::replay::Sink;
use crate::resolve::{Frame, Resolver};
use crate::said::Said;
use crate::sample::TimedSample;
use crate::state::{CommId, State, walk_chain};
use crate::unwinding::NamingSink;

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
    /// What else is asked for.
    pub(crate) more: MoreId,
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
    /// All samples of the event that were read.
    pub(crate) read: Weight,
    pub(crate) weight: Weight,
    /// Where branches are looked at: samples that have some, of those that filters of samples let through.
    pub(crate) with_branches: u64,
    /// Those that have none.
    pub(crate) without_branches: u64,
    /// What filters left out, by their kind.
    pub(crate) left_out: [Weight; FilterKind::ALL.len()],
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
    /// Branches are looked at in place of samples.
    branches: bool,
    /// Stacks begin with branches.
    history: bool,
    /// Periods are weights.
    by_weight: bool,
}

/// Bytes of raw parts that are kept of the kernel, and of processes. Programs that live long have fewer; those of short
/// ones hardly come again.
const KERNEL_ROOM: usize = 8 << 20;
/// See [`KERNEL_ROOM`].
const USER_ROOM: usize = 32 << 20;

/// The sink that aggregates.
pub(crate) struct Collector<'f> {
    needs: Needs,
    filter: SampleFilter,
    /// Where names can be had while samples go by.
    by_name: Option<ByName>,
    pub(crate) resolver: &'f mut Resolver,
    /// Without stacks: addresses that were sampled lately.
    recent: Recent,
    kernel_parts: KnownParts<PartId>,
    user_parts: KnownParts<PartId>,
    /// Parts of the hashes of the entries, and their numbers.
    table: HashTable<(u32, u32)>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) events: Vec<EventSums>,
    pub(crate) places: Places,
    pub(crate) stacks: Stacks,
    pub(crate) labels: Labels<'f>,
    pub(crate) more: More,
    columns: &'f mut dyn Columns,
    /// What else is asked for of the sample that is being looked at.
    values: Vec<u64>,
    /// Its labels.
    label: LabelsId,
    /// The stack that is being looked at.
    walked: Vec<LocId>,
    history: History,
}

/// Filters by names at work while samples go by: what they leave out is neither kept nor unwound.
struct ByName {
    filters: Filters,
    /// By place: what leaves samples there out, once that was found out.
    known: Vec<Option<Option<FilterKind>>>,
    /// Frames that stay what they are, by place.
    frames: FxHashMap<LocId, Frame>,
}

#[inline]
fn hash_of(key: &EntryKey) -> u64 {
    let mut hasher = FxHasher::default();
    key.hash(&mut hasher);
    hasher.finish()
}

impl<'f> Collector<'f> {
    /// For one replay of a recording.
    pub(crate) fn new(
        reader: &'f FileReader<'_>,
        options: &AggregateOptions,
        columns: &'f mut dyn Columns,
        resolver: &'f mut Resolver,
    ) -> Collector<'f> {
        let has = |key| options.sort.contains(&key);
        let (events, private) = (reader.events().len(), reader.private());
        // A stream may tell what names places at its end alone, and of branches filters ask where they led to.
        let at_once = options.filters.ask_own_place() && !reader.is_pipe() && !options.branches();
        Collector {
            needs: Needs {
                chains: options.takes_stacks() || !options.branches() && (options.chains || options.children),
                // Rows of a process or thread show its name, and folded stacks begin with it.
                comm: has(SortKey::Comm) || options.chains,
                pid: has(SortKey::Pid),
                tid: has(SortKey::Tid),
                cpu: has(SortKey::Cpu),
                cgroup: has(SortKey::Cgroup) || has(SortKey::Container),
                branches: options.branches(),
                history: options.branch_history,
                by_weight: options.by_weight,
            },
            filter: SampleFilter::new(&options.filters),
            by_name: at_once.then(|| ByName {
                filters: options.filters.clone(),
                known: Vec::new(),
                frames: FxHashMap::default(),
            }),
            resolver,
            recent: Recent::default(),
            kernel_parts: KnownParts::with_room(KERNEL_ROOM),
            user_parts: KnownParts::with_room(USER_ROOM),
            table: HashTable::new(),
            entries: Vec::new(),
            events: vec![EventSums::default(); events],
            places: Places::new(has(SortKey::DsoSize)),
            stacks: Stacks::default(),
            labels: Labels::new(&options.labels, private),
            more: More::new(options, reader.features()),
            columns,
            values: Vec::new(),
            label: 0,
            walked: Vec::new(),
            history: History::default(),
        }
    }

    /// The place of a sample's own address, which was not found in a slot.
    fn leaf_of(&mut self, slot: Slot, state: &State, sample: &TimedSample<'_>) -> LocId {
        let leaf = self.places.of(state, sample, sample.mode(), sample.ip, false);
        if !self.places.is_unmapped(leaf) {
            self.recent.keep(slot, state, sample, leaf);
        }
        leaf
    }

    /// Where a sample was taken, and its stack.
    #[inline]
    fn find(&mut self, state: &State, sample: &TimedSample<'_>) -> (LocId, StackId) {
        let mode = sample.mode();
        let of_process = matches!(mode, CpuMode::User | CpuMode::Unknown);
        match Split::of(sample.chain) {
            Some(Split { kernel, user }) if !kernel.is_empty() && mode == CpuMode::Kernel => {
                let inner = self.kernel_part(state, sample, kernel);
                let leaf = self.leaf(state, sample, kernel, inner);
                self.with_user_part(state, sample, leaf, inner, user)
            }
            // The sample's own address stands in front.
            Some(Split { user, .. }) if mode == CpuMode::Kernel => {
                let leaf = self.places.of(state, sample, mode, sample.ip, false);
                let inner = self.stacks.part(&[leaf]);
                self.with_user_part(state, sample, leaf, inner, user)
            }
            Some(Split { kernel, user }) if kernel.is_empty() && of_process => self.in_process(state, sample, user),
            _ => self.walk(state, sample),
        }
    }

    /// A sample whose stack has but its part in a process.
    #[inline]
    fn in_process(&mut self, state: &State, sample: &TimedSample<'_>, user: Callchain<'_>) -> (LocId, StackId) {
        if sample.mode() == CpuMode::User && user.iter().nth(1) == Some(sample.ip) {
            let Some(part) = self.user_part(state, sample, user) else { return self.walk(state, sample) };
            let leaf = self.leaf(state, sample, user, part);
            return (leaf, self.stacks.stack(0, part));
        }
        let leaf = self.places.of(state, sample, sample.mode(), sample.ip, false);
        self.with_user_part(state, sample, leaf, 0, user)
    }

    /// The place of a sample's own address, which most often is the first of its stack.
    #[inline]
    fn leaf(&mut self, state: &State, sample: &TimedSample<'_>, inner: Callchain<'_>, part: PartId) -> LocId {
        let first = self.stacks.places_of(part).first().copied();
        match (inner.iter().nth(1) == Some(sample.ip), first) {
            (true, Some(first)) => first,
            _ => self.places.of(state, sample, sample.mode(), sample.ip, false),
        }
    }

    #[inline]
    fn with_user_part(
        &mut self,
        state: &State,
        sample: &TimedSample<'_>,
        leaf: LocId,
        inner: PartId,
        user: Callchain<'_>,
    ) -> (LocId, StackId) {
        let outer = match user.is_empty() {
            true => Some(0),
            false => self.user_part(state, sample, user),
        };
        match outer {
            Some(outer) => (leaf, self.stacks.stack(inner, outer)),
            None => self.walk(state, sample),
        }
    }

    /// The part of a stack in the kernel.
    #[inline]
    fn kernel_part(&mut self, state: &State, sample: &TimedSample<'_>, part: Callchain<'_>) -> PartId {
        let under = Under::kernel(state);
        let (hash, known) = self.kernel_parts.find(part, under);
        if let Some(known) = known {
            return known;
        }
        // As the sample's own address is looked up first, so that places are numbered in one order.
        self.places.of(state, sample, sample.mode(), sample.ip, false);
        self.look_up(state, sample, part, CpuMode::Kernel);
        let id = self.stacks.part(&self.walked);
        self.kernel_parts.keep(hash, part, under, id);
        id
    }

    /// The part of a stack in a process; `None` if there is more in it.
    #[inline]
    fn user_part(&mut self, state: &State, sample: &TimedSample<'_>, part: Callchain<'_>) -> Option<PartId> {
        let under = Under::process(sample);
        let (hash, known) = self.user_parts.find(part, under);
        if known.is_some() {
            return known;
        }
        if part.iter().skip(1).any(context::is_marker) {
            return None;
        }
        self.look_up(state, sample, part, CpuMode::User);
        let id = self.stacks.part(&self.walked);
        if !self.walked.iter().any(|loc| self.places.is_unmapped(*loc)) {
            self.user_parts.keep(hash, part, under, id);
        }
        Some(id)
    }

    /// The places of a part that begins with its marker, to `walked`.
    fn look_up(&mut self, state: &State, sample: &TimedSample<'_>, part: Callchain<'_>, mode: CpuMode) {
        self.walked.clear();
        let calls = has_return_addresses(part);
        for (nth, addr) in part.iter().skip(1).enumerate() {
            self.walked.push(self.places.of(state, sample, mode, addr, calls && nth > 0));
        }
    }

    /// The same of any stack, one address after the other.
    #[inline(never)]
    fn walk(&mut self, state: &State, sample: &TimedSample<'_>) -> (LocId, StackId) {
        let leaf = self.places.of(state, sample, sample.mode(), sample.ip, false);
        self.walked.clear();
        walk_chain(sample.chain, sample.mode(), sample.ip, |addr, mode, caller| {
            self.walked.push(self.places.of(state, sample, mode, addr, caller));
        });
        (leaf, self.stack_of_walked())
    }

    fn stack_of_walked(&mut self) -> StackId {
        let inner = self.walked.iter().take_while(|loc| self.places.is_kernel(**loc)).count();
        let (inner, outer) = self.walked.split_at(inner);
        let (inner, outer) = (self.stacks.part(inner), self.stacks.part(outer));
        self.stacks.stack(inner, outer)
    }

    /// Where a sample was taken, and its stack behind the branches that led to it.
    #[cold]
    fn with_history(&mut self, state: &State, sample: &TimedSample<'_>) -> (LocId, StackId) {
        let branches = decoded(sample).and_then(|all| all.branch_stack).unwrap_or_default();
        if !self.history.places(&mut self.walked, &mut self.places, state, sample, &branches) {
            return self.find(state, sample);
        }
        (self.places.of(state, sample, sample.mode(), sample.ip, false), self.stack_of_walked())
    }
}

impl Collector<'_> {
    /// What leaves a sample out, as far as that is known while it goes by.
    #[inline]
    fn left_out(&mut self, state: &State, sample: &TimedSample<'_>) -> Option<FilterKind> {
        match self.filter.left_out(state, sample) {
            None if self.by_name.is_some() => self.left_out_by_name(state, sample),
            kind => kind,
        }
    }

    fn left_out_by_name(&mut self, state: &State, sample: &TimedSample<'_>) -> Option<FilterKind> {
        let by_name = self.by_name.as_mut()?;
        let at = self.places.of(state, sample, sample.mode(), sample.ip, false) as usize;
        if by_name.known.len() <= at {
            by_name.known.resize(at + 1, None);
        }
        let (known, loc) = by_name.known.get_mut(at).zip(self.places.locs.get(at))?;
        if let Some(known) = known {
            return *known;
        }
        let frame = self.resolver.resolve(state, *loc);
        // What has no name yet may get one, as a file that is gone does by a later process that has it mapped.
        let stays = frame.symbol.is_ok() || loc.place == Place::Unmapped || frame.kind.is_kernel();
        let kind = by_name.filters.left_out_at(&frame).filter(|kind| stays || *kind == FilterKind::Dso);
        *known = Some(kind);
        if stays {
            by_name.frames.insert(at as LocId, frame);
        }
        kind
    }

    /// Frames that were found while samples went by, by place.
    pub(crate) fn take_frames(&mut self) -> FxHashMap<LocId, Frame> {
        self.by_name.as_mut().map(|by_name| std::mem::take(&mut by_name.frames)).unwrap_or_default()
    }

    /// Counts a sample that a filter leaves out.
    #[inline]
    fn leaves_out(&mut self, state: &State, sample: &TimedSample<'_>) -> bool {
        if let Some(sums) = self.events.get_mut(sample.event) {
            sums.read.add(Weight { period: sample.period, samples: sample.count, records: 1 });
        }
        let Some(kind) = self.left_out(state, sample) else { return false };
        let weight = self.weight_of(sample);
        let left_out = self.events.get_mut(sample.event).and_then(|sums| sums.left_out.get_mut(kind as usize));
        left_out.into_iter().for_each(|sum| sum.add(weight));
        true
    }

    #[inline]
    fn take_in(&mut self, state: &State, sample: &TimedSample<'_>) {
        if self.needs.branches {
            return self.take_branches(state, sample);
        }
        let weight = self.weight_of(sample);
        if let Some(sums) = self.events.get_mut(sample.event) {
            sums.weight.add(weight);
            if let Some(part) = user_part(sample.chain) {
                sums.user_stacks = sums.user_stacks.saturating_add(sample.count);
                if part == UserPart::Short {
                    sums.short_user_stacks = sums.short_user_stacks.saturating_add(sample.count);
                }
            }
        }
        let (leaf, stack, slot) = if self.needs.chains {
            let (leaf, stack) =
                if self.needs.history { self.with_history(state, sample) } else { self.find(state, sample) };
            (leaf, stack, Slot::NONE)
        } else {
            let (slot, leaf) = self.recent.find(state, sample);
            (leaf.unwrap_or_else(|| self.leaf_of(slot, state, sample)), 0, slot)
        };
        let more = if self.more.is_empty() { 0 } else { self.more_of(state, sample) };
        let key = self.needs.key(sample, leaf, stack, more);
        self.add(key, weight, slot);
    }

    /// Adds to the entry of a key.
    #[inline]
    fn add(&mut self, key: EntryKey, weight: Weight, slot: Slot) {
        let stack = key.stack;
        let entries = &mut self.entries;
        let last = if stack != 0 { self.stacks.entry(stack) } else { self.recent.entry(slot) };
        if let Some(entry) = entries.get_mut(last as usize).filter(|entry| entry.key == key) {
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
        match stack {
            0 => self.recent.went_to(slot, index),
            stack => self.stacks.went_to(stack, index),
        }
    }
}

impl Collector<'_> {
    /// What a sample weighs: where branches are looked at, one for each.
    #[inline]
    fn weight_of(&self, sample: &TimedSample<'_>) -> Weight {
        let usual = Weight { period: sample.period, samples: sample.count, records: 1 };
        match (self.needs.branches, self.needs.by_weight) {
            (false, false) => usual,
            (true, _) => {
                let count = decoded(sample).and_then(|all| all.branch_stack).map_or(0, |stack| stack.len() as u64);
                Weight { period: count, samples: count, records: count }
            }
            // As in perf, where each access weighs at least 1.
            (false, true) => Weight { period: decoded(sample).map_or(1, |all| weight_in(sample, &all)), ..usual },
        }
    }

    /// What else is asked for of a sample.
    #[inline(never)]
    fn more_of(&mut self, state: &State, sample: &TimedSample<'_>) -> MoreId {
        let all = if self.more.takes_decoding() { decoded(sample) } else { None };
        self.number_more(state, sample, all.as_ref(), None)
    }

    fn number_more(
        &mut self,
        state: &State,
        sample: &TimedSample<'_>,
        all: Option<&Sample<'_>>,
        branch: Option<(BranchEntry, LocId, LocId)>,
    ) -> MoreId {
        let mut values = std::mem::take(&mut self.values);
        let from = Sampled { state, sample, all, branch, labels: self.label };
        let places = &mut self.places;
        let place = |addr| places.of(state, sample, mode_of(sample, addr), addr, false);
        self.more.read(&mut values, &from, self.columns, place);
        let more = self.more.number(&values);
        self.values = values;
        more
    }

    /// The stack of a sample; where none was recorded, that of its own address.
    fn stack_of(&mut self, state: &State, sample: &TimedSample<'_>) -> StackId {
        let (leaf, stack) = self.find(state, sample);
        let (inner, outer) = self.stacks.get(stack);
        if !(inner.is_empty() && outer.is_empty()) {
            return stack;
        }
        let (part, is_kernel) = (self.stacks.part(&[leaf]), self.places.is_kernel(leaf));
        if is_kernel { self.stacks.stack(part, 0) } else { self.stacks.stack(0, part) }
    }

    /// Takes each branch of a sample for one of its own, which was taken where it led to: as in perf, with a period of 1.
    #[cold]
    fn take_branches(&mut self, state: &State, sample: &TimedSample<'_>) {
        const ONE: Weight = Weight { period: 1, samples: 1, records: 1 };
        let all = decoded(sample);
        let branches = all.as_ref().and_then(|all| all.branch_stack).filter(|branches| !branches.is_empty());
        if let Some(sums) = self.events.get_mut(sample.event) {
            let of = if branches.is_some() { &mut sums.with_branches } else { &mut sums.without_branches };
            *of = of.saturating_add(sample.count);
        }
        let Some(branches) = branches else { return };
        // Parents are looked for on the stack of the sample.
        let stack = if self.needs.chains { self.stack_of(state, sample) } else { 0 };
        for branch in branches.iter() {
            let mut place = |addr| self.places.of(state, sample, mode_of(sample, addr), addr, false);
            let (from, to) = (place(branch.from), place(branch.to));
            let more = self.number_more(state, sample, all.as_ref(), Some((branch, from, to)));
            let key = self.needs.key(sample, to, stack, more);
            self.add(key, ONE, Slot::NONE);
            self.events.get_mut(sample.event).into_iter().for_each(|sums| sums.weight.add(ONE));
        }
    }
}

/// All fields of a sample; what a handler wrote has none but those that the replay found.
fn decoded<'f>(sample: &TimedSample<'f>) -> Option<Sample<'f>> {
    if sample.is_emitted() { None } else { sample.decode().ok() }
}

/// The weight in a sample, at least 1.
fn weight_in(sample: &TimedSample<'_>, all: &Sample<'_>) -> u64 {
    let weight = all.weight.map_or(1, |word| if sample.has_weight_struct() { word & 0xffff_ffff } else { word });
    weight.max(1)
}

/// Whose an address in a sample is: branches lead into the kernel and out of it, and it reads data of both.
pub(crate) fn mode_of(sample: &TimedSample<'_>, addr: u64) -> CpuMode {
    match sample.mode() {
        CpuMode::Kernel | CpuMode::User | CpuMode::Unknown if addr >> 63 == 1 => CpuMode::Kernel,
        CpuMode::Kernel | CpuMode::User | CpuMode::Unknown => CpuMode::User,
        other => other,
    }
}

impl Sink for Collector<'_> {
    #[inline]
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>) {
        if !self.leaves_out(state, sample) {
            self.take_in(state, sample);
        }
    }

    fn said(&mut self, state: &State, sample: &TimedSample<'_>, said: &[Said<'_>]) {
        if !self.leaves_out(state, sample) {
            self.label = self.labels.take(sample.event, said);
            self.take_in(state, sample);
            self.label = 0;
        }
    }
}

impl NamingSink for Collector<'_> {
    fn resolver(&mut self) -> &mut Resolver {
        self.resolver
    }

    fn wants_stack(&mut self, state: &State, sample: &TimedSample<'_>) -> bool {
        self.left_out(state, sample).is_none()
    }
}

impl Needs {
    #[inline]
    fn key(&self, sample: &TimedSample<'_>, leaf: LocId, stack: StackId, more: MoreId) -> EntryKey {
        let pick = |wanted: bool, value: u32| if wanted { value } else { 0 };
        EntryKey {
            cgroup: if self.cgroup { sample.cgroup.unwrap_or(0) } else { 0 },
            leaf,
            stack,
            comm: pick(self.comm, sample.comm.0),
            pid: pick(self.pid, sample.pid),
            tid: pick(self.tid, sample.tid),
            cpu: pick(self.cpu, sample.cpu.unwrap_or(NO_CPU)),
            event: u32::try_from(sample.event).unwrap_or(u32::MAX),
            more,
        }
    }
}

impl EntryKey {
    pub(crate) fn comm(&self) -> CommId {
        CommId(self.comm)
    }
}

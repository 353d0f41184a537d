//! What the machine was like at the moment of the replay: tasks, maps, kernel text.

mod apply;
mod jit;
mod maps;
mod objects;
mod tasks;

use std::sync::Arc;

use afterimage_kernel_text::{TextId, TextKind, Timeline};
use afterimage_perf_data::{BuildId, Callchain, NestedPid, TextDesc, context};
use rustc_hash::FxHashMap;

pub(crate) use jit::Jit;
pub(crate) use maps::Mapping;
use maps::Priorities;
pub use objects::ObjectId;
pub(crate) use objects::{Object, Objects};
pub use tasks::{CommId, ProcessId, SpaceId, ThreadId};
use tasks::{Tasks, Thread};

use crate::loc::{CpuMode, Loc, Place};
use crate::sample::TimedSample;

/// Where the recorded kernel lay, as its map record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMap {
    /// First address of its text.
    pub start: u64,
    /// Bytes of its text.
    pub len: u64,
    /// The symbol that the record gives the address of, `_text` or `_stext`.
    pub symbol: String,
    /// Address of that symbol.
    pub symbol_addr: u64,
    /// The kernel's build ID, if the record has it.
    pub build_id: Option<BuildId>,
}

/// What the machine was like at the moment of the replay. After the replay: what it was like at the end, and all that
/// [`Loc`]s and ids refer to.
#[derive(Debug)]
pub struct State {
    tasks: Tasks,
    objects: Objects,
    timeline: Timeline,
    clock: Clock,
    jit: Jit,
    /// Processes in pid namespaces of their own: from when on, and by what number. `None`: nobody asked.
    nested: Option<FxHashMap<u32, Vec<(u64, u32)>>>,
    cgroups: FxHashMap<u64, Arc<str>>,
    /// By thread, device and inode of its cgroup namespace.
    cgroup_namespaces: FxHashMap<u32, (u64, u64)>,
    kernel_map: Option<KernelMap>,
    priorities: Priorities,
    nameless: Arc<str>,
}

impl State {
    /// The state before the first record, with the kernel texts that the recording tells of.
    pub(crate) fn new(texts: &[TextDesc]) -> State {
        let mut timeline = Timeline::new();
        timeline.adopt(texts);
        State {
            tasks: Tasks::default(),
            objects: Objects::default(),
            clock: Clock::new(&timeline),
            timeline,
            jit: Jit::default(),
            nested: None,
            cgroups: FxHashMap::default(),
            cgroup_namespaces: FxHashMap::default(),
            kernel_map: None,
            priorities: Priorities::new(),
            nameless: "".into(),
        }
    }

    /// The same, with what is known of the code of JIT compilers.
    pub(crate) fn with_jit(mut self, jit: Jit) -> State {
        self.jit = jit;
        self
    }

    /// The same, with what is known of processes in pid namespaces of their own.
    pub(crate) fn with_nested(mut self, told: &[NestedPid]) -> State {
        if told.is_empty() {
            return self;
        }
        let mut nested: FxHashMap<u32, Vec<(u64, u32)>> = FxHashMap::default();
        for process in told {
            nested.entry(process.pid).or_default().push((process.since_ns, process.own));
        }
        nested.values_mut().for_each(|numbers| numbers.sort_unstable());
        self.nested = Some(nested);
        self
    }

    /// By what number a process knows itself now: another one in a pid namespace of its own. `None` where namespaces were not
    /// recorded.
    pub fn own_pid(&self, pid: u32) -> Option<u32> {
        let numbers = self.nested.as_ref()?.get(&pid);
        let now = numbers.and_then(|numbers| numbers.iter().rev().find(|(since, _)| *since <= self.clock.now));
        Some(now.map_or(pid, |(_, own)| *own))
    }

    /// What is known of the code of JIT compilers.
    pub(crate) fn jit(&self) -> &Jit {
        &self.jit
    }

    /// A name of a thread.
    pub fn comm(&self, id: CommId) -> &Arc<str> {
        self.tasks.comms.get(id).unwrap_or(&self.nameless)
    }

    /// The name that thread `tid` has now.
    pub fn comm_of(&self, tid: u32) -> Option<&Arc<str>> {
        Some(self.comm(self.tasks.thread(tid)?.comm))
    }

    /// The path of a cgroup, if a record told of it.
    pub fn cgroup(&self, id: u64) -> Option<&Arc<str>> {
        self.cgroups.get(&id)
    }

    /// Device and inode of the cgroup namespace that a thread is in, if a record told of it.
    pub fn cgroup_namespace(&self, tid: u32) -> Option<(u64, u64)> {
        self.cgroup_namespaces.get(&tid).copied()
    }

    /// The kernel text that came and went.
    pub fn kernel(&self) -> &Timeline {
        &self.timeline
    }

    /// Other than before whenever an address of the kernel may mean something else than before.
    pub(crate) fn kernel_version(&self) -> u64 {
        self.timeline.version().wrapping_add(self.clock.crossed)
    }

    /// The text that a place lies in, and how far from its start; also for functions of the kernel whose bytes the
    /// recording has.
    pub fn text_of(&self, loc: Loc) -> Option<(TextId, u64)> {
        match loc.place {
            Place::Text(id) => Some((id, loc.addr.wrapping_sub(self.timeline.text(id)?.addr))),
            // They stay where they are.
            Place::Kernel => self.timeline.lookup_now(loc.addr).map(|hit| (hit.text, hit.offset)),
            _ => None,
        }
    }

    /// Records that may have told of kernel texts were lost.
    pub(crate) fn kernel_records_lost(&mut self, time: u64) {
        self.timeline.lost(time);
    }

    /// The records from here on are of this time; 0: they have none, and come after all that was before.
    #[inline]
    pub(crate) fn set_time(&mut self, time: u64) {
        self.clock.set(if time == 0 { u64::MAX } else { time });
        if self.jit.is_due(time) {
            self.jit_until(time);
        }
    }

    /// Where the recorded kernel lay.
    pub fn kernel_map(&self) -> Option<&KernelMap> {
        self.kernel_map.as_ref()
    }

    /// Path and build ID of something that was mapped.
    pub fn object(&self, id: ObjectId) -> Option<(&[u8], Option<BuildId>)> {
        self.objects.get(id).map(|object| (&*object.path, object.build_id))
    }

    pub(crate) fn object_details(&self, id: ObjectId) -> Option<&Object> {
        self.objects.get(id)
    }

    /// Process, name and address space of a thread, now.
    #[inline]
    pub(crate) fn task(&mut self, pid: u32, tid: u32) -> (ThreadId, ProcessId, CommId, SpaceId) {
        let Thread { id, process, comm, .. } = self.tasks.thread_in(pid, tid);
        let space = self.tasks.process(process).map_or(SpaceId(0), |process| process.space.id);
        (id, process, comm, space)
    }

    /// Where an address lies now, for a process in that mode.
    pub fn locate(&self, process: ProcessId, mode: CpuMode, addr: u64) -> Loc {
        match mode {
            CpuMode::Kernel => self.locate_kernel(addr),
            CpuMode::User => self.locate_user(process, addr),
            // Nobody said: addresses in the upper half are the kernel's on all machines of ours.
            CpuMode::Unknown if addr >> 63 == 1 => self.locate_kernel(addr),
            CpuMode::Unknown => self.locate_user(process, addr),
            CpuMode::Hypervisor | CpuMode::GuestKernel | CpuMode::GuestUser => {
                Loc { place: Place::Elsewhere(mode), addr }
            }
        }
    }

    fn locate_kernel(&self, addr: u64) -> Loc {
        let place = match self.kernel_text_at(addr) {
            Some(text) => Place::Text(text),
            None => Place::Kernel,
        };
        Loc { place, addr }
    }

    /// The text of the timeline that covers a kernel address now. Functions of the kernel's own have their names from
    /// elsewhere.
    pub(crate) fn kernel_text_at(&self, addr: u64) -> Option<TextId> {
        if !self.timeline.may_cover(addr) {
            return None;
        }
        let text = self.timeline.lookup(addr, self.clock.now)?.text;
        self.timeline.text(text).is_some_and(|text| text.kind != TextKind::Kernel).then_some(text)
    }

    /// What a process has mapped at an address now.
    pub(crate) fn mapping(&self, process: ProcessId, addr: u64) -> Option<&Mapping> {
        let space = &self.tasks.process(process)?.space;
        let jit = if space.jit.is_empty() { None } else { space.jit.find(addr) };
        jit.or_else(|| space.maps.find(addr)).or_else(|| space.before_exec.as_ref()?.find(addr))
    }

    fn locate_user(&self, process: ProcessId, addr: u64) -> Loc {
        match self.mapping(process, addr) {
            Some(mapping) => Loc { place: Place::Object(mapping.object), addr: addr.wrapping_add(mapping.delta) },
            None => Loc { place: Place::Unmapped, addr },
        }
    }

    /// Calls `visit` with every address of a sample's stack, innermost first. A sample without a stack has one address,
    /// its own.
    pub fn walk(&self, sample: &TimedSample<'_>, mut visit: impl FnMut(Step)) {
        walk_chain(sample.chain, sample.mode(), sample.ip, |addr, mode, caller| {
            let loc = self.locate(sample.process, mode, addr.wrapping_sub(u64::from(caller)));
            visit(Step { addr, mode, caller, loc });
        });
    }
}

/// The time of the replay, held against the texts that were known beforehand: those come and go without a record.
#[derive(Debug)]
struct Clock {
    now: u64,
    /// When one of them came or went.
    changes: Vec<u64>,
    /// How many of `changes` lie behind.
    behind: usize,
    /// How often that number changed.
    crossed: u64,
}

impl Clock {
    fn new(timeline: &Timeline) -> Clock {
        let mut changes: Vec<u64> =
            timeline.texts().flat_map(|(_, text)| [Some(text.born), text.gone]).flatten().collect();
        changes.sort_unstable();
        changes.dedup();
        Clock { now: 0, behind: changes.partition_point(|change| *change == 0), changes, crossed: 0 }
    }

    #[inline]
    fn set(&mut self, now: u64) {
        self.now = now;
        let last = self.behind.checked_sub(1).and_then(|last| self.changes.get(last));
        let same = last.is_none_or(|last| *last <= now) && self.changes.get(self.behind).is_none_or(|next| *next > now);
        if !same {
            self.behind = self.changes.partition_point(|change| *change <= now);
            self.crossed += 1;
        }
    }
}

/// One address of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The address as it was recorded.
    pub addr: u64,
    /// What ran there.
    pub mode: CpuMode,
    /// Whether it is a return address. Then `loc` is of the byte before it, which belongs to the call: what follows a
    /// call that never returns may be another function.
    pub caller: bool,
    /// Where it lies.
    pub loc: Loc,
}
/// Calls `visit` with every address of a stack, innermost first: its mode, and whether it is a return address.
/// The sample's own address is put first where the chain lacks it: without a chain, and when the CPU was in the kernel
/// and the chain has only its user part.
#[inline]
pub(crate) fn walk_chain(
    chain: Callchain<'_>,
    sample_mode: CpuMode,
    ip: u64,
    mut visit: impl FnMut(u64, CpuMode, bool),
) {
    let mut mode = sample_mode;
    let (mut is_caller, mut calls) = (false, true);
    let mut any = false;
    for value in chain.iter() {
        if context::is_marker(value) {
            if value == context::USER_DEFERRED {
                break;
            }
            if let Some(new) = CpuMode::of_marker(value) {
                mode = new;
                (is_caller, calls) = (false, value != context::UNWOUND);
            }
            continue;
        }
        if !any && mode != sample_mode && sample_mode != CpuMode::Unknown {
            visit(ip, sample_mode, false);
        }
        any = true;
        visit(value, mode, is_caller);
        is_caller = calls;
    }
    if !any {
        visit(ip, sample_mode, false);
    }
}

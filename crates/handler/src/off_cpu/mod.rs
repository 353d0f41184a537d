//! Time that threads spend on no CPU: measured at every switch of the scheduler, added up in the kernel by thread, stack and
//! reason, in tables that user space sees as memory.
//!
//! The program runs at `sched_switch` and needs no event, no slot and no stub. While it is loaded and not [started](OffCpu::start)
//! it costs a switch a few nanoseconds.

mod open;
mod setup;

use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::addr_of_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::Link;

use crate::Result;
use crate::mapping::Mapping;
use crate::skeleton::off_cpu::types::{ai_left, ai_wait_counts, ai_watch};
use crate::table::{CountEntry, DrainStats, Tables};

pub use afterimage_perf_data::off_cpu::Waits;
pub use open::OpenWait;

/// Whose time is measured. Threads of the kernel, and those that run when nobody else does, are never among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// All threads.
    #[default]
    Everybody,
    /// Those of these processes.
    Processes(Vec<u32>),
    /// These threads.
    Threads(Vec<u32>),
}

/// What to measure.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whose time.
    pub whose: Whose,
    /// What these processes or threads start is measured as well.
    pub follow: bool,
    /// Shorter intervals are counted, and are in no table: ns.
    pub min_ns: u64,
    /// CPUs that get tables; empty: those online.
    pub cpus: Vec<u32>,
    /// Distinct entries of each half of a table; `None` chooses by the number of tables.
    pub entries: Option<u32>,
    /// Threads that there is room for at the same time; `None`: 8,192.
    pub threads: Option<u32>,
    /// Who ends a wait is measured too.
    pub wakers: bool,
    /// Where the kernel's function is that carries out system calls (`do_syscall_64`): on x86-64 its frame may have a gap of random
    /// length. Empty where that is not known; then stacks of system calls are walked more often.
    pub syscall: Range<u64>,
    /// Every stack is walked, also one that cannot differ from one that was walked before.
    pub walk_all: bool,
}

/// Why a thread is on no CPU (`enum ai_state` in src/bpf/off_cpu.bpf.c; the numbers are those of its enumerators).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum State {
    /// It could run: another one has the CPU.
    Runnable = 0,
    /// It waits, and signals end the wait.
    Interruptible,
    /// It waits, and nothing else ends the wait.
    Uninterruptible,
    /// It waits, and deadly signals end the wait.
    Killable,
    /// It waits without being a load.
    Idle,
    /// Stopped by a signal.
    Stopped,
    /// Stopped by a debugger.
    Traced,
    /// Parked.
    Parked,
    /// A state that is none of these.
    Other,
    /// It is new and has not run yet.
    Starting,
    /// It had left before anybody looked: since the recording began.
    Before,
}

impl State {
    /// All of them, by number.
    pub const ALL: [State; 11] = [
        State::Runnable,
        State::Interruptible,
        State::Uninterruptible,
        State::Killable,
        State::Idle,
        State::Stopped,
        State::Traced,
        State::Parked,
        State::Other,
        State::Starting,
        State::Before,
    ];

    /// The state of this number, as [`CountEntry::bucket`] and [`OpenWait::state`] have it.
    pub fn of(number: u32) -> State {
        State::ALL.get(number as usize).copied().unwrap_or(State::Other)
    }

    /// Its name in recordings.
    pub fn name(self) -> &'static str {
        match self {
            State::Runnable => "runnable",
            State::Interruptible => "interruptible",
            State::Uninterruptible => "uninterruptible",
            State::Killable => "killable",
            State::Idle => "idle",
            State::Stopped => "stopped",
            State::Traced => "traced",
            State::Parked => "parked",
            State::Other => "other",
            State::Starting => "starting",
            State::Before => "before",
        }
    }
}

/// What became of intervals on one CPU, or on all. `ended = stored + below + lost_full + lost_collision`, in number and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// Those that ended.
    pub ended: Waits,
    /// Those in a table.
    pub stored: Waits,
    /// Those shorter than wanted.
    pub below: Waits,
    /// Those that found no room in a table.
    pub lost_full: Waits,
    /// Those whose place in a table was another's with the same hash.
    pub lost_collision: Waits,
    /// Those of threads that there was no room for. Nobody knows how long they were; they are not among [`WaitCounts::ended`].
    pub lost_threads: u64,
    /// Of those stored, the ones without a stack.
    pub no_stack: u64,
    /// Switches seen, of whatever threads.
    pub switches: u64,
    /// Where wakers are wanted, of those stored the ones that are in a table of wakers, too; `stored = woken + woken_lost +
    /// woken_by_nobody` then.
    pub woken: Waits,
    /// Those that found no room there.
    pub woken_lost: Waits,
    /// Those that nobody was seen to end.
    pub woken_by_nobody: Waits,
}

/// The loaded programs. Dropping it takes them away.
pub struct OffCpu {
    tables: Tables,
    /// Number of the table of each CPU that has one, by CPU.
    table_of: Vec<Option<u32>>,
    counts: Mapping<ai_wait_counts>,
    watch: Mapping<ai_watch>,
    programs: Vec<(&'static str, OwnedFd)>,
    open: Link,
    wakers: bool,
    reuses: bool,
    /// Tables of waits; those of wakers stand behind them.
    waits_tables: usize,
    _links: Vec<Link>,
    nr_cpus: u32,
}

impl fmt::Debug for OffCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OffCpu").field("nr_cpus", &self.nr_cpus).finish_non_exhaustive()
    }
}

impl OffCpu {
    /// Loads and attaches the programs. Nothing is measured before [`OffCpu::start`].
    ///
    /// # Errors
    /// When the kernel refuses a program (they want Linux 6.1 with BTF), and for options that make no sense.
    pub fn load(options: &Options) -> Result<OffCpu> {
        setup::load(options)
    }

    /// Measures from `now` on, ns of CLOCK_MONOTONIC.
    pub fn start(&self, now: u64) {
        let Some([on, since, missed]) = self.watch() else { return };
        missed.store(0, Ordering::SeqCst);
        since.store(now, Ordering::SeqCst);
        on.store(1, Ordering::SeqCst);
    }

    /// Measures no more. Counters are final once every table has been drained after it.
    pub fn stop(&self) {
        if let Some([on, ..]) = self.watch() {
            on.store(0, Ordering::SeqCst);
        }
    }

    fn watch(&self) -> Option<[&AtomicU64; 3]> {
        let watch: *mut ai_watch = self.watch.get(0)?;
        // SAFETY: `watch` points at a whole ai_watch, aligned to 8, as long as `self` lives; programs read and write it
        // meanwhile, so that it is accessed as atomics alone.
        Some(unsafe {
            [
                AtomicU64::from_ptr(addr_of_mut!((*watch).on)),
                AtomicU64::from_ptr(addr_of_mut!((*watch).since)),
                AtomicU64::from_ptr(addr_of_mut!((*watch).missed)),
            ]
        })
    }

    /// Hands out what was added up on one CPU since the last drain, and forgets it: intervals of one thread with one stack and
    /// one [state](State) (`bucket`), how many (`count`), their time (`period`), and when the first of them ended
    /// (`first_time`). `ip` and `cgroup` together are the name of the thread that ended the waits, NUL-terminated, where wakers
    /// are wanted and one was seen, else 0. The program goes on in the table's other half.
    pub fn drain(&mut self, cpu: u32, f: &mut dyn FnMut(&CountEntry<'_>)) -> DrainStats {
        match self.table_of.get(cpu as usize).copied().flatten() {
            Some(number) => self.tables.drain(number as usize, f),
            None => DrainStats::default(),
        }
    }

    /// The same of those who ended waits: entries are theirs, with their stack as they did, and the time is that of the waits;
    /// `ip` and `cgroup` together are the name of the thread that had waited.
    pub fn drain_wakers(&mut self, cpu: u32, f: &mut dyn FnMut(&CountEntry<'_>)) -> DrainStats {
        match self.table_of.get(cpu as usize).copied().flatten().filter(|_| self.wakers) {
            Some(number) => self.tables.drain(self.waits_tables + number as usize, f),
            None => DrainStats::default(),
        }
    }

    /// How full the fullest table is, in percent.
    pub fn fill(&self) -> u64 {
        self.tables.fill()
    }

    /// The counters of one CPU; zeroes for what does not exist. Plain loads from shared memory.
    pub fn counts(&self, cpu: u32) -> WaitCounts {
        let Some(at) = self.counts.get(cpu as usize) else { return WaitCounts::default() };
        macro_rules! read {
            ($($field:ident).+) => {
                // SAFETY: `at` points at a whole ai_wait_counts, aligned to 8, as long as `self` lives; the program writes
                // it meanwhile, so the load is atomic.
                unsafe { AtomicU64::from_ptr(addr_of_mut!((*at).$($field).+)) }.load(Ordering::Relaxed)
            };
        }
        macro_rules! waits {
            ($field:ident) => {
                Waits { waits: read!($field.waits), ns: read!($field.ns) }
            };
        }
        WaitCounts {
            ended: waits!(ended),
            stored: waits!(stored),
            below: waits!(below),
            lost_full: waits!(lost_full),
            lost_collision: waits!(lost_collision),
            lost_threads: read!(lost_threads),
            no_stack: read!(no_stack),
            switches: read!(switches),
            woken: waits!(woken),
            woken_lost: waits!(woken_lost),
            woken_by_nobody: waits!(woken_by_nobody),
        }
    }

    /// The counters of all CPUs.
    pub fn totals(&self) -> WaitCounts {
        let mut sum = WaitCounts::default();
        for one in (0..self.nr_cpus).map(|cpu| self.counts(cpu)) {
            sum.ended.add(one.ended);
            sum.stored.add(one.stored);
            sum.below.add(one.below);
            sum.lost_full.add(one.lost_full);
            sum.lost_collision.add(one.lost_collision);
            sum.woken.add(one.woken);
            sum.woken_lost.add(one.woken_lost);
            sum.woken_by_nobody.add(one.woken_by_nobody);
            sum.lost_threads += one.lost_threads;
            sum.no_stack += one.no_stack;
            sum.switches += one.switches;
        }
        sum
    }

    /// Threads that wait now, after [`OffCpu::stop`]: also those that waited all the time, of which no switch was seen.
    ///
    /// # Errors
    /// When the kernel's list of threads cannot be read.
    pub fn open_waits(&self) -> Result<Vec<OpenWait>> {
        open::read(&self.open)
    }

    /// Whether stacks are walked only where they may differ from those that were walked before.
    pub fn reuses(&self) -> bool {
        self.reuses
    }

    /// The loaded programs by name.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        self.programs.iter().map(|(name, fd)| (*name, fd.as_fd()))
    }
}

/// Bytes of `struct ai_left` before its stack, and the words of it.
const LEFT_HEAD: usize = std::mem::offset_of!(ai_left, word);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_their_numbers() {
        for (number, state) in (0..).zip(State::ALL) {
            assert_eq!((state as u32, State::of(number)), (number, state));
        }
        assert_eq!(State::of(u32::MAX), State::Other);
    }
}

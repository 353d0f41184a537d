//! Names for the addresses of a session that is still going on: records take effect as they come, addresses are located
//! as of their time, and named when somebody asks.

use afterimage_perf_data::{Callchain, Features, Record};

use crate::loc::{CpuMode, Loc};
use crate::resolve::{Frame, ResolveOptions, Resolver};
use crate::state::{State, Step, walk_chain};
use crate::stats::ReplayStats;

/// The machine as the records of a running session tell of it.
///
/// It grows with every process and text that comes, as a replay does: nothing that was located is forgotten.
pub struct Running {
    state: State,
    resolver: Resolver,
    stats: ReplayStats,
}

impl Default for Running {
    fn default() -> Running {
        Running::new()
    }
}

impl Running {
    /// Before the first record.
    pub fn new() -> Running {
        // Paths and process numbers are this machine's.
        let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let hostname = hostname.map(|name| name.trim_end().to_owned());
        let features = Features { hostname, ..Features::default() };
        Running {
            state: State::new(&[]),
            resolver: Resolver::with(features, Vec::new(), ResolveOptions::default()),
            stats: ReplayStats::default(),
        }
    }

    /// A record takes effect. They have to come in the order of their times, those without a time (or with 0) first.
    pub fn apply(&mut self, record: &Record<'_>) {
        let time = record.time().unwrap_or(0);
        self.state.set_time(time);
        if let (Record::Lost(_), true) = (record, time != 0) {
            self.state.kernel_records_lost(time);
        }
        self.state.apply(time, record, &mut self.stats);
    }

    /// Calls `visit` with every address of a stack that process `pid` had at `time`, innermost first.
    pub fn walk(&mut self, time: u64, pid: u32, chain: Callchain<'_>, mut visit: impl FnMut(Step)) {
        if chain.iter().next().is_none() {
            return;
        }
        self.state.set_time(time);
        let (_, process, _, _) = self.state.task(pid, pid);
        let state = &self.state;
        walk_chain(chain, CpuMode::Unknown, 0, |addr, mode, caller| {
            let loc = state.locate(process, mode, addr.wrapping_sub(u64::from(caller)));
            visit(Step { addr, mode, caller, loc });
        });
    }

    /// Where an address of the kernel or of process `pid` lay at `time`.
    pub fn locate(&mut self, time: u64, pid: u32, addr: u64) -> Loc {
        self.state.set_time(time);
        let (_, process, _, _) = self.state.task(pid, pid);
        self.state.locate(process, CpuMode::Unknown, addr)
    }

    /// The name of a place that was located.
    pub fn frame(&mut self, loc: Loc) -> &Frame {
        self.resolver.frame(&self.state, loc)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use afterimage_perf_data::record::{FileId, Mmap2};
    use afterimage_perf_data::{Endian, context};

    use super::*;
    use crate::loc::Place;

    fn mapped(pid: u32, addr: u64, filename: &[u8]) -> Record<'_> {
        let file = FileId::Inode { maj: 8, min: 1, ino: 7, generation: 0 };
        Record::Mmap2(Mmap2 { pid, tid: pid, addr, len: 0x1000, pgoff: 0x2000, file, filename, ..Mmap2::default() })
    }

    #[test]
    fn an_address_stays_what_it_was_when_it_was_located() {
        let mut running = Running::new();
        running.apply(&mapped(7, 0x10_0000, b"/nonexistent/one"));
        let before = running.locate(5, 7, 0x10_0010);
        running.apply(&mapped(7, 0x10_0000, b"/nonexistent/two"));
        let after = running.locate(6, 7, 0x10_0010);
        assert!(before != after && before.addr == 0x2010 && after.addr == 0x2010, "{before:?} {after:?}");
        assert_eq!(running.frame(before).dso.short, "one");
        assert_eq!(running.frame(after).dso.short, "two");
        assert_eq!(running.locate(6, 8, 0x10_0010).place, Place::Unmapped);
    }

    #[test]
    fn a_stack_has_two_parts_and_callers() {
        let mut running = Running::new();
        let words = [context::KERNEL, u64::MAX - 0x1000, context::USER, 0x4000, 0x5000];
        let chain: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut steps = Vec::new();
        running.walk(1, 7, Callchain::new(&chain, Endian::NATIVE), |step| steps.push(step));
        let seen: Vec<(u64, CpuMode, bool)> = steps.iter().map(|step| (step.addr, step.mode, step.caller)).collect();
        let kernel = (u64::MAX - 0x1000, CpuMode::Kernel, false);
        assert_eq!(seen, [kernel, (0x4000, CpuMode::User, false), (0x5000, CpuMode::User, true)]);
        assert_eq!(steps[2].loc.addr, 0x4fff);
        running.walk(1, 7, Callchain::new(&[], Endian::NATIVE), |_| panic!("no stack has no address"));
    }
}

//! Records take effect.

use afterimage_kernel_text::{BpfProgram, KsymChange, Loader};
use afterimage_perf_data::record::{BpfEvent, Comm, FileId, Ksymbol, Mmap, Mmap2, Record, Task, cpumode, misc};
use afterimage_symbols::Live;

use super::{KernelMap, Mapping, State};
use crate::stats::ReplayStats;

/// FORK: perf made the record up for a process that was there already, and tells its maps one by one.
const FORK_EXEC: u16 = 1 << 13;
/// The pid of the kernel's own maps.
const KERNEL_PID: u32 = u32::MAX;

/// Where the cgroup namespace stands in a NAMESPACES record (`CGROUP_NS_INDEX`, linux/perf_event.h).
const CGROUP_NAMESPACE: usize = 6;

/// A map record of either kind.
struct Mapped<'a> {
    pid: u32,
    addr: u64,
    len: u64,
    pgoff: u64,
    path: &'a [u8],
    file: Option<FileId>,
    misc: u16,
}

/// What the kernel maps of a new image before it sets the registers: the code of the program, of its interpreter, and last the
/// page `[vdso]`. Where a machine has no such page, the map after these is the new image's own doing.
const MAPPED_BY_EXEC: u32 = 3;

impl State {
    /// Changes the state as the record says. Samples change nothing.
    pub(crate) fn apply(&mut self, time: u64, record: &Record<'_>, stats: &mut ReplayStats) {
        match record {
            Record::Mmap2(mmap) => self.mmap2(mmap),
            Record::Mmap(mmap) => self.mmap(mmap),
            Record::Comm(Comm { pid, tid, comm, .. }) => {
                let exec = matches!(record, Record::Comm(comm) if comm.is_exec());
                if exec && time != 0 {
                    self.jit.begins(*pid);
                }
                self.tasks.named(*pid, *tid, comm, exec);
            }
            Record::Fork(Task { pid, tid, ppid, ptid, misc, .. }) => {
                let keeps_maps = misc & FORK_EXEC != 0;
                if pid != ppid && !keeps_maps && time != 0 {
                    self.jit.begins(*pid);
                }
                self.tasks.forked(*pid, *tid, *ppid, *ptid, keeps_maps);
            }
            Record::Ksymbol(symbol) => self.ksymbol(time, symbol),
            Record::BpfEvent(event) if event.kind == BpfEvent::LOAD => {
                let program = BpfProgram { id: event.prog_id, tag: event.tag };
                self.timeline.program_loaded(time, event.id.tid.unwrap_or(0), program);
            }
            Record::TextPoke(poke) => self.timeline.poke(time, poke.addr, poke.old, poke.new),
            Record::Cgroup(cgroup) => {
                self.cgroups.insert(cgroup.cgroup, String::from_utf8_lossy(cgroup.path).into());
            }
            Record::Namespaces(namespaces) => {
                if let Some(cgroup) = namespaces.iter().nth(CGROUP_NAMESPACE) {
                    self.cgroup_namespaces.insert(namespaces.tid, (cgroup.dev, cgroup.ino));
                }
            }
            Record::Lost(lost) => stats.lost = stats.lost.saturating_add(lost.lost),
            Record::LostSamples(lost) if lost.misc & misc::LOST_SAMPLES_BPF != 0 => {
                stats.filtered_samples = stats.filtered_samples.saturating_add(lost.lost);
            }
            Record::LostSamples(lost) => stats.lost_samples = stats.lost_samples.saturating_add(lost.lost),
            Record::Throttle(_) => stats.throttles += 1,
            Record::Unknown(_) => stats.unknown_type += 1,
            // A task that ended can still be sampled on its way out, so it stays until its number is used again.
            _ => {}
        }
    }

    fn mmap2(&mut self, mmap: &Mmap2<'_>) {
        let Mmap2 { pid, addr, len, pgoff, file, misc, .. } = *mmap;
        self.mapped(&Mapped { pid, addr, len, pgoff, path: mmap.filename, file: Some(file), misc });
    }

    fn mmap(&mut self, mmap: &Mmap<'_>) {
        let Mmap { pid, addr, len, pgoff, misc, .. } = *mmap;
        self.mapped(&Mapped { pid, addr, len, pgoff, path: mmap.filename, file: None, misc });
    }

    fn mapped(&mut self, map: &Mapped<'_>) {
        match map.misc & cpumode::MASK {
            cpumode::KERNEL => return self.kernel_mapped(map),
            cpumode::GUEST_KERNEL | cpumode::GUEST_USER | cpumode::HYPERVISOR => return,
            _ if map.pid == KERNEL_PID => return,
            _ => {}
        }
        let Some(end) = map.addr.checked_add(map.len).filter(|end| *end > map.addr) else { return };
        let live = Live { pid: map.pid, start: map.addr, end };
        let (object, delta) = self.objects.of_mapping(map.path, map.file, map.pgoff, live);
        let id = self.tasks.process_of(map.pid);
        let fresh = self.tasks.new_space_id();
        let Some(process) = self.tasks.process_mut(id) else { return };
        let mapping = Mapping { start: map.addr, end, object, delta };
        let changed = process.space.maps.insert(mapping, &mut self.priorities);
        // A file takes the place of code that was made there; memory is where such code is.
        let takes_over = !process.space.jit.is_empty() && self.objects.get(object).is_some_and(|of| of.pid.is_none());
        let changed = takes_over && process.space.jit.insert(mapping, &mut self.priorities) || changed;
        let changed = process.space.before_exec.is_some() || changed;
        let space = &mut process.space;
        space.mapped = space.mapped.saturating_add(u32::from(map.misc & misc::MMAP_DATA == 0));
        if map.path == b"[vdso]" || space.mapped > MAPPED_BY_EXEC {
            space.before_exec = None;
        }
        // A map where nothing was leaves all that was known of this address space right.
        if changed || process.space.shared {
            process.space.id = fresh;
            process.space.shared = false;
        }
        self.dump_mapped(map.pid, map.path, map.file);
    }

    fn kernel_mapped(&mut self, map: &Mapped<'_>) {
        let Some(symbol) = map.path.strip_prefix(b"[kernel.kallsyms]") else { return };
        self.kernel_map = Some(KernelMap {
            start: map.addr,
            len: map.len,
            symbol: String::from_utf8_lossy(symbol).into_owned(),
            symbol_addr: map.pgoff,
            build_id: match map.file {
                Some(FileId::BuildId(id)) if !id.is_empty() => Some(id),
                _ => None,
            },
        });
    }

    fn ksymbol(&mut self, time: u64, symbol: &Ksymbol<'_>) {
        // What was there before the recording was loaded by somebody else than who tells of it.
        let tid = symbol.id.tid.filter(|tid| *tid != 0 && time != 0 && !symbol.unregister());
        let comm = tid.and_then(|tid| self.comm_of(tid)).cloned();
        let loader = symbol.id.pid.zip(comm.as_deref()).map(|(pid, comm)| Loader { pid, comm });
        let change = KsymChange::of(symbol, loader);
        self.timeline.apply(time, &change);
    }
}

//! Threads and processes as of now: who they are, what they are called, what they have mapped.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::maps::Maps;

/// Number of a name of a thread within a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(pub(crate) u32);

/// Number of a process within a replay. A pid that is used again is another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    number: u32,
    /// Where it is kept.
    slot: u32,
}

/// Number of a thread within a replay. A tid that is used again is another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub(crate) u32);

/// Number of a state of an address space: while it stays the same, an address that was mapped means the same.
/// A forked process shares its parent's until one of the two changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub(crate) u32);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    pub(crate) id: ThreadId,
    pid: u32,
    pub(crate) process: ProcessId,
    pub(crate) comm: CommId,
}

#[derive(Debug)]
pub(crate) struct Process {
    number: u32,
    pub(crate) space: Space,
}

/// An address space.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub(crate) id: SpaceId,
    pub(crate) maps: Maps,
    /// Code of JIT compilers, and files that were mapped over it: it lies above `maps`.
    pub(crate) jit: Maps,
    /// Between an exec and the last map that the kernel makes for the new image: what the old one had mapped. The kernel says
    /// that the exec happened, and maps the new image, while the registers of the task are still those of the old one.
    pub(crate) before_exec: Option<Maps>,
    /// Maps of code since the exec.
    pub(crate) mapped: u32,
    /// Whether another process has the same id.
    pub(crate) shared: bool,
}

/// All names of threads, each once.
#[derive(Debug, Default)]
pub(crate) struct Comms {
    names: Vec<Arc<str>>,
    by_name: FxHashMap<Box<[u8]>, CommId>,
}

impl Comms {
    pub(crate) fn intern(&mut self, name: &[u8]) -> CommId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let id = CommId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(String::from_utf8_lossy(name).into());
        self.by_name.insert(name.into(), id);
        id
    }

    pub(crate) fn get(&self, id: CommId) -> Option<&Arc<str>> {
        self.names.get(id.0 as usize)
    }
}

/// All threads and processes that there are now. A process ends where another gets its number, so that this stays as
/// small as the numbers that a machine gives out, however many processes came and went.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    processes: Vec<Process>,
    pub(crate) comms: Comms,
    by_tid: FxHashMap<u32, Thread>,
    by_pid: FxHashMap<u32, ProcessId>,
    spaces: u32,
    /// How many processes and threads there were.
    processes_ever: u32,
    threads_ever: u32,
}

impl Tasks {
    /// A number for an address space that nothing had before.
    pub(crate) fn new_space_id(&mut self) -> SpaceId {
        self.spaces = self.spaces.saturating_add(1);
        SpaceId(self.spaces)
    }

    fn empty_space(&mut self) -> Space {
        Space {
            id: self.new_space_id(),
            maps: Maps::default(),
            jit: Maps::default(),
            before_exec: None,
            mapped: 0,
            shared: false,
        }
    }

    #[inline]
    pub(crate) fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(id.slot as usize).filter(|process| process.number == id.number)
    }

    pub(crate) fn process_mut(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.processes.get_mut(id.slot as usize).filter(|process| process.number == id.number)
    }

    /// The thread that has a number now.
    pub(crate) fn thread(&self, tid: u32) -> Option<&Thread> {
        self.by_tid.get(&tid)
    }

    /// The process of a pid; one that no record told of begins here, with nothing mapped.
    pub(crate) fn process_of(&mut self, pid: u32) -> ProcessId {
        match self.by_pid.get(&pid) {
            Some(id) => *id,
            None => {
                let space = self.empty_space();
                self.add_process(pid, space)
            }
        }
    }

    fn add_process(&mut self, pid: u32, space: Space) -> ProcessId {
        let number = self.processes_ever;
        self.processes_ever = number.saturating_add(1);
        // The one that had the pid before is gone, and what it had mapped.
        let old = self.by_pid.get(&pid).map(|id| id.slot);
        let slot = old.unwrap_or(u32::try_from(self.processes.len()).unwrap_or(u32::MAX));
        let process = Process { number, space };
        match self.processes.get_mut(slot as usize) {
            Some(old) => *old = process,
            None => self.processes.push(process),
        }
        let id = ProcessId { number, slot };
        self.by_pid.insert(pid, id);
        id
    }

    /// The thread `tid` of process `pid`; one that no record told of begins here, named by its number as perf does.
    #[inline]
    pub(crate) fn thread_in(&mut self, pid: u32, tid: u32) -> Thread {
        match self.by_tid.get(&tid) {
            Some(thread) if thread.pid == pid && self.process(thread.process).is_some() => *thread,
            _ => self.other_thread(pid, tid),
        }
    }

    #[cold]
    fn other_thread(&mut self, pid: u32, tid: u32) -> Thread {
        let process = self.process_of(pid);
        // A thread whose process began anew without it, as records that were lost may leave it.
        if let Some(thread) = self.by_tid.get_mut(&tid).filter(|thread| thread.pid == pid) {
            thread.process = process;
            return *thread;
        }
        let comm = match tid {
            0 => self.comms.intern(b"swapper"),
            _ => self.comms.intern(format!(":{}", tid as i32).as_bytes()),
        };
        self.add_thread(pid, tid, process, comm)
    }

    fn add_thread(&mut self, pid: u32, tid: u32, process: ProcessId, comm: CommId) -> Thread {
        let id = ThreadId(self.threads_ever);
        self.threads_ever = self.threads_ever.saturating_add(1);
        let thread = Thread { id, pid, process, comm };
        self.by_tid.insert(tid, thread);
        thread
    }

    /// A thread was named; an exec takes everything away that its process had mapped, once the new image is mapped.
    pub(crate) fn named(&mut self, pid: u32, tid: u32, name: &[u8], exec: bool) {
        let comm = self.comms.intern(name);
        let process = self.thread_in(pid, tid).process;
        if let Some(thread) = self.by_tid.get_mut(&tid) {
            thread.comm = comm;
        }
        if exec {
            let space = self.empty_space();
            if let Some(process) = self.process_mut(process) {
                let old = std::mem::replace(&mut process.space, space);
                // Of two execs without a map between them the first image is the one whose registers are left.
                process.space.before_exec = Some(old.before_exec.unwrap_or(old.maps));
            }
        }
    }

    /// A thread began. A new process gets what its parent had mapped, unless `keeps_maps` says that its own are told.
    pub(crate) fn forked(&mut self, pid: u32, tid: u32, ppid: u32, ptid: u32, keeps_maps: bool) {
        let Thread { process: parent_process, comm, .. } = self.thread_in(ppid, ptid);
        let process = if pid == ppid {
            parent_process
        } else if keeps_maps {
            self.process_of(pid)
        } else {
            match self.process_mut(parent_process) {
                Some(process) => {
                    process.space.shared = true;
                    let space = process.space.clone();
                    self.add_process(pid, space)
                }
                None => self.process_of(pid),
            }
        };
        self.add_thread(pid, tid, process, comm);
    }
}

//! Threads and processes as of now: who they are, what they are called, what they have mapped.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::maps::Maps;

/// Number of a name of a thread within a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(pub(crate) u32);

/// Number of a process within a replay. A pid that is used again is another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub(crate) u32);

/// Number of a thread within a replay. A tid that is used again is another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub(crate) u32);

/// Number of a state of an address space: while it stays the same, an address that was mapped means the same.
/// A forked process shares its parent's until one of the two changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) process: ProcessId,
    pub(crate) comm: CommId,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) space: Space,
}

/// An address space.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub(crate) id: SpaceId,
    pub(crate) maps: Maps,
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

/// All threads and processes.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    pub(crate) threads: Vec<Thread>,
    pub(crate) processes: Vec<Process>,
    pub(crate) comms: Comms,
    by_tid: FxHashMap<u32, ThreadId>,
    by_pid: FxHashMap<u32, ProcessId>,
    spaces: u32,
}

impl Tasks {
    /// A number for an address space that nothing had before.
    pub(crate) fn new_space_id(&mut self) -> SpaceId {
        self.spaces = self.spaces.saturating_add(1);
        SpaceId(self.spaces)
    }

    fn empty_space(&mut self) -> Space {
        Space { id: self.new_space_id(), maps: Maps::default(), before_exec: None, mapped: 0, shared: false }
    }

    pub(crate) fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(id.0 as usize)
    }

    pub(crate) fn process_mut(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.processes.get_mut(id.0 as usize)
    }

    pub(crate) fn thread(&self, id: ThreadId) -> Option<&Thread> {
        self.threads.get(id.0 as usize)
    }

    pub(crate) fn thread_of(&self, tid: u32) -> Option<ThreadId> {
        self.by_tid.get(&tid).copied()
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
        let id = ProcessId(u32::try_from(self.processes.len()).unwrap_or(u32::MAX));
        self.processes.push(Process { pid, space });
        self.by_pid.insert(pid, id);
        id
    }

    /// The thread `tid` of process `pid`; one that no record told of begins here, named by its number as perf does.
    pub(crate) fn thread_in(&mut self, pid: u32, tid: u32) -> ThreadId {
        if let Some(id) = self.by_tid.get(&tid) {
            let process = self.thread(*id).and_then(|thread| self.process(thread.process));
            if process.is_some_and(|process| process.pid == pid) {
                return *id;
            }
        }
        let process = self.process_of(pid);
        let comm = match tid {
            0 => self.comms.intern(b"swapper"),
            _ => self.comms.intern(format!(":{}", tid as i32).as_bytes()),
        };
        self.add_thread(tid, process, comm)
    }

    fn add_thread(&mut self, tid: u32, process: ProcessId, comm: CommId) -> ThreadId {
        let id = ThreadId(u32::try_from(self.threads.len()).unwrap_or(u32::MAX));
        self.threads.push(Thread { process, comm });
        self.by_tid.insert(tid, id);
        id
    }

    /// A thread was named; an exec takes everything away that its process had mapped, once the new image is mapped.
    pub(crate) fn named(&mut self, pid: u32, tid: u32, name: &[u8], exec: bool) {
        let comm = self.comms.intern(name);
        let id = self.thread_in(pid, tid);
        let Some(thread) = self.threads.get_mut(id.0 as usize) else { return };
        thread.comm = comm;
        let process = thread.process;
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
        let parent = self.thread_in(ppid, ptid);
        let (parent_process, comm) = match self.thread(parent) {
            Some(thread) => (thread.process, thread.comm),
            None => return,
        };
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
        self.add_thread(tid, process, comm);
    }
}

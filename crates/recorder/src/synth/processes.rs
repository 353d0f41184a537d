//! Processes that were there before the recording began.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use afterimage_perf_data::record::{Comm, FileId, Mmap2, Task, cpumode, misc};
use afterimage_perf_data::{BuildId, Layout, Record, Result};

use super::groups;
use super::procfs::{self, Mapping, Process};

/// The name that the kernel's own records give to memory that no file backs.
const ANONYMOUS: &[u8] = b"//anon";

/// Reads processes and remembers the build IDs of the files that they map.
#[derive(Debug)]
pub(crate) struct Scanner {
    proc: PathBuf,
    build_ids: HashMap<((u32, u32), u64), Option<BuildId>>,
    refused: usize,
    /// Whether their namespaces are told too.
    namespaces: bool,
}

impl Scanner {
    /// A scanner of the given procfs, usually `/proc`.
    pub(crate) fn new(proc: &Path, namespaces: bool) -> Scanner {
        Scanner { proc: proc.to_owned(), build_ids: HashMap::new(), refused: 0, namespaces }
    }

    /// Processes whose maps may not be read.
    pub(crate) fn refused(&self) -> usize {
        self.refused
    }

    /// Appends the records of every process.
    ///
    /// # Errors
    /// Only when a name does not fit into a record.
    pub(crate) fn all(&mut self, layout: &Layout, out: &mut Vec<u8>) -> Result<()> {
        let pids = procfs::pids(&self.proc);
        self.these(layout, &pids, out)
    }

    /// Appends the records of the processes `pids`.
    ///
    /// # Errors
    /// Only when a name does not fit into a record.
    pub(crate) fn these(&mut self, layout: &Layout, pids: &[u32], out: &mut Vec<u8>) -> Result<()> {
        for &pid in pids {
            // One that ended while it was read has nothing to say.
            if let Some(process) = procfs::process(&self.proc, pid) {
                self.refused += usize::from(process.refused);
                self.append(layout, &process, out)?;
            }
        }
        Ok(())
    }

    fn append(&mut self, layout: &Layout, process: &Process, out: &mut Vec<u8>) -> Result<()> {
        for thread in &process.threads {
            let main = thread.tid == process.pid;
            let parent = if main { process.ppid } else { process.pid };
            // The bit says that the maps are not to be copied from the parent: they follow.
            let misc = misc::FORK_EXEC;
            let fork = Task { pid: process.pid, ppid: parent, tid: thread.tid, ptid: parent, misc, ..Task::default() };
            Record::Fork(fork).encode(layout, out)?;
            let comm = Comm { pid: process.pid, tid: thread.tid, comm: &thread.comm, ..Comm::default() };
            Record::Comm(comm).encode(layout, out)?;
            if self.namespaces {
                groups::append_namespaces(&self.proc, layout, process.pid, thread.tid, out)?;
            }
        }
        for mapping in &process.mappings {
            let file = self.identity(process.pid, mapping);
            let filename = if mapping.path.is_empty() { ANONYMOUS } else { &mapping.path };
            let record = Mmap2 {
                pid: process.pid,
                tid: process.pid,
                addr: mapping.start,
                len: mapping.end - mapping.start,
                pgoff: mapping.pgoff,
                file,
                prot: mapping.prot,
                flags: mapping.flags,
                filename,
                misc: cpumode::USER,
                ..Mmap2::default()
            };
            Record::Mmap2(record).encode(layout, out)?;
        }
        Ok(())
    }

    fn identity(&mut self, pid: u32, m: &Mapping) -> FileId {
        let inode = FileId::Inode { maj: m.dev.0, min: m.dev.1, ino: m.inode, generation: 0 };
        if m.inode == 0 {
            return inode;
        }
        let proc = &self.proc;
        let id = self.build_ids.entry((m.dev, m.inode)).or_insert_with(|| {
            let file = procfs::open_mapped(proc, pid, m.start, m.end)?;
            afterimage_symbols::build_id::of_file(&file).map(|id| BuildId::new(&id))
        });
        id.map_or(inode, FileId::BuildId)
    }
}

//! Processes in pid namespaces of their own: by what number they know themselves.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;

use afterimage_perf_data::record::{Namespaces, Task, kind};
use afterimage_perf_data::{Endian, Layout, NestedPid, RawRecord, Record, decode};
use afterimage_symbols::perfmap;

/// Where the pid namespace stands in a NAMESPACES record (`PID_NS_INDEX`, linux/perf_event.h).
const PID_NAMESPACE: usize = 3;

/// Numbers that wait for the next pass, at most.
const WAITING: usize = 1 << 16;

/// Asks for the numbers of processes as records tell of their namespaces.
#[derive(Debug)]
pub(crate) struct Nested {
    layout: Layout,
    /// Our own pid namespace, by the inode of its file.
    own: Option<u64>,
    known: HashSet<u32>,
    new: Vec<NestedPid>,
    /// Whether the recording has a list.
    begun: bool,
}

impl Nested {
    /// Nothing known; `layout` is that of the sideband's records.
    pub(crate) fn new(layout: Layout) -> Nested {
        let own = std::fs::metadata("/proc/self/ns/pid").map(|meta| meta.ino()).ok();
        Nested { layout, own, known: HashSet::new(), new: Vec::new(), begun: false }
    }

    /// Looks at one record of the sideband.
    pub(crate) fn learn(&mut self, record: &[u8]) {
        let Some(kind) = record.first_chunk::<4>().map(|kind| u32::from_ne_bytes(*kind)) else { return };
        if !matches!(kind, kind::NAMESPACES | kind::EXIT) {
            return;
        }
        let Ok(raw) = RawRecord::parse(record, 0, Endian::NATIVE) else { return };
        match decode(&raw, &self.layout) {
            Ok(Record::Namespaces(found)) => self.found(&found),
            Ok(Record::Exit(Task { pid, tid, .. })) if pid == tid => _ = self.known.remove(&pid),
            _ => {}
        }
    }

    fn found(&mut self, found: &Namespaces<'_>) {
        let Some(inode) = found.iter().nth(PID_NAMESPACE).map(|namespace| namespace.ino).filter(|ino| *ino != 0) else {
            return;
        };
        if Some(inode) == self.own || self.new.len() >= WAITING || self.known.contains(&found.pid) {
            return;
        }
        // One that ended meanwhile has no number any more.
        let status = std::fs::read(format!("/proc/{}/status", found.pid)).unwrap_or_default();
        let Some((own, _)) = perfmap::identity(&status) else { return };
        self.known.insert(found.pid);
        let since_ns = found.id.time.unwrap_or(0);
        self.new.push(NestedPid { pid: found.pid, since_ns, own, namespace: inode });
    }

    /// What is new. The first time there is something even if there is nothing: that none is told of says something, too.
    pub(crate) fn take(&mut self) -> Vec<NestedPid> {
        if !std::mem::replace(&mut self.begun, true) && self.new.is_empty() {
            let (pid, own) = (std::process::id(), std::process::id());
            return vec![NestedPid { pid, own, ..NestedPid::default() }];
        }
        std::mem::take(&mut self.new)
    }
}

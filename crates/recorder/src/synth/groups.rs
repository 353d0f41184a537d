//! Cgroups that were there before the recording began, and the namespaces that processes were in.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use afterimage_perf_data::record::{Cgroup, Namespaces};
use afterimage_perf_data::{Endian, Layout, Record, Result, Words};

use crate::by::cgroups;

/// The namespaces of a NAMESPACES record, by their files below /proc/PID/ns (linux/perf_event.h, `*_NS_INDEX`).
const NAMESPACES: [&str; 7] = ["net", "uts", "ipc", "pid", "user", "mnt", "cgroup"];

/// Appends a CGROUP record for each.
///
/// # Errors
/// Only when a path does not fit into a record.
pub(crate) fn append(layout: &Layout, out: &mut Vec<u8>) -> Result<()> {
    for (cgroup, path) in cgroups::all() {
        let record = Cgroup { cgroup, path: path.as_bytes(), ..Cgroup::default() };
        Record::Cgroup(record).encode(layout, out)?;
    }
    Ok(())
}

/// Appends the NAMESPACES record of a thread; none if it may not be asked.
///
/// # Errors
/// Never: it fits.
pub(crate) fn append_namespaces(proc: &Path, layout: &Layout, pid: u32, tid: u32, out: &mut Vec<u8>) -> Result<()> {
    let folder = proc.join(format!("{pid}/task/{tid}/ns"));
    let mut links = Vec::new();
    for name in NAMESPACES {
        // A kernel without a kind of namespaces has no file of it.
        let (dev, ino) = std::fs::metadata(folder.join(name)).map_or((0, 0), |meta| (meta.dev(), meta.ino()));
        links.extend([dev, ino].iter().flat_map(|word| word.to_ne_bytes()));
    }
    if links.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    let links = Words::new(&links, Endian::NATIVE);
    Record::Namespaces(Namespaces { pid, tid, links, ..Namespaces::default() }).encode(layout, out)
}

#[cfg(test)]
mod tests {
    use afterimage_perf_data::{Attr, AttrFlags, RawRecord, decode};

    use super::*;

    #[test]
    fn our_own_namespaces() {
        let layout = Layout::new(&Attr { flags: AttrFlags::empty(), ..Attr::default() }, Endian::NATIVE);
        let mut out = Vec::new();
        let me = std::process::id();
        append_namespaces(Path::new("/proc"), &layout, me, me, &mut out).unwrap();
        let raw = RawRecord::parse(&out, 0, Endian::NATIVE).unwrap();
        let Ok(Record::Namespaces(found)) = decode(&raw, &layout) else { panic!() };
        let all: Vec<_> = found.iter().collect();
        assert_eq!(all.len(), 7);
        let mnt = std::fs::metadata("/proc/self/ns/mnt").unwrap();
        assert_eq!((all[5].dev, all[5].ino), (mnt.dev(), mnt.ino()));
    }
}

//! The files that processes map: their build IDs, and a hold on them while they can still be reached.
//!
//! A container that ends, or a file that is replaced, leaves a recording with addresses that nobody can name. So each
//! file is opened through the process that maps it and held until the end; the symbols of those that their path no longer
//! leads to are then put into the cache by build ID.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use afterimage_perf_data::record::{FileId, Mmap2, cpumode, kind, misc};
use afterimage_perf_data::{BuildId, Endian, Layout, RawRecord, Record, decode};
use afterimage_symbols::SymbolTable;
use afterimage_symbols::cache::Cache;

use crate::synth::procfs;

/// Files held at a time: a recording uses as many descriptors as a small server.
const HELD: usize = 512;

/// What is known of mapped files.
#[derive(Debug)]
pub(crate) struct MappedFiles {
    layout: Layout,
    by_path: HashMap<Vec<u8>, BuildId>,
    held: HashMap<BuildId, Held>,
}

#[derive(Debug)]
struct Held {
    file: File,
    path: PathBuf,
}

impl MappedFiles {
    /// Nothing known; `layout` is that of the sideband's records.
    pub(crate) fn new(layout: Layout) -> MappedFiles {
        MappedFiles { layout, by_path: HashMap::new(), held: HashMap::new() }
    }

    /// Build IDs by path.
    pub(crate) fn build_ids(&self) -> &HashMap<Vec<u8>, BuildId> {
        &self.by_path
    }

    /// Looks at one record of the sideband.
    pub(crate) fn learn(&mut self, record: &[u8]) {
        let Some(&[a, b, c, d, m0, m1, ..]) = record.first_chunk::<8>() else { return };
        let is_map = u32::from_ne_bytes([a, b, c, d]) == kind::MMAP2;
        if !is_map || u16::from_ne_bytes([m0, m1]) & misc::MMAP_BUILD_ID == 0 {
            return;
        }
        let Ok(raw) = RawRecord::parse(record, 0, Endian::NATIVE) else { return };
        let Ok(Record::Mmap2(map)) = decode(&raw, &self.layout) else { return };
        if let FileId::BuildId(id) = map.file {
            self.mapped(&map, id);
        }
    }

    fn mapped(&mut self, map: &Mmap2<'_>, id: BuildId) {
        if id.is_empty() || map.misc & cpumode::MASK == cpumode::KERNEL {
            return;
        }
        if !self.by_path.contains_key(map.filename) {
            self.by_path.insert(map.filename.to_vec(), id);
        }
        if self.held.contains_key(&id) || self.held.len() >= HELD {
            return;
        }
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(map.filename));
        let proc = Path::new("/proc");
        let by_map = procfs::open_mapped(proc, map.pid, map.addr, map.addr.saturating_add(map.len));
        let by_root = || {
            let inside = path.strip_prefix("/").ok()?;
            File::open(proc.join(map.pid.to_string()).join("root").join(inside)).ok()
        };
        // The process may be gone, and its number another's: only the file that was mapped is held.
        let file = by_map.or_else(by_root).filter(|file| has_build_id(file, id));
        if let Some(file) = file {
            self.held.insert(id, Held { file, path });
        }
    }

    /// Puts the symbols of files that their path no longer leads to into the cache; returns how many.
    pub(crate) fn keep_unreachable(self, cache: Option<&Cache>) -> usize {
        let Some(cache) = cache else { return 0 };
        let keep = |(id, held): (BuildId, Held)| {
            if held.is_at_its_path() || cache.get(id.as_bytes()).is_some() {
                return None;
            }
            // Read, not mapped: its owner may cut it short.
            let table = SymbolTable::from_file(&held.file).ok()?;
            cache.put(id.as_bytes(), &table).ok()
        };
        self.held.into_iter().filter_map(keep).count()
    }
}

impl Held {
    fn is_at_its_path(&self) -> bool {
        let here = std::fs::metadata(&self.path).and_then(|m| Ok((m, self.file.metadata()?)));
        here.is_ok_and(|(there, held)| (there.dev(), there.ino()) == (held.dev(), held.ino()))
    }
}

fn has_build_id(file: &File, id: BuildId) -> bool {
    afterimage_symbols::build_id::of_file(file).is_some_and(|found| BuildId::new(&found) == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use afterimage_perf_data::{Attr, AttrFlags};

    /// Our own executable, copied to a path, mapped nowhere: reached through /proc/self/root.
    #[test]
    fn a_deleted_file_keeps_its_symbols() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("short-lived");
        std::fs::copy(std::fs::read_link("/proc/self/exe").unwrap(), &path).unwrap();
        let found = afterimage_symbols::build_id::of_file(&File::open(&path).unwrap()).unwrap();
        let id = BuildId::new(&found);
        let layout = Layout::new(&Attr { flags: AttrFlags::empty(), ..Attr::default() }, Endian::NATIVE);
        let map = Mmap2 {
            pid: std::process::id(),
            addr: 0x1000,
            len: 0x1000,
            file: FileId::BuildId(id),
            filename: path.as_os_str().as_bytes(),
            ..Mmap2::default()
        };
        let mut record = Vec::new();
        Record::Mmap2(map).encode(&layout, &mut record).unwrap();

        let cache = Cache::at(dir.path().join("cache"), 1 << 30);
        let mut files = MappedFiles::new(layout);
        files.learn(&record);
        assert_eq!(files.build_ids().get(path.as_os_str().as_bytes()), Some(&id));
        assert_eq!(files.keep_unreachable(Some(&cache)), 0, "it is still there");

        let mut files = MappedFiles::new(layout);
        files.learn(&record);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(files.keep_unreachable(Some(&cache)), 1);
        let table = cache.get(id.as_bytes()).unwrap();
        assert!(table.iter().any(|hit| hit.name.contains("a_deleted_file_keeps_its_symbols")));
    }
}

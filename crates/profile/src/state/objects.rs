//! Everything that processes had mapped: files, the vDSO, anonymous memory.

use std::hash::BuildHasher;
use std::sync::Arc;

use afterimage_perf_data::BuildId;
use afterimage_perf_data::record::FileId;
use afterimage_symbols::kept::{FileName, KeptContent, ObjectName};
use afterimage_symbols::{Live, PathKind, classify};
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::resolve::Inode;

/// Number of something mapped within a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub(crate) u32);

/// Processes remembered per object through whose /proc entry its file may still be reached.
const LIVE_HINTS: usize = 4;

/// What was mapped: one entry for all mappings of one file, and one per process for what has no file.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// The path or the name in brackets, as in the record.
    pub(crate) path: Box<[u8]>,
    /// What the path stands for.
    pub(crate) kind: PathKind,
    /// The build ID, if the record had one.
    pub(crate) build_id: Option<BuildId>,
    /// The file's inode, if the record had that.
    pub(crate) inode: Option<Inode>,
    /// The process, for what has no file of its own.
    pub(crate) pid: Option<u32>,
    /// Added to an address, wrapping, it gives the address inside the object; kept for what has no file.
    pub(crate) delta: u64,
    /// Where it was mapped, newest last.
    pub(crate) live: Vec<Live>,
    /// Code of a JIT compiler: names, code and lines.
    pub(crate) jit: Option<Arc<KeptContent>>,
    file: FileKey,
}

/// What tells objects apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ObjectKey<'p> {
    path: &'p [u8],
    file: FileKey,
    /// Process and delta of what has no file.
    own: Option<(u32, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FileKey {
    Path,
    Inode(u32, u32, u64, u64),
    Build(BuildId),
}

/// All objects of a replay.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    all: Vec<Object>,
    /// Parts of the hashes of their keys, and their numbers.
    by_key: HashTable<(u32, ObjectId)>,
}

impl Objects {
    /// The object of a mapping at `live`, and what to add to an address to get the address in the object.
    pub(crate) fn of_mapping(&mut self, path: &[u8], file: Option<FileId>, pgoff: u64, live: Live) -> (ObjectId, u64) {
        let kind = classify(path);
        let delta = match kind {
            PathKind::Anonymous | PathKind::Special => 0,
            _ => pgoff.wrapping_sub(live.start),
        };
        let has_file = matches!(kind, PathKind::File | PathKind::Deleted | PathKind::Vdso | PathKind::Vsyscall);
        let (file, build_id) = match file {
            // The kernel's and the process's own pages have no inode, and a build ID says nothing more about them.
            _ if !has_file && kind != PathKind::Memfd => (FileKey::Path, None),
            Some(FileId::BuildId(id)) if !id.is_empty() => (FileKey::Build(id), Some(id)),
            Some(FileId::Inode { maj, min, ino, generation }) if ino != 0 => {
                (FileKey::Inode(maj, min, ino, generation), None)
            }
            _ => (FileKey::Path, None),
        };
        let own = (!has_file).then_some((live.pid, delta));
        let key = ObjectKey { path, file, own };
        let hash = FxBuildHasher.hash_one(key);
        let all = &self.all;
        let same = |(tag, id): &(u32, ObjectId)| {
            *tag == hash as u32 && all.get(id.0 as usize).is_some_and(|object| object.key() == key)
        };
        let id = match self.by_key.find(hash, same) {
            Some((_, id)) => *id,
            None => {
                let id = ObjectId(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
                let pid = own.map(|(pid, _)| pid);
                let inode = match file {
                    FileKey::Inode(maj, min, ino, _) => Some(Inode { maj, min, ino }),
                    _ => None,
                };
                let live = Vec::new();
                self.all.push(Object { path: path.into(), kind, build_id, inode, pid, delta, live, jit: None, file });
                let all = &self.all;
                let hash_of = |(_, id): &(u32, ObjectId)| {
                    all.get(id.0 as usize).map_or(0, |object| FxBuildHasher.hash_one(object.key()))
                };
                self.by_key.insert_unique(hash, (hash as u32, id), hash_of);
                id
            }
        };
        if let Some(object) = self.all.get_mut(id.0 as usize) {
            object.saw(live);
        }
        (id, delta)
    }

    /// A new object: code of a JIT compiler of a process, which the file of this path told of.
    pub(crate) fn of_jit(&mut self, pid: u32, path: &[u8], content: Arc<KeptContent>) -> ObjectId {
        let id = ObjectId(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        self.all.push(Object {
            path: path.into(),
            kind: PathKind::Anonymous,
            build_id: None,
            inode: None,
            pid: Some(pid),
            delta: 0,
            live: Vec::new(),
            jit: Some(content),
            file: FileKey::Path,
        });
        id
    }

    pub(crate) fn get(&self, id: ObjectId) -> Option<&Object> {
        self.all.get(id.0 as usize)
    }
}

impl Object {
    /// What tells it from others, as archives have it.
    pub(crate) fn name(&self) -> ObjectName {
        let file = match self.file {
            FileKey::Path => FileName::Path,
            FileKey::Inode(major, minor, inode, generation) => FileName::Inode(major, minor, inode, generation),
            FileKey::Build(id) => FileName::BuildId(id.as_bytes().to_vec()),
        };
        ObjectName { path: self.path.to_vec(), file, own: self.pid.map(|pid| (pid, self.delta)) }
    }

    fn key(&self) -> ObjectKey<'_> {
        ObjectKey { path: &self.path, file: self.file, own: self.pid.map(|pid| (pid, self.delta)) }
    }

    fn saw(&mut self, live: Live) {
        self.live.retain(|old| old.pid != live.pid);
        if self.live.len() == LIVE_HINTS {
            self.live.remove(0);
        }
        self.live.push(live);
    }
}

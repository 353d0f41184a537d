//! Names of what processes had mapped.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use afterimage_perf_data::features::BuildIdEntry;
use afterimage_perf_data::{BuildId, Features};
use afterimage_symbols::kept::{FileName, KeptContent, KeptObject, KeptTables, ObjectName, TextOfLine, UnwindContent};
use afterimage_symbols::perfmap::PerfMap;
use afterimage_symbols::source::RealFiles;
use afterimage_symbols::{Finder, Live, ObjectFile, PathKind, Reason, Request, SymbolTable, vdso};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::state::{Object, ObjectId};

/// A symbol of an object: raw name, number in its table, start, offset of the address.
pub(crate) struct UserHit<'t> {
    pub(crate) name: &'t str,
    /// Numbers of one table; the object tells tables apart.
    pub(crate) id: u32,
    pub(crate) start: u64,
    pub(crate) offset: u64,
    pub(crate) jit: bool,
}

/// Names of what processes had mapped.
pub(crate) struct UserNames {
    finder: Finder,
    /// Whether the recording was made on this machine: only then do paths and pids mean what they meant.
    here: Here,
    /// Build IDs that stand beside the records, by path.
    listed: FxHashMap<Box<[u8]>, BuildId>,
    tables: FxHashMap<ObjectId, Result<Arc<SymbolTable>, Reason>>,
    /// Of objects without a table, the process that had it mapped last when one was looked for.
    missed: FxHashMap<ObjectId, Option<(u32, u64)>>,
    maps: FxHashMap<u32, Result<PerfMap, Reason>>,
    /// Whether the recorded kernel runs here: its vDSO is ours.
    same_kernel: bool,
    /// Build IDs may still come: without one a file is not believed.
    to_come: bool,
    vdso: Option<Result<vdso::Vdso, Reason>>,
    kept: KeptObjects,
    /// Processes whose code of JIT compilers the recording tells of: no map is asked for them.
    jit_told: FxHashSet<u32>,
}

/// Build IDs that say something, by the path that they are of.
fn by_path(entries: &[BuildIdEntry]) -> impl Iterator<Item = (Box<[u8]>, BuildId)> {
    let entries = entries.iter().filter(|entry| !entry.build_id.is_empty());
    entries.map(|entry| (entry.filename.as_bytes().into(), entry.build_id))
}

/// Whether a recording was made on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Here {
    Yes,
    No,
    /// It does not say, as unfinished ones do not.
    Perhaps,
}

impl UserNames {
    pub(crate) fn new(
        finder: Finder,
        features: &Features,
        same_kernel: bool,
        to_come: bool,
        kept: KeptObjects,
        jit_told: FxHashSet<u32>,
    ) -> UserNames {
        let listed = by_path(&features.build_ids).collect();
        UserNames {
            finder,
            here: Here::of(features.hostname.as_deref()),
            listed,
            tables: FxHashMap::default(),
            missed: FxHashMap::default(),
            maps: FxHashMap::default(),
            same_kernel,
            to_come,
            vdso: None,
            kept,
            jit_told,
        }
    }

    /// Takes build IDs that were told later. What was found without them is looked for again.
    pub(crate) fn learn(&mut self, told: &[BuildIdEntry]) {
        self.listed.extend(by_path(told));
        self.tables.clear();
    }

    pub(crate) fn kept(&self) -> &KeptObjects {
        &self.kept
    }

    pub(crate) fn finder(&self) -> &Finder {
        &self.finder
    }

    pub(crate) fn finder_mut(&mut self) -> &mut Finder {
        &mut self.finder
    }

    /// The build ID of an object, from its record or from those that stand beside the records.
    pub(crate) fn build_id(&self, object: &Object) -> Option<BuildId> {
        object.build_id.or_else(|| self.listed.get(&object.path).copied())
    }

    /// The symbol at an address of an object.
    pub(crate) fn lookup<'t>(&'t mut self, id: ObjectId, object: &'t Object, addr: u64) -> Result<UserHit<'t>, Reason> {
        if let Some(code) = &object.jit {
            let hit = code.lookup_offset(addr)?;
            // A function is one in reports wherever it was compiled to.
            return Ok(UserHit { name: hit.name, id: hit.id, start: 0, offset: hit.offset, jit: true });
        }
        if self.kept.get(id, object).is_some() {
            return self.in_archive(id, object, addr);
        }
        match object.kind {
            PathKind::File | PathKind::Deleted => self.in_file(id, object, addr),
            PathKind::Vdso => self.in_vdso(object, addr),
            PathKind::Anonymous | PathKind::Special => self.in_map(object, addr),
            PathKind::Memfd => {
                // Either a program that was never on disk, or the memory of a JIT compiler.
                let absolute = addr.wrapping_sub(object.delta);
                if self.map_of(object).is_ok() { self.in_map(object, absolute) } else { self.in_file(id, object, addr) }
            }
            _ => Err(Reason::Special),
        }
    }

    fn in_archive(&mut self, id: ObjectId, object: &Object, addr: u64) -> Result<UserHit<'_>, Reason> {
        let kept = self.kept.get(id, object).ok_or(Reason::NoFile)?;
        let kept = kept.as_ref().map_err(|reason| *reason)?;
        let hit = kept.lookup_offset(addr)?;
        Ok(UserHit { name: hit.name, id: hit.id, start: hit.start, offset: hit.offset, jit: kept.is_jit() })
    }

    fn in_file<'t>(&'t mut self, id: ObjectId, object: &'t Object, addr: u64) -> Result<UserHit<'t>, Reason> {
        let table = self.table(id, object)?;
        if table.is_empty() {
            return Err(Reason::NoSymbols);
        }
        let hit = table.lookup_offset(addr).ok_or(Reason::NotInSymbol)?;
        Ok(UserHit { name: hit.name, id: hit.id, start: hit.start, offset: hit.offset, jit: false })
    }

    fn find(&mut self, object: &Object) -> Result<Arc<SymbolTable>, Reason> {
        self.first(object, |finder, request| finder.find(request))
    }

    /// The file of an object itself, for its code and its lines.
    pub(crate) fn file(&mut self, id: ObjectId, object: &Object) -> Result<ObjectFile, Reason> {
        if let Some(code) = &object.jit {
            return Ok(ObjectFile::kept(code.clone()));
        }
        if let Some(kept) = self.kept.get(id, object) {
            return kept.clone().map(ObjectFile::kept);
        }
        self.first(object, |finder, request| finder.file(request))
    }

    /// What an archive has of the tables that the stacks of an object are unwound by; `None` where nothing was kept of any.
    pub(crate) fn kept_tables(&self, object: &Object) -> Option<Result<Arc<UnwindContent>, Reason>> {
        let tables = Some(&self.kept.tables).filter(|tables| !tables.is_empty())?;
        // What it does not know of was not there when it was made.
        Some(tables.get(&object.name()).cloned().unwrap_or(Err(Reason::NoFile)))
    }

    /// The file of an object as it is on this machine, also where an archive keeps some of it: those of old versions have no tables
    /// that stacks are unwound by.
    pub(crate) fn whole_file(&mut self, object: &Object) -> Result<ObjectFile, Reason> {
        if object.jit.is_some() {
            return Err(Reason::Anonymous);
        }
        self.first(object, |finder, request| finder.file(request))
    }

    /// The names of an object, where they are of a file.
    pub(crate) fn table<'t>(&'t mut self, id: ObjectId, object: &'t Object) -> Result<&'t SymbolTable, Reason> {
        if let Some(code) = &object.jit {
            return Ok(code.table());
        }
        if self.kept.get(id, object).is_some() {
            let kept = self.kept.get(id, object).ok_or(Reason::NoFile)?;
            return kept.as_ref().map(|kept| kept.table()).map_err(|reason| *reason);
        }
        // While samples go by another process may map what the first one took with it.
        let last = object.live.last().map(|live| (live.pid, live.start));
        if self.tables.get(&id).is_none_or(|table| table.is_err() && self.missed.get(&id) != Some(&last)) {
            let table = self.find(object);
            if table.is_err() {
                self.missed.insert(id, last);
            }
            self.tables.insert(id, table);
        }
        match self.tables.get(&id) {
            Some(Ok(table)) => Ok(table),
            Some(Err(reason)) => Err(*reason),
            None => Err(Reason::NoFile),
        }
    }

    /// The first answer for an object: through a process that may still have it mapped, else by its path and build ID.
    fn first<T>(
        &mut self,
        object: &Object,
        ask: impl Fn(&mut Finder, &Request<'_>) -> Result<T, Reason>,
    ) -> Result<T, Reason> {
        let build_id = self.build_id(object);
        if build_id.is_none() && self.to_come {
            return Err(Reason::BuildIdToCome);
        }
        // A path of another machine names another file here, and nothing but a build ID could tell.
        let trusted = self.finder.has_symfs()
            || match self.here {
                Here::Yes => true,
                Here::No => false,
                Here::Perhaps => object.inode.is_some_and(|inode| inode.is_of(&object.path)),
            };
        if build_id.is_none() && !trusted {
            return Err(Reason::NoFile);
        }
        let request = |live: Option<Live>| Request {
            path: &object.path,
            build_id: build_id.as_ref().map(BuildId::as_bytes),
            live,
        };
        let mut failed = None;
        if self.here != Here::No && !self.finder.has_symfs() {
            for live in object.live.iter().rev() {
                match ask(&mut self.finder, &request(Some(*live))) {
                    Ok(found) => return Ok(found),
                    Err(reason) => failed = failed.or(Some(reason)),
                }
            }
        }
        match failed {
            Some(reason) => Err(reason),
            None => ask(&mut self.finder, &request(None)),
        }
    }

    /// The vDSO that was mapped.
    pub(crate) fn vdso(&mut self, object: &Object) -> Result<&vdso::Vdso, Reason> {
        if !self.same_kernel {
            return Err(Reason::NoVdso);
        }
        let own = match self.vdso.get_or_insert_with(vdso::own) {
            Ok(own) => own,
            Err(reason) => return Err(*reason),
        };
        // 32-bit processes have another image, of another length.
        if object.live.last().is_some_and(|live| live.end.wrapping_sub(live.start) != own.len) {
            return Err(Reason::NoVdso);
        }
        Ok(own)
    }

    fn in_vdso(&mut self, object: &Object, addr: u64) -> Result<UserHit<'_>, Reason> {
        let own = self.vdso(object)?;
        let hit = own.table.lookup_offset(addr).ok_or(Reason::NotInSymbol)?;
        Ok(UserHit { name: hit.name, id: hit.id, start: hit.start, offset: hit.offset, jit: false })
    }

    /// What an archive keeps of an object: of its functions at these offsets.
    pub(crate) fn keep(
        &mut self,
        id: ObjectId,
        object: &Object,
        offsets: &BTreeSet<u64>,
        text: TextOfLine<'_>,
    ) -> Result<Arc<KeptContent>, Reason> {
        if let Some(kept) = self.kept.get(id, object) {
            return kept.clone();
        }
        let content = match object.kind {
            PathKind::Vdso => {
                let table = self.vdso(object)?.table.as_ref();
                let vaddrs = offsets.iter().filter_map(|offset| table.vaddr_of_offset(*offset)).collect();
                KeptContent::of_object(table, None, &vaddrs, text)
            }
            PathKind::Anonymous | PathKind::Special => self.keep_map(object, offsets, 0)?,
            PathKind::Memfd if self.map_of(object).is_ok() => self.keep_map(object, offsets, object.delta)?,
            PathKind::File | PathKind::Deleted | PathKind::Memfd => {
                let file = self.file(id, object).ok();
                let table = self.table(id, object)?;
                let vaddrs = offsets.iter().filter_map(|offset| table.vaddr_of_offset(*offset)).collect();
                KeptContent::of_object(table, file.as_ref(), &vaddrs, text)
            }
            _ => return Err(Reason::Special),
        };
        Ok(Arc::new(content))
    }

    fn keep_map(&mut self, object: &Object, offsets: &BTreeSet<u64>, delta: u64) -> Result<KeptContent, Reason> {
        let map = self.map_of(object)?;
        Ok(KeptContent::of_map(map, &offsets.iter().map(|offset| offset.wrapping_sub(delta)).collect(), delta))
    }

    fn in_map(&mut self, object: &Object, addr: u64) -> Result<UserHit<'_>, Reason> {
        let map = self.map_of(object)?;
        let hit = map.lookup(addr).ok_or(Reason::NotInSymbol)?;
        Ok(UserHit { name: hit.name, id: hit.id, start: hit.start, offset: hit.offset, jit: true })
    }

    fn map_of(&mut self, object: &Object) -> Result<&PerfMap, Reason> {
        if object.pid.is_some_and(|pid| self.jit_told.contains(&pid)) {
            return Err(Reason::NotInSymbol);
        }
        let pid = object.pid.filter(|_| self.here == Here::Yes).ok_or(Reason::Anonymous)?;
        let map = self.maps.entry(pid).or_insert_with(|| match PerfMap::of_process(&RealFiles, pid) {
            // The process is gone, or never wrote one where it lives; perf looks here alone.
            Err(Reason::Anonymous) => PerfMap::left_behind(&RealFiles, pid, own_uid()),
            found => found,
        });
        map.as_ref().map_err(|reason| *reason)
    }
}

/// The user that we run as: the owner of /proc/self.
fn own_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    // Nobody's number where /proc cannot be read: then only root's files are believed.
    std::fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid())
}

impl Here {
    pub(crate) fn of(recorded: Option<&str>) -> Here {
        let Some(recorded) = recorded else { return Here::Perhaps };
        match std::fs::read_to_string("/proc/sys/kernel/hostname") {
            Ok(own) if own.trim_end() == recorded => Here::Yes,
            _ => Here::No,
        }
    }
}

/// What an archive holds of the objects of a recording.
#[derive(Default)]
pub(crate) struct KeptObjects {
    by_name: FxHashMap<ObjectName, Result<Arc<KeptContent>, Reason>>,
    /// The same for those that were asked for.
    by_id: FxHashMap<ObjectId, Option<Result<Arc<KeptContent>, Reason>>>,
    tables: FxHashMap<ObjectName, Result<Arc<UnwindContent>, Reason>>,
}

impl KeptObjects {
    /// Reads what an archive holds; gives also how many there are that cannot be read.
    pub(crate) fn read(objects: &[Vec<u8>], tables: &[Vec<u8>]) -> (KeptObjects, u64) {
        let mut kept = KeptObjects::default();
        let mut damaged = 0;
        for bytes in objects {
            match KeptObject::decode(bytes) {
                Some(object) => _ = kept.by_name.insert(object.of, object.content),
                None => damaged += 1,
            }
        }
        for bytes in tables {
            match KeptTables::decode(bytes) {
                Some(tables) => _ = kept.tables.insert(tables.of, tables.content),
                None => damaged += 1,
            }
        }
        (kept, damaged)
    }

    fn get(&mut self, id: ObjectId, object: &Object) -> Option<&Result<Arc<KeptContent>, Reason>> {
        if self.by_name.is_empty() {
            return None;
        }
        let by_name = &self.by_name;
        self.by_id.entry(id).or_insert_with(|| by_name.get(&object.name()).cloned()).as_ref()
    }

    /// What is kept of the kernel's own image.
    pub(crate) fn kernel(&self) -> Option<&Arc<KeptContent>> {
        self.by_name.get(&kernel_name())?.as_ref().ok()
    }
}

/// By what archives have the kernel's own image.
pub(crate) fn kernel_name() -> ObjectName {
    ObjectName { path: b"[kernel.kallsyms]".to_vec(), file: FileName::Path, own: None }
}

/// What the kernel said of a mapped file, if not its build ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) maj: u32,
    pub(crate) min: u32,
    pub(crate) ino: u64,
}

impl Inode {
    /// Whether that path leads to this inode on this machine.
    fn is_of(self, path: &[u8]) -> bool {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(OsStr::from_bytes(path)).is_ok_and(|meta| self.is(meta.dev(), meta.ino()))
    }

    /// Whether it is this one, by the numbers of stat(2).
    pub(crate) fn is(self, dev: u64, ino: u64) -> bool {
        // glibc's encoding of device numbers (makedev(3)): major in bits 8–19 and 32–63, minor in 0–7 and 20–31.
        let major = (dev >> 8 & 0xfff) | (dev >> 32 & 0xffff_f000);
        let minor = (dev & 0xff) | (dev >> 12 & 0xffff_ff00);
        (u64::from(self.maj), u64::from(self.min), self.ino) == (major, minor, ino)
    }
}

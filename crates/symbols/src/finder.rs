//! From a mapping to a symbol table.
//!
//! Candidates are tried from the surest to the weakest: what was kept by build id, the very file that the live process
//! mapped (`/proc/PID/map_files`), its path inside the process's root, the path itself, and copies filed by build id.
//! Where a copy of the recorded machine's files is given ([`Finder::symfs`]), paths are those of that copy alone.
//! Where the build id is known, each candidate has to have it; names of another build are never given, and
//! [`Finder::refused`] tells which files had one.

mod content;
mod debugfile;
mod fetch;
mod refused;

use std::collections::hash_map::Entry;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cache::Cache;
use crate::elf::{Builder, Origin, build_id_of};
use crate::error::ErrorKind;
use crate::source::{Files, Identity, PathKind, Place, RealFiles, Source, Tables, classify, plain_path, read_all};
use crate::{Reason, SymbolTable};
pub(crate) use content::machine_of;
pub use content::{Machine, ObjectFile};
use debugfile::DebugDirs;
pub use fetch::{Fetch, Wanted};
pub use refused::{Mismatch, Refused};
use refused::{Refusals, Tried};

/// Whose table is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The path of the mapping, as the MMAP2 record has it.
    pub path: &'a [u8],
    /// The build id that was recorded, where one was.
    pub build_id: Option<&'a [u8]>,
    /// A process that has it mapped now, where one is known to live.
    pub live: Option<Live>,
}

/// A mapping of a process that is thought to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Live {
    /// The process, by its number as we see it.
    pub pid: u32,
    /// Where the mapping starts.
    pub start: u64,
    /// One past its last address.
    pub end: u64,
}

/// Finds symbol tables and remembers them, for one session.
pub struct Finder {
    files: Box<dyn Files>,
    cache: Option<Cache>,
    debug: DebugDirs,
    symfs: Option<PathBuf>,
    /// Where files are got from that are not here.
    fetch: Option<Box<dyn Fetch>>,
    refusals: Refusals,
    by_build_id: FxHashMap<Vec<u8>, Arc<SymbolTable>>,
    by_file: FxHashMap<Identity, Result<Arc<SymbolTable>, Reason>>,
    by_request: FxHashMap<RequestKey, Result<Arc<SymbolTable>, Reason>>,
}

#[derive(PartialEq, Eq, Hash)]
struct RequestKey {
    path: Vec<u8>,
    build_id: Vec<u8>,
    live: Option<Live>,
}

/// How many answers are remembered by request. A session that runs for days sees millions of mappings.
const MAX_REMEMBERED: usize = 1 << 16;
/// Largest `/proc/PID/maps` that is read.
const MAX_MAPS: usize = 64 << 20;

impl Default for Finder {
    fn default() -> Finder {
        Finder::new()
    }
}

impl Finder {
    /// A finder over the files of this machine, with the user's cache.
    pub fn new() -> Finder {
        Finder::with(Box::new(RealFiles), Cache::open_default())
    }

    /// A finder over any files, with any cache or none.
    pub fn with(files: Box<dyn Files>, cache: Option<Cache>) -> Finder {
        let by_build_id = FxHashMap::default();
        let (by_file, by_request) = (FxHashMap::default(), FxHashMap::default());
        let (debug, refusals) = (DebugDirs::usual(), Refusals::default());
        Finder { files, cache, debug, symfs: None, fetch: None, refusals, by_build_id, by_file, by_request }
    }

    /// Folders that are asked before the usual ones: with `.build-id/xx/yyyy.debug` or the paths of objects mirrored below
    /// them, as distributions and gdb have them, or laid out as perf's cache (`~/.debug`).
    pub fn debug_dirs(mut self, dirs: Vec<PathBuf>) -> Finder {
        self.debug = self.debug.behind(dirs);
        self
    }

    /// The folder that holds the files of the recorded machine: paths are looked up in it, and links cannot lead out of it.
    /// Processes of this machine are not asked then.
    pub fn symfs(mut self, root: impl Into<PathBuf>) -> Finder {
        let root = root.into();
        self.debug = self.debug.inside(&root);
        self.symfs = Some(root);
        self
    }

    /// Files of a build that is not here come from there.
    pub fn fetching(mut self, fetch: Box<dyn Fetch>) -> Finder {
        self.fetch = Some(fetch);
        self
    }

    /// A file of a build from elsewhere, where such a place was named. It has the build id: that was asked of it again.
    fn fetched(&self, build_id: &[u8], wanted: Wanted) -> Option<Box<dyn Source>> {
        let file = self.fetch.as_ref().filter(|_| !build_id.is_empty())?.fetch(build_id, wanted)?;
        let right = build_id_of(&Tables::of(&file)).is_ok_and(|own| own == build_id);
        right.then(|| Box::new(fetch::Fetched(file)) as Box<dyn Source>)
    }

    /// Whether paths are those of a copy of the recorded machine's files.
    pub fn has_symfs(&self) -> bool {
        self.symfs.is_some()
    }

    /// Files that were there and were not used, each once: of another build, while no file of the right one was found.
    pub fn refused(&self) -> &[Refused] {
        self.refusals.all()
    }

    /// The folder that holds `.build-id/`, instead of `/usr/lib/debug`.
    pub fn debug_dir(mut self, dir: impl Into<PathBuf>) -> Finder {
        self.debug = DebugDirs::only(dir.into());
        self
    }

    /// The table for a mapping. The answer is remembered, a refusal too. A table without symbols is an answer: the
    /// object was read and is stripped.
    ///
    /// # Errors
    /// The reason why there are no names: that of the surest candidate that exists.
    pub fn find(&mut self, request: &Request<'_>) -> Result<Arc<SymbolTable>, Reason> {
        if let Some(table) = request.build_id.and_then(|id| self.by_build_id.get(id)) {
            return Ok(table.clone());
        }
        let build_id = request.build_id.unwrap_or_default().to_vec();
        let key = RequestKey { path: request.path.to_vec(), build_id, live: request.live };
        if let Some(known) = self.by_request.get(&key) {
            return known.clone();
        }
        let found = self.search(request);
        if let (Ok(table), Some(id)) = (&found, request.build_id) {
            self.by_build_id.insert(id.to_vec(), table.clone());
            return found;
        }
        if self.by_request.len() >= MAX_REMEMBERED {
            self.by_request.clear();
        }
        self.by_request.insert(key, found.clone());
        found
    }

    /// The build id of what is mapped, read from the file itself, without its symbols.
    pub fn build_id_of(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        let places = self.places(request);
        places.iter().find_map(|place| {
            let source = self.files.open(&place.as_place()).ok()?;
            build_id_of(&Tables::of(&*source)).ok().filter(|id| !id.is_empty())
        })
    }

    fn search(&mut self, request: &Request<'_>) -> Result<Arc<SymbolTable>, Reason> {
        match classify(request.path) {
            PathKind::Vdso | PathKind::Vsyscall => return Err(Reason::NoVdso),
            PathKind::Anonymous => return Err(Reason::Anonymous),
            PathKind::Special => return Err(Reason::Special),
            PathKind::File | PathKind::Deleted | PathKind::Memfd => {}
        }
        let kept = request.build_id.and_then(|id| self.cache.as_ref()?.get(id));
        let kept = match kept {
            // A debug file that was installed since then has more to say.
            Some(table)
                if table.origin() >= Origin::Symtab || (self.fetch.is_none() && !self.has_debug_file(request)) =>
            {
                return Ok(Arc::new(table));
            }
            other => other,
        };
        let mut tried = Tried::default();
        let mut found = Err(missing(request));
        for place in self.places(request) {
            match self.open(&place, request, &mut tried) {
                Ok(table) => {
                    found = Ok(table);
                    break;
                }
                Err(reason) => found = found.map_err(|refusal| surer(refusal, reason)),
            }
        }
        let found = found.or_else(|refusal| {
            let id = request.build_id.unwrap_or_default();
            // What the cache keeps of it may be all that there is.
            let known = kept.as_ref().is_some_and(|table| table.origin() >= Origin::Symtab);
            let source = if known { None } else { self.fetched(id, Wanted::Executable) };
            let place = Candidate::own(plain_path(request.path).to_path_buf());
            let fetched = source.and_then(|source| self.load(&*source, &place, request, &mut tried).ok());
            fetched.or_else(|| kept.map(Arc::new)).ok_or(refusal)
        });
        if found.is_ok() {
            tried.objects.clear();
        }
        self.refusals.add(tried.objects.into_iter().chain(tried.debug));
        found
    }

    fn has_debug_file(&self, request: &Request<'_>) -> bool {
        request.build_id.is_some_and(|id| self.debug.by_build_id(&*self.files, id, &mut Tried::default()).is_some())
    }

    /// The candidates in order.
    fn places(&self, request: &Request<'_>) -> Vec<Candidate> {
        let path = plain_path(request.path);
        let kind = classify(request.path);
        let mut places = Vec::new();
        if let Some(root) = &self.symfs {
            if kind == PathKind::File || kind == PathKind::Deleted && request.build_id.is_some() {
                places.push(Candidate { root: Some(root.clone()), path: path.to_path_buf() });
            }
            places.extend(request.build_id.into_iter().flat_map(|id| self.debug.copies(id)));
            return places;
        }
        if let Some(live) = request.live {
            places.extend(self.map_file(live, path).map(Candidate::own));
            if kind == PathKind::File || kind == PathKind::Deleted && request.build_id.is_some() {
                let root = PathBuf::from(format!("/proc/{}/root", live.pid));
                places.push(Candidate { root: Some(root), path: path.to_path_buf() });
            }
        }
        // What stands now at the path of a deleted file is another file, and so may be what stands at that path in our
        // root while the process lives in a root of its own, unless the build id says otherwise.
        let plain = kind == PathKind::File && !request.live.is_some_and(|live| self.has_root(live));
        if plain || kind != PathKind::Memfd && request.build_id.is_some() {
            places.push(Candidate::own(path.to_path_buf()));
        }
        if let Some(id) = request.build_id {
            places.extend(self.debug.copies(id));
        }
        places
    }

    /// Whether the process lives and its root may be entered.
    fn has_root(&self, live: Live) -> bool {
        self.files.read_link(Path::new(&format!("/proc/{}/root", live.pid))).is_ok()
    }

    /// The link of `/proc/PID/map_files` for a mapping, which leads to the very file that was mapped, under whatever
    /// name, deleted or not. The process number may have been given to another process meanwhile, so the name is
    /// compared.
    fn map_file(&self, live: Live, path: &Path) -> Option<PathBuf> {
        let link = |start: u64, end: u64| PathBuf::from(format!("/proc/{}/map_files/{start:x}-{end:x}", live.pid));
        let same = |link: &PathBuf| {
            let target = self.files.read_link(link).ok();
            target.is_some_and(|to| plain_path(to.as_os_str().as_bytes()).file_name() == path.file_name())
        };
        let exact = link(live.start, live.end);
        if same(&exact) {
            return Some(exact);
        }
        // The mapping was split or joined since it was recorded: the piece that has its start now is as good.
        let maps = PathBuf::from(format!("/proc/{}/maps", live.pid));
        let maps = self.files.open(&Place::own(&maps)).and_then(|s| read_all(&*s, MAX_MAPS)).ok()?;
        let (start, end) =
            maps.split(|&b| b == b'\n').filter_map(map_range).find(|r| (r.0..r.1).contains(&live.start))?;
        Some(link(start, end)).filter(same)
    }

    fn open(
        &mut self,
        place: &Candidate,
        request: &Request<'_>,
        tried: &mut Tried,
    ) -> Result<Arc<SymbolTable>, Reason> {
        let source = self.files.open(&place.as_place()).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => Reason::Unreadable,
            _ => missing(request),
        })?;
        let identity = source.identity();
        let table = match identity.map(|id| self.by_file.entry(id)) {
            Some(Entry::Occupied(known)) => known.get().clone(),
            _ => {
                let table = self.load(&*source, place, request, tried);
                // A refusal by build id is the request's, not the file's.
                if let (Some(identity), true) = (identity, table != Err(Reason::BuildIdDiffers)) {
                    self.by_file.insert(identity, table.clone());
                }
                table
            }
        }?;
        match request.build_id {
            Some(id) if table.build_id() != Some(id) => {
                tried.object(&place.path, id, table.build_id().unwrap_or_default().to_vec());
                Err(Reason::BuildIdDiffers)
            }
            _ => Ok(table),
        }
    }

    fn load(
        &self,
        source: &dyn Source,
        place: &Candidate,
        request: &Request<'_>,
        tried: &mut Tried,
    ) -> Result<Arc<SymbolTable>, Reason> {
        let tables = Tables::of(source);
        if let Some(id) = request.build_id {
            // Compared before the symbols are read: that costs one page.
            let own = build_id_of(&tables).map_err(reason_of)?;
            if own != id {
                tried.object(&place.path, id, own);
                return Err(Reason::BuildIdDiffers);
            }
        }
        let identity = source.identity().filter(|_| request.build_id.is_none());
        if let Some(table) = identity.and_then(|file| self.cache.as_ref()?.get_file(&file)) {
            return Ok(Arc::new(table));
        }
        let mut builder = Builder::default();
        let link = builder.add_object(&tables).map_err(reason_of)?;
        if builder.origin() < Origin::Symtab {
            self.debug.add_to(&mut builder, &*self.files, place, link.as_ref(), tried);
        }
        let lacks = builder.origin() < Origin::Symtab;
        let fetched = if lacks { self.fetched(builder.build_id(), Wanted::DebugInfo) } else { None };
        if let Some(source) = fetched {
            // A damaged one adds what could be read of it.
            let _ = builder.add_debug_file(&Tables::of(&*source));
        }
        let table = builder.finish();
        // What was asked for by build id was not in the cache, or was there with fewer names.
        let keep = |cache: &&Cache, id: &[u8]| request.build_id.is_some() || !cache.has(id);
        if let Some((cache, id)) = self.cache.as_ref().zip(table.build_id()).filter(|(cache, id)| keep(cache, id)) {
            // Without the cache names still come from the file, as long as it is there.
            let _ = cache.put(id, &table);
        }
        // A debug file that comes later could not have more to say.
        let whole = link.is_none() || table.origin() >= Origin::Symtab;
        if let (Some(cache), Some(file), true) = (&self.cache, identity, whole && table.build_id().is_none()) {
            // As above.
            let _ = cache.put_file(&file, &table);
        }
        Ok(Arc::new(table))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    root: Option<PathBuf>,
    path: PathBuf,
}

impl Candidate {
    fn own(path: PathBuf) -> Candidate {
        Candidate { root: None, path }
    }

    fn as_place(&self) -> Place<'_> {
        Place { root: self.root.as_deref(), path: &self.path, follow: true }
    }
}

/// The two addresses at the front of a line of `/proc/PID/maps`.
fn map_range(line: &[u8]) -> Option<(u64, u64)> {
    let range = std::str::from_utf8(line.split(|&b| b == b' ').next()?).ok()?;
    let (start, end) = range.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

fn missing(request: &Request<'_>) -> Reason {
    match classify(request.path) {
        PathKind::Memfd => Reason::Memory,
        PathKind::Deleted => Reason::Deleted,
        _ => Reason::NoFile,
    }
}

fn reason_of(error: crate::Error) -> Reason {
    match error.kind() {
        ErrorKind::Io => Reason::Unreadable,
        ErrorKind::NotElf | ErrorKind::Damaged => Reason::Damaged,
        ErrorKind::Limit => Reason::TooLarge,
    }
}

/// Of two refusals the one that tells more: that a file was there beats that none was.
fn surer(a: Reason, b: Reason) -> Reason {
    let weight = |reason| match reason {
        Reason::BuildIdDiffers => 3,
        Reason::Damaged | Reason::TooLarge => 2,
        Reason::Unreadable => 1,
        _ => 0,
    };
    if weight(b) > weight(a) { b } else { a }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::source::fake::FakeFiles;

    fn own_program() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    const LIVE: Live = Live { pid: 7, start: 0x1000, end: 0x2000 };

    #[test]
    fn a_number_given_to_another_process_names_nothing() {
        let link = "/proc/7/map_files/1000-2000";
        let files = FakeFiles::default().with(link, own_program());
        let request = Request { path: b"/opt/tool (deleted)", build_id: None, live: Some(LIVE) };
        let mut other = Finder::with(Box::new(files.clone().link(link, "/usr/bin/other")), None);
        assert_eq!(other.find(&request).unwrap_err(), Reason::Deleted);
        let mut same = Finder::with(Box::new(files.link(link, "/opt/tool (deleted)")), None);
        assert!(!same.find(&request).unwrap().is_empty());
    }

    #[test]
    fn what_took_the_place_of_a_deleted_file_is_another_file() {
        let files = FakeFiles::default().with("/proc/7/root/opt/tool", own_program()).with("/opt/tool", own_program());
        let mut finder = Finder::with(Box::new(files), None);
        let request = Request { path: b"/opt/tool (deleted)", build_id: None, live: Some(LIVE) };
        assert_eq!(finder.find(&request).unwrap_err(), Reason::Deleted);
        let id = crate::elf::build_id_of(own_program().as_slice()).unwrap();
        assert!(finder.find(&Request { build_id: Some(&id), ..request }).is_ok(), "put back as it was");
    }

    #[test]
    fn another_root_is_not_ours() {
        let files = FakeFiles::default().with("/opt/tool", own_program());
        let live = Request { path: b"/opt/tool", build_id: None, live: Some(LIVE) };
        assert!(Finder::with(Box::new(files.clone()), None).find(&live).is_ok(), "the process is gone");
        let rooted = files.link("/proc/7/root", "/");
        assert_eq!(Finder::with(Box::new(rooted), None).find(&live).unwrap_err(), Reason::NoFile);
    }

    #[test]
    fn what_was_refused_is_said() {
        let files = FakeFiles::default().refuse("/proc/7/root/opt/tool").refuse("/opt/tool");
        let mut finder = Finder::with(Box::new(files.clone()), None);
        let request = Request { path: b"/opt/tool", build_id: Some(b"id"), live: Some(LIVE) };
        assert_eq!(finder.find(&request).unwrap_err(), Reason::Unreadable);
        // A file of another build is the better answer.
        let mut finder = Finder::with(Box::new(files.with("/usr/lib/debug/.build-id/69/64", own_program())), None);
        assert_eq!(finder.find(&request).unwrap_err(), Reason::BuildIdDiffers);
    }

    #[test]
    fn files_of_another_build_are_told_unless_the_right_one_is_found() {
        let id = crate::elf::build_id_of(own_program().as_slice()).unwrap();
        let request = Request { path: b"/opt/tool", build_id: Some(b"other"), live: None };
        let files = FakeFiles::default().with("/opt/tool", own_program());
        let mut finder = Finder::with(Box::new(files.clone()), None);
        for _ in 0..2 {
            assert_eq!(finder.find(&request).unwrap_err(), Reason::BuildIdDiffers);
            assert_eq!(finder.file(&request).unwrap_err(), Reason::BuildIdDiffers);
        }
        let refused =
            Refused { file: "/opt/tool".into(), recorded: b"other".to_vec(), why: Mismatch::BuildId(id.clone()) };
        assert_eq!(finder.refused(), [refused]);
        // The path has an older program now, and the right one is filed by its build id.
        let copy = crate::cache::hex(&id);
        let copy = format!("/usr/lib/debug/.build-id/{}/{}", &copy[..2], &copy[2..]);
        let files = FakeFiles::default().with("/opt/tool", "\x7fELF no program").with(&copy, own_program());
        let mut finder = Finder::with(Box::new(files), None);
        assert!(finder.find(&Request { build_id: Some(&id), ..request }).is_ok());
        assert_eq!(finder.refused(), []);
    }

    /// Has our own program, and tells what it was asked for.
    struct Elsewhere(std::sync::mpsc::Sender<Wanted>);

    impl Fetch for Elsewhere {
        fn fetch(&self, _: &[u8], wanted: Wanted) -> Option<std::fs::File> {
            self.0.send(wanted).unwrap();
            std::fs::File::open("/proc/self/exe").ok()
        }
    }

    #[test]
    fn what_is_here_is_asked_of_nobody() {
        let id = crate::elf::build_id_of(own_program().as_slice()).unwrap();
        let (sender, asked) = std::sync::mpsc::channel();
        let finder = |files| Finder::with(Box::new(files), None).fetching(Box::new(Elsewhere(sender.clone())));
        let request = Request { path: b"/opt/tool", build_id: Some(&id), live: None };
        let mut here = finder(FakeFiles::default().with("/opt/tool", own_program()));
        assert!(here.find(&request).is_ok() && here.file(&request).is_ok());
        assert_eq!(asked.try_iter().filter(|wanted| *wanted == Wanted::Executable).count(), 0);
        let mut gone = finder(FakeFiles::default());
        assert!(gone.find(&request).is_ok());
        assert_eq!(asked.try_iter().collect::<Vec<_>>(), [Wanted::Executable]);
        // Without a build id nothing can be asked for; what has another is not taken.
        assert_eq!(gone.find(&Request { build_id: None, ..request }).unwrap_err(), Reason::NoFile);
        assert_eq!(asked.try_iter().count(), 0);
        assert!(gone.find(&Request { build_id: Some(b"other"), ..request }).is_err());
    }

    #[test]
    fn a_copy_of_the_files_is_asked_in_place_of_this_machines() {
        let id = crate::elf::build_id_of(own_program().as_slice()).unwrap();
        let request = Request { path: b"/opt/tool", build_id: None, live: Some(LIVE) };
        let link = "/proc/7/map_files/1000-2000";
        let here =
            FakeFiles::default().with("/opt/tool", own_program()).with(link, own_program()).link(link, "/opt/tool");
        let mut finder = Finder::with(Box::new(here.clone()), None).symfs("/tree");
        assert_eq!(finder.find(&request).unwrap_err(), Reason::NoFile);
        let there = here.with("/tree/opt/tool", own_program());
        let mut finder = Finder::with(Box::new(there.clone()), None).symfs("/tree");
        assert_eq!(finder.find(&request).unwrap().build_id(), Some(&*id));
        let other = Request { build_id: Some(b"other"), ..request };
        assert_eq!(finder.find(&other).unwrap_err(), Reason::BuildIdDiffers);
        assert_eq!(finder.refused().len(), 1);
        let gone = Request { path: b"/opt/tool (deleted)", ..request };
        assert_eq!(finder.find(&gone).unwrap_err(), Reason::Deleted);
        let gone = Request { build_id: Some(&id), ..gone };
        assert!(Finder::with(Box::new(there), None).symfs("/tree").find(&gone).is_ok());
    }
}

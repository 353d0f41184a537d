//! The file behind a mapping itself: its code, and where its debug information is.
//!
//! Names may come from a cache after the file is gone; code may not. So the candidates of [`Finder::find`] are opened
//! one by one, and the first that has the right build id is it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::{Object as _, ObjectSymbol as _};

use super::refused::Tried;
use super::{Candidate, Finder, Request, Wanted, missing, reason_of, surer};
use crate::elf::{Builder, Segment, build_id_of, debuglink_of, segments_of};
use crate::kept::KeptContent;
use crate::lines::{DwarfLines, has_lines};
use crate::source::{PathKind, Source, Tables, classify, read_all};
use crate::{Error, ErrorKind, Reason, SymbolTable, UnwindSections};

/// The most code that is read at once, in bytes: no function is longer.
const MAX_CODE: u64 = 16 << 20;

/// Largest list of symbols that is read. 120,000 symbols are 6 MB.
const MAX_LIST: usize = 1 << 30;

/// What instructions an object holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// 32-bit x86.
    X86,
    /// 64-bit ARM.
    Aarch64,
    /// Another one.
    Other,
}

impl Machine {
    /// The machine of a kernel or recording, by what `uname -m` says there.
    pub fn of_uname(name: &str) -> Machine {
        match name {
            "x86_64" | "amd64" => Machine::X86_64,
            "i386" | "i486" | "i586" | "i686" => Machine::X86,
            "aarch64" | "arm64" => Machine::Aarch64,
            _ => Machine::Other,
        }
    }
}

pub(crate) fn machine_of(architecture: object::Architecture) -> Machine {
    match architecture {
        object::Architecture::X86_64 => Machine::X86_64,
        object::Architecture::I386 => Machine::X86,
        object::Architecture::Aarch64 => Machine::Aarch64,
        _ => Machine::Other,
    }
}

/// An ELF object that was found and is open, or what an archive keeps of one.
pub struct ObjectFile {
    body: Body,
    path: PathBuf,
    segments: Vec<Segment>,
    machine: Machine,
}

enum Body {
    Open {
        source: Box<dyn Source>,
        /// Its separate debug file, where it has no lines of its own.
        debug: Option<Box<dyn Source>>,
    },
    Kept(Arc<KeptContent>),
}

impl std::fmt::Debug for ObjectFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectFile").field("path", &self.path).field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl Finder {
    /// The file behind a mapping, by the same candidates and rules as [`find`](Finder::find), but for the cache, which
    /// has names only.
    ///
    /// # Errors
    /// The reason why there is none: that of the surest candidate that exists.
    pub fn file(&mut self, request: &Request<'_>) -> Result<ObjectFile, Reason> {
        match classify(request.path) {
            PathKind::Vdso | PathKind::Vsyscall => return Err(Reason::NoVdso),
            PathKind::Anonymous => return Err(Reason::Anonymous),
            PathKind::Special => return Err(Reason::Special),
            PathKind::File | PathKind::Deleted | PathKind::Memfd => {}
        }
        let places = self.places(request);
        self.first_whole(places, request.build_id, missing(request), Wanted::Executable)
    }

    /// The image of a kernel with symbols (vmlinux) of this build: the given file, or one of the places where
    /// distributions put it. `release` is what `uname -r` says there.
    ///
    /// # Errors
    /// The reason why there is none: that of the surest candidate that exists.
    pub fn kernel_file(&mut self, build_id: &[u8], release: &str, given: Option<&Path>) -> Result<ObjectFile, Reason> {
        // The release comes from a recording, and is no path.
        let release = (!release.is_empty() && !release.contains(['/', '\0'])).then_some(release);
        let usual = release.into_iter().flat_map(|release| {
            [
                format!("/usr/lib/debug/boot/vmlinux-{release}"),
                format!("/usr/lib/debug/lib/modules/{release}/vmlinux"),
                format!("/lib/modules/{release}/vmlinux"),
                format!("/lib/modules/{release}/build/vmlinux"),
                format!("/boot/vmlinux-{release}"),
            ]
        });
        let usual = usual.map(|path| Candidate { root: self.symfs.clone(), path: path.into() });
        let places: Vec<Candidate> = match given {
            Some(path) => vec![Candidate::own(path.to_path_buf())],
            None => {
                let filed = self.debug.debug_files(build_id).into_iter().chain(self.debug.copies(build_id));
                filed.chain(usual).collect()
            }
        };
        self.first_whole(places, Some(build_id), Reason::NoFile, Wanted::DebugInfo)
    }

    /// The list of symbols (`/proc/kallsyms`) that perf kept of a kernel of this build. It has no build id of its own: perf
    /// filed it under that of the kernel that it was read from.
    pub fn kernel_list(&self, build_id: &[u8]) -> Option<Vec<u8>> {
        self.debug.kallsyms(build_id).iter().find_map(|place| {
            let source = self.files.open(&place.as_place()).ok()?;
            read_all(&*source, MAX_LIST).ok()
        })
    }

    fn first_whole(
        &mut self,
        places: Vec<Candidate>,
        build_id: Option<&[u8]>,
        missing: Reason,
        wanted: Wanted,
    ) -> Result<ObjectFile, Reason> {
        let mut tried = Tried::default();
        let mut found = Err(missing);
        for place in places {
            match self.open_whole(&place, build_id, missing, &mut tried) {
                Ok(file) => {
                    tried.objects.clear();
                    found = Ok(file);
                    break;
                }
                Err(reason) => found = found.map_err(|refusal| surer(refusal, reason)),
            }
        }
        let id = build_id.filter(|_| found.is_err());
        if let Some(source) = id.and_then(|id| self.fetched(id, wanted)) {
            let place = Candidate::own(PathBuf::from("debuginfod"));
            if let Ok(file) = self.whole(source, &place, build_id, &mut tried) {
                tried.objects.clear();
                found = Ok(file);
            }
        }
        self.refusals.add(tried.objects.into_iter().chain(tried.debug));
        found
    }

    fn open_whole(
        &self,
        place: &Candidate,
        build_id: Option<&[u8]>,
        missing: Reason,
        tried: &mut Tried,
    ) -> Result<ObjectFile, Reason> {
        let source = self.files.open(&place.as_place()).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => Reason::Unreadable,
            _ => missing,
        })?;
        self.whole(source, place, build_id, tried)
    }

    fn whole(
        &self,
        source: Box<dyn Source>,
        place: &Candidate,
        build_id: Option<&[u8]>,
        tried: &mut Tried,
    ) -> Result<ObjectFile, Reason> {
        let tables = Tables::of(&*source);
        let own_id = build_id_of(&tables).map_err(reason_of)?;
        if let Some(wanted) = build_id.filter(|id| *id != own_id) {
            tried.object(&place.path, wanted, own_id);
            return Err(Reason::BuildIdDiffers);
        }
        let file = object::File::parse(&tables).map_err(|_| Reason::Damaged)?;
        let machine = machine_of(file.architecture());
        let debug = if has_lines(&file) {
            None
        } else {
            let link = debuglink_of(&tables);
            let here = self.debug.source(&*self.files, place, &own_id, link.as_ref(), tried);
            here.or_else(|| self.fetched(&own_id, Wanted::DebugInfo))
        };
        let segments = segments_of(&tables).map_err(reason_of)?;
        drop(file);
        drop(tables);
        Ok(ObjectFile { body: Body::Open { source, debug }, path: place.path.clone(), segments, machine })
    }
}

impl ObjectFile {
    /// What an archive keeps of an object, in its place.
    pub fn kept(content: Arc<KeptContent>) -> ObjectFile {
        let (path, segments) = (content.path().to_path_buf(), content.table().segments().to_vec());
        ObjectFile { machine: content.machine, body: Body::Kept(content), path, segments }
    }

    /// The path that it was found at, in the root of its process.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What instructions it holds.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The address that the byte at `offset` of the file is loaded to, in the object's own address space.
    pub fn vaddr_of_offset(&self, offset: u64) -> Option<u64> {
        let holds = |s: &&Segment| offset.checked_sub(s.offset).is_some_and(|into| into < s.file_size);
        let segment = self.segments.iter().filter(|s| s.executable).chain(&self.segments).find(holds)?;
        Some(segment.vaddr.wrapping_add(offset - segment.offset))
    }

    /// The bytes of the file that are loaded to `vaddr` and on, in the object's own address space; fewer than asked for
    /// where a segment ends. `None` where no segment has bytes of that address, and for more than 16 MiB.
    pub fn code(&self, vaddr: u64, len: u64) -> Option<Vec<u8>> {
        let source = match &self.body {
            Body::Open { source, .. } => source,
            Body::Kept(content) => return content.code_at(vaddr, len),
        };
        let holds = |s: &&Segment| vaddr.checked_sub(s.vaddr).is_some_and(|into| into < s.file_size);
        let segment = self.segments.iter().filter(|s| s.executable).chain(&self.segments).find(holds)?;
        let into = vaddr - segment.vaddr;
        let len = len.min(segment.file_size - into);
        if len > MAX_CODE || len > source.len() {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        let mut have = 0;
        while have < bytes.len() {
            let at = segment.offset.checked_add(into)?.checked_add(have as u64)?;
            match source.read_at(bytes.get_mut(have..)?, at) {
                Ok(0) | Err(_) => break,
                Ok(got) => have += got,
            }
        }
        bytes.truncate(have);
        (!bytes.is_empty()).then_some(bytes)
    }

    /// The lines of its code, from itself or from its debug file.
    ///
    /// # Errors
    /// When there is no debug information, or a damaged one.
    pub fn lines(&self) -> Result<DwarfLines, Error> {
        match &self.body {
            Body::Open { source, debug } => DwarfLines::of(debug.as_deref().unwrap_or(&**source)),
            Body::Kept(content) => {
                content.dwarf().ok_or_else(|| Error::new(ErrorKind::Damaged, "no debug information"))
            }
        }
    }

    /// Its symbols, and those of its debug file.
    ///
    /// # Errors
    /// [`Reason::Damaged`] or [`Reason::Unreadable`] where they cannot be read.
    pub fn symbols(&self) -> Result<SymbolTable, Reason> {
        let (source, debug) = match &self.body {
            Body::Open { source, debug } => (source, debug),
            Body::Kept(content) => return Ok(content.table().clone()),
        };
        let mut builder = Builder::default();
        builder.add_object(&Tables::of(&**source)).map_err(reason_of)?;
        if let Some(debug) = debug {
            // A damaged one adds what could be read of it.
            let _ = builder.add_debug_file(&Tables::of(&**debug));
        }
        Ok(builder.finish())
    }

    /// Its unwind tables; `.debug_frame` from its debug file where it has none itself.
    ///
    /// # Errors
    /// When it is not an object of little-endian 64-bit words, and of what an archive keeps.
    pub fn unwind_sections(&self) -> Result<UnwindSections, Error> {
        let Body::Open { source, debug } = &self.body else {
            return Err(Error::new(ErrorKind::Damaged, "no unwind tables in an archive"));
        };
        let mut sections = UnwindSections::of(&Tables::of(&**source), source.len())?;
        if let (None, Some(debug)) = (&sections.debug_frame, debug) {
            // A debug file that cannot be read leaves the tables of the object.
            if let Ok(of_debug) = UnwindSections::of(&Tables::of(&**debug), debug.len()) {
                sections.debug_frame = of_debug.debug_frame;
                sections.left_out |= of_debug.left_out;
            }
        }
        Ok(sections)
    }

    /// The address of a symbol in the object's own address space.
    pub fn symbol_address(&self, name: &str) -> Option<u64> {
        let source = match &self.body {
            Body::Open { source, .. } => source,
            Body::Kept(content) => return content.table().iter().find(|hit| hit.name == name).map(|hit| hit.start),
        };
        let tables = Tables::of(&**source);
        let file = object::File::parse(&tables).ok()?;
        file.symbols().find(|symbol| symbol.name() == Ok(name)).map(|symbol| symbol.address())
    }
}

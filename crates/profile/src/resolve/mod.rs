//! Names for places: each distinct place once.

mod content;
mod frame;
mod keep;
mod kernel;
mod user;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use afterimage_kernel_text::{TextId, TextKind};
use afterimage_perf_data::{AnySource, BuildId, FileReader};
use afterimage_symbols::lines::DwarfLines;
use afterimage_symbols::{Finder, ObjectFile, PathKind, Reason, Refused, demangle};
use rustc_hash::{FxHashMap, FxHashSet};

pub(crate) use content::FoundTables;
pub use frame::{Dso, Frame, FrameKind, SymId};
pub use keep::Kept;
use kernel::KernelNames;
pub(crate) use user::{Here, Inode};
use user::{KeptObjects, UserNames};

use crate::loc::{CpuMode, Loc, Place};
use crate::state::{KernelMap, Object, ObjectId, State};

/// Where names come from.
#[derive(Default)]
pub struct ResolveOptions {
    /// A text in the form of /proc/kallsyms to believe instead of asking the running kernel.
    pub kallsyms: Option<Vec<u8>>,
    /// The only image of the kernel (vmlinux) that is tried, in place of those in the usual places.
    pub vmlinux: Option<PathBuf>,
    /// Finds symbol tables of user objects; by default with the real files and the default cache.
    pub finder: Option<Finder>,
    /// Names are asked for while the records of a stream come, which may tell build IDs behind them: files whose build ID is
    /// not known name nothing.
    pub build_ids_to_come: bool,
}

/// Files and kernels that were there and named nothing, because they are not what was recorded.
#[derive(Clone, Copy, Debug)]
pub struct NotUsed<'r> {
    /// Files of another build than the recorded one.
    pub files: &'r [Refused],
    /// Why the kernel named nothing, and how many of the places that were asked for have no name because of that.
    pub kernel: Option<(Reason, u64)>,
    /// Objects of an archive that are damaged.
    pub damaged: u64,
}

/// Names the places of one replay. Every place is named once and then remembered.
pub struct Resolver {
    kallsyms: Option<Vec<u8>>,
    vmlinux: Option<PathBuf>,
    /// The kernel symbols that the recording itself carries.
    recorded_symbols: Vec<u8>,
    kernel: Option<KernelNames>,
    /// What an archive holds of objects, until they are asked for.
    kept: KeptObjects,
    /// Whether the recording is an archive, which has all names of the kernel that there were.
    archive: bool,
    /// Objects of an archive that cannot be read.
    damaged: u64,
    /// Processes whose code of JIT compilers the recording tells of.
    jit_told: FxHashSet<u32>,
    /// Distinct addresses of the kernel that have no name because its names were refused.
    kernel_unnamed: u64,
    /// The kernel's build ID from beside the records.
    kernel_build_id: Option<BuildId>,
    features: Box<afterimage_perf_data::Features>,
    finder: Option<Finder>,
    to_come: bool,
    user: Option<UserNames>,
    dsos: FxHashMap<ObjectId, (Arc<Dso>, u32)>,
    frames: Vec<Frame>,
    by_loc: FxHashMap<Loc, usize>,
    names: Interner,
    /// Files with their lines, where somebody asked for lines and they have some.
    dwarf: FxHashMap<ObjectId, Option<(DwarfLines, ObjectFile)>>,
}

impl Resolver {
    /// A resolver for the places of one replay of this recording.
    pub fn new(reader: &FileReader<'_>, options: ResolveOptions) -> Resolver {
        let features = afterimage_perf_data::Features {
            build_ids: reader.features().build_ids.clone(),
            hostname: reader.features().hostname.clone(),
            os_release: reader.features().os_release.clone(),
            ..Default::default()
        };
        let symbols = reader.private().map(|private| private.kernel_symbols.clone()).unwrap_or_default();
        let mut resolver = Resolver::with(features, symbols, options);
        if let Some(private) = reader.private() {
            let (kept, damaged) = KeptObjects::read(&private.objects, &private.tables);
            (resolver.kept, resolver.damaged) = (kept, damaged.saturating_add(private.lost_objects));
            resolver.archive = private.archive.is_some();
            resolver.jit_told = private.jit.iter().map(|piece| piece.pid).collect();
        }
        resolver
    }

    /// A resolver for places of a machine that `features` tells of, with the kernel symbols that somebody carried here.
    pub(crate) fn with(
        features: afterimage_perf_data::Features,
        recorded_symbols: Vec<u8>,
        options: ResolveOptions,
    ) -> Resolver {
        Resolver {
            kallsyms: options.kallsyms,
            vmlinux: options.vmlinux,
            recorded_symbols,
            kernel: None,
            kept: KeptObjects::default(),
            archive: false,
            damaged: 0,
            jit_told: FxHashSet::default(),
            kernel_unnamed: 0,
            kernel_build_id: None,
            features: Box::new(features),
            finder: options.finder,
            to_come: options.build_ids_to_come,
            user: None,
            dsos: FxHashMap::default(),
            frames: Vec::new(),
            by_loc: FxHashMap::default(),
            names: Interner::default(),
            dwarf: FxHashMap::default(),
        }
    }

    /// Takes the build IDs that a stream told only behind its records. Names that were given before are not taken back.
    pub fn learn(&mut self, source: &mut AnySource<'_>) {
        if let Some(told) = source.told_late() {
            self.features.build_ids.extend(told.build_ids.iter().cloned());
            if let Some(user) = &mut self.user {
                user.learn(&told.build_ids);
            }
        }
    }

    /// What was there and was not used, because it is not what was recorded.
    pub fn refused(&self) -> NotUsed<'_> {
        let files = match &self.user {
            Some(user) => user.finder().refused(),
            None => self.finder.as_ref().map_or(&[][..], Finder::refused),
        };
        let kernel = self.kernel.as_ref().and_then(KernelNames::refusal).filter(|_| self.kernel_unnamed > 0);
        let kernel = kernel.map(|reason| (reason, self.kernel_unnamed)).filter(|_| !self.archive);
        NotUsed { files, kernel, damaged: self.damaged }
    }

    /// The frame of a place of the replay that `state` is of.
    pub fn frame(&mut self, state: &State, loc: Loc) -> &Frame {
        let index = match self.by_loc.get(&loc) {
            Some(index) => *index,
            None => {
                let frame = self.resolve(state, loc);
                self.frames.push(frame);
                self.by_loc.insert(loc, self.frames.len() - 1);
                self.frames.len() - 1
            }
        };
        &self.frames[index]
    }

    /// The frame of a place, for those who remember it themselves.
    pub(crate) fn resolve(&mut self, state: &State, loc: Loc) -> Frame {
        match loc.place {
            Place::Kernel => self.kernel(state, loc.addr),
            Place::Text(id) => self.text(state, id, loc.addr),
            Place::Object(id) => match state.object_details(id) {
                Some(object) => self.object(state, id, object, loc.addr),
                None => self.unknown(loc.addr, FrameKind::Unknown, Reason::NoMapping),
            },
            Place::Unmapped => self.unknown(loc.addr, FrameKind::Unknown, Reason::NoMapping),
            Place::Elsewhere(mode) => {
                let kind = match mode {
                    CpuMode::Hypervisor => FrameKind::Hypervisor,
                    CpuMode::GuestKernel => FrameKind::GuestKernel,
                    CpuMode::GuestUser => FrameKind::GuestUser,
                    _ => FrameKind::Unknown,
                };
                self.unknown(loc.addr, kind, Reason::OtherKernel)
            }
        }
    }

    /// The frame of a function that was inlined where `holder` is, marked as perf does.
    pub(crate) fn inlined(&mut self, holder: &Frame, name: &str) -> Frame {
        let (sym, name) = self.names.symbol(holder.dso_id, &format!("{name} (inlined)"), 0);
        Frame { symbol: Ok(name), offset: 0, sym, text: None, inlined: true, line: 0, ..holder.clone() }
    }

    /// A frame that stands where none was looked up.
    pub(crate) fn nothing(&mut self) -> Frame {
        self.unknown(0, FrameKind::Unknown, Reason::NoMapping)
    }

    fn unknown(&mut self, addr: u64, kind: FrameKind, reason: Reason) -> Frame {
        let dso = self.names.dso("[unknown]", "[unknown]", None);
        self.names.unnamed(dso, addr, kind, reason)
    }

    /// Finds out where names of the kernel come from, once.
    fn ask_kernel(&mut self, state: &State) {
        if self.kernel.is_some() {
            return;
        }
        let map = state.kernel_map();
        if let Some(text) = &self.kallsyms {
            self.kernel = Some(KernelNames::given(text));
            return;
        }
        self.kernel_build_id = kernel::recorded_build_id(&self.features, map);
        if self.archive {
            // What it does not name had no name where it was made.
            self.kernel = Some(KernelNames::refused(Reason::NoKernelText).behind(&self.recorded_symbols));
            return;
        }
        // The running kernel knows its modules, too; an image does not.
        let running = KernelNames::of_running(self.kernel_build_id, &self.features, map);
        let names = match running.refusal() {
            Some(_) => self.kept_kernel(state).unwrap_or(running),
            None => running,
        };
        self.kernel = Some(names.behind(&self.recorded_symbols));
    }

    /// Names from what is kept of kernels of the recorded build: an image with symbols, a list in perf's cache.
    fn kept_kernel(&mut self, state: &State) -> Option<KernelNames> {
        let map = state.kernel_map().filter(|map| map.symbol_addr != 0)?;
        let id = self.kernel_build_id?;
        let release = self.features.os_release.clone().unwrap_or_default();
        let vmlinux = self.vmlinux.clone();
        self.ask_user(state);
        let finder = self.user.as_mut()?.finder_mut();
        let image = finder.kernel_file(id.as_bytes(), &release, vmlinux.as_deref());
        if let Ok(names) = image.and_then(|image| KernelNames::of_image(&image, map)) {
            return Some(names);
        }
        KernelNames::of_list(&finder.kernel_list(id.as_bytes())?, map).ok()
    }

    fn kernel(&mut self, state: &State, addr: u64) -> Frame {
        self.ask_kernel(state);
        let Some(names) = &self.kernel else {
            return self.unknown(addr, FrameKind::Kernel, Reason::NoKernelText);
        };
        match names.lookup(addr) {
            Ok(hit) => {
                let module = hit.module.map(|name| format!("[{name}]"));
                let kind = if module.is_some() { FrameKind::Module } else { FrameKind::Kernel };
                let dso = match &module {
                    Some(name) => self.names.dso(name, name, None),
                    None => self.names.kernel_dso(self.kernel_build_id),
                };
                self.names.named((None, hit.id), dso, hit.name, hit.start, hit.offset, addr, kind)
            }
            Err(reason) => {
                self.kernel_unnamed += u64::from(names.refusal().is_some());
                let dso = self.names.kernel_dso(self.kernel_build_id);
                self.names.unnamed(dso, addr, FrameKind::Kernel, reason)
            }
        }
    }

    fn text(&mut self, state: &State, id: TextId, addr: u64) -> Frame {
        let Some(text) = state.kernel().text(id) else {
            return self.unknown(addr, FrameKind::Kernel, Reason::NoKernelText);
        };
        if matches!(text.kind, TextKind::Module | TextKind::ModuleInit) {
            return self.module(state, text.name, addr);
        }
        // What has no symbol goes by what it is.
        let name = if text.name.is_empty() { Cow::Owned(format!("[{}]", text.kind)) } else { Cow::Borrowed(text.name) };
        // perf gives each BPF text a dso of its own name.
        let (dso, kind) = if text.kind.is_bpf() {
            (self.names.dso(&name, &name, None), FrameKind::Bpf)
        } else {
            (self.names.kernel_dso(self.kernel_build_id), FrameKind::Kernel)
        };
        let sym = self.names.symbol(dso.1, &name, 0);
        Frame {
            symbol: Ok(sym.1),
            offset: addr.wrapping_sub(text.addr),
            addr,
            dso: dso.0,
            kind,
            sym: sym.0,
            text: Some(id),
            inlined: false,
            dso_id: dso.1,
            line: 0,
            sizes: 0,
        }
    }

    /// Finds out where names of user code come from, once.
    fn ask_user(&mut self, state: &State) {
        if self.user.is_none() {
            let same = same_kernel(&self.features, state.kernel_map());
            let finder = self.finder.take().unwrap_or_default();
            let kept = std::mem::take(&mut self.kept);
            self.user = Some(UserNames::new(finder, &self.features, same, self.to_come, kept, self.jit_told.clone()));
        }
    }

    /// A module that was at the address: a symbol of another one that stands there now is none of its.
    fn module(&mut self, state: &State, name: &str, addr: u64) -> Frame {
        let frame = self.kernel(state, addr);
        let module = format!("[{name}]");
        if frame.kind == FrameKind::Module && frame.dso.short == module {
            return frame;
        }
        let dso = self.names.dso(&module, &module, None);
        self.names.unnamed(dso, addr, FrameKind::Module, Reason::NoKernelText)
    }

    fn object(&mut self, state: &State, id: ObjectId, object: &Object, addr: u64) -> Frame {
        self.ask_user(state);
        let Some(user) = &mut self.user else {
            return self.unknown(addr, FrameKind::Unknown, Reason::NoFile);
        };
        let names = &mut self.names;
        let dso = self.dsos.entry(id).or_insert_with(|| {
            let (short, long) = dso_names(object);
            names.dso(&short, &long, user.build_id(object))
        });
        let dso = dso.clone();
        let kind = match object.kind {
            PathKind::Vdso => FrameKind::Vdso,
            PathKind::Anonymous | PathKind::Special => FrameKind::Jit,
            _ => FrameKind::User,
        };
        match user.lookup(id, object, addr) {
            Ok(hit) => {
                let kind = if hit.jit { FrameKind::Jit } else { kind };
                self.names.named((Some(id), hit.id), dso, hit.name, hit.start, hit.offset, addr, kind)
            }
            Err(reason) => self.names.unnamed(dso, addr, kind, reason),
        }
    }
}

fn same_kernel(features: &afterimage_perf_data::Features, map: Option<&KernelMap>) -> bool {
    let recorded = kernel::recorded_build_id(features, map);
    recorded.is_some_and(|id| afterimage_symbols::kernel_build_id().is_some_and(|own| own == id.as_bytes()))
}

/// The short and the long name of an object, as perf gives them.
fn dso_names(object: &Object) -> (String, String) {
    let path = String::from_utf8_lossy(&object.path).into_owned();
    match object.kind {
        // The number is the one by which the recorder knew it; the file's own name may have another.
        _ if object.jit.is_some() => (format!("[JIT] tid {}", object.pid.unwrap_or(0)), path),
        PathKind::Anonymous | PathKind::Special => {
            let pid = object.pid.unwrap_or(0);
            (format!("[JIT] tid {pid}"), format!("/tmp/perf-{pid}.map"))
        }
        PathKind::File | PathKind::Deleted | PathKind::Memfd => {
            let short = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(&path).to_owned();
            (short, path)
        }
        _ => (path.clone(), path),
    }
}

/// Names and numbers that many frames share.
#[derive(Default)]
struct Interner {
    dsos: FxHashMap<Dso, (Arc<Dso>, u32)>,
    /// By the short name, which is what a report groups by.
    dso_ids: FxHashMap<String, u32>,
    kernel: Option<(Arc<Dso>, u32)>,
    /// Symbols by dso, name and start.
    symbols: FxHashMap<(u32, Arc<str>, u64), SymId>,
    /// Symbols by their table (`None`: the kernel's) and their number in it.
    numbered: FxHashMap<(Option<ObjectId>, u32), (Arc<str>, SymId)>,
    unnamed: FxHashMap<(u32, u64), SymId>,
    next: u32,
}

impl Interner {
    fn dso(&mut self, short: &str, long: &str, build_id: Option<BuildId>) -> (Arc<Dso>, u32) {
        let dso = Dso { short: short.to_owned(), long: long.to_owned(), build_id };
        if let Some(known) = self.dsos.get(&dso) {
            return known.clone();
        }
        let next = u32::try_from(self.dso_ids.len()).unwrap_or(u32::MAX);
        let id = *self.dso_ids.entry(dso.short.clone()).or_insert(next);
        let shared = Arc::new(dso.clone());
        self.dsos.insert(dso, (shared.clone(), id));
        (shared, id)
    }

    fn kernel_dso(&mut self, build_id: Option<BuildId>) -> (Arc<Dso>, u32) {
        match &self.kernel {
            Some(known) => known.clone(),
            None => {
                let dso = self.dso("[kernel.kallsyms]", "[kernel.kallsyms]", build_id);
                self.kernel = Some(dso.clone());
                dso
            }
        }
    }

    fn new_sym(&mut self) -> SymId {
        self.next = self.next.saturating_add(1);
        SymId(self.next)
    }

    fn symbol(&mut self, dso: u32, name: &str, start: u64) -> (SymId, Arc<str>) {
        let name: Arc<str> = name.into();
        let key = (dso, name, start);
        if let Some((key, sym)) = self.symbols.get_key_value(&key) {
            return (*sym, key.1.clone());
        }
        let sym = self.new_sym();
        let name = key.1.clone();
        self.symbols.insert(key, sym);
        (sym, name)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one frame")]
    fn named(
        &mut self,
        number: (Option<ObjectId>, u32),
        dso: (Arc<Dso>, u32),
        name: &str,
        start: u64,
        offset: u64,
        addr: u64,
        kind: FrameKind,
    ) -> Frame {
        let (name, sym) = match self.numbered.get(&number) {
            Some((name, sym)) => (name.clone(), *sym),
            None => {
                let shown = if kind.is_kernel() { name.into() } else { demangle(name) };
                let (sym, name) = self.symbol(dso.1, &shown, start);
                self.numbered.insert(number, (name.clone(), sym));
                (name, sym)
            }
        };
        let (dso, dso_id) = dso;
        Frame { symbol: Ok(name), offset, addr, dso, kind, sym, text: None, inlined: false, dso_id, line: 0, sizes: 0 }
    }

    fn unnamed(&mut self, dso: (Arc<Dso>, u32), addr: u64, kind: FrameKind, reason: Reason) -> Frame {
        let sym = match self.unnamed.get(&(dso.1, addr)) {
            Some(sym) => *sym,
            None => {
                let sym = self.new_sym();
                self.unnamed.insert((dso.1, addr), sym);
                sym
            }
        };
        let (symbol, (dso, dso_id)) = (Err(reason), dso);
        Frame { symbol, offset: 0, addr, dso, kind, sym, text: None, inlined: false, dso_id, line: 0, sizes: 0 }
    }
}

//! The bytes of a thing: from the recording, or from a file of the recorded build. Where there are none, what was tried.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use afterimage_kernel_text::{Images, Text, TextKind};
use afterimage_perf_data::FileReader;
use afterimage_profile::{BpfFunction, BpfPrograms, FrameKind, ObjectId, Resolver, Subject, Thing, Things};
use afterimage_symbols::lines::DwarfLines;
use afterimage_symbols::{Machine, ObjectFile, Reason};

/// Functions without an end are shown this far, in bytes.
const NO_END: u64 = 4096;

/// The bytes of a thing, and where they are from.
#[derive(Clone, Debug)]
pub(super) struct Code {
    /// The bytes.
    pub(super) bytes: Vec<u8>,
    /// The word for how they were got: one of those of images, `info`, `file`, `jitdump` or `vmlinux`.
    pub(super) way: String,
    /// Whether nothing else can have been read; `None` for what says so itself (a build ID).
    pub(super) proven: Option<bool>,
    /// When they were read, ns, where that is known.
    pub(super) at_ns: Option<u64>,
    /// The file they are from.
    pub(super) file: Option<PathBuf>,
}

/// A way that was tried and did not lead to the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tried {
    /// The word for the way.
    pub(super) way: &'static str,
    /// Why not.
    pub(super) why: String,
}

/// A file, and its lines once they were asked for.
pub(super) struct Opened {
    pub(super) file: ObjectFile,
    /// Recorded addresses lie that much above those of the file.
    pub(super) shift: u64,
    lines: std::cell::OnceCell<Option<DwarfLines>>,
}

impl Opened {
    fn new(file: ObjectFile, shift: u64) -> Rc<Opened> {
        Rc::new(Opened { file, shift, lines: std::cell::OnceCell::new() })
    }

    /// The lines, where there is debug information.
    pub(super) fn lines(&self) -> Option<&DwarfLines> {
        self.lines.get_or_init(|| self.file.lines().ok()).as_ref()
    }
}

/// Everything that bytes and lines are taken from.
pub(super) struct Sources<'f> {
    pub(super) programs: BpfPrograms<'f>,
    images: Images,
    release: String,
    pub(super) machine: Machine,
    kernel: Option<Result<Rc<Opened>, Reason>>,
    files: HashMap<ObjectId, Result<Rc<Opened>, Reason>>,
    /// Whether the recording has a list of texts, so that a missing image has a reason.
    has_texts: bool,
}

impl<'f> Sources<'f> {
    pub(super) fn new(reader: &'f FileReader<'_>) -> Sources<'f> {
        let features = reader.features();
        let private = reader.private();
        let images = private.map(|private| Images::from(&private.images)).unwrap_or_default();
        // An unfinished recording does not say; then it is most likely of a machine like this one.
        let arch = features.arch.as_deref().unwrap_or(std::env::consts::ARCH);
        Sources {
            programs: BpfPrograms::new(features),
            images,
            release: features.os_release.clone().unwrap_or_default(),
            machine: Machine::of_uname(arch),
            kernel: None,
            files: HashMap::new(),
            has_texts: private.is_some_and(|private| !private.texts.is_empty()),
        }
    }

    /// The bytes of a thing as they were at `at`, or at its end.
    pub(super) fn code(
        &mut self,
        found: &Things,
        resolver: &mut Resolver,
        thing: &Thing,
        at: Option<u64>,
    ) -> Result<Code, Vec<Tried>> {
        match thing.subject {
            Subject::Text(id) => match found.state.kernel().text(id) {
                Some(text) => self.of_text(found, &text, thing, at),
                None => Err(Vec::new()),
            },
            Subject::Kernel => self.of_kernel(found, resolver, thing, at),
            Subject::Object(id) => self.of_object(found, resolver, thing, id),
        }
    }

    fn of_text(&mut self, found: &Things, text: &Text<'_>, thing: &Thing, at: Option<u64>) -> Result<Code, Vec<Tried>> {
        let mut tried = Vec::new();
        match self.imaged(found, text, thing, at) {
            Ok(code) => return Ok(code),
            Err(why) => tried.push(Tried { way: "image", why }),
        }
        let function = self.programs.function_of(text);
        if let Some(bytes) = function.and_then(|of| of.code()) {
            return Ok(Code { bytes: bytes.to_vec(), way: "info".into(), proven: None, at_ns: None, file: None });
        }
        let why = match (function, text.program.filter(|program| program.id != 0)) {
            _ if !is_program(text) => format!("only programs have infos, and it is a {}", text.kind.key()),
            (Some(_), _) => "the program's info in the recording has no machine code".to_owned(),
            (None, Some(program)) => format!("the recording has no info of program {}", program.id),
            (None, None) => "the recording has no info of a program at this address".to_owned(),
        };
        tried.push(Tried { way: "info", why });
        Err(tried)
    }

    /// The image of a text at a time; without one, its reason.
    fn imaged(&self, found: &Things, text: &Text<'_>, thing: &Thing, at: Option<u64>) -> Result<Code, String> {
        let time = at.or(text.gone.map(|gone| gone.saturating_sub(1))).unwrap_or(u64::MAX);
        let image = text.images.iter().rev().find(|image| image.at <= time).or(text.images.first());
        let Some(image) = image else {
            let why = match &text.missing {
                Some(why) => why.to_string(),
                None if self.has_texts => "the recorder made no copy of it".to_owned(),
                None => "the recording holds no copies of kernel text".to_owned(),
            };
            return Err(why);
        };
        let len = match text.length {
            // A function within a module ends where its symbol does.
            _ if matches!(text.kind, TextKind::Module | TextKind::ModuleInit) => thing.len.unwrap_or(NO_END),
            Some(len) => u64::from(len),
            None => self.images.get(image.id).map_or(u64::from(text.len), |bytes| bytes.len() as u64),
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let bytes = match found.state.kernel().bytes(&self.images, thing.start, len, time) {
            Ok(bytes) => bytes,
            // Some of it is better than none.
            Err(missing) if !missing.got.is_empty() => missing.got,
            Err(missing) => return Err(missing.to_string()),
        };
        Ok(Code {
            bytes,
            way: image.way.key().to_owned(),
            proven: Some(image.proven),
            at_ns: Some(image.at),
            file: None,
        })
    }

    fn of_kernel(
        &mut self,
        found: &Things,
        resolver: &mut Resolver,
        thing: &Thing,
        at: Option<u64>,
    ) -> Result<Code, Vec<Tried>> {
        let mut tried = Vec::new();
        let timeline = found.state.kernel();
        let text = timeline.texts().map(|(_, text)| text).find(|text| !text.kind.is_bpf() && text.addr == thing.start);
        match text {
            Some(text) => match self.imaged(found, &text, thing, at) {
                Ok(code) => return Ok(code),
                Err(why) => tried.push(Tried { way: "image", why }),
            },
            None => {
                let why = "the recording holds no copy of this function";
                tried.push(Tried { way: "image", why: why.to_owned() });
            }
        }
        match self.kernel_file(found, resolver) {
            Ok(opened) => {
                let vaddr = thing.start.wrapping_sub(opened.shift);
                if let Some(bytes) = opened.file.code(vaddr, thing.len.unwrap_or(NO_END)) {
                    let file = Some(opened.file.path().to_path_buf());
                    return Ok(Code { bytes, way: "vmlinux".into(), proven: None, at_ns: None, file });
                }
                tried.push(Tried { way: "vmlinux", why: "no code at that address".to_owned() });
            }
            Err(reason) => tried.push(Tried { way: "vmlinux", why: reason.to_string() }),
        }
        Err(tried)
    }

    fn of_object(
        &mut self,
        found: &Things,
        resolver: &mut Resolver,
        thing: &Thing,
        id: ObjectId,
    ) -> Result<Code, Vec<Tried>> {
        let way = if thing.kind == FrameKind::Jit { "jitdump" } else { "file" };
        let failed = |why: String| vec![Tried { way, why }];
        let opened = self.file(found, resolver, id).map_err(|reason| failed(reason.to_string()))?;
        let bytes = opened.file.code(thing.start, thing.len.unwrap_or(NO_END));
        let bytes = bytes.ok_or_else(|| failed("the file has no code at that address".to_owned()))?;
        Ok(Code { bytes, way: way.into(), proven: None, at_ns: None, file: Some(opened.file.path().to_path_buf()) })
    }

    /// The file of an object, opened once.
    pub(super) fn file(&mut self, found: &Things, resolver: &mut Resolver, id: ObjectId) -> Result<Rc<Opened>, Reason> {
        let opened = self.files.entry(id).or_insert_with(|| {
            let file = resolver.file(&found.state, id)?;
            Ok(Opened::new(file, 0))
        });
        opened.clone()
    }

    /// The image of the recorded kernel, opened once.
    pub(super) fn kernel_file(&mut self, found: &Things, resolver: &mut Resolver) -> Result<Rc<Opened>, Reason> {
        let opened = self.kernel.get_or_insert_with(|| {
            let (file, shift) = resolver.kernel_file(&found.state, &self.release)?;
            Ok(Opened::new(file, shift))
        });
        opened.clone()
    }

    /// The function of a BPF program that a text is.
    pub(super) fn function_of(&self, text: &Text<'_>) -> Option<BpfFunction<'f>> {
        self.programs.function_of(text)
    }
}

/// Whether a text is a function of an eBPF program, which the kernel tells of by the program's id.
fn is_program(text: &Text<'_>) -> bool {
    matches!(text.kind, TextKind::Program | TextKind::Subprogram)
}

//! Handlers of others: object files with a program in the section `perf_event`.
//!
//! [`Object::open`] reads a file, finds the program and its constants, and sets those. [`Object::check`] looks at all code
//! that the program can reach for what the kernel would let pass and what would damage samples all the same. And
//! [`Object::load`] loads it over the maps that the stubs share; its program then goes to [`crate::Handlers::add`].
//!
//! Programs that are reached by tail calls escape two checks that the kernel makes of the program on an event, so they are
//! made here: that stacks of precise samples are unwound in time, and (which the kernel never checks) that nothing damages
//! a call chain that has been taken already.

mod check;
mod code;
mod flow;
mod insn;
mod limits;
mod lines;
mod load;
mod settings;

use std::fmt::Write as _;

use libbpf_rs::btf::Btf;
use libbpf_rs::{MapType, ObjectBuilder, OpenObject, ProgramType};

pub use check::{Refusal, Rule};
pub use code::Place;
pub use limits::Limits;
pub use load::LoadedObject;
pub use settings::Setting;

use crate::{Error, ErrorKind, EventConfig, Result, cpus, libbpf_log};
use code::{Code, Site, Target};
use flow::Reached;
use settings::{Constant, Patch};

/// The header for handlers, as `afterimage handler header` prints it: one file that needs nothing beside it.
pub fn header() -> String {
    let text = include_str!("../bpf/include/afterimage.bpf.h");
    if cfg!(target_arch = "aarch64") { text.replace(DEFAULT_X86, DEFAULT_ARM64) } else { text.to_owned() }
}

const DEFAULT_X86: &str = "#define __TARGET_ARCH_x86\n";
const DEFAULT_ARM64: &str = "#define __TARGET_ARCH_arm64\n";

/// The section of a handler.
const SECTION: &str = "perf_event";
/// What libbpf would call one that may sleep.
const SLEEPABLE: &str = "perf_event.s";

/// A program of an object file.
#[derive(Clone, Debug)]
struct ProgramInfo {
    name: String,
    section: String,
    kind: ProgramType,
}

impl ProgramInfo {
    /// `perf_event`, or as older tools have it, something behind a slash.
    fn is_handler(&self) -> bool {
        self.section == SECTION || self.section.starts_with("perf_event/")
    }
}

/// A map of an object file.
#[derive(Clone, Debug)]
struct MapInfo {
    name: String,
    /// It, or the maps that it holds, evict by age.
    lru: bool,
}

/// An object file with a handler, opened and not loaded. Nothing of it needs the kernel.
#[derive(Debug)]
pub struct Object {
    bytes: Vec<u8>,
    code: Code,
    program: ProgramInfo,
    maps: Vec<MapInfo>,
    constants: Vec<Constant>,
    patches: Vec<Patch>,
    settings: Vec<Setting>,
}

impl Object {
    /// Reads an object file, chooses its program (which may be left out when it has one handler) and sets constants.
    ///
    /// # Errors
    /// [`ErrorKind::Object`] when it is no object file for BPF or has no handler, [`ErrorKind::Options`] when the program or
    /// a constant is not in it, or a value does not fit; the message says what there is.
    pub fn open(bytes: Vec<u8>, program: Option<&str>, settings: &[Setting]) -> Result<Object> {
        const WHAT: &str = "reading the object";
        let damaged = |e: object::Error| Error::new(ErrorKind::Object, WHAT, format!("no object file for BPF ({e})"));
        let code = Code::read(&bytes).map_err(damaged)?;
        let (read, log) = libbpf_log::capture(|| -> libbpf_rs::Result<_> {
            let open = ObjectBuilder::default().name("handler")?.open_memory(&bytes)?;
            let constants = Btf::from_raw("handler", &bytes)?.map(|btf| settings::constants(&btf)).unwrap_or_default();
            Ok((programs(&open), maps(&open), constants))
        });
        let (programs, maps, constants) =
            read.map_err(|e| Error::libbpf(WHAT, &e, log).with_kind(ErrorKind::Object))?;
        let program = choose(&programs, program)?;
        let mut object =
            Object { bytes, code, program, maps, constants, patches: Vec::new(), settings: settings.to_vec() };
        for setting in settings {
            object.set(setting)?;
        }
        Ok(object)
    }

    fn set(&mut self, setting: &Setting) -> Result<()> {
        let free = |constant: &&Constant| constant.is_free();
        let Some(constant) = self.constants.iter().filter(free).find(|c| c.name == setting.name) else {
            let names: Vec<&str> = self.constants.iter().filter(free).map(|c| c.name.as_str()).collect();
            let have = match names.as_slice() {
                [] if self.code.btf.is_empty() => {
                    "it was compiled without -g, so nothing is known of its constants".into()
                }
                [] => "it has no const volatile variable that could be set".to_owned(),
                names => format!("there are {}", names.join(", ")),
            };
            return Err(Error::new(ErrorKind::Options, setting.name.as_str(), format!("no such constant: {have}")));
        };
        self.patches.push(constant.patch(&setting.value)?);
        Ok(())
    }

    /// The name of its program.
    pub fn program(&self) -> &str {
        &self.program.name
    }

    /// The constants that were set.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The names of the constants that may be set.
    pub fn constants(&self) -> impl Iterator<Item = &str> {
        self.constants.iter().filter(|c| c.is_free()).map(|c| c.name.as_str())
    }

    /// Its types, as the section `.BTF` has them; empty without.
    pub fn btf(&self) -> &[u8] {
        &self.code.btf
    }

    /// Whether the program can write to a handler ring.
    pub fn writes(&self) -> bool {
        let reached = self.reached(&[]);
        reached.sites().any(|(site, _)| matches!(self.code.target(site), Some(Target::Map(map)) if map == "ai_outputs"))
    }

    /// The most frames that call chains may have beside this program (`sample_max_stack`), so that the kernel leaves them
    /// whole; `None`: as many as the system allows. A program that walks the user's stack needs room for markers.
    pub fn max_stack(&self) -> Option<u16> {
        let walks =
            self.reached(&[]).sites().any(|(site, registers)| check::walks_user_stack(&self.code, site, registers));
        walks.then(cpus::whole_stack)
    }

    /// What the loader sets in the public header's constants.
    fn ours(&self, limits: &Limits, more: &[(&str, u64)]) -> Vec<Patch> {
        let ours = [("ai_context", u64::from(limits.context)), ("ai_stack_words", u64::from(limits.stack_words()))];
        let find = |(name, value): &(&str, u64)| {
            self.constants.iter().find(|c| c.name == *name).map(|constant| constant.number(*value))
        };
        ours.iter().chain(more).filter_map(find).collect()
    }

    /// Whether the program can give samples a label of this name, to count them by.
    ///
    /// # Errors
    /// [`ErrorKind::Options`] with the reason if it cannot.
    pub fn gives_label(&self, name: &str) -> Result<()> {
        let no = |cause: &str| Err(Error::new(ErrorKind::Options, format!("label {name}"), cause));
        if self.constants.iter().all(|constant| constant.name != settings::BY_LABEL) {
            return no(
                "the object was compiled without -g, or with an older header than `afterimage handler header` prints",
            );
        }
        let Some(patch) = self.label(name) else { return no("the name of a label has 1 to 31 bytes") };
        let reached = self.reached(&[patch]);
        let keeps = |site| matches!(self.code.target(site), Some(Target::Map(map)) if map == "ai_labels");
        if reached.sites().any(|(site, _)| keeps(site)) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Options, format!("label {name}"), format!("{} never gives it", self.program.name)))
    }

    /// Tells the object by which label samples are counted.
    fn label(&self, name: &str) -> Option<Patch> {
        let constant = self.constants.iter().find(|constant| constant.name == settings::BY_LABEL)?;
        constant.raw(name).filter(|_| !name.is_empty() && !name.contains('\0'))
    }

    fn reached(&self, ours: &[Patch]) -> Reached {
        let data = self.code.data(self.patches.iter().chain(ours));
        self.start().map(|start| Reached::from(&self.code, &data, start)).unwrap_or_default()
    }

    /// Where the program begins.
    fn start(&self) -> Option<Site> {
        self.code.functions.iter().find(|f| f.name == self.program.name).map(|f| f.start)
    }

    /// Looks for what the program must not do on these events, on a kernel with these limits.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`]; see [`Object::refusals`] for the list.
    pub fn check(&self, events: &[EventConfig], limits: &Limits) -> Result<()> {
        let refusals = self.refusals(events, limits);
        let Some((first, more)) = refusals.split_first() else { return Ok(()) };
        let mut cause = first.to_string();
        if !more.is_empty() {
            let _ = write!(cause, " (and {} more)", more.len());
        }
        let what = format!("handler {}", self.program.name);
        Err(Error::new(ErrorKind::Refused, what, cause).with_log(more.iter().map(Refusal::to_string).collect()))
    }

    /// Everything that [`Object::check`] finds, in the order of the code.
    pub fn refusals(&self, events: &[EventConfig], limits: &Limits) -> Vec<Refusal> {
        let reached = self.reached(&self.ours(limits, &[]));
        let is_lru = |name: &str| self.maps.iter().any(|map| map.name == name && map.lru);
        let mut refusals = check::check(&self.code, &reached, &is_lru, events, limits);
        if let Some(reason) = cannot_be_called(&self.program) {
            let place = self.start().map(|start| self.code.place(start));
            refusals.extend(place.map(|place| Refusal { rule: Rule::NoTailCall, place, reason }));
        }
        refusals
    }
}

/// Why the kernel would not take the program in a slot beside the stub, which is of type perf_event, without an expected
/// attach type and not sleepable: a slot's array takes its kind from the first program in it (`bpf_prog_map_compatible`).
fn cannot_be_called(program: &ProgramInfo) -> Option<String> {
    if program.section == SLEEPABLE {
        return Some("a program that may sleep cannot run on a sample: the section is \"perf_event\"".to_owned());
    }
    (!program.is_handler()).then(|| {
        format!(
            "the section \"{}\" makes a program of type {:?}, which cannot be called by a program of type perf_event: \
             the section is \"perf_event\"",
            program.section, program.kind
        )
    })
}

fn text(name: &std::ffi::OsStr) -> String {
    name.to_string_lossy().into_owned()
}

fn programs(open: &OpenObject) -> Vec<ProgramInfo> {
    let one = |program: libbpf_rs::OpenProgram<'_>| ProgramInfo {
        name: text(program.name()),
        section: text(program.section()),
        kind: program.prog_type(),
    };
    open.progs().map(one).collect()
}

fn maps(open: &OpenObject) -> Vec<MapInfo> {
    let evicts = |kind| matches!(kind, MapType::LruHash | MapType::LruPercpuHash);
    open.maps()
        .map(|map| MapInfo {
            name: text(map.name()),
            lru: evicts(map.map_type()) || load::inner_type(&map).is_some_and(evicts),
        })
        .collect()
}

fn choose(programs: &[ProgramInfo], asked: Option<&str>) -> Result<ProgramInfo> {
    let names = |of: &mut dyn Iterator<Item = &ProgramInfo>| of.map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut handlers = programs.iter().filter(|p| p.is_handler());
    let wrong = |kind, cause| Error::new(kind, "choosing a program", cause);
    match asked {
        Some(name) => programs.iter().find(|p| p.name == name).cloned().ok_or_else(|| {
            let have = names(&mut programs.iter());
            wrong(ErrorKind::Options, format!("the object has no program {name}; it has {have}"))
        }),
        None => match (handlers.next(), handlers.next()) {
            (Some(one), None) => Ok(one.clone()),
            (Some(_), Some(_)) => {
                let have = names(&mut programs.iter().filter(|p| p.is_handler()));
                Err(wrong(ErrorKind::Options, format!("the object has several handlers, name one: {have}")))
            }
            _ if programs.is_empty() => Err(wrong(ErrorKind::Object, "the object has no program".to_owned())),
            // The one that there is will be refused with a reason.
            _ if programs.len() == 1 => Ok(programs[0].clone()),
            _ => {
                let have = names(&mut programs.iter());
                Err(wrong(
                    ErrorKind::Object,
                    format!("the object has no program in the section perf_event; it has {have}"),
                ))
            }
        },
    }
}

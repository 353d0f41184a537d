//! Copies at the free: programs on a tracepoint of the kernel's workers (src/bpf/freed.bpf.c), or at the entries of the
//! functions that free text (src/bpf/fentry.bpf.c).

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use afterimage_perf_event::sys::bpf;
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{Link, MapHandle, Object, OpenObject, RingBuffer};

use super::assemble::Assembly;
use super::captured::{Captured, Stats};
use super::error::{CaptureError, CaptureErrorKind};
use super::object;
use super::reader::Reader;
use super::symbols::{self, Symbols};
use crate::Way;

/// The workers that free text.
const PROGRAM_WORKER: &str = "bpf_prog_free_deferred";
const TRAMPOLINE_WORKER: &str = "__bpf_tramp_image_put_deferred";
const MAP_WORKER: &str = "bpf_map_free_deferred";
/// What is not there of a way, where the rest is.
pub(super) const TRAMPOLINES: &str = "trampolines";
pub(super) const MODULES: &str = "modules";
const STRUCTURES: &str = "functions of structures";

/// Functions that are the last to know what goes, the programs at their entries, and the part that is missing without.
const ENTRIES: [(&str, &str, &str); 5] = [
    (PROGRAM_WORKER, "ai_program_goes", ""),
    (TRAMPOLINE_WORKER, "ai_trampoline_goes", TRAMPOLINES),
    (MAP_WORKER, "ai_map_goes", STRUCTURES),
    ("do_init_module", "ai_module_comes", MODULES),
    ("free_module", "ai_module_goes", MODULES),
];

/// The running programs of one way and their ring.
pub(super) struct Freed {
    pub(super) way: Way,
    object: Object,
    _links: Vec<Link>,
    ring: RingBuffer<'static>,
    map: MapHandle,
    sink: Arc<Mutex<Sink>>,
    /// Loaded with them: the kernel's type information is read once for both.
    pub(super) symbols: Option<Symbols>,
    /// What of it is not there, and why.
    pub(super) missing: Vec<(&'static str, CaptureError)>,
}

/// Where the ring's records go.
struct Sink {
    assembly: Assembly,
    texts: Vec<Captured>,
}

impl fmt::Debug for Freed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Freed").field("way", &self.way).field("missing", &self.missing).finish_non_exhaustive()
    }
}

impl Freed {
    /// Loads and attaches the programs of the tracepoint; `only_tells`: for the news of what goes, without its bytes.
    pub(super) fn by_tracepoint(reader: &Reader, only_tells: bool) -> Result<Freed, CaptureError> {
        const WHAT: &str = "loading the programs that copy text at its free";
        let mut missing = Vec::new();
        let Workers { program, trampoline, map } = workers(reader)?;
        let trampoline = trampoline.unwrap_or_else(|error| {
            missing.push((TRAMPOLINES, error));
            0
        });
        // struct ai_options
        let options = [program, trampoline, map, only_tells.into()].map(u64::to_ne_bytes).concat();
        let load = |with_symbols| load(WHAT, &options, with_symbols);
        // Before Linux 6.0 the one program that the kernel knows nothing of fails them all.
        let object = load(true).or_else(|_| load(false))?;
        let programs = [("ai_work", ""), ("ai_module_load", MODULES), ("ai_module_free", MODULES)];
        let mut freed = Freed::attached(Way::FreeTime, object, &programs, missing)?;
        freed.symbols = Symbols::of(&freed.object);
        Ok(freed)
    }

    /// Loads and attaches the programs at the entries of functions. Those of modules and trampolines may be missing.
    pub(super) fn by_entry() -> Result<Freed, CaptureError> {
        const WHAT: &str = "loading the programs at the entries of the functions that free text";
        let mut open = object::open(WHAT, include_bytes!(concat!(env!("OUT_DIR"), "/fentry.bpf.o")))?;
        let mut missing = Vec::new();
        let programs = known(&mut open, &mut missing)?;
        let object = object::load(WHAT, open)?;
        Freed::attached(Way::Fentry, object, &programs, missing)
    }

    /// Attaches the programs and begins to read their ring. The first of them has to be there.
    fn attached(
        way: Way,
        object: Object,
        programs: &[(&'static str, &'static str)],
        mut missing: Vec<(&'static str, CaptureError)>,
    ) -> Result<Freed, CaptureError> {
        let sink = Arc::new(Mutex::new(Sink { assembly: Assembly::new(way), texts: Vec::new() }));
        let into = Arc::clone(&sink);
        let (ring, map) = object::ring(&object, "ai_ring", move |record| {
            let mut sink = into.lock().unwrap_or_else(PoisonError::into_inner);
            let text = sink.assembly.take(record);
            sink.texts.extend(text);
        })?;
        let mut links = Vec::new();
        for (name, part) in programs {
            match object::attach(&object, name) {
                Ok(link) => links.push(link),
                Err(error) if part.is_empty() => return Err(error),
                Err(error) => missing.push((part, error)),
            }
        }
        missing.dedup_by_key(|(what, _)| *what);
        Ok(Freed { way, object, _links: links, ring, map, sink, symbols: None, missing })
    }

    /// Readable while the ring holds something; a sleeper is woken only when it has filled to a part.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Takes what the ring holds.
    pub(super) fn drain(&self, into: &mut Vec<Captured>) {
        self.ring.consume_raw();
        into.append(&mut self.sink.lock().unwrap_or_else(PoisonError::into_inner).texts);
    }

    /// Takes what the ring holds and what will never be whole.
    pub(super) fn pass(&self, into: &mut Vec<Captured>) {
        self.drain(into);
        into.append(&mut self.sink.lock().unwrap_or_else(PoisonError::into_inner).assembly.end_of_pass());
    }

    /// Adds the programs' own counters, and how often the kernel skipped one of them.
    pub(super) fn stats(&self, stats: &mut Stats) {
        // struct ai_stats
        let mut words = [0; 48];
        if object::run(&self.object, "ai_read_stats", &mut words).is_err() {
            return;
        }
        let word = |at: usize| words[8 * at..8 * at + 8].try_into().map_or(0, u64::from_ne_bytes);
        stats.freed += word(0);
        stats.freed_texts += word(1);
        stats.ring_full += word(2);
        stats.unreadable += word(3);
        stats.cut += word(4);
        let programs = self.object.progs().filter(|program| program.autoload());
        // A kernel that does not count them skips none: it runs such programs side by side.
        stats.skipped += programs.map(|program| bpf::recursion_misses(program.as_fd()).unwrap_or(0)).sum::<u64>();
    }
}

/// Where the functions of the workers are.
struct Workers {
    program: u64,
    trampoline: Result<u64, CaptureError>,
    /// 0 where it is not looked for: functions of structures have no symbols there, so that nothing would be copied.
    map: u64,
}

/// They stay where they are, and before Linux 6.2 the kernel goes through all of its symbols for each: they are looked up
/// once.
fn workers(reader: &Reader) -> Result<Workers, CaptureError> {
    static FOUND: OnceLock<[u64; 3]> = OnceLock::new();
    if let Some([program, trampoline, map]) = FOUND.get() {
        return Ok(Workers { program: *program, trampoline: Ok(*trampoline), map: *map });
    }
    let program = reader.symbol(PROGRAM_WORKER)?;
    let trampoline = reader.symbol(TRAMPOLINE_WORKER);
    let map = if names_structures() { reader.symbol(MAP_WORKER).unwrap_or(0) } else { 0 };
    if let Ok(trampoline) = &trampoline {
        FOUND.get_or_init(|| [program, *trampoline, map]);
    }
    Ok(Workers { program, trampoline, map })
}

/// Whether this kernel may give the functions of structures symbols. Linux 6.14 does, and some of those before that were
/// changed later; the programs see which. Before Linux 6.2 none does, and the look-up would take long.
fn names_structures() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(2))
}

/// Loads the programs with these constants.
fn load(what: &'static str, options: &[u8], with_symbols: bool) -> Result<Object, CaptureError> {
    let mut open = object::open(what, include_bytes!(concat!(env!("OUT_DIR"), "/freed.bpf.o")))?;
    let constants = open.maps_mut().find(|map| map.name().to_string_lossy().ends_with(".rodata"));
    let mut constants = constants.ok_or_else(|| CaptureError::new(CaptureErrorKind::System, what, "no constants"))?;
    constants.set_initial_value(options).map_err(|e| CaptureError::libbpf(what, &e))?;
    for mut program in open.progs_mut().filter(|program| program.name() == symbols::PROGRAM) {
        program.set_autoload(with_symbols);
    }
    object::load(what, open)
}

/// Which of the programs have a function to be attached to. The others are not loaded: one of them would fail all.
fn known(
    open: &mut OpenObject,
    missing: &mut Vec<(&'static str, CaptureError)>,
) -> Result<Vec<(&'static str, &'static str)>, CaptureError> {
    const WHAT: &str = "the kernel's type information";
    let types = Btf::from_vmlinux().map_err(|e| CaptureError::libbpf(WHAT, &e))?;
    let mut programs = Vec::new();
    for (function, program, part) in ENTRIES {
        let leave_out = |open: &mut OpenObject| {
            open.progs_mut().filter(|known| known.name() == program).for_each(|mut known| known.set_autoload(false));
        };
        if part == STRUCTURES && !names_structures() {
            leave_out(open);
            continue;
        }
        if types.type_by_name::<types::Func<'_>>(function).is_some() {
            programs.push((program, part));
            continue;
        }
        let error = CaptureError::new(CaptureErrorKind::Unsupported, WHAT, format!("it has no function {function}"));
        if part.is_empty() {
            return Err(error);
        }
        missing.push((part, error));
        leave_out(open);
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use afterimage_testkit::{Need, has};

    use super::*;
    use crate::TextKind;

    /// Programs that are seen being freed, with `only_tells` or not: their lengths, and those of their copies.
    fn seen(only_tells: bool) -> Vec<(u32, usize)> {
        let reader = Reader::load().unwrap();
        let freed = Freed::by_tracepoint(&reader, only_tells).unwrap();
        (0..5).for_each(|_| drop(Reader::load().unwrap()));
        let (mut seen, start) = (Vec::new(), Instant::now());
        // Others may free programs, too.
        while seen.len() < 5 && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
            let mut texts = Vec::new();
            freed.drain(&mut texts);
            let programs = texts.into_iter().filter(|text| text.name.ends_with(b"_ai_read_memory"));
            seen.extend(programs.map(|text| {
                assert!(text.freed && text.failed.is_none() && text.proven != only_tells, "{text:?}");
                assert_eq!(text.kind, TextKind::Program);
                (text.len, text.bytes.len())
            }));
        }
        seen
    }

    #[test]
    fn news_have_no_bytes_where_others_copy() {
        if !has("news_have_no_bytes_where_others_copy", &[Need::Root, Need::Bpf]) {
            return;
        }
        let (copied, told) = (seen(false), seen(true));
        let lengths =
            |seen: &[(u32, usize)]| seen.iter().map(|(len, _)| *len).collect::<std::collections::BTreeSet<_>>();
        assert!(
            copied.len() >= 5 && copied.iter().all(|(len, bytes)| *len > 0 && *len as usize == *bytes),
            "{copied:?}"
        );
        assert!(told.len() >= 5 && told.iter().all(|(_, bytes)| *bytes == 0), "{told:?}");
        assert_eq!(lengths(&copied), lengths(&told));
    }
}

//! Copies at the free: a program on a tracepoint of the kernel's workers (src/bpf/freed.bpf.c).

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{Link, MapHandle, Object, RingBuffer};

use super::assemble::Assembly;
use super::captured::{Captured, Stats};
use super::error::{CaptureError, CaptureErrorKind};
use super::object;
use super::reader::Reader;
use super::symbols::{self, Symbols};

/// The workers that free text.
const PROGRAM_WORKER: &str = "bpf_prog_free_deferred";
const TRAMPOLINE_WORKER: &str = "__bpf_tramp_image_put_deferred";

/// The running programs and their ring.
pub(super) struct FreeTime {
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
#[derive(Default)]
struct Sink {
    assembly: Assembly,
    texts: Vec<Captured>,
}

impl fmt::Debug for FreeTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeTime").field("missing", &self.missing).finish_non_exhaustive()
    }
}

impl FreeTime {
    /// Loads and attaches the programs.
    pub(super) fn start(reader: &Reader) -> Result<FreeTime, CaptureError> {
        const WHAT: &str = "loading the programs that copy text at its free";
        let mut missing = Vec::new();
        let program = reader.symbol(PROGRAM_WORKER)?;
        let trampoline = reader.symbol(TRAMPOLINE_WORKER).unwrap_or_else(|error| {
            missing.push(("trampolines", error));
            0
        });
        let workers = [program.to_ne_bytes(), trampoline.to_ne_bytes()].concat();
        let load = |with_symbols| load(WHAT, &workers, with_symbols);
        // Before Linux 6.0 the one program that the kernel knows nothing of fails them all.
        let object = load(true).or_else(|_| load(false))?;
        let sink = Arc::<Mutex<Sink>>::default();
        let into = Arc::clone(&sink);
        let (ring, map) = object::ring(&object, "ai_ring", move |record| {
            let mut sink = into.lock().unwrap_or_else(PoisonError::into_inner);
            let text = sink.assembly.take(record);
            sink.texts.extend(text);
        })?;
        let mut links = vec![object::attach(&object, "ai_work")?];
        for name in ["ai_module_load", "ai_module_free"] {
            match object::attach(&object, name) {
                Ok(link) => links.push(link),
                Err(error) => missing.push(("modules", error)),
            }
        }
        missing.dedup_by_key(|(what, _)| *what);
        let symbols = Symbols::of(&object);
        Ok(FreeTime { object, _links: links, ring, map, sink, symbols, missing })
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

    /// Adds the programs' own counters.
    pub(super) fn stats(&self, stats: &mut Stats) {
        // struct ai_stats
        let mut words = [0; 48];
        if object::run(&self.object, "ai_read_stats", &mut words).is_err() {
            return;
        }
        let word = |at: usize| words[8 * at..8 * at + 8].try_into().map_or(0, u64::from_ne_bytes);
        stats.freed = word(0);
        stats.freed_texts = word(1);
        stats.ring_full = word(2);
        stats.unreadable = word(3);
        stats.cut = word(4);
    }
}

/// Loads the programs for workers at these two addresses.
fn load(what: &'static str, workers: &[u8], with_symbols: bool) -> Result<Object, CaptureError> {
    let mut open = object::open(what, include_bytes!(concat!(env!("OUT_DIR"), "/freed.bpf.o")))?;
    let constants = open.maps_mut().find(|map| map.name().to_string_lossy().ends_with(".rodata"));
    let mut constants = constants.ok_or_else(|| CaptureError::new(CaptureErrorKind::System, what, "no constants"))?;
    constants.set_initial_value(workers).map_err(|e| CaptureError::libbpf(what, &e))?;
    for mut program in open.progs_mut().filter(|program| program.name() == symbols::PROGRAM) {
        program.set_autoload(with_symbols);
    }
    object::load(what, open)
}

//! Handlers at work: attached to events, swapped, read.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::addr_of_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::{fs, io};

use afterimage_perf_event::facts::Facts;

use crate::by::By;
use crate::load::{Dimensions, Late, Loaded, load};
use crate::object::{LoadedObject, Object};
use crate::program::{HandlerId, LoadedBuiltin, Program, Shared};
use crate::settled::{Lasts, Settled};
use crate::skeleton::builtins::types::ai_counters;
use crate::slots::{BY_SLOT, LABEL_SLOT, PAIRS, Pair, update};
use crate::table::{CountEntry, DrainStats};
use crate::{Builtin, Error, ErrorKind, Mechanism, Options, Result};

/// What became of the samples of one event on one CPU, since the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Samples that the stub saw. `handled = filtered + dropped + passed`.
    pub handled: u64,
    /// Refused by the gate.
    pub filtered: u64,
    /// The handler returned 0 and had given the sample to no output.
    pub dropped: u64,
    /// Given to at least one output.
    pub passed: u64,
    /// Sent on to the sampling ring.
    pub chained: u64,
    /// Records that a handler tried to write to the handler ring.
    pub emitted: u64,
    /// Those of them that found no room, or no ring.
    pub emit_lost: u64,
    /// Samples counted in the table.
    pub stored: u64,
    /// Samples that the table had no room for: no entry, no place in the index, no arena, or no table for this CPU.
    pub lost_full: u64,
    /// Samples that met an entry of equal hash and other content.
    pub lost_collision: u64,
    /// Samples whose stack was asked for and could not be read. They are stored or sent without.
    pub stack_failed: u64,
}

impl std::ops::Add for Counters {
    type Output = Counters;

    fn add(self, other: Counters) -> Counters {
        macro_rules! sum {
            ($($field:ident)*) => { Counters { $($field: self.$field.saturating_add(other.$field)),* } };
        }
        sum!(handled filtered dropped passed chained emitted emit_lost stored lost_full lost_collision stack_failed)
    }
}

/// Loaded programs, their maps, and the links that hold them to events.
#[derive(Debug)]
pub struct Handlers {
    loaded: Loaded,
    mechanism: Mechanism,
    note: Option<String>,
    /// What can be swapped in.
    programs: Vec<Program>,
    /// In force, besides the handler's program.
    current: HandlerId,
    /// The number of the next program: none is used twice.
    next: HandlerId,
    pair: Pair,
    nr_cpus: u32,
    /// What a built-in handler that is loaded later is made by.
    options: Arc<Options>,
    dimensions: Arc<Dimensions>,
    /// Number of the count table of each CPU that has one, by CPU.
    table_of: Arc<[Option<u32>]>,
    nr_tables: u32,
    links: Vec<OwnedFd>,
    pub(crate) by: Option<By>,
}

/// The function of kernels that show programs the prepared sample.
const CAST: &str = "bpf_cast_to_kern_ctx";

/// Why programs see samples by helpers alone: what was said of the better way, or that this was not tried.
fn by_helpers(error: Option<&Error>) -> String {
    let what = "programs see of a sample what helpers tell of it";
    match error {
        // Only the log, which is of many lines, says which function is missing.
        Some(error) if !format!("{error:#}").contains(CAST) => format!("{what}: {error}"),
        _ => format!("{what}: this kernel has no {CAST} (Linux 6.2 does)"),
    }
}

/// Whether it need not be tried, because the function's name is not among those of the kernel's types. Looked for until these
/// could be read, and only in kernels that are older than it, some of which have it all the same: a program that fails takes much longer.
pub(crate) fn cannot_cast() -> bool {
    static CANNOT: Settled = Settled::new();
    CANNOT.ask(|| {
        let facts = Facts::system();
        let older = facts.release().as_deref().and_then(version).is_some_and(|version| version < (6, 2));
        if !older {
            return (false, Lasts::Yes);
        }
        match fs::read(facts.sysfs().join("kernel/btf/vmlinux")) {
            Ok(types) => (!holds(&types, CAST.as_bytes()), Lasts::Yes),
            Err(_) => (false, Lasts::No),
        }
    })
}

/// Whether this failure to load a program that reads its sample will be the same the next time: the kernel has no such function,
/// or its verifier refuses. Memory, descriptors and privileges come and go.
pub(crate) fn lasts(error: &Error) -> Lasts {
    let of_kernel = matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Verifier);
    let missing = || error.full_log().iter().any(|line| line.contains(CAST)) || error.cause().contains(CAST);
    if of_kernel || missing() { Lasts::Yes } else { Lasts::No }
}

/// Major and minor of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

fn holds(bytes: &[u8], wanted: &[u8]) -> bool {
    // SAFETY: both are read within their lengths, and live through the call.
    let found = unsafe { libc::memmem(bytes.as_ptr().cast(), bytes.len(), wanted.as_ptr().cast(), wanted.len()) };
    !found.is_null()
}

impl Handlers {
    /// Loads stubs and handlers and makes `options.builtin` the current one. Nothing runs before [`Handlers::attach`].
    ///
    /// # Errors
    /// Without CAP_BPF and CAP_PERFMON, on kernels that can do neither mechanism, and for options that contradict.
    pub fn load(options: &Options) -> Result<Handlers> {
        let dimensions = Dimensions::choose(options)?;
        let (loaded, mechanism, note) = match options.mechanism {
            Some(mechanism) => (load(options, &dimensions, mechanism)?, mechanism, None),
            None => {
                let plain = |error: Option<&Error>| {
                    let note = Some(by_helpers(error));
                    load(options, &dimensions, Mechanism::Plain).map(|loaded| (loaded, Mechanism::Plain, note))
                };
                match (!cannot_cast()).then(|| load(options, &dimensions, Mechanism::Kfuncs)) {
                    None => plain(None)?,
                    Some(Ok(loaded)) => (loaded, Mechanism::Kfuncs, None),
                    Some(Err(e)) if e.kind() == ErrorKind::NotPermitted => return Err(e),
                    Some(Err(e)) => plain(Some(&e))?,
                }
            }
        };
        Handlers::start(loaded, mechanism, note, options, &dimensions)
    }

    fn start(
        loaded: Loaded,
        mechanism: Mechanism,
        note: Option<String>,
        options: &Options,
        dimensions: &Dimensions,
    ) -> Result<Handlers> {
        let mut table_of = vec![None; dimensions.nr_cpus as usize];
        for (number, &cpu) in dimensions.table_cpus.iter().enumerate() {
            table_of[cpu as usize] = Some(number as u32);
            if let Some(cell) = loaded.cpus.get(cpu as usize) {
                // SAFETY: `cell` points at a whole ai_cpu; no program is attached yet.
                unsafe { (*cell).table = number as u32 + 1 };
            }
        }
        let mut handlers = Handlers {
            programs: loaded.builtins.clone(),
            current: HandlerId::default(),
            next: HandlerId::FIRST,
            pair: Pair::default(),
            loaded,
            mechanism,
            note,
            nr_cpus: dimensions.nr_cpus,
            options: Arc::new(options.clone()),
            dimensions: Arc::new(dimensions.clone()),
            table_of: table_of.into(),
            nr_tables: dimensions.table_cpus.len() as u32,
            links: Vec::new(),
            by: None,
        };
        handlers.swap(options.builtin)?;
        Ok(handlers)
    }

    /// How the programs get at the sample.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Why the better mechanism was not taken, where it was tried.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The handler in force.
    pub fn current(&self) -> HandlerId {
        self.current
    }

    /// The number of the current pair; it grows by one at each swap.
    pub fn generation(&self) -> u32 {
        self.loaded.slots.generation()
    }

    /// What a program needs to work beside the stubs.
    pub fn shared(&self) -> Shared {
        Shared {
            maps: Arc::clone(&self.loaded.shared),
            nr_cpus: self.nr_cpus,
            events: self.loaded.stubs.len() as u32,
            mechanism: self.mechanism,
            table_of: Arc::clone(&self.table_of),
            nr_tables: self.nr_tables,
            labels: None,
            options: Arc::clone(&self.options),
            dimensions: Arc::clone(&self.dimensions),
        }
    }

    /// The number that the next [`Handlers::add`] gives: a program may want to know it before it is loaded.
    pub fn next_id(&self) -> HandlerId {
        self.next
    }

    /// Takes in a loaded program of type perf_event, which [`Handlers::swap`] may then be asked for. It stays loaded as long
    /// as `self` lives.
    pub fn add(&mut self, name: impl Into<String>, program: OwnedFd) -> HandlerId {
        let id = self.next;
        self.next = HandlerId(id.0.saturating_add(1));
        self.programs.push(Program { id, name: name.into(), fd: Arc::new(program) });
        id
    }

    /// Loads a built-in handler that was not asked for at the start, so that [`Handlers::swap`] may be; sampling may go on
    /// meanwhile. One that is loaded already is as good.
    ///
    /// # Errors
    /// As [`Handlers::load`]; nothing has changed then.
    pub fn load_builtin(&mut self, builtin: Builtin) -> Result<()> {
        if !self.has_builtin(builtin) {
            self.take_builtin(self.shared().load_builtin(builtin)?);
        }
        Ok(())
    }

    /// Whether [`Handlers::swap`] may be asked for this one.
    pub fn has_builtin(&self, builtin: Builtin) -> bool {
        builtin == Builtin::None || self.programs.iter().any(|program| program.id == builtin.into())
    }

    /// Takes in a built-in handler that [`Shared::load_builtin`] has loaded. One that is there already stays.
    pub fn take_builtin(&mut self, loaded: LoadedBuiltin) {
        let LoadedBuiltin(Late { program, tables }) = loaded;
        if self.programs.iter().any(|known| known.id == program.id) {
            return;
        }
        self.programs.push(program);
        if tables.is_some() {
            self.loaded.tables = tables;
        }
    }

    /// Loads the handler of an object, which [`Handlers::swap`] may then be asked for by its [`LoadedObject::id`]. Keep what
    /// this gives as long as the handler runs: with it the object's other programs are taken away.
    ///
    /// # Errors
    /// As [`Object::load`].
    pub fn load_object(&mut self, object: &Object) -> Result<LoadedObject> {
        let shared = self.shared();
        let loaded = object.load(&shared, shared.configs(), self.next_id(), &[])?;
        self.take_object(&loaded)?;
        Ok(loaded)
    }

    /// Takes in an object that was loaded, perhaps on another thread, under [`Handlers::next_id`].
    ///
    /// # Errors
    /// [`ErrorKind::Options`] when another program has got this number meanwhile.
    pub fn take_object(&mut self, loaded: &LoadedObject) -> Result<HandlerId> {
        if loaded.id != self.next {
            let cause = format!("it was loaded as handler {}, the next one is {}", loaded.id.0, self.next.0);
            return Err(Error::new(ErrorKind::Options, format!("taking in {}", loaded.name), cause));
        }
        Ok(self.add(loaded.name.clone(), loaded.program()?))
    }

    /// Lets go of a program that was added and is not in force: it cannot be put in force again. What is in force stays.
    pub fn forget(&mut self, id: HandlerId) {
        if id != self.current && id >= HandlerId::FIRST {
            self.programs.retain(|program| program.id != id);
        }
    }

    /// The name of a handler that is loaded.
    pub fn name(&self, id: HandlerId) -> Option<&str> {
        if id == Builtin::None.into() {
            return Some(Builtin::None.name());
        }
        self.programs.iter().find(|program| program.id == id).map(|program| program.name.as_str())
    }

    /// Puts the stub of `event` on a perf event, which should still be disabled. An event may be opened many times (for
    /// each CPU and task): attach to each. The link keeps the event alive, also when its descriptor is closed.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when the event has a program already, [`ErrorKind::Unsupported`] for a tracing event.
    pub fn attach(&mut self, event: usize, perf_fd: BorrowedFd<'_>) -> Result<()> {
        let what = "attaching the stub";
        let stub = self.loaded.stubs.get(event).ok_or_else(|| no_event(what, event))?;
        // SAFETY: both descriptors are open for the call; no options are passed.
        let fd = unsafe {
            libbpf_sys::bpf_link_create(
                stub.as_raw_fd(),
                perf_fd.as_raw_fd(),
                libbpf_sys::BPF_PERF_EVENT,
                std::ptr::null(),
            )
        };
        if fd < 0 {
            let error = io::Error::from_raw_os_error(-fd);
            return Err(match error.raw_os_error() {
                Some(libc::EINVAL) => {
                    Error::new(ErrorKind::Unsupported, what, "the kernel wants another kind of program here")
                }
                _ => Error::io(what, &error),
            });
        }
        // SAFETY: the kernel has just given us this descriptor, nobody else owns it.
        self.links.push(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(())
    }

    /// The loaded programs by name: `stub` once for each event, `gate` where there is one, and the handlers.
    pub fn programs(&self) -> Vec<(&str, BorrowedFd<'_>)> {
        let stubs = self.loaded.stubs.iter().map(|fd| ("stub", fd.as_fd()));
        let handlers = self.programs.iter().map(|program| (program.name.as_str(), program.fd.as_fd()));
        let gate = self.pair.gate.iter().map(|fd| ("gate", fd.as_fd()));
        stubs.chain(gate).chain(handlers).collect()
    }

    /// How many links there are.
    pub fn attached(&self) -> usize {
        self.links.len()
    }

    /// Gives `event` its handler ring on `cpu`: a BPF_OUTPUT event opened on that CPU. Call it before sampling starts.
    ///
    /// # Errors
    /// For an event or CPU that is not there, and where the kernel refuses the descriptor.
    pub fn set_output(&mut self, event: usize, cpu: u32, bpf_output_fd: BorrowedFd<'_>) -> Result<()> {
        let what = "giving a handler its ring";
        if event >= self.loaded.stubs.len() {
            return Err(no_event(what, event));
        }
        let key = self.key(event, cpu).ok_or_else(|| Error::new(ErrorKind::Options, what, format!("no CPU {cpu}")))?;
        update(&self.loaded.outputs, key as u32, bpf_output_fd.as_raw_fd()).map_err(|e| Error::io(what, &e))
    }

    /// The counters of one event on one CPU; zeroes for what does not exist. Plain loads from shared memory: exact once
    /// the event is disabled, off by a sample in flight before.
    pub fn counters(&self, event: usize, cpu: u32) -> Counters {
        let at: Option<*mut ai_counters> = self.key(event, cpu).and_then(|key| self.loaded.counters.get(key));
        let Some(at) = at else {
            return Counters::default();
        };
        macro_rules! read {
            ($($field:ident)*) => {
                Counters { $($field: {
                    // SAFETY: `at` points at a whole ai_counters, aligned to 8, as long as `self` lives; the program
                    // writes it meanwhile, so the load is atomic.
                    unsafe { AtomicU64::from_ptr(addr_of_mut!((*at).$field)) }.load(Ordering::Relaxed)
                }),* }
            };
        }
        read!(handled filtered dropped passed chained emitted emit_lost stored lost_full lost_collision stack_failed)
    }

    /// The counters of one event, over all CPUs.
    pub fn totals(&self, event: usize) -> Counters {
        (0..self.nr_cpus).map(|cpu| self.counters(event, cpu)).fold(Counters::default(), |sum, one| sum + one)
    }

    /// Hands out what `count` has gathered for one event on one CPU since the last drain, and forgets it. A handler that
    /// is counting goes on in the table's other half.
    pub fn drain_counts(&mut self, event: usize, cpu: u32, f: &mut dyn FnMut(&CountEntry<'_>)) -> DrainStats {
        let number = self.table_of.get(cpu as usize).copied().flatten();
        let (Some(tables), Some(number)) = (self.loaded.tables.as_mut(), number) else {
            return DrainStats::default();
        };
        if event >= self.loaded.stubs.len() {
            return DrainStats::default();
        }
        tables.drain(event * self.nr_tables as usize + number as usize, f)
    }

    /// Makes a handler the current one of all events and returns its generation. The spare pair is written first, then one
    /// number: every sample runs the old pair or the new one.
    ///
    /// # Errors
    /// For a handler that is not loaded (see [`Options::also`], [`Handlers::load_builtin`] and [`Handlers::add`]).
    pub fn swap(&mut self, handler: impl Into<HandlerId>) -> Result<u32> {
        let id = handler.into();
        let program = self.programs.iter().find(|program| program.id == id);
        if program.is_none() && id != Builtin::None.into() {
            let name = [Builtin::Emit, Builtin::Count].into_iter().find(|builtin| id == (*builtin).into());
            let name = name.map_or_else(|| format!("handler {}", id.0), |builtin| builtin.to_string());
            return Err(Error::new(ErrorKind::Options, "swapping the handler", format!("{name} was not loaded")));
        }
        let handler = program.map(|program| Arc::clone(&program.fd));
        let generation = self.install(Pair { gate: self.pair.gate.clone(), handler })?;
        self.current = id;
        Ok(generation)
    }

    /// Puts another gate before the handler in force and returns the new generation; `None` lets everything pass. A gate is
    /// a program of type perf_event that returns 0 with AI_FILTERED set in its CPU's flags, or tail-calls the slot behind its
    /// own.
    ///
    /// # Errors
    /// When the kernel refuses the program in a slot; the old gate stays then.
    pub fn set_gate(&mut self, gate: Option<OwnedFd>) -> Result<u32> {
        self.install(Pair { gate: gate.map(Arc::new), handler: self.pair.handler.clone() })
    }

    /// Puts what `by` runs for a label behind the pairs. Nothing comes there before it is swapped in.
    pub(crate) fn run_behind(&self, object: OwnedFd, counting: OwnedFd) -> Result<()> {
        let slots = &self.loaded.slots;
        let put = slots.put(LABEL_SLOT, Some(&Arc::new(object)));
        put.and_then(|()| slots.put(BY_SLOT, Some(&Arc::new(counting)))).map_err(|e| Error::io("filling slots", &e))
    }

    fn install(&mut self, pair: Pair) -> Result<u32> {
        let generation = self.loaded.slots.install(&pair)?;
        self.pair = pair;
        Ok(generation)
    }

    /// Takes the handler away: every sample chains to the sampling ring.
    ///
    /// # Errors
    /// As [`Handlers::swap`].
    pub fn clear(&mut self) -> Result<u32> {
        self.swap(Builtin::None)
    }

    /// The generations that `cpu` has run, with the time of the first sample of each (ns on the events' clock), oldest
    /// first. The last 64 are kept.
    pub fn generations(&self, cpu: u32) -> Vec<(u32, u64)> {
        let Some(cell) = self.loaded.cpus.get(cpu as usize) else { return Vec::new() };
        // SAFETY: `cell` points at a whole ai_cpu as long as `self` lives; the program writes it meanwhile, so every
        // access is atomic.
        let total = || unsafe { AtomicU32::from_ptr(addr_of_mut!((*cell).seen_total)) }.load(Ordering::Acquire);
        loop {
            let before = total();
            let kept = before.min(PAIRS);
            let list = (before - kept..before)
                .map(|n| {
                    let at = (n % PAIRS) as usize;
                    // SAFETY: as above; `at` is within the array.
                    unsafe {
                        let seen = addr_of_mut!((*cell).seen[at]);
                        (
                            AtomicU32::from_ptr(addr_of_mut!((*seen).generation)).load(Ordering::Relaxed),
                            AtomicU64::from_ptr(addr_of_mut!((*seen).time)).load(Ordering::Relaxed),
                        )
                    }
                })
                .collect();
            if total() == before {
                return list;
            }
        }
    }

    fn key(&self, event: usize, cpu: u32) -> Option<usize> {
        (cpu < self.nr_cpus).then_some(event * self.nr_cpus as usize + cpu as usize)
    }
}

fn no_event(what: &str, event: usize) -> Error {
    Error::new(ErrorKind::Options, what, format!("no event {event} was loaded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert_eq!(version("6.1.0-57-cloud-amd64"), Some((6, 1)));
        assert_eq!(version("6.12.117+deb12-cloud-amd64"), Some((6, 12)));
        assert_eq!(version("7.0-rc1"), Some((7, 0)));
        assert_eq!((version("next"), version("6")), (None, None));
        assert!(version("5.14.0-427.el9") < Some((6, 2)) && version("6.10") > Some((6, 2)));
    }

    #[test]
    fn a_name_is_found_wherever_it_stands() {
        for bytes in [&b"bpf_cast"[..], b"\0\0bpf_cast", b"bpf_cas\0bpf_cast\0"] {
            assert!(holds(bytes, b"bpf_cast"), "{bytes:?}");
        }
        for bytes in [&b""[..], b"bpf_cas", b"bpf_cas\0t"] {
            assert!(!holds(bytes, b"bpf_cast"), "{bytes:?}");
        }
    }
}

//! What a sample costs: page faults of this thread from a stack of about 20 frames, each sampled, with the event off, on
//! with a ring, and on with each handler.
//!
//! `cargo rustc --release --example cost -- -C force-frame-pointers=yes`, then run it as root.
//! `fault` is ns a fault, the fastest of the rounds; `sample` what sampling adds to it; `program` the kernel's own
//! measure of the programs (bpf_enable_stats), taken in rounds of its own; the line with an empty program says what the
//! measure itself costs.

#![expect(clippy::unwrap_used, reason = "an example")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use afterimage_handler::gate::{Context, Gate, NoNames};
use afterimage_handler::{Builtin, Counters, EventConfig, Handlers, Mechanism, Options};
use afterimage_perf_data::{Attr, AttrFlags, SampleType};
use afterimage_perf_event::ring::Ring;
use afterimage_perf_event::sys::{Kernel, Real};

/// Few enough for a round to fit between two interruptions.
const PAGES: usize = 64;
const ROUNDS: usize = 4000;
const FRAMES: u32 = 15;

/// Samples each page fault.
fn attr() -> Attr {
    use SampleType as S;
    Attr {
        kind: 1,
        config: 2,
        period_or_freq: 1,
        sample_type: S::IP | S::TID | S::TIME | S::CPU | S::PERIOD | S::IDENTIFIER | S::CALLCHAIN,
        flags: AttrFlags::DISABLED | AttrFlags::SAMPLE_ID_ALL | AttrFlags::USE_CLOCKID,
        clockid: libc::CLOCK_MONOTONIC,
        ..Attr::default()
    }
}

fn bpf_output() -> Attr {
    Attr {
        config: 10,
        sample_type: SampleType::TIME | SampleType::CPU | SampleType::RAW | SampleType::IDENTIFIER,
        flags: AttrFlags::SAMPLE_ID_ALL | AttrFlags::USE_CLOCKID,
        ..attr()
    }
}

/// Memory that is given back and faulted in again, so that the same pages go round.
struct Memory(*mut u8);

impl Memory {
    fn new() -> Memory {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping, kept to the end of the process.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGES * 4096, prot, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Memory(at.cast())
    }

    /// Faults every page in from `FRAMES` calls deep; ns a fault.
    fn faults(&self) -> f64 {
        // SAFETY: our own mapping, of which no reference exists.
        unsafe { libc::madvise(self.0.cast(), PAGES * 4096, libc::MADV_DONTNEED) };
        let start = Instant::now();
        self.deep(FRAMES);
        start.elapsed().as_nanos() as f64 / PAGES as f64
    }

    #[inline(never)]
    fn deep(&self, frames: u32) -> u64 {
        if frames > 0 {
            return std::hint::black_box(self.deep(frames - 1)) + 1;
        }
        for page in 0..PAGES {
            // SAFETY: within the mapping.
            unsafe { self.0.add(page * 4096).write_volatile(1) };
        }
        0
    }
}

struct Sampled {
    fd: Arc<OwnedFd>,
    ring: Ring,
    handlers: Option<Handlers>,
    outputs: Vec<Ring>,
    memory: Memory,
}

fn cpus() -> Vec<u32> {
    afterimage_perf_event::facts::Facts::system().online_cpus().unwrap()
}

impl Sampled {
    fn new(handler: Option<(Builtin, bool, Mechanism)>) -> Sampled {
        let fd = Arc::new(Real.perf_event_open(&attr(), 0, -1, None).unwrap());
        let ring = Ring::map(&Real, &fd, 512).unwrap();
        let mut outputs = Vec::new();
        let handlers = handler.map(|(builtin, chain, mechanism)| {
            let events = vec![EventConfig { callchain: true, ..EventConfig::default() }];
            let options = Options { builtin, chain, events, mechanism: Some(mechanism), ..Options::default() };
            let mut handlers = Handlers::load(&options).unwrap();
            for cpu in cpus() {
                let fd = Arc::new(Real.perf_event_open(&bpf_output(), -1, cpu as i32, None).unwrap());
                outputs.push(Ring::map(&Real, &fd, 512).unwrap());
                handlers.set_output(0, cpu, fd.as_fd()).unwrap();
            }
            handlers.attach(0, fd.as_fd()).unwrap();
            handlers
        });
        Sampled { fd, ring, handlers, outputs, memory: Memory::new() }
    }

    /// ns a fault, the fastest of `rounds`.
    fn run(&mut self, rounds: usize, on: bool) -> f64 {
        let mut best = f64::MAX;
        for _ in 0..rounds {
            if on {
                Real.enable(self.fd.as_fd(), false).unwrap();
            }
            best = best.min(self.memory.faults());
            Real.disable(self.fd.as_fd(), false).unwrap();
            for ring in self.outputs.iter_mut().chain([&mut self.ring]) {
                let head = ring.head();
                ring.drain(head, &mut |_| ()).unwrap();
            }
            if let Some(handlers) = &mut self.handlers {
                for cpu in cpus() {
                    handlers.drain_counts(0, cpu, &mut |_| ());
                }
            }
        }
        best
    }

    fn counters(&self) -> Counters {
        let handlers = self.handlers.as_ref().unwrap();
        cpus().into_iter().map(|cpu| handlers.counters(0, cpu)).max_by_key(|c| c.handled).unwrap()
    }

    /// Puts a gate before the handler.
    fn gate(&mut self, expression: &str) {
        let handlers = self.handlers.as_mut().unwrap();
        let context = Context::here(handlers.mechanism(), attr().sample_type);
        let gate = Gate::compile(expression, &NoNames, &context).unwrap();
        let program = gate.load(&handlers.shared()).unwrap();
        assert!(program.is_some(), "{expression} is no gate");
        handlers.set_gate(program).unwrap();
    }

    /// ns a run of the programs, as the kernel measures it, in the fastest of the rounds.
    fn program_ns(&mut self, rounds: usize) -> f64 {
        measured(
            rounds,
            |sampled| {
                let stub = sampled.handlers.as_ref().unwrap().programs().swap_remove(0).1;
                let before = info(stub);
                (before.run_time_ns, before.run_cnt)
            },
            self,
        )
    }
}

/// Runs rounds with the kernel's measure on; `read` gives ns and runs so far.
fn measured(rounds: usize, read: impl Fn(&Sampled) -> (u64, u64), sampled: &mut Sampled) -> f64 {
    // SAFETY: takes a number, returns a descriptor or an error.
    let stats = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    assert!(stats >= 0, "bpf_enable_stats: {stats}");
    // SAFETY: the kernel has just given us this descriptor.
    let _stats = unsafe { OwnedFd::from_raw_fd(stats) };
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let before = read(sampled);
        sampled.run(1, true);
        let after = read(sampled);
        best = best.min((after.0 - before.0) as f64 / (after.1 - before.1) as f64);
    }
    best
}

/// A program that does nothing but chain (1) or drop (0), and the link that holds it to an event.
fn empty_program(event: BorrowedFd<'_>, verdict: i32) -> (OwnedFd, OwnedFd) {
    // r0 = verdict; exit
    let mut program = [libbpf_sys::bpf_insn { code: 0xb7, imm: verdict, ..Default::default() }, Default::default()];
    program[1].code = 0x95;
    // SAFETY: instructions and strings live through the calls, there are no options; the results are checked to be
    // descriptors, which the kernel has just given us.
    unsafe {
        let fd = libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_PERF_EVENT,
            std::ptr::null(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            2,
            std::ptr::null_mut(),
        );
        assert!(fd >= 0);
        let link = libbpf_sys::bpf_link_create(fd, event.as_raw_fd(), libbpf_sys::BPF_PERF_EVENT, std::ptr::null());
        assert!(link >= 0);
        (OwnedFd::from_raw_fd(fd), OwnedFd::from_raw_fd(link))
    }
}

fn info(fd: BorrowedFd<'_>) -> libbpf_sys::bpf_prog_info {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: info lives through the call and has the length it says; it points at no buffer.
    let result = unsafe { libbpf_sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), (&raw mut info).cast(), &raw mut len) };
    assert_eq!(result, 0);
    info
}

/// Five terms, all of which hold for our own faults, or all but the last.
fn five_terms(last: bool) -> String {
    let (me, cpus) = (std::process::id(), cpus().len() - 1);
    let period = if last { "period == 1" } else { "period > 1" };
    format!("pid == {me} && cpu in 0..{cpus} && user && comm == \"cost\" && {period}")
}

/// What a gate adds to a run of the stub: ten alternating pairs, the median and the ends.
fn gates(mechanism: Mechanism) {
    let mut bare = Sampled::new(Some((Builtin::None, true, mechanism)));
    let mut with = Sampled::new(Some((Builtin::None, true, mechanism)));
    for (what, last) in [("passes", true), ("filters by the fifth", false)] {
        with.gate(&five_terms(last));
        let mut pairs = Vec::new();
        for _ in 0..10 {
            pairs.push((bare.program_ns(ROUNDS / 10), with.program_ns(ROUNDS / 10)));
        }
        let sorted = |of: fn(&(f64, f64)) -> f64| {
            let mut list: Vec<f64> = pairs.iter().map(of).collect();
            list.sort_by(f64::total_cmp);
            format!("{:.0} ({:.0} to {:.0})", (list[4] + list[5]) / 2.0, list[0], list[9])
        };
        println!(
            "gate of five terms that {what}, {}: stub {} ns, with the gate {} ns, more {} ns",
            mechanism.name(),
            sorted(|pair| pair.0),
            sorted(|pair| pair.1),
            sorted(|pair| pair.1 - pair.0),
        );
    }
}

fn main() {
    if std::env::args().any(|word| word == "gates") {
        [Mechanism::Kfuncs, Mechanism::Plain].into_iter().for_each(gates);
        return;
    }
    let mut plain = Sampled::new(None);
    plain.run(20, false);
    let off = plain.run(ROUNDS, false);
    let ring = plain.run(ROUNDS, true);
    println!("{:24} {:>8} {:>8} {:>8}", "", "fault", "sample", "program");
    println!("{:24} {off:8.0}", "event off");
    let line = |name: &str, ns: f64, program: &str| println!("{name:24} {ns:8.0} {:8.0} {program:>8}", ns - off);
    line("ring", ring, "");
    for (name, verdict) in [("empty program", 0), ("empty program, ring", 1)] {
        let (program, _link) = empty_program(plain.fd.as_fd(), verdict);
        let ns = plain.run(ROUNDS, true);
        let read = |_: &Sampled| {
            let info = info(program.as_fd());
            (info.run_time_ns, info.run_cnt)
        };
        line(name, ns, &format!("{:.0}", measured(ROUNDS, read, &mut plain)));
    }
    for mechanism in [Mechanism::Kfuncs, Mechanism::Plain] {
        for (builtin, chain) in [
            (Builtin::None, true),
            (Builtin::Emit, false),
            (Builtin::Emit, true),
            (Builtin::Count, false),
            (Builtin::Count, true),
        ] {
            let mut sampled = Sampled::new(Some((builtin, chain, mechanism)));
            sampled.run(20, true);
            let ns = sampled.run(ROUNDS, true);
            let program = sampled.program_ns(ROUNDS);
            let name = format!("{builtin}{} {}", if chain { ", ring" } else { "" }, mechanism.name());
            line(&name, ns, &format!("{program:.0}"));
            let seen = sampled.counters();
            assert_eq!(seen.stack_failed + seen.lost_full + seen.lost_collision, 0, "{seen:?}");
        }
    }
}

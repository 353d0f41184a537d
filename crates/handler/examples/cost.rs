//! What a sample costs: page faults of this thread under an event that is off, on with a ring, and on with each handler.
//!
//! `cargo rustc --release --example cost -- -C force-frame-pointers=yes`, then run it as root on a quiet machine.
//! `fault` is ns a fault, median of the rounds; `above off` what sampling adds to it; `program` the kernel's own measure
//! of the programs (bpf_enable_stats), in a round of its own for the measure has a price too.

#![allow(clippy::unwrap_used, reason = "an example")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use afterimage_handler::{Builtin, Counters, EventConfig, Handlers, Mechanism, Options};
use afterimage_perf_data::{Attr, AttrFlags, SampleType};
use afterimage_perf_event::ring::Ring;
use afterimage_perf_event::sys::{Kernel, Real};

const PAGES: usize = 4000;
const ROUNDS: usize = 31;
const FRAMES: u32 = 16;

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

/// Faults in `PAGES` fresh pages from `FRAMES` calls deep; ns a fault.
fn faults() -> f64 {
    let bytes = PAGES * 4096;
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping, unmapped below, of which nothing is kept.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: our own mapping.
    unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
    let start = Instant::now();
    touch(FRAMES, at.cast(), bytes);
    let ns = start.elapsed().as_nanos() as f64 / PAGES as f64;
    // SAFETY: our own mapping.
    unsafe { libc::munmap(at, bytes) };
    ns
}

#[inline(never)]
fn touch(frames: u32, at: *mut u8, bytes: usize) -> u64 {
    if frames > 0 {
        return std::hint::black_box(touch(frames - 1, at, bytes)) + 1;
    }
    for offset in (0..bytes).step_by(4096) {
        // SAFETY: within the mapping that `faults` made.
        unsafe { at.add(offset).write_volatile(1) };
    }
    0
}

struct Sampled {
    fd: Arc<OwnedFd>,
    ring: Ring,
    handlers: Option<Handlers>,
    outputs: Vec<Ring>,
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
        Sampled { fd, ring, handlers, outputs }
    }

    /// ns a fault in each of `rounds`, sorted.
    fn run(&mut self, rounds: usize, on: bool) -> Vec<f64> {
        let mut all = Vec::new();
        for _ in 0..rounds {
            if on {
                Real.enable(self.fd.as_fd(), false).unwrap();
            }
            all.push(faults());
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
        all.sort_by(f64::total_cmp);
        all
    }

    fn counters(&self) -> Counters {
        let handlers = self.handlers.as_ref().unwrap();
        cpus().into_iter().map(|cpu| handlers.counters(0, cpu)).max_by_key(|c| c.handled).unwrap()
    }

    /// ns a run of the programs, as the kernel measures it.
    fn program_ns(&mut self) -> f64 {
        // SAFETY: takes a number, returns a descriptor or an error.
        let stats = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        assert!(stats >= 0, "bpf_enable_stats: {stats}");
        // SAFETY: the kernel has just given us this descriptor.
        let _stats = unsafe { OwnedFd::from_raw_fd(stats) };
        let before = run_time(self.handlers.as_ref().unwrap());
        self.run(ROUNDS, true);
        let after = run_time(self.handlers.as_ref().unwrap());
        (after.0 - before.0) as f64 / (after.1 - before.1) as f64
    }
}

fn run_time(handlers: &Handlers) -> (u64, u64) {
    let stub = handlers.programs().into_iter().find(|(name, _)| *name == "stub").unwrap().1;
    let info = info(stub);
    (info.run_time_ns, info.run_cnt)
}

fn info(fd: BorrowedFd<'_>) -> libbpf_sys::bpf_prog_info {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: info lives through the call and has the length it says; it points at no buffer.
    let result = unsafe { libbpf_sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), (&raw mut info).cast(), &raw mut len) };
    assert_eq!(result, 0);
    info
}

fn main() {
    let mut plain = Sampled::new(None);
    plain.run(5, false);
    let off = plain.run(ROUNDS, false)[ROUNDS / 2];
    let ring = plain.run(ROUNDS, true)[ROUNDS / 2];
    println!("{:28} {:>9} {:>10} {:>9}", "", "fault", "above off", "program");
    println!("{:28} {off:9.0}", "event off");
    println!("{:28} {ring:9.0} {:10.0}", "ring, no program", ring - off);
    drop(plain);
    for mechanism in [Mechanism::Kfuncs, Mechanism::Plain] {
        for (builtin, chain) in [
            (Builtin::None, true),
            (Builtin::Emit, false),
            (Builtin::Emit, true),
            (Builtin::Count, false),
            (Builtin::Count, true),
        ] {
            let mut sampled = Sampled::new(Some((builtin, chain, mechanism)));
            sampled.run(5, true);
            let base = sampled.run(ROUNDS, false)[ROUNDS / 2];
            let ns = sampled.run(ROUNDS, true)[ROUNDS / 2];
            let program = sampled.program_ns();
            let name = format!("{builtin}{} {}", if chain { " + ring" } else { "" }, mechanism.name());
            println!("{name:28} {ns:9.0} {:10.0} {program:9.0}", ns - base);
            let seen = sampled.counters();
            assert_eq!(seen.stack_failed + seen.lost_full + seen.lost_collision, 0, "{seen:?}");
        }
    }
}

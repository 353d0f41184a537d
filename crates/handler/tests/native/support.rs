//! Events, rings and busy threads for the tests.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;

use afterimage_handler::{Builtin, EventConfig, Handlers, Mechanism, Options};
use afterimage_perf_data::record::{Record, Sample};
use afterimage_perf_data::{
    Attr, AttrFlags, EmitPayload, Endian, Layout, RawRecord, ReadFormat, RecordHeader, SampleType, decode,
};
use afterimage_perf_event::ring::Ring;
use afterimage_perf_event::sys::{Kernel, Real};
use afterimage_testkit::{Need, guest, has};

/// The ways to a sample that this kernel has, the better one first. They are tried once for all tests.
pub(crate) fn mechanisms() -> Vec<Mechanism> {
    static KFUNCS: OnceLock<bool> = OnceLock::new();
    let tried = || {
        let yes = afterimage_perf_event::probe::Answer::Yes;
        let checks = afterimage_handler::probe::all();
        checks.iter().any(|check| check.name == "bpf-sample-context" && check.answer == yes)
    };
    if *KFUNCS.get_or_init(tried) { vec![Mechanism::Kfuncs, Mechanism::Plain] } else { vec![Mechanism::Plain] }
}

/// The better one.
pub(crate) fn best() -> Mechanism {
    mechanisms()[0]
}

const SOFTWARE: u32 = 1;
const BREAKPOINT: u32 = 5;
const CPU_CLOCK: u64 = 0;
const PAGE_FAULTS: u64 = 2;
const BPF_OUTPUT: u64 = 10;

/// One test at a time: a program that runs on a CPU keeps others from running there, and so does a bpf(2) map call.
pub(crate) fn alone(test: &str) -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    if !has(test, &[Need::Root, Need::Bpf]) {
        return None;
    }
    Some(ONE.lock().unwrap_or_else(|e| e.into_inner()))
}

/// The attr of a sampling event as the recorder opens it, disabled.
pub(crate) fn sampling(config: u64, period: u64) -> Attr {
    Attr {
        kind: SOFTWARE,
        config,
        period_or_freq: period,
        sample_type: SampleType::IP
            | SampleType::TID
            | SampleType::TIME
            | SampleType::ID
            | SampleType::CPU
            | SampleType::PERIOD
            | SampleType::IDENTIFIER
            | SampleType::CALLCHAIN,
        read_format: ReadFormat::ID | ReadFormat::LOST,
        flags: AttrFlags::DISABLED | AttrFlags::SAMPLE_ID_ALL | AttrFlags::USE_CLOCKID,
        clockid: libc::CLOCK_MONOTONIC,
        ..Attr::default()
    }
}

pub(crate) fn clock(period_ns: u64) -> Attr {
    sampling(CPU_CLOCK, period_ns)
}

pub(crate) fn page_faults() -> Attr {
    sampling(PAGE_FAULTS, 1)
}

/// Every write to a variable.
pub(crate) fn writes_to(variable: *const u64) -> Attr {
    const WRITE: u32 = 2;
    let attr = sampling(0, 1);
    Attr { kind: BREAKPOINT, bp_type: WRITE, config1: variable as u64, config2: 8, ..attr }
}

/// An event of one thread, with a ring of its own.
pub(crate) struct Event {
    pub(crate) fd: Arc<OwnedFd>,
    ring: Ring,
    layout: Layout,
}

/// What a drain of a ring brought.
#[derive(Default)]
pub(crate) struct Drained {
    pub(crate) samples: Vec<Seen>,
    /// Records that are neither samples nor LOST.
    pub(crate) others: u64,
}

/// A sample, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) ip: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) time: u64,
    pub(crate) cpu: u32,
    pub(crate) period: u64,
    pub(crate) chain: Vec<u64>,
    pub(crate) raw: Vec<u8>,
}

impl Seen {
    fn of(sample: &Sample<'_>) -> Seen {
        Seen {
            ip: sample.ip.unwrap_or(0),
            pid: sample.pid.unwrap_or(0),
            tid: sample.tid.unwrap_or(0),
            time: sample.time.unwrap_or(0),
            cpu: sample.cpu.unwrap_or(0),
            period: sample.period.unwrap_or(0),
            chain: sample.callchain.map(|c| c.iter().collect()).unwrap_or_default(),
            raw: sample.raw.map(<[u8]>::to_vec).unwrap_or_default(),
        }
    }

    /// The emit payload that a BPF_OUTPUT sample carries.
    pub(crate) fn emit(&self) -> EmitPayload<'_> {
        EmitPayload::decode(&self.raw).expect("an emit payload")
    }
}

impl Event {
    pub(crate) fn open(attr: &Attr, tid: i32, cpu: i32, pages: usize) -> Event {
        let fd = Arc::new(Real.perf_event_open(attr, tid, cpu, None).expect("perf_event_open"));
        let ring = Ring::map(&Real, &fd, pages).expect("a ring");
        Event { fd, ring, layout: Layout::new(attr, Endian::Little) }
    }

    pub(crate) fn enable(&self) {
        Real.enable(self.fd.as_fd(), false).unwrap();
    }

    pub(crate) fn disable(&self) {
        Real.disable(self.fd.as_fd(), false).unwrap();
    }

    /// The count and PERF_FORMAT_LOST.
    pub(crate) fn read(&self) -> (u64, u64) {
        let mut buf = [0; 24];
        assert_eq!(Real.read(self.fd.as_fd(), &mut buf).unwrap(), 24);
        let word = |n: usize| u64::from_ne_bytes(buf[8 * n..8 * n + 8].try_into().unwrap());
        (word(0), word(2))
    }

    pub(crate) fn drain(&mut self, into: &mut Drained) {
        let head = self.ring.head();
        let layout = &self.layout;
        self.ring
            .drain(head, &mut |bytes| {
                let header = RecordHeader {
                    kind: u32::from_ne_bytes(bytes[..4].try_into().unwrap()),
                    misc: u16::from_ne_bytes(bytes[4..6].try_into().unwrap()),
                    size: u16::from_ne_bytes(bytes[6..8].try_into().unwrap()),
                };
                match decode(&RawRecord { header, bytes, offset: 0 }, layout).expect("a record") {
                    Record::Sample(sample) => into.samples.push(Seen::of(&sample)),
                    Record::Lost(_) => {}
                    _ => into.others += 1,
                }
            })
            .expect("a sound ring");
    }

    /// The samples in the ring as they stand there, for those that no decoder should be asked to read.
    pub(crate) fn raw_samples(&mut self) -> Vec<Vec<u8>> {
        let (head, mut samples) = (self.ring.head(), Vec::new());
        let sample = |bytes: &[u8]| u32::from_ne_bytes(bytes[..4].try_into().unwrap()) == 9;
        self.ring
            .drain(head, &mut |bytes| samples.extend(sample(bytes).then(|| bytes.to_vec())))
            .expect("a sound ring");
        samples
    }

    pub(crate) fn drained(&mut self) -> Drained {
        let mut all = Drained::default();
        self.drain(&mut all);
        all
    }
}

/// A handler ring on each CPU.
pub(crate) fn outputs(pages: usize) -> Vec<Event> {
    let attr = Attr {
        kind: SOFTWARE,
        config: BPF_OUTPUT,
        period_or_freq: 1,
        sample_type: SampleType::TIME | SampleType::CPU | SampleType::RAW | SampleType::IDENTIFIER,
        read_format: ReadFormat::ID | ReadFormat::LOST,
        flags: AttrFlags::SAMPLE_ID_ALL | AttrFlags::USE_CLOCKID,
        clockid: libc::CLOCK_MONOTONIC,
        ..Attr::default()
    };
    cpus().into_iter().map(|cpu| Event::open(&attr, -1, cpu as i32, pages)).collect()
}

pub(crate) fn cpus() -> Vec<u32> {
    afterimage_perf_event::facts::Facts::system().online_cpus().unwrap()
}

/// A handler for one event that takes stacks.
pub(crate) fn load(builtin: Builtin, chain: bool, mechanism: Mechanism) -> Handlers {
    load_with(builtin, &[], chain, mechanism)
}

/// The same with others that can be swapped in.
pub(crate) fn load_with(builtin: Builtin, also: &[Builtin], chain: bool, mechanism: Mechanism) -> Handlers {
    let events = vec![EventConfig { callchain: true, ..EventConfig::default() }];
    let also = also.to_vec();
    let options = Options { builtin, also, chain, events, mechanism: Some(mechanism), ..Options::default() };
    Handlers::load(&options).unwrap_or_else(|e| panic!("{e:#}"))
}

/// All of them.
pub(crate) const ALL: [Builtin; 2] = [Builtin::Emit, Builtin::Count];

/// Nanoseconds between samples where there shall be many. A sample of an emulated CPU may take most of those that are many
/// elsewhere, and nothing would be left for what is sampled.
pub(crate) fn dense() -> u64 {
    if guest().is_some() { 500_000 } else { 100_000 }
}

pub(crate) fn give_outputs(handlers: &mut Handlers, outputs: &[Event]) {
    for (cpu, output) in cpus().into_iter().zip(outputs) {
        handlers.set_output(0, cpu, output.fd.as_fd()).unwrap();
    }
}

/// The sum of the counters of event 0 over all CPUs.
pub(crate) fn total(handlers: &Handlers) -> afterimage_handler::Counters {
    let mut sum = afterimage_handler::Counters::default();
    for cpu in cpus() {
        let one = handlers.counters(0, cpu);
        sum.handled += one.handled;
        sum.filtered += one.filtered;
        sum.dropped += one.dropped;
        sum.passed += one.passed;
        sum.chained += one.chained;
        sum.emitted += one.emitted;
        sum.emit_lost += one.emit_lost;
        sum.stored += one.stored;
        sum.lost_full += one.lost_full;
        sum.lost_collision += one.lost_collision;
        sum.stack_failed += one.stack_failed;
    }
    sum
}

/// An entry of the count table, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) comm: String,
    pub(crate) exec_id: u64,
    pub(crate) ip: u64,
    pub(crate) count: u64,
    pub(crate) period: u64,
    pub(crate) first_time: u64,
    pub(crate) chain: Vec<u64>,
    pub(crate) kernel: Vec<u64>,
    pub(crate) user: Vec<u64>,
}

/// Drains the tables of event 0 on all CPUs.
pub(crate) fn counts(handlers: &mut Handlers) -> Vec<Counted> {
    let mut all = Vec::new();
    for cpu in cpus() {
        let stats = handlers.drain_counts(0, cpu, &mut |entry| {
            let comm = entry.comm.split(|&b| b == 0).next().unwrap_or_default();
            all.push(Counted {
                pid: entry.pid,
                tid: entry.tid,
                comm: String::from_utf8_lossy(comm).into_owned(),
                exec_id: entry.exec_id,
                ip: entry.ip,
                count: entry.count,
                period: entry.period,
                first_time: entry.first_time,
                chain: entry.chain.to_vec(),
                kernel: entry.kernel().to_vec(),
                user: entry.user().to_vec(),
            });
        });
        assert!(!stats.busy);
    }
    all
}

pub(crate) fn gettid() -> i32 {
    // SAFETY: takes nothing, returns a number.
    unsafe { libc::gettid() }
}

/// Names this thread.
pub(crate) fn name_thread(name: &str) {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a string that lives through the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// A thread that works until it is dropped.
pub(crate) struct Busy {
    pub(crate) tid: i32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    /// Runs `step` over and over.
    pub(crate) fn new(mut step: impl FnMut() + Send + 'static) -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        let (say, hear) = std::sync::mpsc::channel();
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            say.send(gettid()).unwrap();
            while !seen.load(Ordering::Relaxed) {
                step();
            }
        });
        Busy { tid: hear.recv().unwrap(), stop, thread: Some(thread) }
    }

    /// Works in many different stacks.
    pub(crate) fn deep() -> Busy {
        let mut seed = 1u64;
        Busy::new(move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            std::hint::black_box(descend(12, seed >> 20));
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

/// Goes one of two ways at each level.
#[inline(never)]
pub(crate) fn descend(levels: u32, way: u64) -> u64 {
    if levels == 0 {
        return (0..50).fold(way, |a, b| std::hint::black_box(a ^ b));
    }
    if way & 1 == 0 { left(levels, way) } else { right(levels, way) }
}

#[inline(never)]
fn left(levels: u32, way: u64) -> u64 {
    std::hint::black_box(descend(levels - 1, way >> 1)) + 1
}

#[inline(never)]
fn right(levels: u32, way: u64) -> u64 {
    std::hint::black_box(descend(levels - 1, way >> 1)) + 2
}

/// Fresh memory; touching it faults once a page.
pub(crate) struct Pages {
    at: *mut u8,
    bytes: usize,
}

impl Pages {
    pub(crate) fn new(pages: usize) -> Pages {
        Pages::mapped(0, pages, 0)
    }

    /// At an address where nothing is mapped.
    pub(crate) fn at(address: usize, pages: usize) -> Pages {
        Pages::mapped(address, pages, libc::MAP_FIXED_NOREPLACE)
    }

    fn mapped(address: usize, pages: usize, fixed: i32) -> Pages {
        let bytes = pages * 4096;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
        // SAFETY: a new anonymous mapping, at an address of the kernel's choice or where nothing was mapped.
        let at = unsafe { libc::mmap(address as *mut libc::c_void, bytes, prot, flags, -1, 0) };
        assert!(at != libc::MAP_FAILED && (address == 0 || at as usize == address));
        // SAFETY: the range was just mapped.
        assert_eq!(unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) }, 0);
        Pages { at: at.cast(), bytes }
    }

    pub(crate) fn touch(&self) {
        self.touch_each(|_| ());
    }

    /// Touches each page after telling which.
    pub(crate) fn touch_each(&self, mut before: impl FnMut(usize)) {
        for offset in (0..self.bytes).step_by(4096) {
            before(offset / 4096);
            // SAFETY: within the mapping.
            unsafe { self.at.add(offset).write_volatile(1) };
        }
    }

    /// One of the pages.
    pub(crate) fn page(&self, number: usize) -> *mut u8 {
        assert!(number * 4096 < self.bytes);
        self.at.wrapping_add(number * 4096)
    }

    /// Lets the kernel fault the pages in, from a read into them.
    pub(crate) fn touch_by_kernel(&self) {
        let zero = std::fs::File::open("/dev/zero").unwrap();
        // SAFETY: the mapping is ours, writable and of this length.
        let buf = unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) };
        std::io::Read::read_exact(&mut &zero, buf).unwrap();
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody points into it any more.
        unsafe { libc::munmap(self.at.cast(), self.bytes) };
    }
}

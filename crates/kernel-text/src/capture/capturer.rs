//! The capture of a recording: a thread that is woken as text comes, and the programs that copy it as it goes.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::captured::{Captured, Pass, Stats};
use super::error::{CaptureError, CaptureErrorKind, ReadError};
use super::freed::Freed;
use super::kcore::{Extent, Heard, Kcore};
use super::loads::Loads;
use super::reader::Reader;
use super::symbols::Symbols;
use crate::Way;

/// How long a pass waits for the thread, which only moves records and makes copies.
const ANSWER: Duration = Duration::from_secs(5);
/// How long frees may go on after a grace period before they are left alone, and how long none has to come until there are
/// none: the kernel's workers are no faster than the machine lets them.
const SETTLE: Duration = Duration::from_millis(300);
const QUIET: Duration = Duration::from_millis(20);

/// What to capture, and within which bounds.
#[derive(Clone, Debug)]
pub struct Options {
    /// The ways to use; `None`: every way that works here, but each of those at the free by the tracepoint, at the entries
    /// of functions, and by address only where the ones before it do not work, and of /proc/kcore at the end of a text only
    /// where the kernel holds it. `Memory` and `TextPoke` are not the capture's.
    pub ways: Option<Vec<Way>>,
    /// Programs that are read by id in a second, at most.
    pub by_id_a_second: u32,
    /// Bytes that wait for a pass, at most; what comes beyond is dropped and counted.
    pub pending_bytes: usize,
    /// Data pages of each ring of the capture's own sideband.
    pub pages: usize,
    /// Data pages, a power of two, of each of the rings by which a recorder learns what comes and goes; `None`: as many as it
    /// finds right. The capture itself has no use for it.
    pub record_pages: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Options { ways: None, by_id_a_second: 500, pending_bytes: 64 << 20, pages: 16, record_pages: None }
    }
}

impl Options {
    fn wants(&self, way: Way) -> bool {
        self.ways.as_ref().is_none_or(|ways| ways.contains(&way))
    }
}

/// Whether a way of capture works here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WayState {
    /// The way.
    pub way: Way,
    /// A part of what it covers; empty for all of it.
    pub part: &'static str,
    /// Why it is not used; `None` when it is.
    pub missing: Option<CaptureError>,
}

/// The running capture. It ends when it is dropped.
pub struct Capturer {
    requests: Sender<Request>,
    bell: Arc<OwnedFd>,
    memory: Memory,
    /// Texts are copied through /proc/kcore at their end.
    at_end: bool,
    symbols: Option<Symbols>,
    ways: Vec<WayState>,
    stats: Stats,
    /// Whether the thread answered the last pass.
    answered: bool,
    /// Whether texts tell as they are freed.
    announced: bool,
    thread: Option<JoinHandle<()>>,
}

/// What reads kernel memory here.
struct Memory {
    reader: Option<Arc<Mutex<Reader>>>,
    kcore: Option<Mutex<Kcore>>,
}

impl fmt::Debug for Capturer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capturer").field("ways", &self.ways).field("stats", &self.stats).finish_non_exhaustive()
    }
}

enum Request {
    Pass(Sender<(Pass, Stats)>),
    /// Waits until what is being freed has been.
    Settle,
    Stop,
}

impl Capturer {
    /// Begins to capture. Whoever reads rings opens them only afterwards: freed text is held from here on.
    ///
    /// # Errors
    /// Where no way works at all: without the right to load programs and to read /proc/kcore, or where none of the ways
    /// asked for works. Those that do not work beside others are told by [`Capturer::ways`].
    pub fn start(options: &Options) -> Result<Capturer, CaptureError> {
        let mut ways = Vec::new();
        let (kcore, at_end) = open_kcore(options, &mut ways);
        let reader = Reader::load();
        let of_reader = || reader.as_ref().map_err(Clone::clone);
        let mut free = at_frees(options, of_reader(), &mut ways);
        let only_tells = free.is_empty();
        // Neither modules nor classic filters have records: of those it tells, whoever copies them.
        if only_tells && at_end && !options.wants(Way::FreeTime) {
            free.extend(of_reader().and_then(Freed::by_tracepoint));
        }
        let symbols = free.iter_mut().find_map(|free| free.symbols.take());
        let announced = !free.is_empty();
        let window = options.wants(Way::RcuWindow) && (options.ways.is_some() || free.is_empty());
        let by_id = options.wants(Way::ById);
        let refused = reader.as_ref().err().cloned();
        let reader = reader.ok().map(|reader| Arc::new(Mutex::new(reader)));
        let window = reader.clone().filter(|_| window);
        if let Some(error) = refused.clone().filter(|_| options.ways.is_some() && options.wants(Way::RcuWindow)) {
            ways.push(WayState { way: Way::RcuWindow, part: "", missing: Some(error) });
        }
        let copies_by_address = window.is_some();
        let loads =
            (copies_by_address || by_id).then(|| Loads::open(window, by_id, options.by_id_a_second, options.pages));
        let way = if by_id { Way::ById } else { Way::RcuWindow };
        let loads = loads.and_then(|loads| kept(way, loads, &mut ways));
        if copies_by_address && by_id && loads.is_some() {
            ways.push(WayState { way: Way::RcuWindow, part: "", missing: None });
        }
        if free.is_empty() && loads.is_none() && !at_end {
            let first = refused.or(ways.into_iter().find_map(|way| way.missing));
            let none = || CaptureError::new(CaptureErrorKind::Unsupported, "capture of text", "no way was asked for");
            return Err(first.unwrap_or_else(none));
        }
        let failed = |e: &dyn fmt::Display| CaptureError::new(CaptureErrorKind::System, "the capture's thread", e);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags).map_err(|e| failed(&e))?);
        let (requests, receiver) = channel();
        let worker = Worker {
            free,
            only_tells,
            loads,
            pending: Pass::default(),
            bytes: 0,
            limit: options.pending_bytes,
            dropped: 0,
            bell: Arc::clone(&bell),
        };
        let thread = thread::Builder::new().name("afterimage-text".to_owned()).spawn(move || worker.run(&receiver));
        let thread = Some(thread.map_err(|e| failed(&e))?);
        let memory = Memory { reader, kcore: kcore.map(Mutex::new) };
        let stats = Stats::default();
        Ok(Capturer { requests, bell, memory, at_end, symbols, ways, stats, answered: true, announced, thread })
    }

    /// What works here, and why the rest does not.
    pub fn ways(&self) -> &[WayState] {
        &self.ways
    }

    /// Whether texts tell as they are freed.
    pub fn sees_frees(&self) -> bool {
        self.announced
    }

    /// How many ways copy texts at their free. Each of them tells of each free.
    pub fn ways_at_frees(&self) -> usize {
        let at_frees = |way: &&WayState| matches!(way.way, Way::FreeTime | Way::Fentry);
        self.ways.iter().filter(at_frees).filter(|way| way.part.is_empty() && way.missing.is_none()).count()
    }

    /// Whether texts are to be copied at their end, by [`Capturer::copy`]: the kernel holds them, or that was asked for.
    pub fn copies_at_end(&self) -> bool {
        self.at_end
    }

    /// A pass over all rings begins; none of them has been looked at.
    pub fn begin_pass(&mut self) {
        if let Some(kcore) = self.memory.kcore() {
            kcore.begin_pass();
        }
    }

    /// Copies a text whose end a ring told of in this pass.
    ///
    /// # Errors
    /// When it is not there any more.
    pub fn copy(&mut self, addr: u64, extent: Extent) -> Result<Vec<u8>, ReadError> {
        self.memory.kcore().ok_or(ReadError::NotMapped(addr))?.copy(addr, extent)
    }

    /// By which way [`Capturer::copy`] copies, and whether the copies of this pass, so many, are proven.
    pub fn check(&mut self, copies: usize) -> (Way, bool) {
        match self.memory.kcore() {
            Some(kcore) if kcore.holds() => (Way::KcoreQc, kcore.check(copies)),
            _ => (Way::Kcore, false),
        }
    }

    /// The pass has ended and is written: what the kernel held for three of them goes. A pass in which the capture did not
    /// answer is not complete, and proves nothing.
    pub fn end_pass(&mut self, heard: Heard) {
        let answered = self.answered;
        if let Some(kcore) = self.memory.kcore() {
            kcore.end_pass(answered, heard);
        }
    }

    /// Whether the kernel holds freed text for us.
    pub fn holds(&self) -> bool {
        self.memory.locked().is_some_and(|kcore| kcore.holds())
    }

    /// How many freed texts waited for us when the pass began.
    pub fn held(&self) -> u64 {
        self.memory.locked().map_or(0, |kcore| kcore.waiting())
    }

    /// Everything captured up to this call.
    pub fn pass(&mut self) -> Pass {
        let (answer, receiver) = channel();
        self.ask(Request::Pass(answer));
        match receiver.recv_timeout(ANSWER) {
            Ok((pass, stats)) => {
                (self.stats, self.answered) = (stats, true);
                pass
            }
            // It is no more than late: what it holds comes with the next pass.
            Err(_) => {
                self.answered = false;
                Pass::default()
            }
        }
    }

    /// Begins to wait for the frees that are under way: for one grace period, and as long as frees then follow each
    /// other. Returns at once; the next [`Capturer::pass`] comes after it.
    pub fn settle(&mut self) {
        self.ask(Request::Settle);
    }

    /// What was done up to the last pass.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        if let Some(kcore) = self.memory.locked() {
            kcore.stats(&mut stats);
        }
        stats
    }

    /// Reads kernel memory that stands, by the way that it answers: the kernel's own text in one call where there is a
    /// /proc/kcore, everything else by a program of ours, which notices what is not mapped.
    ///
    /// # Errors
    /// Those of [`Reader::read`].
    pub fn read(&self, addr: u64, into: &mut [u8]) -> Result<Way, ReadError> {
        self.memory.read(addr, into)
    }

    /// Of the kernel's symbols those that bound its own text (`_text`, `_stext`, `_etext`) and those of text of BPF, ftrace
    /// and kprobes that is no program's, as they are now: in the order and the form of `/proc/kallsyms`, and with addresses
    /// of 0 where that has them. `None` where only `/proc/kallsyms` tells of them.
    pub fn symbols(&self) -> Option<String> {
        self.symbols.as_ref()?.read().ok().filter(|text| !text.is_empty())
    }

    fn ask(&self, request: Request) {
        // A thread that has ended answers nothing, which its caller sees.
        let _ = self.requests.send(request);
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

impl Drop for Capturer {
    fn drop(&mut self) {
        self.ask(Request::Stop);
        if let Some(thread) = self.thread.take() {
            // It has told nothing that is still of use.
            let _ = thread.join();
        }
    }
}

impl Memory {
    fn kcore(&mut self) -> Option<&mut Kcore> {
        self.kcore.as_mut().map(|kcore| kcore.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    fn locked(&self) -> Option<MutexGuard<'_, Kcore>> {
        self.kcore.as_ref().map(|kcore| kcore.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read(&self, addr: u64, into: &mut [u8]) -> Result<Way, ReadError> {
        let mut kcore = self.locked();
        let Some(reader) = &self.reader else {
            let kcore = kcore.as_mut().ok_or(ReadError::NotMapped(addr))?;
            return kcore.read(addr, into).map(|()| Way::Kcore);
        };
        let own = kcore.as_mut().filter(|kcore| kcore.is_own_text(addr, into.len()));
        if own.is_some_and(|kcore| kcore.read(addr, into).is_ok()) {
            return Ok(Way::Kcore);
        }
        let read = reader.lock().unwrap_or_else(PoisonError::into_inner).read(addr, into);
        read.map(|()| Way::Memory)
    }
}

/// Opens /proc/kcore where it is wanted, and has freed text held; whether texts are copied through it at their end.
fn open_kcore(options: &Options, ways: &mut Vec<WayState>) -> (Option<Kcore>, bool) {
    let (plain, held) = (options.wants(Way::Kcore), options.wants(Way::KcoreQc));
    if !plain && !held {
        return (None, false);
    }
    let mut kcore = Kcore::open();
    let mut say = |way, missing| ways.push(WayState { way, part: "", missing });
    if plain {
        say(Way::Kcore, kcore.as_ref().err().cloned());
    }
    if held {
        say(Way::KcoreQc, kcore.as_mut().map_or_else(|error| Some(error.clone()), |kcore| kcore.hold().err()));
    }
    // Without a hold it is a race, which is run only by those who ask for it.
    let asked = options.ways.is_some() && plain;
    let at_end = kcore.as_ref().is_ok_and(|kcore| kcore.holds() || asked);
    (kcore.ok(), at_end)
}

fn kept<T>(way: Way, started: Result<T, CaptureError>, ways: &mut Vec<WayState>) -> Option<T> {
    match started {
        Ok(started) => {
            ways.push(WayState { way, part: "", missing: None });
            Some(started)
        }
        Err(error) => {
            ways.push(WayState { way, part: "", missing: Some(error) });
            None
        }
    }
}

/// Begins to copy at the frees, by the tracepoint and at the entries of functions.
fn at_frees(options: &Options, reader: Result<&Reader, CaptureError>, ways: &mut Vec<WayState>) -> Vec<Freed> {
    let mut started = Vec::new();
    if options.wants(Way::FreeTime) {
        started.extend(kept(Way::FreeTime, reader.and_then(Freed::by_tracepoint), ways));
    }
    if options.wants(Way::Fentry) && (options.ways.is_some() || started.is_empty()) {
        started.extend(kept(Way::Fentry, Freed::by_entry(), ways));
    }
    for free in &started {
        let missing = free.missing.iter();
        ways.extend(missing.map(|(part, error)| WayState { way: free.way, part, missing: Some(error.clone()) }));
    }
    started
}

/// What the thread owns.
struct Worker {
    free: Vec<Freed>,
    /// The copies at the free are not wanted, only the news of it.
    only_tells: bool,
    loads: Option<Loads>,
    pending: Pass,
    /// Bytes of what is pending.
    bytes: usize,
    limit: usize,
    dropped: u64,
    bell: Arc<OwnedFd>,
}

impl Worker {
    fn run(mut self, requests: &Receiver<Request>) {
        loop {
            self.work();
            while let Ok(request) = requests.try_recv() {
                match request {
                    Request::Pass(answer) => {
                        let pass = self.pass();
                        // Who asked and does not listen any more has gone.
                        let _ = answer.send(pass);
                    }
                    Request::Settle => self.settle(),
                    Request::Stop => return,
                }
            }
            self.wait();
        }
    }

    /// Waits for the bell, a ring that has filled to a part, or a load.
    fn wait(&self) {
        let mut fds = vec![PollFd::new(&*self.bell, PollFlags::IN)];
        fds.extend(self.free.iter().map(|free| PollFd::from_borrowed_fd(free.fd(), PollFlags::IN)));
        let loads = self.loads.iter().flat_map(Loads::fds);
        fds.extend(loads.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        if poll(&mut fds, None).is_ok() {
            // It counts how often it was rung; that it was is enough.
            let _ = rustix::io::read(self.bell.as_fd(), &mut [0; 8]);
        } else {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Moves what there is.
    fn work(&mut self) {
        // A text is read as it comes before it is asked what has gone.
        let mut news = Pass::default();
        if let Some(loads) = &mut self.loads {
            loads.drain(&mut news);
        }
        let from = news.texts.len();
        for free in &self.free {
            free.drain(&mut news.texts);
        }
        self.tell(&mut news.texts[from..]);
        self.keep(news);
    }

    fn tell(&self, texts: &mut [Captured]) {
        for text in texts.iter_mut().filter(|_| self.only_tells) {
            (text.bytes, text.failed, text.proven) = (Vec::new(), None, false);
        }
    }

    fn keep(&mut self, mut news: Pass) {
        if news.is_empty() {
            return;
        }
        if self.bytes > self.limit {
            self.dropped += news.texts.iter().filter(|text| text.failed.is_none()).count() as u64;
            news.texts.iter_mut().for_each(drop_bytes);
            news.programs.clear();
        }
        self.bytes += news.bytes();
        self.pending.texts.append(&mut news.texts);
        self.pending.programs.append(&mut news.programs);
    }

    fn pass(&mut self) -> (Pass, Stats) {
        self.work();
        let mut rest = Pass::default();
        for free in &self.free {
            free.pass(&mut rest.texts);
        }
        self.tell(&mut rest.texts);
        self.keep(rest);
        self.bytes = 0;
        let mut stats = Stats { dropped: self.dropped, ..Stats::default() };
        for free in &self.free {
            free.stats(&mut stats);
        }
        if let Some(loads) = &self.loads {
            loads.stats(&mut stats);
        }
        (std::mem::take(&mut self.pending), stats)
    }

    /// After a grace period all that was let go before waits for no more than a worker of the kernel.
    fn settle(&mut self) {
        if self.free.is_empty() {
            return;
        }
        // Where the kernel has no such call the waiting below has to do.
        let _ = rustix::thread::membarrier(rustix::thread::MembarrierCommand::Global);
        let (start, mut last) = (Instant::now(), Instant::now());
        while last.elapsed() < QUIET && start.elapsed() < SETTLE {
            thread::sleep(Duration::from_millis(2));
            let before = self.pending.texts.len();
            self.work();
            if self.pending.texts.len() != before {
                last = Instant::now();
            }
        }
    }
}

/// Of a text that comes when too much waits already, only what it was is kept.
fn drop_bytes(text: &mut Captured) {
    if text.failed.is_none() {
        text.failed = Some("more came than is kept between two passes".into());
        text.bytes = Vec::new();
        text.proven = false;
    }
}

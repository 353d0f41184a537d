//! The capture of a recording: a thread that is woken as text comes, and the programs that copy it as it goes.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::captured::{Captured, Pass, Stats};
use super::error::{CaptureError, CaptureErrorKind, ReadError};
use super::freed::FreeTime;
use super::loads::Loads;
use super::reader::Reader;
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
    /// The ways to use; `None`: every way that works here, but copies by address only where those at the free do not
    /// work. Others than `FreeTime`, `RcuWindow` and `ById` are not the capture's.
    pub ways: Option<Vec<Way>>,
    /// Programs that are read by id in a second, at most.
    pub by_id_a_second: u32,
    /// Bytes that wait for a pass, at most; what comes beyond is dropped and counted.
    pub pending_bytes: usize,
    /// Data pages of each ring of the capture's own sideband.
    pub pages: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { ways: None, by_id_a_second: 500, pending_bytes: 64 << 20, pages: 16 }
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
    reader: Arc<Mutex<Reader>>,
    ways: Vec<WayState>,
    stats: Stats,
    thread: Option<JoinHandle<()>>,
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
    /// Begins to capture.
    ///
    /// # Errors
    /// Where no way works at all: without the right to load programs, or where none of the ways asked for works. Those
    /// that do not work beside others are told by [`Capturer::ways`].
    pub fn start(options: &Options) -> Result<Capturer, CaptureError> {
        let reader = Reader::load()?;
        let mut ways = Vec::new();
        let free = options.wants(Way::FreeTime).then(|| FreeTime::start(&reader));
        let free = free.and_then(|free| kept(Way::FreeTime, free, &mut ways));
        for (part, error) in free.iter().flat_map(|free| &free.missing) {
            ways.push(WayState { way: Way::FreeTime, part, missing: Some(error.clone()) });
        }
        let reader = Arc::new(Mutex::new(reader));
        let window = options.wants(Way::RcuWindow) && (options.ways.is_some() || free.is_none());
        let by_id = options.wants(Way::ById);
        let loads = (window || by_id)
            .then(|| Loads::open(Arc::clone(&reader), window, by_id, options.by_id_a_second, options.pages));
        let way = if by_id { Way::ById } else { Way::RcuWindow };
        let loads = loads.and_then(|loads| kept(way, loads, &mut ways));
        if window && by_id && loads.is_some() {
            ways.push(WayState { way: Way::RcuWindow, part: "", missing: None });
        }
        if free.is_none() && loads.is_none() {
            let first = ways.into_iter().find_map(|way| way.missing);
            let none = || CaptureError::new(CaptureErrorKind::Unsupported, "capture of text", "no way was asked for");
            return Err(first.unwrap_or_else(none));
        }
        let failed = |e: &dyn fmt::Display| CaptureError::new(CaptureErrorKind::System, "the capture's thread", e);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags).map_err(|e| failed(&e))?);
        let (requests, receiver) = channel();
        let worker = Worker {
            free,
            loads,
            pending: Pass::default(),
            bytes: 0,
            limit: options.pending_bytes,
            dropped: 0,
            bell: Arc::clone(&bell),
        };
        let thread = thread::Builder::new().name("afterimage-text".to_owned()).spawn(move || worker.run(&receiver));
        let thread = Some(thread.map_err(|e| failed(&e))?);
        Ok(Capturer { requests, bell, reader, ways, stats: Stats::default(), thread })
    }

    /// What works here, and why the rest does not.
    pub fn ways(&self) -> &[WayState] {
        &self.ways
    }

    /// Whether texts are copied at their free.
    pub fn sees_frees(&self) -> bool {
        self.ways.iter().any(|way| way.way == Way::FreeTime && way.part.is_empty() && way.missing.is_none())
    }

    /// Everything captured up to this call.
    pub fn pass(&mut self) -> Pass {
        let (answer, receiver) = channel();
        self.ask(Request::Pass(answer));
        match receiver.recv_timeout(ANSWER) {
            Ok((pass, stats)) => {
                self.stats = stats;
                pass
            }
            // It is no more than late: what it holds comes with the next pass.
            Err(_) => Pass::default(),
        }
    }

    /// Begins to wait for the frees that are under way: for one grace period, and as long as frees then follow each
    /// other. Returns at once; the next [`Capturer::pass`] comes after it.
    pub fn settle(&mut self) {
        self.ask(Request::Settle);
    }

    /// What was done up to the last pass.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Reads kernel memory.
    ///
    /// # Errors
    /// Those of [`Reader::read`].
    pub fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner).read(addr, into)
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

/// What the thread owns.
struct Worker {
    free: Option<FreeTime>,
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
        if let Some(free) = &self.free {
            free.drain(&mut news.texts);
        }
        self.keep(news);
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
        if let Some(free) = &self.free {
            free.pass(&mut rest.texts);
        }
        self.keep(rest);
        self.bytes = 0;
        let mut stats = Stats { dropped: self.dropped, ..Stats::default() };
        if let Some(free) = &self.free {
            free.stats(&mut stats);
        }
        if let Some(loads) = &self.loads {
            loads.stats(&mut stats);
        }
        (std::mem::take(&mut self.pending), stats)
    }

    /// After a grace period all that was let go before waits for no more than a worker of the kernel.
    fn settle(&mut self) {
        if self.free.is_none() {
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

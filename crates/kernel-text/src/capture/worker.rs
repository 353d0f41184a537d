//! The thread of the capture, and who asks it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::captured::{Captured, Pass, Stats};
use super::freed::Freed;
use super::loads::Loads;

/// How long frees may go on after a grace period before they are left alone, and how long none has to come until there are
/// none: the kernel's workers are no faster than the machine lets them.
const SETTLE: Duration = Duration::from_millis(300);
const QUIET: Duration = Duration::from_millis(20);

enum Request {
    /// The pass of this number.
    Pass(u64),
    /// Waits until what is being freed has been.
    Settle,
    Stop,
}

/// What there was up to the pass of a number.
struct Answer {
    number: u64,
    pass: Pass,
    stats: Stats,
}

/// Who asks. The thread ends when this is dropped.
pub(super) struct Asker {
    requests: Sender<Request>,
    /// Not one for each request: what is answered too late for one pass comes with the next.
    answers: Receiver<Answer>,
    bell: Arc<OwnedFd>,
    asked: u64,
    thread: Option<JoinHandle<()>>,
}

/// The other end: who answers.
pub(super) struct Line {
    requests: Receiver<Request>,
    answers: Sender<Answer>,
    bell: Arc<OwnedFd>,
}

/// What a request for a pass brought.
#[derive(Debug, Default)]
pub(super) struct Brought {
    /// What was answered since the last request.
    pub(super) pass: Pass,
    /// As of the last answer that came; none came without.
    pub(super) stats: Option<Stats>,
    /// Whether it holds everything up to this request.
    pub(super) all: bool,
    /// Whether the rest is still to come.
    pub(super) late: bool,
}

/// Both ends, and nobody who answers yet.
pub(super) fn line() -> io::Result<(Asker, Line)> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (requests, asked) = channel();
    let (answers, answered) = channel();
    let line = Line { requests: asked, answers, bell: Arc::clone(&bell) };
    Ok((Asker { requests, answers: answered, bell, asked: 0, thread: None }, line))
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Asker {
    /// Lets the worker answer, on a thread of its own.
    pub(super) fn start(&mut self, worker: Worker) -> io::Result<()> {
        let thread = thread::Builder::new().name("afterimage-text".to_owned()).spawn(move || worker.run())?;
        self.thread = Some(thread);
        Ok(())
    }

    /// Everything captured up to this call, if it is answered within that time; else what was answered until then.
    pub(super) fn pass(&mut self, within: Duration) -> Brought {
        self.asked += 1;
        self.ask(Request::Pass(self.asked));
        let (mut brought, until) = (Brought::default(), Instant::now() + within);
        while !brought.all {
            match self.answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(mut answer) => {
                    brought.pass.append(&mut answer.pass);
                    brought.stats = Some(answer.stats);
                    brought.all = answer.number == self.asked;
                }
                Err(error) => {
                    brought.late = error == RecvTimeoutError::Timeout;
                    break;
                }
            }
        }
        brought
    }

    /// Has the thread wait for the frees that are under way before it answers the next pass.
    pub(super) fn settle(&self) {
        self.ask(Request::Settle);
    }

    fn ask(&self, request: Request) {
        // A thread that has ended answers nothing, which its caller sees.
        let _ = self.requests.send(request);
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.ask(Request::Stop);
        if let Some(thread) = self.thread.take() {
            // It has told nothing that is still of use.
            let _ = thread.join();
        }
    }
}

/// What the thread owns.
pub(super) struct Worker {
    line: Line,
    free: Vec<Freed>,
    /// The copies at the free are not wanted, only the news of it.
    only_tells: bool,
    loads: Option<Loads>,
    pending: Pass,
    /// Bytes of what is pending.
    bytes: usize,
    limit: usize,
    dropped: u64,
}

impl Worker {
    /// Of these sources. Of what waits for a pass, bytes beyond `limit` are dropped.
    pub(super) fn new(line: Line, free: Vec<Freed>, only_tells: bool, loads: Option<Loads>, limit: usize) -> Worker {
        Worker { line, free, only_tells, loads, pending: Pass::default(), bytes: 0, limit, dropped: 0 }
    }

    fn run(mut self) {
        loop {
            self.work();
            while let Ok(request) = self.line.requests.try_recv() {
                match request {
                    Request::Pass(number) => {
                        let (pass, stats) = self.pass();
                        // Who asked and has gone needs nothing any more.
                        let _ = self.line.answers.send(Answer { number, pass, stats });
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
        let mut fds = vec![PollFd::new(&*self.line.bell, PollFlags::IN)];
        fds.extend(self.free.iter().map(|free| PollFd::from_borrowed_fd(free.fd(), PollFlags::IN)));
        let loads = self.loads.iter().flat_map(Loads::fds);
        fds.extend(loads.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        if poll(&mut fds, None).is_ok() {
            // It counts how often it was rung; that it was is enough.
            let _ = rustix::io::read(self.line.bell.as_fd(), &mut [0; 8]);
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
        self.tell(news.texts.get_mut(from..).unwrap_or_default());
        self.keep(news);
    }

    /// What was copied for its length alone.
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
            for text in news.texts.iter_mut().filter(|text| !text.bytes.is_empty()) {
                drop_bytes(text);
                self.dropped += 1;
            }
            news.programs.clear();
        }
        self.bytes += news.bytes();
        self.pending.append(&mut news);
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
    text.failed = Some("more came than is kept between two passes".into());
    text.bytes = Vec::new();
    text.proven = false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TextKind, Way};

    fn text(time: u64, bytes: &[u8]) -> Captured {
        let empty = super::super::loads::empty();
        let (addr, len, kind) = (0xffff_ffff_c000_0000 + time, 8, TextKind::Cbpf);
        Captured { time, addr, len, kind, way: Way::FreeTime, bytes: bytes.to_vec(), freed: true, ..empty }
    }

    #[test]
    fn what_is_answered_too_late_comes_with_the_next_pass() {
        let (mut asker, line) = line().unwrap();
        let mut worker = Worker::new(line, Vec::new(), false, None, 100);
        worker.keep(Pass { texts: vec![text(1, b"a"), text(2, b"b")], ..Pass::default() });
        // Nobody answers yet.
        let brought = asker.pass(Duration::ZERO);
        assert!(brought.pass.is_empty() && brought.stats.is_none() && brought.late && !brought.all);
        asker.start(worker).unwrap();
        let brought = asker.pass(Duration::from_secs(60));
        assert!(brought.all && !brought.late && brought.stats.is_some());
        let times: Vec<u64> = brought.pass.texts.iter().map(|text| text.time).collect();
        assert_eq!(times, [1, 2], "they were in the answer to the first request");
    }

    #[test]
    fn a_thread_that_has_ended_is_not_waited_for() {
        let (mut asker, line) = line().unwrap();
        drop(line);
        let brought = asker.pass(Duration::from_secs(60));
        assert!(!brought.all && !brought.late);
    }

    #[test]
    fn only_bytes_are_dropped_and_news_are_kept() {
        let (_asker, line) = line().unwrap();
        let mut worker = Worker::new(line, Vec::new(), false, None, 3);
        worker.keep(Pass { texts: vec![text(1, b"abcd")], ..Pass::default() });
        worker.keep(Pass { texts: vec![text(2, b"abcd"), text(3, b"")], ..Pass::default() });
        let (pass, stats) = worker.pass();
        assert_eq!(stats.dropped, 1, "the third had no bytes");
        let failed: Vec<bool> = pass.texts.iter().map(|text| text.failed.is_some()).collect();
        assert_eq!(failed, [false, true, false]);
        assert!(pass.texts[1].bytes.is_empty());
    }
}

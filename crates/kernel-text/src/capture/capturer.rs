//! The capture of a recording: the programs that copy text as it goes, a thread that is woken as text comes, and what is
//! read in kernel memory.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::captured::{Pass, Stats};
use super::error::{CaptureError, CaptureErrorKind, ReadError};
use super::freed::{Freed, MODULES};
use super::kcore::{Copied, Extent, Heard, Kcore};
use super::loads::Loads;
use super::reader::Reader;
use super::symbols::Symbols;
use super::worker::{self, Asker, Worker};
use crate::Way;

/// How long a pass waits for the thread, which only moves records and makes copies.
const ANSWER: Duration = Duration::from_secs(5);
/// What no record of the kernel tells of.
const UNTOLD: &str = "classic filters and modules";

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
    asker: Asker,
    memory: Memory,
    /// Texts are copied through /proc/kcore at their end.
    at_end: bool,
    symbols: Option<Symbols>,
    ways: Vec<WayState>,
    stats: Stats,
    /// Whether the thread answered the last pass, and if not, whether it will.
    answered: bool,
    late: bool,
    /// News of texts were lost since the last pass.
    lost: bool,
    /// Whether texts tell as they are freed.
    announced: bool,
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

impl Capturer {
    /// Begins to capture. Whoever reads rings opens them only afterwards: freed text is held from here on.
    ///
    /// # Errors
    /// Where no way works at all: without the right to load programs and to read /proc/kcore, or where none of the ways
    /// asked for works. Those that do not work beside others are told by [`Capturer::ways`].
    pub fn start(options: &Options) -> Result<Capturer, CaptureError> {
        let mut ways = Vec::new();
        let reader = Reader::load();
        let (kcore, at_end) = open_kcore(options, reader.as_ref().ok(), &mut ways);
        let of_reader = || reader.as_ref().map_err(Clone::clone);
        let mut free = at_frees(options, of_reader(), &mut ways);
        let way = if kcore.as_ref().is_some_and(Kcore::holds) { Way::KcoreQc } else { Way::Kcore };
        let only_tells = at_end && tellers(way, of_reader(), &mut free, &mut ways);
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
        let failed = |e| CaptureError::new(CaptureErrorKind::System, "the capture's thread", e);
        let (mut asker, line) = worker::line().map_err(failed)?;
        asker.start(Worker::new(line, free, only_tells, loads, options.pending_bytes)).map_err(failed)?;
        let memory = Memory { reader, kcore: kcore.map(Mutex::new) };
        let stats = Stats::default();
        let (answered, late, lost) = (true, false, false);
        Ok(Capturer { asker, memory, at_end, symbols, ways, stats, answered, late, lost, announced })
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

    /// A pass over all rings begins at this time, ns of CLOCK_MONOTONIC; none of them has been looked at.
    pub fn begin_pass(&mut self, time: u64) {
        if let Some(kcore) = self.memory.kcore() {
            kcore.begin_pass(time);
        }
    }

    /// From when on the kernel has kept what was freed, until this pass ends: since the last complete pass before it began.
    /// 0: since before anything was told of. What was freed earlier may have gone, and others be in its place.
    pub fn held_since(&self) -> u64 {
        self.memory.locked().map_or(0, |kcore| kcore.held_since())
    }

    /// Whether the answer to the last [`Capturer::pass`] is still to come: then that pass was not complete.
    pub fn is_late(&self) -> bool {
        self.late
    }

    /// Copies a text whose end a ring told of in this pass.
    ///
    /// # Errors
    /// When it is not there any more.
    pub fn copy(&mut self, addr: u64, extent: Extent) -> Result<Copied, ReadError> {
        self.memory.kcore().ok_or(ReadError::NotMapped(addr))?.copy(addr, extent)
    }

    /// By which way [`Capturer::copy`] copies, and whether the copies since it was asked last, so many, are proven, as far
    /// as that is for the kernel to keep: of texts that were freed after [`Capturer::held_since`].
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
        let lost = std::mem::take(&mut self.lost) || heard.lost;
        if let Some(kcore) = self.memory.kcore() {
            kcore.end_pass(answered, Heard { lost, ..heard });
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

    /// Everything captured up to this call. Where the thread does not answer in time, what it holds comes with the next pass.
    pub fn pass(&mut self) -> Pass {
        let brought = self.asker.pass(ANSWER);
        (self.answered, self.late) = (brought.all, brought.late);
        if let Some(stats) = brought.stats {
            self.lost |= news_lost(&self.stats, &stats);
            self.stats = stats;
        }
        brought.pass
    }

    /// Begins to wait for the frees that are under way: for one grace period, and as long as frees then follow each
    /// other. Returns at once; the next [`Capturer::pass`] comes after it.
    pub fn settle(&mut self) {
        self.asker.settle();
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
fn open_kcore(options: &Options, reader: Option<&Reader>, ways: &mut Vec<WayState>) -> (Option<Kcore>, bool) {
    let (plain, held) = (options.wants(Way::Kcore), options.wants(Way::KcoreQc));
    if !plain && !held {
        return (None, false);
    }
    let mut kcore = Kcore::open(reader);
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
        started.extend(kept(Way::FreeTime, reader.and_then(|reader| Freed::by_tracepoint(reader, false)), ways));
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

/// Sees to it that somebody tells of what no record tells of, where texts are copied at their end by this way; whether the
/// copies at the free are not wanted for it.
fn tellers(way: Way, reader: Result<&Reader, CaptureError>, free: &mut Vec<Freed>, ways: &mut Vec<WayState>) -> bool {
    // Whoever copies at the free tells, too.
    let teller = free.is_empty().then(|| reader.and_then(|reader| Freed::by_tracepoint(reader, true)));
    let only_tells = teller.is_some();
    let refused = teller.as_ref().and_then(|teller| teller.as_ref().err().cloned());
    free.extend(teller.and_then(Result::ok));
    let missing: Vec<&[_]> = free.iter().map(|free| free.missing.as_slice()).collect();
    ways.extend(untold(way, refused, &missing));
    only_tells
}

/// What goes without being told of where texts are copied at their end by this way: why nobody tells, where that was tried,
/// and what is missing of each that does.
fn untold(way: Way, refused: Option<CaptureError>, tellers: &[&[(&'static str, CaptureError)]]) -> Option<WayState> {
    let state = |part, error| Some(WayState { way, part, missing: Some(error) });
    if let Some(error) = refused {
        return state(UNTOLD, error);
    }
    let modules =
        |missing: &&[(&'static str, CaptureError)]| missing.iter().find(|(part, _)| *part == MODULES).cloned();
    let mut without = tellers.iter().map(modules);
    let first = without.next()??;
    without.all(|missing| missing.is_some()).then(|| state(MODULES, first.1)).flatten()
}

/// Whether texts were freed or came meanwhile of which nothing is told.
fn news_lost(before: &Stats, now: &Stats) -> bool {
    now.ring_full > before.ring_full || now.skipped > before.skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_tells_of_is_said() {
        let error = || CaptureError::new(CaptureErrorKind::NotPermitted, "a program", "refused");
        let [whole, without] = [vec![], vec![("trampolines", error()), (MODULES, error())]];
        let part = |refused, tellers: &[&[(&'static str, CaptureError)]]| {
            let state = untold(Way::KcoreQc, refused, tellers)?;
            assert_eq!((state.way, state.missing), (Way::KcoreQc, Some(error())));
            Some(state.part)
        };
        assert_eq!(part(Some(error()), &[]), Some("classic filters and modules"));
        assert_eq!(part(None, &[&without]), Some("modules"));
        assert_eq!(part(None, &[&without, &without]), Some("modules"));
        assert_eq!(part(None, &[&without, &whole]), None, "the other one tells");
        assert_eq!(part(None, &[&whole]), None);
        assert_eq!(part(None, &[]), None);
    }

    #[test]
    fn a_full_ring_is_a_loss_like_that_of_records() {
        let none = Stats::default();
        assert!(!news_lost(&none, &Stats { freed: 7, unreadable: 1, dropped: 2, ..none }));
        assert!(news_lost(&none, &Stats { ring_full: 1, ..none }));
        assert!(news_lost(&none, &Stats { skipped: 1, ..none }));
        let full = Stats { ring_full: 1, ..none };
        assert!(!news_lost(&full, &full), "it was told already");
    }
}

//! Kernel text as it comes and goes, without sampling and without a recording.

use std::fs;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use afterimage_kernel_text::capture::WayState;
use afterimage_perf_data::record::append_repaired;
use afterimage_perf_data::{AttrFlags, Endian, Layout};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{Options as Rings, Target};
use afterimage_perf_event::sideband::{self, Sideband};
use afterimage_perf_event::sys::{Kernel, Real};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{News, Texts};
use crate::session::may_use_bpf;
use crate::{RecordError, TextOptions};

/// Data pages of each sideband ring: 1 MiB holds what a thousand programs a second send, for some seconds.
const PAGES: usize = 256;
/// The rings wake at every fork of the machine; a pass is made no more often than this.
const SPACING: Duration = Duration::from_millis(50);
/// What is being freed makes no record when it is gone, so a pass is made at least this often.
const PASS: Duration = Duration::from_millis(500);

/// A watch over the machine's kernel text.
#[derive(Debug)]
pub struct Watch {
    texts: Texts,
    sideband: Sideband,
    layout: Layout,
    gathered: News,
    damaged: u64,
}

impl Watch {
    /// Begins to watch. What was there before is not told of, until it goes.
    ///
    /// # Errors
    /// Without CAP_BPF and CAP_PERFMON, and where nothing can be captured.
    pub fn start() -> Result<Watch, RecordError> {
        if !may_use_bpf() {
            let capability = "CAP_BPF and CAP_PERFMON";
            return Err(RecordError::Capability { what: "text watch".to_owned(), capability });
        }
        let kernel: Arc<dyn Kernel> = Arc::new(Real);
        let facts = Facts::system();
        // The capture first: then all that the sideband tells of is captured.
        let mut texts = Texts::start(Some(&TextOptions::default()));
        if !texts.is_on() {
            let source = io::Error::other(texts.absent().unwrap_or_default().to_owned());
            return Err(RecordError::System { what: "capture of kernel text", source });
        }
        let cpus = facts.online_cpus().map_err(RecordError::system("list of online CPUs"))?;
        let wanted = AttrFlags::KSYMBOL | AttrFlags::BPF_EVENT | AttrFlags::TEXT_POKE;
        let sideband = sideband::open(&kernel, &facts, &Target::Cpus(cpus), wanted, Rings { pages: PAGES })?;
        let layout = Layout::new(sideband.attr(), Endian::NATIVE);
        texts.listen(layout);
        for (tid, comm) in threads() {
            texts.threads.named(tid, comm.as_bytes());
        }
        Ok(Watch { texts, sideband, layout, gathered: News::default(), damaged: 0 })
    }

    /// Which ways of capture work here, and why the others do not.
    pub fn ways(&self) -> &[WayState] {
        self.texts.capturer.as_ref().map_or(&[], |capturer| capturer.ways())
    }

    /// What the kernel does not report of what comes and goes, a line each.
    pub fn missing(&self) -> impl Iterator<Item = &'static str> {
        self.sideband.missing.iter().map(|(_, what)| *what)
    }

    /// Returns when a pass is due, `until` has come or `stop` is set.
    ///
    /// # Errors
    /// When the rings cannot be waited for.
    pub fn wait(&self, until: Option<Instant>, stop: &AtomicBool) -> Result<(), RecordError> {
        let within = |time: Duration| match until {
            Some(until) => time.min(until.saturating_duration_since(Instant::now())),
            None => time,
        };
        thread::sleep(within(SPACING));
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let rings = self.sideband.opened.rings.iter();
        let mut fds: Vec<PollFd<'_>> = rings.map(|ring| PollFd::from_borrowed_fd(ring.fd(), PollFlags::IN)).collect();
        let timeout = Timespec::try_from(within(PASS)).unwrap_or_default();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(RecordError::System { what: "wait for kernel text", source: errno.into() }),
        }
    }

    /// What is new since the last pass: every text as it is now, with each image that it got since. Often nothing: texts
    /// are told of together, about once a second.
    pub fn pass(&mut self) -> News {
        self.drain();
        let told = self.texts.last_pass;
        let news = self.texts.news();
        self.gathered.append(news);
        if self.texts.last_pass == told {
            return News::default();
        }
        // There is no file that has it already: it is told again with the next text that it is of.
        self.texts.written.clear();
        std::mem::take(&mut self.gathered)
    }

    /// Ends the watch: waits for what is being freed, at most two seconds. Gives what is left, and a line each for what
    /// was lost.
    pub fn end(mut self) -> (News, Vec<String>) {
        self.drain();
        while self.texts.wait_for_frees() {
            self.drain();
        }
        let left = self.texts.close();
        self.gathered.append(left);
        let mut lost = self.texts.problems(0);
        let missed = self.texts.records_lost;
        if missed > 0 {
            lost.push(format!("{missed} records of what came and went were lost: the rings were full"));
        }
        if self.damaged > 0 {
            lost.push(format!("records of what came and went could not be read {} times", self.damaged));
        }
        (self.gathered, lost)
    }

    fn drain(&mut self) {
        self.texts.begin_pass();
        let heads: Vec<u64> = self.sideband.opened.rings.iter().map(|ring| ring.head()).collect();
        let mut bytes = Vec::new();
        let mut records: Vec<(u64, Range<usize>)> = Vec::new();
        for (ring, until) in self.sideband.opened.rings.iter_mut().zip(heads) {
            let drained = ring.drain(until, &mut |record| {
                let start = bytes.len();
                append_repaired(record, &self.layout, &mut bytes);
                let range = start..bytes.len();
                records.push((time(bytes.get(range.clone()).unwrap_or_default()), range));
            });
            self.damaged += u64::from(drained.is_err());
        }
        // A thread may get its name on one CPU and load a program on another.
        records.sort_by_key(|(time, _)| *time);
        records.into_iter().filter_map(|(_, range)| bytes.get(range)).for_each(|record| self.texts.learn(record));
        self.texts.pass();
        self.texts.end_pass();
    }
}

/// The time of a record of the sideband: behind it stand only the CPU and the identifier, 8 bytes each.
fn time(record: &[u8]) -> u64 {
    let from_end = record.len().checked_sub(24).and_then(|at| record.get(at..)?.first_chunk::<8>());
    from_end.map_or(0, |time| u64::from_ne_bytes(*time))
}

/// The threads that are there, with their names. Those that end meanwhile are left out.
fn threads() -> Vec<(u32, Box<str>)> {
    let numbers = |path: &str| -> Vec<u32> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    };
    let mut threads = Vec::new();
    for pid in numbers("/proc") {
        for tid in numbers(&format!("/proc/{pid}/task")) {
            if let Ok(comm) = fs::read(format!("/proc/{pid}/task/{tid}/comm")) {
                threads.push((tid, String::from_utf8_lossy(comm.trim_ascii_end()).into()));
            }
        }
    }
    threads
}

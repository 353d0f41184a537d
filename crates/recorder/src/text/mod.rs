//! Kernel text while a recording runs: its timeline, its bytes, and what of both is new at each pass.
//!
//! The timeline is fed by the records of the sideband and by the captures. What it learned in a pass goes to the journal
//! with the pass, and from there into the finished file; nothing of it stays in memory longer than rings can speak of it.

mod ended;
mod finish;
mod kernel;
mod living;
mod lost;
mod program_info;
mod rescan;
#[cfg(test)]
mod tests;
mod threads;
mod twice;
mod watch;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use afterimage_kernel_text::capture::by_id::Program;
use afterimage_kernel_text::capture::{CaptureError, Captured, Capturer, Options, Stats, WayState};
use afterimage_kernel_text::{BpfProgram, Image, KsymChange, Live, Seen, Text, TextId, TextKind, Way};
use afterimage_perf_data::features::{BpfBtf, BpfProgInfo};
use afterimage_perf_data::record::{BpfEvent, Ksymbol, RawRecord, decode, kind};
use afterimage_perf_data::{Attr, Endian, ImageId, Layout, Record, TextDesc, WayDesc};

pub(crate) use finish::{Finished, carried, fold};
pub use watch::Watch;

use ended::Ended;
use living::{Living, Read};
use rescan::Rescan;
use threads::Threads;
use twice::Twice;

/// Images that are remembered as written; a text that comes again and again is written once.
const REMEMBERED: usize = 1 << 16;
/// A free that has not been seen after so long was lost, ns.
const OVERDUE: u64 = 5_000_000_000;
/// The least time between two passes of the timeline.
const KEEP: Duration = Duration::from_millis(800);
/// Texts that the kernel holds for us from which on passes are made more often; it holds 32,768.
const MANY_HELD: u64 = 1024;
/// How long the end of a recording waits for frees that are under way.
const WAIT: Duration = Duration::from_secs(2);

/// The text of one recording.
#[derive(Debug)]
pub(crate) struct Texts {
    capturer: Option<Capturer>,
    /// Why there is no capture.
    absent: Option<String>,
    live: Live,
    /// When the timeline's last pass was, and when the rings' last passes began and ended.
    last_pass: Option<Instant>,
    pass_began: u64,
    pass_ended: u64,
    layout: Layout,
    threads: Threads,
    /// Functions of programs that were unregistered and whose free was not seen yet: address and time.
    awaited: HashMap<u64, u64>,
    /// Copies of texts whose record had not been read when they came.
    early: Vec<Captured>,
    living: Living,
    ended: Ended,
    /// Whether texts are copied at their end, and since when the kernel has kept what was freed.
    copies_at_end: bool,
    held_since: u64,
    /// The capture has not answered the last pass yet, so that was no complete one.
    late: bool,
    rescan: Rescan,
    /// Where two ways tell of each free.
    twice: Option<Twice>,
    /// Whether the sideband told of text since the last pass.
    heard: bool,
    written: HashSet<ImageId>,
    /// Proven copies of texts whose length was not known then, and how long they are.
    lengths: HashMap<TextId, Vec<(ImageId, usize)>>,
    news: News,
    /// The newest time of any record.
    now: u64,
    /// Records of the sideband that were lost.
    records_lost: u64,
    /// Since when the end waits for frees.
    waiting_since: Option<Instant>,
}

/// What a pass adds to the journal, or tells who watches.
#[derive(Debug, Default)]
pub struct News {
    /// Texts that are new or known better; a later description of a number replaces an earlier one.
    pub texts: Vec<TextDesc>,
    /// Images by their contents.
    pub images: Vec<(ImageId, Vec<u8>)>,
    /// What the kernel told of programs.
    pub programs: Vec<BpfProgInfo>,
    /// The types that programs refer to, each once.
    pub types: Vec<BpfBtf>,
}

impl News {
    /// Adds what came later.
    fn append(&mut self, mut later: News) {
        self.texts.append(&mut later.texts);
        self.images.append(&mut later.images);
        self.programs.append(&mut later.programs);
        self.types.append(&mut later.types);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.images.is_empty() && self.programs.is_empty() && self.types.is_empty()
    }
}

impl Texts {
    /// Begins to capture, where that is asked for and allowed. This comes before the sideband is opened: then all that the
    /// sideband tells of is captured.
    pub(crate) fn start(options: Option<&Options>) -> Texts {
        let (capturer, absent) = match options.map(Capturer::start) {
            Some(Ok(capturer)) => (Some(capturer), None),
            Some(Err(error)) => (None, Some(error.to_string())),
            None => (None, None),
        };
        let copies_at_end = capturer.as_ref().is_some_and(Capturer::copies_at_end);
        let twice = capturer.as_ref().is_some_and(|capturer| capturer.ways_at_frees() > 1).then(Twice::default);
        Texts {
            capturer,
            absent,
            twice,
            live: Live::new(),
            last_pass: None,
            pass_began: 0,
            pass_ended: 0,
            layout: Layout::new(&Attr::default(), Endian::NATIVE),
            threads: Threads::default(),
            awaited: HashMap::new(),
            early: Vec::new(),
            living: Living::default(),
            ended: Ended::default(),
            copies_at_end,
            held_since: 0,
            late: false,
            rescan: Rescan::default(),
            heard: false,
            written: HashSet::new(),
            lengths: HashMap::new(),
            news: News::default(),
            now: 0,
            records_lost: 0,
            waiting_since: None,
        }
    }

    /// Says how the records of the sideband look.
    pub(crate) fn listen(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// Whether anything is captured.
    pub(crate) fn is_on(&self) -> bool {
        self.capturer.is_some()
    }

    /// Why nothing is captured, where that was asked for.
    pub(crate) fn absent(&self) -> Option<&str> {
        self.absent.as_deref()
    }

    /// The ways of capture that were tried, for the recording.
    pub(crate) fn ways(&self) -> Vec<WayDesc> {
        let ways = self.capturer.iter().flat_map(|capturer| capturer.ways());
        let desc = |state: &WayState| WayDesc {
            way: state.way.key().to_owned(),
            part: Some(state.part).filter(|part| !part.is_empty()).map(str::to_owned),
            missing: state.missing.as_ref().map(ToString::to_string),
        };
        ways.map(desc).collect()
    }

    /// The ways of capture that do not work beside others, a line each.
    pub(crate) fn missing_ways(&self) -> Vec<String> {
        let ways = self.capturer.iter().flat_map(|capturer| capturer.ways());
        let missing = ways.filter_map(|state| Some((state.way, state.part, state.missing.as_ref()?)));
        let line = |(way, part, missing): (Way, &str, &CaptureError)| match part {
            "" => format!("kernel text is not copied by {way}: {missing}"),
            part => format!("kernel text is not copied by {way}, {part}: {missing}"),
        };
        missing.map(line).collect()
    }

    /// The text of `/proc/kallsyms`, or of it no less than what says where the kernel's own text is, and the lines of text
    /// that came before the recording and is no program's.
    pub(crate) fn kernel_symbols(&self) -> String {
        let by_program = self.capturer.as_ref().and_then(Capturer::symbols);
        by_program.unwrap_or_else(|| std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    /// Takes in the programs that were loaded before the recording, whose records have been made.
    pub(crate) fn loaded_before(&mut self, programs: &[Program], infos: &[BpfProgInfo], types: &[BpfBtf]) {
        if !self.is_on() {
            return;
        }
        let now = monotonic();
        for program in programs {
            let mut code = program.info.jited_prog_insns.as_slice();
            for (address, length) in program.info.jited_ksyms.iter().zip(&program.info.jited_func_lens) {
                let Some((bytes, rest)) = code.split_at_checked(*length as usize) else { break };
                code = rest;
                let hit = self.live.timeline.lookup(address.addr() as u64, now).filter(|hit| hit.offset == 0);
                if let Some(hit) = hit {
                    self.image(hit.text, bytes, now, Way::ById, true);
                }
            }
        }
        self.news.programs.extend_from_slice(infos);
        self.news.types.extend_from_slice(types);
    }

    /// Takes one record of the sideband in, or one that was made of what was there before.
    pub(crate) fn learn(&mut self, record: &[u8]) {
        let Some(of_kind) = record.first_chunk::<4>().map(|k| u32::from_ne_bytes(*k)) else { return };
        let wanted = matches!(
            of_kind,
            kind::KSYMBOL | kind::BPF_EVENT | kind::TEXT_POKE | kind::COMM | kind::FORK | kind::EXIT | kind::LOST
        );
        if !wanted || !self.is_on() {
            return;
        }
        let decoded = RawRecord::parse(record, 0, Endian::NATIVE).and_then(|raw| decode(&raw, &self.layout));
        match decoded {
            Ok(Record::Ksymbol(symbol)) => self.symbol(&symbol),
            Ok(Record::BpfEvent(event)) if event.kind == BpfEvent::LOAD => {
                let program = BpfProgram { id: event.prog_id, tag: event.tag };
                self.live.timeline.program_loaded(event.id.time.unwrap_or(0), event.id.tid.unwrap_or(0), program);
            }
            Ok(Record::TextPoke(poke)) => {
                self.live.timeline.poke(poke.id.time.unwrap_or(0), poke.addr, poke.old, poke.new)
            }
            Ok(Record::Lost(lost)) => {
                self.records_lost += lost.lost;
                self.live.timeline.lost(lost.id.time.unwrap_or(self.now));
                self.ended.lost();
                self.rescan.lost();
            }
            Ok(Record::Comm(comm)) => self.threads.named(comm.tid, comm.comm),
            Ok(Record::Fork(task)) => self.threads.forked(task.ptid, task.tid),
            Ok(Record::Exit(task)) => self.threads.ended(task.tid),
            _ => (),
        }
    }

    fn symbol(&mut self, symbol: &Ksymbol<'_>) {
        let time = symbol.id.time.unwrap_or(0);
        self.now = self.now.max(time);
        let (pid, tid) = (symbol.id.pid.unwrap_or(0), symbol.id.tid.unwrap_or(0));
        let loader = self.threads.loader(pid, tid).filter(|_| pid != 0);
        let awaited = loader.is_none() && pid != 0 && !symbol.unregister();
        let change = KsymChange::of(symbol, loader);
        self.heard = true;
        if symbol.unregister() {
            // Whatever the timeline makes of it, something is freed.
            self.ended.unregistered();
        }
        let Some(text) = self.live.timeline.apply(time, &change) else { return };
        if awaited {
            self.threads.awaits(text, pid, tid);
        }
        let kind = TextKind::of(symbol.kind, symbol.name);
        // Its end may have been read first, from the ring of another CPU.
        let gone = self.live.timeline.text(text).is_some_and(|text| text.gone.is_some());
        if gone && self.copies_at_end {
            self.ended.went(text);
        }
        if kind == TextKind::Program {
            if symbol.unregister() {
                self.awaited.insert(symbol.addr, time);
            }
        } else if !symbol.unregister() {
            self.living.came(text);
        }
    }

    /// Takes in what was captured since the last pass. The records that this pass read are in the timeline already.
    pub(crate) fn pass(&mut self) {
        let Some(capturer) = &mut self.capturer else { return };
        // No later than this one began: the last one had ended before it.
        self.pass_began = std::mem::replace(&mut self.pass_ended, monotonic());
        let mut pass = capturer.pass();
        (self.held_since, self.late) = (capturer.held_since(), capturer.is_late());
        self.threads.pass(&mut self.live.timeline);
        if !self.late {
            let confirmed = self.living.confirm(&self.live.timeline);
            confirmed.into_iter().for_each(|(text, read)| self.read(text, &read));
        }
        let early = std::mem::take(&mut self.early);
        for captured in early {
            self.captured(captured, true);
        }
        pass.texts.sort_by_key(|text| text.time);
        for captured in std::mem::take(&mut pass.texts) {
            // What was freed before somebody looked makes room for what he saw.
            self.rescan.tell(captured.time, &mut self.live.timeline);
            self.captured(captured, false);
        }
        self.rescan.tell(u64::MAX, &mut self.live.timeline);
        // Not before the frees up to here are told: what it answers has not been freed by then.
        self.rescan.ask();
        for program in pass.programs {
            self.news.programs.push(program.info);
            self.news.types.extend(program.types);
        }
        if let Some(capturer) = &self.capturer {
            self.living.read(&self.live.timeline, capturer, std::mem::take(&mut self.heard));
        }
        let now = self.now;
        self.awaited.retain(|_, time| *time + OVERDUE > now);
        self.lengths.retain(|text, _| self.live.timeline.text(*text).is_some());
        self.twice.iter_mut().for_each(|twice| twice.forget(now));
        self.copy_ended();
    }

    /// One copy. Its text may have come a moment ago, so that its record is still in a ring: then it is tried again with
    /// the next pass.
    fn captured(&mut self, captured: Captured, last_try: bool) {
        self.now = self.now.max(captured.time);
        let seen = Seen {
            addr: captured.addr,
            len: captured.len,
            name: &captured.name,
            kind: captured.kind,
            tag: captured.tag,
            id: captured.id,
            function: captured.function,
            loader: None,
        };
        let told = captured.freed || captured.came;
        let other = self.twice.as_mut().filter(|_| told).and_then(|twice| twice.other(&captured));
        let text = if other.is_some() {
            other
        } else if told {
            if captured.freed {
                self.awaited.remove(&captured.addr);
                self.live.timeline.freed(captured.time, &seen)
            } else {
                self.live.timeline.came(captured.time, &seen)
            }
        } else {
            let hit = self.live.timeline.lookup(captured.addr, captured.time).filter(|hit| hit.offset == 0);
            // Where records were lost, another text may be taken to be there.
            let text = hit.and_then(|hit| self.live.timeline.text(hit.text).map(|text| (hit.text, text)));
            text.filter(|(_, text)| is_of(&captured, text)).map(|(id, _)| id)
        };
        if let (Some(text), true, false) = (text, captured.freed, captured.derived) {
            self.ends_at(text, captured.len as usize);
        }
        if let Some(text) = text.filter(|_| told && self.copies_at_end) {
            self.ended.told(text, captured.time >= self.held_since);
        }
        if let (Some(text), Some(twice), true) = (text, &mut self.twice, told && other.is_none()) {
            twice.first(&captured, text);
        }
        match (text, &captured.failed) {
            (Some(text), None) if captured.bytes.is_empty() => {
                if captured.derived {
                    self.live.timeline.doubt(text);
                }
            }
            (Some(text), None) => {
                if captured.derived {
                    self.live.timeline.doubt(text);
                }
                self.image(text, &captured.bytes, captured.time, captured.way, captured.proven);
            }
            (Some(text), Some(reason)) => self.live.timeline.missing(text, reason),
            (None, _) if !last_try && !captured.freed => self.early.push(captured),
            (None, _) => (),
        }
    }

    /// Keeps a copy of a text that stood.
    fn read(&mut self, text: TextId, read: &Read) {
        self.image(text, &read.bytes, read.time, read.way, read.proven);
    }

    /// Its free tells how long a text is. A copy of it while it stood, up to where it seemed to end, may have been longer.
    fn ends_at(&mut self, text: TextId, length: usize) {
        let known = self.lengths.remove(&text).unwrap_or_default();
        for (image, _) in known.into_iter().filter(|(_, copied)| *copied > length && length > 0) {
            self.live.timeline.unproven(text, image);
        }
    }

    /// Keeps an image. A copy that only may be right is, when it equals one that is.
    fn image(&mut self, text: TextId, bytes: &[u8], at: u64, way: Way, proven: bool) {
        let id = ImageId::of(bytes);
        let last = self.live.timeline.text(text).and_then(|text| text.images.last().copied());
        if last.is_some_and(|last| (last.id, last.way, last.proven) == (id, way, proven)) {
            return;
        }
        let known =
            self.live.timeline.text(text).is_some_and(|text| text.images.iter().any(|i| i.id == id && i.proven));
        let proven = proven || known;
        if proven && self.live.timeline.text(text).is_some_and(|text| text.length.is_none()) {
            self.lengths.entry(text).or_default().push((id, bytes.len()));
        }
        self.live.timeline.image(text, Image { id, at, way, proven });
        if self.written.len() >= REMEMBERED {
            self.written.clear();
        }
        if self.written.insert(id) {
            self.news.images.push((id, bytes.to_vec()));
        }
    }

    /// What is new since it was asked last. A text that is let go of without an image is told once more, with the reason.
    ///
    /// Texts leave the timeline three passes of it after they went, and their frees, which end a grace period later, have
    /// to find them there: so its passes are no closer than [`KEEP`].
    pub(crate) fn news(&mut self) -> News {
        let mut news = std::mem::take(&mut self.news);
        if !self.late && self.last_pass.is_none_or(|last| last.elapsed() >= KEEP) {
            self.last_pass = Some(Instant::now());
            let passed = self.live.pass(self.pass_began);
            news.texts.extend(passed.changed);
            news.texts.extend(self.explained(passed.retired));
        }
        news
    }

    /// What is left at the end.
    pub(crate) fn close(&mut self) -> News {
        self.living.unconfirmed().into_iter().for_each(|(text, read)| self.read(text, &read));
        let mut news = std::mem::take(&mut self.news);
        let (passed, timeline) = std::mem::replace(&mut self.live, Live::new()).close();
        news.texts.extend(passed.changed);
        news.texts.extend(self.explained(timeline.describe()));
        news
    }

    /// Those of the texts that are gone and have no image, with the reason why.
    fn explained(&self, texts: Vec<TextDesc>) -> Vec<TextDesc> {
        let stats = self.stats();
        let without = texts.into_iter().filter(|t| t.gone_ns.is_some() && t.images.is_empty() && t.reason.is_none());
        let explained = without.map(|mut text| {
            text.reason = Some(lost::reason(&stats, self.copies_at_end, self.absent()));
            text
        });
        explained.collect()
    }

    /// At the end: whether to make one more pass for what is being freed, and for what stands and is not copied yet.
    /// Programs that were unregistered are waited for, at most [`WAIT`] long. Classic filters tell nobody that they go, so
    /// one grace period is always waited for.
    pub(crate) fn wait_for_frees(&mut self) -> bool {
        let Some(capturer) = self.capturer.as_mut() else { return false };
        let first = self.waiting_since.is_none();
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let frees = capturer.sees_frees() && (first || !self.awaited.is_empty());
        if frees {
            capturer.settle();
        }
        if first {
            self.living.all(&self.live.timeline);
        }
        (frees || self.living.is_busy()) && since.elapsed() < WAIT
    }

    /// A pass over all rings begins; none of them has been looked at.
    pub(crate) fn begin_pass(&mut self) {
        if let Some(capturer) = &mut self.capturer {
            capturer.begin_pass(monotonic());
        }
    }

    /// The pass has ended and is written.
    pub(crate) fn end_pass(&mut self) {
        let heard = self.ended.heard();
        if let Some(capturer) = &mut self.capturer {
            capturer.end_pass(heard);
        }
    }

    /// Whether the kernel holds so much, or will, that the next pass must not be put off.
    pub(crate) fn is_pressing(&self) -> bool {
        self.ended.is_many() || self.capturer.as_ref().is_some_and(|capturer| capturer.held() >= MANY_HELD)
    }

    /// What was not kept, a line each.
    pub(crate) fn problems(&self, functions_left_out: usize) -> Vec<String> {
        lost::lines(&self.stats(), self.copies_at_end, self.ended.late(), functions_left_out)
    }

    /// What the captures did.
    pub(crate) fn stats(&self) -> Stats {
        self.capturer.as_ref().map(Capturer::stats).unwrap_or_default()
    }
}

/// Whether a copy can be of this text: by the id, where that of both is known, else by the name or the tag, and by the
/// length that came with it. The first of several functions goes by a tag of its own or by its program's.
fn is_of(captured: &Captured, text: &Text<'_>) -> bool {
    let named = captured.name.is_empty() || captured.name == text.name.as_bytes();
    let tagged = |tag: [u8; 8]| text.name.starts_with(&format!("bpf_prog_{:016x}", u64::from_be_bytes(tag)));
    // Records that nobody knows to be lost yet may have told of another text at its place.
    let of_tag = captured.tag.is_none_or(|tag| tagged(tag) || captured.own_tag.is_some_and(tagged));
    let of_program = match (captured.id, text.program) {
        (Some(id), Some(program)) => program.id == id,
        // The same program may have stood there before, with other addresses in its code.
        (Some(_), None) if captured.functions > 1 => !text.uncertain,
        _ => true,
    };
    named && of_tag && of_program && text.length.is_none_or(|length| length == captured.len)
}

/// Nanoseconds of CLOCK_MONOTONIC, the clock of all records.
fn monotonic() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

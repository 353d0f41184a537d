//! Reading ahead: records of a file are found and put in order on a thread of their own, while those before them take effect.
//!
//! What comes out is the same, record by record, as without it. Only places and times go from one thread to the other, in
//! pieces, of which a few wait: neither the file nor what was found in it is copied, and the pages that are in use stay few.

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{Builder, available_parallelism, scope};

use afterimage_perf_data::record::kind;
use afterimage_perf_data::{Error, FileReader, FileSource, RawRecord, Records, Source};

use super::queue::{Entry, Queue};
use super::shape::Shape;
use super::{ReplayOptions, Run, Sink};
use crate::stats::ReplayStats;

/// Records that go to the other thread at once, and how many such pieces wait there.
const PIECE: usize = 8192;
const PIECES: usize = 2;

/// Rounds may be short: so many bytes of them, at least, go to the other thread at once.
const STEP: u64 = 1 << 20;

/// Shorter recordings are read before a thread has begun.
const LEAST_BYTES: u64 = 4 << 20;

/// Records whose turn it is.
struct Piece {
    entries: Vec<Entry>,
    /// When they had their turn, no record before this place waits any more.
    passed: Option<u64>,
}

/// Where events have their times.
pub(super) struct Times<'f> {
    reader: &'f FileReader<'f>,
    shapes: Vec<Shape>,
    /// Where all events have them at the same places, those places.
    all: Option<Shape>,
}

impl<'f> Times<'f> {
    pub(super) fn new(reader: &'f FileReader<'f>) -> Times<'f> {
        let shapes: Vec<Shape> = reader.events().iter().map(|event| Shape::new(&event.attr, reader.endian())).collect();
        let all = shapes.first().filter(|first| shapes.iter().all(|shape| shape.same_time(first))).copied();
        Times { reader, shapes, all }
    }

    pub(super) fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    #[inline]
    pub(super) fn of(&self, raw: &RawRecord<'_>) -> Option<u64> {
        let shape = match &self.all {
            Some(shape) => shape,
            None => self.shapes.get(self.reader.event_for(raw).unwrap_or(0))?,
        };
        if raw.header.kind == kind::SAMPLE { shape.time_of_sample(raw.bytes) } else { shape.time_of_other(raw.bytes) }
    }
}

impl Run<'_> {
    /// Whether it is of use: true counts and payloads have to be noted in the order of the file, and change with damage.
    pub(super) fn may_read_ahead(&self) -> bool {
        !self.counts
            && !self.payloads
            && self.reader.data_size() >= LEAST_BYTES
            && available_parallelism().is_ok_and(|cpus| cpus.get() > 1)
    }

    /// Reads everything, as [`Run::all`] does. `false` if there is no thread to be had: then nothing was read.
    pub(super) fn ahead<S: Sink>(
        &mut self,
        source: &mut FileSource<'_>,
        options: &ReplayOptions,
        sink: &mut S,
    ) -> bool {
        let records = source.records();
        let reader = self.reader;
        let (pieces, taken) = sync_channel(PIECES);
        let (done, empty) = channel();
        let stats = scope(|scope| {
            let mut reading = Reading::new(pieces, empty);
            let queue = Queue::new(options.max_pending);
            let builder = Builder::new().name("reading ahead".into());
            let thread = builder.spawn_scoped(scope, move || {
                let times = Times::new(reader);
                reading.all(records, &times, queue)
            });
            let thread = thread.ok()?;
            for Piece { mut entries, passed } in taken {
                self.hand_out(&entries, source, sink);
                if let Some(offset) = passed {
                    source.passed(offset);
                }
                entries.clear();
                // The reading may have ended.
                let _ = done.send(entries);
            }
            match thread.join() {
                Ok(stats) => Some(stats),
                Err(panicked) => std::panic::resume_unwind(panicked),
            }
        });
        let Some(read) = stats else { return false };
        let mine = &mut self.stats;
        (mine.records, mine.rounds, mine.kinds) = (read.records, read.rounds, read.kinds);
        (mine.damaged, mine.first_damage, mine.error) = (read.damaged, read.first_damage, read.error);
        (mine.late, mine.skipped_bytes, mine.cut_bytes) = (read.late, read.skipped_bytes, read.cut_bytes);
        mine.finished &= read.cut_bytes == 0;
        true
    }
}

/// The thread that reads.
struct Reading {
    out: SyncSender<Piece>,
    empty: Receiver<Vec<Entry>>,
    next: Vec<Entry>,
    /// When those in `next` had their turn, no record before this place waits any more.
    passed: u64,
    /// The last such place that was told.
    told: u64,
    /// Nobody takes pieces any more.
    gone: bool,
}

impl Reading {
    fn new(out: SyncSender<Piece>, empty: Receiver<Vec<Entry>>) -> Reading {
        Reading { out, empty, next: Vec::with_capacity(PIECE), passed: 0, told: 0, gone: false }
    }

    /// Reads everything, and tells what it saw of it.
    fn all(&mut self, mut records: Records<'_>, times: &Times<'_>, mut queue: Queue) -> ReplayStats {
        let mut stats = ReplayStats::default();
        // Damage is the end of the reading if no record follows it.
        let mut damage: Option<Error> = None;
        for next in records.by_ref() {
            if self.gone {
                break;
            }
            let raw = match next {
                Ok(raw) => raw,
                Err(error) => {
                    stats.add_damage(damage.replace(error));
                    continue;
                }
            };
            if damage.is_some() {
                stats.add_damage(damage.take());
            }
            stats.records += 1;
            stats.kinds.add(raw.header.kind);
            if raw.header.kind >= kind::FIRST_USER {
                if raw.header.kind == kind::FINISHED_ROUND {
                    stats.rounds += 1;
                    let ready = queue.round();
                    self.ready(&ready);
                    queue.done(ready);
                    self.round(queue.first_place().unwrap_or(raw.offset));
                }
                continue;
            }
            let entry = |time| Entry::new(time, raw.offset, raw.header.size);
            match times.of(&raw) {
                None | Some(0 | u64::MAX) => self.push(entry(0)),
                Some(time) => {
                    if queue.push(entry(time)) {
                        let ready = queue.half();
                        self.ready(&ready);
                        queue.done(ready);
                    }
                }
            }
        }
        self.ready(&queue.rest());
        self.send();
        stats.error = damage;
        stats.late = queue.late;
        (stats.skipped_bytes, stats.cut_bytes) = (records.skipped(), records.cut());
        stats
    }

    fn ready(&mut self, entries: &[Entry]) {
        for piece in entries.chunks(PIECE) {
            if self.next.len() + piece.len() > PIECE {
                self.send();
            }
            self.next.extend_from_slice(piece);
        }
    }

    #[inline]
    fn push(&mut self, entry: Entry) {
        self.next.push(entry);
        if self.next.len() >= PIECE {
            self.send();
        }
    }

    /// What could go at the end of a round did: no record before a place waits any more.
    fn round(&mut self, passed: u64) {
        self.passed = passed;
        if passed.saturating_sub(self.told) >= STEP {
            self.send();
        }
    }

    fn send(&mut self) {
        let passed = (self.passed > self.told).then_some(self.passed);
        self.told = self.passed;
        let room = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(PIECE));
        let entries = std::mem::replace(&mut self.next, room);
        self.gone |= self.out.send(Piece { entries, passed }).is_err();
    }
}

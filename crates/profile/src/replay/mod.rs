//! The records of a recording, in time order, with what the machine was like at each moment.

mod groups;
mod queue;
mod shape;
mod target;

use afterimage_perf_data::record::{Sample, cpumode, kind};
use afterimage_perf_data::{Attr, AttrFlags, EmitPayload, Error, ErrorKind, FileReader, RawRecord, Record, context};

use crate::said::Said;
use crate::sample::TimedSample;
use crate::state::State;
use crate::stats::ReplayStats;
use groups::{Groups, Turn};
use queue::{Entry, Queue};
use shape::{Fields, Shape};
use target::Targets;
pub(crate) use target::stands_apart;

/// What takes part in a replay.
pub trait Sink<'f> {
    /// A sample, at its time.
    fn sample(&mut self, state: &State, sample: &TimedSample<'f>);

    /// A sample that handlers from objects said something of; by default it is taken like any other.
    fn said(&mut self, state: &State, sample: &TimedSample<'f>, said: &[Said<'f>]) {
        let _ = said;
        self.sample(state, sample);
    }

    /// Any other kernel record, in time order, after it took effect. `time` is 0 for records made up by the recorder.
    fn record(&mut self, state: &State, time: u64, raw: &RawRecord<'f>) {
        let _ = (state, time, raw);
    }
}

/// How to replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// Most records that wait for their turn, 16 bytes each; what is kept of a handler's payload weighs as much as twelve. Only a recording without rounds, or with very long ones,
    /// comes near it; then the older half goes and records that come later than that are counted as late.
    pub max_pending: usize,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        ReplayOptions { max_pending: 32 << 20 }
    }
}

/// The end of a replay.
#[derive(Debug)]
pub struct Replayed {
    /// The machine at the end of the recording; ids and [`Loc`](crate::Loc)s from the replay refer to it.
    pub state: State,
    /// What was seen.
    pub stats: ReplayStats,
}

/// Replays a recording: every record in time order changes the state, every sample goes to `sink`.
///
/// It does not fail: what can be read is replayed, and [`ReplayStats`] says what could not.
pub fn replay<'f, S: Sink<'f>>(reader: &'f FileReader<'f>, options: &ReplayOptions, sink: &mut S) -> Replayed {
    let mut run = Run::new(reader, options);
    for raw in reader.records() {
        match raw {
            Ok(raw) => run.take(&raw, sink),
            Err(error) => {
                run.stats.error = Some(error);
                break;
            }
        }
    }
    let rest = run.queue.rest();
    run.hand_out(&rest, sink);
    for (event, raw, said) in run.groups.rest() {
        run.stands(event, &raw, &said, sink);
    }
    run.stats.late = run.queue.late;
    Replayed { state: run.state, stats: run.stats }
}

/// The event of the records about processes and kernel text, in a recording of ours: others let it share the rings of
/// samples.
fn sideband(reader: &FileReader<'_>) -> Option<usize> {
    const SOFTWARE: u32 = 1;
    const DUMMY: u64 = 9;
    let ours = reader.features().version.as_deref().is_some_and(|version| version.starts_with("afterimage"));
    let dummy = || reader.events().iter().position(|e| (e.attr.kind, e.attr.config) == (SOFTWARE, DUMMY));
    ours.then(dummy).flatten()
}

struct Run<'f> {
    reader: &'f FileReader<'f>,
    shapes: Vec<Shape>,
    /// Where all events have their times at the same places, those places.
    times: Option<Shape>,
    targets: Targets<'f>,
    counts: bool,
    /// Whether handlers from objects wrote payloads, and those that wait for their turn.
    payloads: bool,
    groups: Groups<'f>,
    /// The event whose ring holds no samples.
    sideband: Option<usize>,
    queue: Queue,
    state: State,
    /// The recorder told of the kernel's texts, so that a loss of records leaves none of them in doubt.
    known_texts: bool,
    stats: ReplayStats,
}

impl<'f> Run<'f> {
    fn new(reader: &'f FileReader<'f>, options: &ReplayOptions) -> Run<'f> {
        let shapes: Vec<Shape> = reader.events().iter().map(|event| Shape::new(&event.attr, reader.endian())).collect();
        let targets = Targets::new(reader.events(), reader.private());
        Run {
            reader,
            times: shapes.first().filter(|first| shapes.iter().all(|shape| shape.same_time(first))).copied(),
            shapes,
            counts: targets.has_counts(),
            payloads: targets.has_said(),
            groups: Groups::default(),
            sideband: sideband(reader),
            targets,
            queue: Queue::new(options.max_pending),
            state: State::new(reader.private().map_or(&[][..], |private| &private.texts)),
            known_texts: reader.private().is_some_and(|private| !private.texts.is_empty()),
            stats: ReplayStats { finished: reader.finished(), ..ReplayStats::default() },
        }
    }

    #[inline]
    fn take<S: Sink<'f>>(&mut self, raw: &RawRecord<'f>, sink: &mut S) {
        self.stats.records += 1;
        if raw.header.kind >= kind::FIRST_USER {
            if raw.header.kind == kind::FINISHED_ROUND {
                self.stats.rounds += 1;
                let ready = self.queue.round();
                self.hand_out(&ready, sink);
            }
            return;
        }
        if self.counts && raw.header.kind == kind::SAMPLE {
            if let Some(event) = self.reader.event_for(raw) {
                self.targets.note(event, self.reader.id_of(raw), raw.offset);
            }
        }
        if self.payloads && raw.header.kind == kind::SAMPLE {
            self.note(raw);
        }
        match self.time_of(raw) {
            // What the recorder made up before the recording, and what has no time, takes effect at once, as in perf.
            None | Some(0 | u64::MAX) => self.hand_out_one(0, raw, sink),
            Some(time) => {
                let full = self.queue.push(Entry::new(time, raw.offset, raw.header.size));
                if full || (self.payloads && self.queue.is_full_with(self.groups.weight())) {
                    let ready = self.queue.half();
                    self.hand_out(&ready, sink);
                }
            }
        }
    }

    #[inline]
    fn time_of(&self, raw: &RawRecord<'_>) -> Option<u64> {
        let shape = match &self.times {
            Some(shape) => shape,
            None => self.shapes.get(self.reader.event_for(raw).unwrap_or(0))?,
        };
        if raw.header.kind == kind::SAMPLE { shape.time_of_sample(raw.bytes) } else { shape.time_of_other(raw.bytes) }
    }

    fn hand_out<S: Sink<'f>>(&mut self, entries: &[Entry], sink: &mut S) {
        for entry in entries {
            let range = entry.range();
            let raw = self.reader.bytes(&range).map(|b| RawRecord::parse(b, range.start, self.reader.endian()));
            if let Some(Ok(raw)) = raw {
                self.hand_out_one(entry.time, &raw, sink);
            }
        }
    }

    #[inline]
    fn hand_out_one<S: Sink<'f>>(&mut self, time: u64, raw: &RawRecord<'f>, sink: &mut S) {
        self.state.set_time(time);
        if raw.header.kind == kind::SAMPLE {
            return self.sample(raw, sink);
        }
        match self.reader.decode(raw) {
            Ok(Record::Lost(lost)) if self.sideband.is_some() && self.reader.event_for(raw) == self.sideband => {
                self.stats.sideband_lost = self.stats.sideband_lost.saturating_add(lost.lost);
                if !self.known_texts && time != 0 {
                    self.state.kernel_records_lost(time);
                }
                sink.record(&self.state, time, raw);
            }
            Ok(record) => {
                self.state.apply(time, &record, &mut self.stats);
                sink.record(&self.state, time, raw);
            }
            Err(error) => self.undecodable(error),
        }
    }

    #[inline]
    fn sample<S: Sink<'f>>(&mut self, raw: &RawRecord<'f>, sink: &mut S) {
        let Some(event) = self.reader.event_for(raw) else {
            self.stats.unknown_event += 1;
            return;
        };
        let Some(shape) = self.shapes.get(event).copied() else { return };
        let Some(fields) = shape.fields(raw) else {
            return self.undecodable(Error::at(ErrorKind::Truncated, "sample", raw.offset));
        };
        let target = self.targets.of(event);
        if target.payload {
            let of = self.targets.said_of(event);
            if self.emitted(raw, event, target.event, &fields, sink).is_some()
                || of.is_some_and(|of| self.written(raw, event, of, fields.time, sink).is_some())
            {
                return;
            }
        }
        let cgroup = if shape.cgroup { self.cgroup(raw, event) } else { None };
        let count = if self.counts { self.targets.count(event, raw.offset) } else { 1 };
        let misc = raw.header.misc;
        let said = if self.targets.said(event) { self.claim(event, &fields, sink) } else { Vec::new() };
        let rest = Rest { count, misc, cgroup, emitted: false, said: &said };
        self.deliver(raw, event, target.event, fields, rest, sink);
    }

    /// The payload in a sample of an event that takes handlers' output, and the event that they ran on.
    fn payload(&self, raw: &RawRecord<'f>, event: usize) -> Option<(usize, &'f [u8])> {
        let of = self.targets.said_of(event)?;
        Some((of, Sample::decode(raw, self.reader.layout(event)?).ok()?.raw?))
    }

    /// A sample was read; one with a payload has to be known before its turn.
    fn note(&mut self, raw: &RawRecord<'f>) {
        let Some(event) = self.reader.event_for(raw) else { return };
        if let Some((of, payload)) = self.payload(raw, event) {
            self.groups.note(of, payload);
        }
    }

    /// The labels of an ordinary sample whose turn it is.
    fn claim<S: Sink<'f>>(&mut self, event: usize, fields: &Fields<'f>, sink: &mut S) -> Vec<Said<'f>> {
        let cpu = fields.cpu.unwrap_or(0);
        let said = self.groups.claim(event, cpu, fields.time, fields.ip);
        // Labels that waited for a sample, and it is not this one.
        if let Some((raw, said)) = self.groups.passed(event, cpu, None) {
            self.stands(event, &raw, &said, sink);
        }
        said
    }

    /// The turn of a payload of a handler from an object on `of`. `None` if it is none.
    fn written<S: Sink<'f>>(
        &mut self,
        raw: &RawRecord<'f>,
        event: usize,
        of: usize,
        written: Option<u64>,
        sink: &mut S,
    ) -> Option<()> {
        let (_, payload) = self.payload(raw, event)?;
        let (hdr, _) = groups::read(payload)?;
        if let Some((raw, said)) = self.groups.passed(of, hdr.cpu, Some((of, hdr.cpu, hdr.seq))) {
            self.stands(of, &raw, &said, sink);
        }
        if let Turn::Stands(said) = self.groups.turn(of, raw, &hdr, written)? {
            self.stands(of, raw, &said, sink);
        }
        Some(())
    }

    /// The first record of what was written of a sample goes out as a sample: of the event that takes the output, or of
    /// `of`, whose handlers wrote it, where all that there is of its samples was written by handlers.
    fn stands<S: Sink<'f>>(&mut self, of: usize, raw: &RawRecord<'f>, said: &[Said<'f>], sink: &mut S) {
        let Some(event) = self.reader.event_for(raw) else { return };
        let Some(outer) = self.shapes.get(event).and_then(|shape| shape.fields(raw)) else { return };
        let Some((hdr, _)) = self.payload(raw, event).and_then(|(_, payload)| groups::read(payload)) else { return };
        let period = self.reader.events().get(of).map_or(1, |event| period_of(&event.attr));
        let fields = Fields {
            ip: hdr.ip,
            time: if hdr.time == 0 { outer.time } else { Some(hdr.time) },
            cpu: Some(hdr.cpu),
            // Payloads carry none.
            period,
            ..outer
        };
        let misc = if hdr.ip >> 63 == 1 { cpumode::KERNEL } else { cpumode::USER };
        let target = self.targets.of(event).said;
        self.deliver(raw, event, target, fields, Rest { count: 1, misc, cgroup: None, emitted: true, said }, sink);
    }

    /// A sample whose raw data are what the `emit` handler wrote. `None` if they are another handler's.
    fn emitted<S: Sink<'f>>(
        &mut self,
        raw: &RawRecord<'f>,
        event: usize,
        target: usize,
        outer: &Fields<'f>,
        sink: &mut S,
    ) -> Option<()> {
        let layout = self.reader.layout(event)?;
        let payload = EmitPayload::decode(Sample::decode(raw, layout).ok()?.raw?).ok()?;
        let kernel = match payload.callchain.iter().next() {
            Some(context::KERNEL) => true,
            Some(context::USER) => false,
            _ => payload.hdr.ip >> 63 == 1,
        };
        let fields = Fields {
            ip: payload.hdr.ip,
            pid: payload.pid,
            tid: payload.tid,
            time: if payload.hdr.time == 0 { outer.time } else { Some(payload.hdr.time) },
            addr: None,
            cpu: Some(payload.hdr.cpu),
            period: payload.period,
            chain: payload.callchain,
        };
        let misc = if kernel { cpumode::KERNEL } else { cpumode::USER };
        let rest = Rest { count: 1, misc, cgroup: None, emitted: true, said: &[] };
        self.deliver(raw, event, target, fields, rest, sink);
        Some(())
    }

    #[inline]
    fn deliver<S: Sink<'f>>(
        &mut self,
        raw: &RawRecord<'f>,
        recorded_as: usize,
        event: usize,
        fields: Fields<'f>,
        rest: Rest<'_, 'f>,
        sink: &mut S,
    ) {
        let Some(layout) = self.reader.layout(recorded_as) else { return };
        let (thread, process, comm, space) = self.state.task(fields.pid, fields.tid);
        let sample = TimedSample {
            event,
            pid: fields.pid,
            tid: fields.tid,
            comm,
            thread,
            process,
            space,
            cpu: fields.cpu,
            time: fields.time,
            period: fields.period,
            count: rest.count,
            ip: fields.ip,
            misc: rest.misc,
            addr: fields.addr,
            cgroup: rest.cgroup,
            chain: fields.chain,
            raw: *raw,
            layout,
            emitted: rest.emitted,
        };
        self.stats.samples += 1;
        if let Some(time) = fields.time {
            self.stats.first_time = Some(self.stats.first_time.map_or(time, |first| first.min(time)));
            self.stats.last_time = Some(self.stats.last_time.map_or(time, |last| last.max(time)));
        }
        if rest.said.is_empty() {
            sink.sample(&self.state, &sample)
        } else {
            sink.said(&self.state, &sample, rest.said)
        }
    }

    fn cgroup(&self, raw: &RawRecord<'f>, event: usize) -> Option<u64> {
        Sample::decode(raw, self.reader.layout(event)?).ok()?.cgroup
    }

    #[cold]
    fn undecodable(&mut self, error: Error) {
        self.stats.undecodable += 1;
        self.stats.first_undecodable.get_or_insert(error);
    }
}

/// What a sample has beside its fields.
struct Rest<'s, 'f> {
    count: u64,
    misc: u16,
    cgroup: Option<u64>,
    emitted: bool,
    said: &'s [Said<'f>],
}

/// For how many counts a sample of an event stands that does not say so itself: the event's fixed period, or the nanoseconds
/// between two ticks of a clock; 1 where the kernel adapts the period.
fn period_of(attr: &Attr) -> u64 {
    const SOFTWARE: u32 = 1;
    // PERF_COUNT_SW_CPU_CLOCK and PERF_COUNT_SW_TASK_CLOCK.
    let clock = attr.kind == SOFTWARE && attr.config <= 1;
    let set = attr.period_or_freq.max(1);
    match (attr.flags.contains(AttrFlags::FREQ), clock) {
        (false, _) => set,
        (true, true) => (1_000_000_000 / set).max(1),
        (true, false) => 1,
    }
}

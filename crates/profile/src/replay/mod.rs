//! The records of a recording, in time order, with what the machine was like at each moment.

mod ahead;
mod groups;
mod queue;
mod reads;
mod reasons;
mod shape;
mod target;

use afterimage_perf_data::record::{Sample, cpumode, kind};
use afterimage_perf_data::{
    AnySource, Attr, AttrFlags, EmitPayload, Error, ErrorKind, FileReader, FileSource, RawRecord, Record, Source,
    context,
};

use crate::said::Said;
use crate::sample::TimedSample;
use crate::state::{Jit, State};
use crate::stats::{EventStats, ReplayStats};
use ahead::Times;
use groups::{Groups, Payload, Turn};
use queue::{Entry, Queue};
use reads::Reads;
use shape::Fields;
use target::Targets;
pub(crate) use target::stands_apart;

/// What takes part in a replay.
pub trait Sink {
    /// A sample, at its time.
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>);

    /// A sample that handlers from objects said something of; by default it is taken like any other.
    fn said(&mut self, state: &State, sample: &TimedSample<'_>, said: &[Said<'_>]) {
        let _ = said;
        self.sample(state, sample);
    }

    /// Any other kernel record, in time order, after it took effect. `time` is 0 for records made up by the recorder.
    fn record(&mut self, state: &State, time: u64, raw: &RawRecord<'_>) {
        let _ = (state, time, raw);
    }
}

/// How to replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// Most records that wait for their turn, 16 bytes each; what is kept of a handler's payload weighs as much as twelve,
    /// and its bytes. Only a recording without rounds, or with very long ones, comes near it; then the older half goes and records that come later than that are counted as late.
    pub max_pending: usize,
    /// Most bytes of a stream that are kept for records which wait for their turn. The same holds there.
    pub max_held: u64,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        ReplayOptions { max_pending: 32 << 20, max_held: 256 << 20 }
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

/// Replays a recording in memory: every record in time order changes the state, every sample goes to `sink`.
///
/// It does not fail: what can be read is replayed, and [`ReplayStats`] says what could not.
pub fn replay<S: Sink>(reader: &FileReader<'_>, options: &ReplayOptions, sink: &mut S) -> Replayed {
    Run::new(reader, options).all_of_file(&mut reader.source(), options, sink)
}

/// The same of a recording whose records come from `source`; `reader` is of its head.
pub fn replay_from<S: Sink>(
    reader: &FileReader<'_>,
    source: &mut AnySource<'_>,
    options: &ReplayOptions,
    sink: &mut S,
) -> Replayed {
    let run = Run::new(reader, options);
    let mut replayed = match source {
        AnySource::File(file) => run.all_of_file(file, options, sink),
        AnySource::Parts(parts) => run.all(parts, options, sink),
        AnySource::Stream(stream) => run.all(&mut **stream, options, sink),
    };
    (replayed.stats.told_late, replayed.stats.problems) = source.told_in_vain();
    replayed
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

/// What becomes of a record that was read.
enum Taken {
    /// It had its turn.
    Done,
    /// It waits for it.
    Waits,
    /// It waits, and there is no room for more.
    Full,
    /// It ended a round.
    Round,
}

/// Each so many records that wait, the memory that they hold is looked at: 4 MiB of the largest.
const LOOK_EACH: usize = 64;

/// Records that are brought near the CPU together: as many as it has loads under way.
const AT_ONCE: usize = 16;

struct Run<'f> {
    reader: &'f FileReader<'f>,
    times: Times<'f>,
    targets: Targets<'f>,
    counts: bool,
    /// Whether handlers from objects wrote payloads, and those that wait for their turn.
    payloads: bool,
    groups: Groups,
    reads: Reads,
    /// The event whose ring holds no samples.
    sideband: Option<usize>,
    /// The events of time off CPU, whose samples say themselves why.
    off_cpu: Vec<usize>,
    queue: Queue,
    state: State,
    /// The recorder told of the kernel's texts, so that a loss of records leaves none of them in doubt.
    known_texts: bool,
    stats: ReplayStats,
}

impl<'f> Run<'f> {
    fn new(reader: &'f FileReader<'f>, options: &ReplayOptions) -> Run<'f> {
        let mut targets = Targets::new(reader.events(), reader.private());
        Run {
            reader,
            times: Times::new(reader),
            counts: !targets.counts().is_empty(),
            payloads: targets.has_said(),
            groups: Groups::default(),
            reads: Reads::default(),
            sideband: sideband(reader),
            off_cpu: reader
                .private()
                .and_then(|private| Some(private.tally.as_ref()?.off_cpu.as_ref()?.events().collect()))
                .unwrap_or_default(),
            targets,
            queue: Queue::new(options.max_pending),
            state: State::new(reader.private().map_or(&[][..], |private| &private.texts))
                .with_jit(Jit::of(reader))
                .with_nested(reader.private().map_or(&[][..], |private| &private.nested)),
            known_texts: reader.private().is_some_and(|private| !private.texts.is_empty()),
            stats: ReplayStats {
                finished: reader.finished(),
                events: vec![EventStats::default(); reader.events().len()],
                ..ReplayStats::default()
            },
        }
    }

    /// Reads all of a file.
    fn all_of_file<S: Sink>(mut self, source: &mut FileSource<'_>, options: &ReplayOptions, sink: &mut S) -> Replayed {
        if self.may_read_ahead() && self.ahead(source, options, sink) {
            return Replayed { state: self.state, stats: self.stats };
        }
        self.all(source, options, sink)
    }

    /// Reads everything.
    fn all<Src: Source, S: Sink>(mut self, source: &mut Src, options: &ReplayOptions, sink: &mut S) -> Replayed {
        // Damage is the end of the reading if no record follows it.
        let mut damage: Option<Error> = None;
        let rounds = source.has_rounds();
        while let Some(next) = source.next_record() {
            let (offset, taken) = match next {
                Ok(raw) => (raw.offset, self.take(&raw, sink)),
                Err(error) => {
                    self.stats.add_damage(damage.replace(error));
                    self.recount();
                    continue;
                }
            };
            if damage.is_some() {
                self.stats.add_damage(damage.take());
            }
            match taken {
                Taken::Waits if self.queue.len() % LOOK_EACH != 0 || source.held_bytes() <= options.max_held => {}
                Taken::Waits | Taken::Full => loop {
                    let ready = self.queue.half();
                    self.hand_out(&ready, source, sink);
                    self.queue.done(ready);
                    if self.queue.len() == 0 || source.held_bytes() <= options.max_held {
                        break;
                    }
                },
                Taken::Done => source.release(offset),
                Taken::Round => {
                    source.release(offset);
                    if rounds {
                        let ready = self.queue.round();
                        self.hand_out(&ready, source, sink);
                        self.queue.done(ready);
                        source.passed(self.queue.first_place().unwrap_or(offset));
                    }
                }
            }
        }
        let rest = self.queue.rest();
        self.hand_out(&rest, source, sink);
        for (event, kept, said) in self.groups.rest() {
            self.stands(event, &kept.raw(), &said, sink);
        }
        let packed = source.packed_counts();
        self.stats.records += packed.first + packed.second;
        self.stats.kinds.add_many(kind::COMPRESSED, packed.first);
        self.stats.kinds.add_many(kind::COMPRESSED2, packed.second);
        self.stats.error = damage;
        self.stats.late = self.queue.late;
        self.stats.skipped_bytes = source.skipped();
        self.stats.cut_bytes = source.cut();
        self.stats.finished &= self.stats.cut_bytes == 0;
        Replayed { state: self.state, stats: self.stats }
    }

    /// Damage may have taken samples: the true counts of those behind it have other places.
    #[cold]
    fn recount(&mut self) {
        if self.counts {
            self.targets.counts().settle(self.reader);
        }
    }

    #[inline]
    fn take<S: Sink>(&mut self, raw: &RawRecord<'_>, sink: &mut S) -> Taken {
        self.stats.records += 1;
        self.stats.kinds.add(raw.header.kind);
        if raw.header.kind >= kind::FIRST_USER {
            if raw.header.kind == kind::FINISHED_ROUND {
                self.stats.rounds += 1;
                return Taken::Round;
            }
            return Taken::Done;
        }
        if self.counts && raw.header.kind == kind::SAMPLE && !self.targets.counts().note(self.reader, raw) {
            self.recount();
        }
        if self.payloads && raw.header.kind == kind::SAMPLE {
            self.note(raw);
        }
        match self.times.of(raw) {
            // What the recorder made up before the recording, and what has no time, takes effect at once, as in perf.
            None | Some(0 | u64::MAX) => {
                self.hand_out_one(0, raw, sink);
                Taken::Done
            }
            Some(time) => {
                let full = self.queue.push(Entry::new(time, raw.offset, raw.header.size));
                match full || (self.payloads && self.queue.is_full_with(self.groups.weight())) {
                    true => Taken::Full,
                    false => Taken::Waits,
                }
            }
        }
    }

    fn hand_out<Src: Source, S: Sink>(&mut self, entries: &[Entry], source: &mut Src, sink: &mut S) {
        for few in entries.chunks(AT_ONCE) {
            source.come_next(few.iter().map(|entry| entry.place()));
            for entry in few {
                let (offset, size) = entry.place();
                if let Some(raw) = source.record_at(offset, size) {
                    self.hand_out_one(entry.time, &raw, sink);
                }
                source.release(offset);
            }
        }
    }

    #[inline]
    fn hand_out_one<S: Sink>(&mut self, time: u64, raw: &RawRecord<'_>, sink: &mut S) {
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
                if let Record::LostSamples(lost) = &record {
                    let event = self.reader.event_for(raw).unwrap_or(0);
                    if let Some(stats) = self.stats.events.get_mut(event) {
                        stats.lost_samples = stats.lost_samples.saturating_add(lost.lost);
                    }
                }
                self.state.apply(time, &record, &mut self.stats);
                sink.record(&self.state, time, raw);
            }
            Err(error) => self.undecodable(error),
        }
    }

    #[inline]
    fn sample<S: Sink>(&mut self, raw: &RawRecord<'_>, sink: &mut S) {
        let Some(event) = self.reader.event_for(raw) else {
            self.stats.unknown_event += 1;
            return;
        };
        let Some(shape) = self.times.shapes().get(event) else { return };
        let (fields, has_read, has_cgroup) = (shape.fields(raw), shape.has_read(), shape.cgroup);
        if let (true, Some(fields)) = (has_read, &fields) {
            return self.counted(raw, event, *fields, sink);
        }
        if let Some(stats) = self.stats.events.get_mut(event) {
            stats.samples += 1;
        }
        let Some(fields) = fields else {
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
        let cgroup = if has_cgroup { self.cgroup(raw, event) } else { None };
        let count = if self.counts { self.targets.count(event, raw.offset) } else { Some(1) };
        self.stats.unknown_count += u64::from(count.is_none());
        let count = count.unwrap_or(1);
        let misc = raw.header.misc;
        if self.off_cpu.contains(&event) {
            let payloads = self.reader.layout(event).and_then(|layout| Sample::decode(raw, layout).ok()?.raw);
            let said = &reasons::read(payloads.unwrap_or_default());
            let rest = Rest { count, misc, cgroup, emitted: false, said };
            return self.deliver(raw, event, event, fields, rest, sink);
        }
        let said = if self.targets.said(event) { self.claim(event, &fields, sink) } else { Vec::new() };
        let said = read_all(&said);
        let rest = Rest { count, misc, cgroup, emitted: false, said: &said };
        self.deliver(raw, event, target.event, fields, rest, sink);
    }

    /// A sample with counter values stands for each event whose counter went on since it was read last, with a period of as
    /// much, and for no other: as in perf (`deliver_sample_value`, tools/perf/util/session.c).
    #[cold]
    fn counted<S: Sink>(&mut self, raw: &RawRecord<'_>, event: usize, fields: Fields<'_>, sink: &mut S) {
        let reader = self.reader;
        let Some(layout) = reader.layout(event) else { return };
        let (values, cgroup) = match Sample::decode(raw, layout) {
            Ok(Sample { read: Some(values), cgroup, .. }) => (values, cgroup),
            Ok(_) => return,
            Err(error) => return self.undecodable(error),
        };
        let inherited = reader.events().get(event).is_some_and(|e| e.attr.flags.contains(AttrFlags::INHERIT));
        let thread = if inherited { fields.tid } else { 0 };
        for value in values.iter() {
            // Without ids the values are those of the event alone.
            let of = value.id.map_or(Some(event), |id| reader.table().index_of(id));
            let Some(of) = of else {
                self.stats.unknown_event += 1;
                continue;
            };
            let id = value.id.or_else(|| reader.id_of(raw)).unwrap_or(0);
            let period = self.reads.step(id, thread, value.value);
            if period == 0 {
                continue;
            }
            if let Some(stats) = self.stats.events.get_mut(of) {
                stats.samples += 1;
            }
            let rest = Rest { count: 1, misc: raw.header.misc, cgroup, emitted: false, said: &[] };
            self.deliver(raw, event, of, Fields { period, ..fields }, rest, sink);
        }
    }

    /// The payload in a sample of an event that takes handlers' output, and the event that they ran on.
    fn payload<'r>(&self, raw: &RawRecord<'r>, event: usize) -> Option<(usize, &'r [u8])> {
        let of = self.targets.said_of(event)?;
        Some((of, Sample::decode(raw, self.reader.layout(event)?).ok()?.raw?))
    }

    /// A sample was read; one with a payload has to be known before its turn.
    fn note(&mut self, raw: &RawRecord<'_>) {
        let Some(event) = self.reader.event_for(raw) else { return };
        if let Some((of, payload)) = self.payload(raw, event) {
            self.groups.note(of, payload);
        }
    }

    /// The labels of an ordinary sample whose turn it is.
    fn claim<S: Sink>(&mut self, event: usize, fields: &Fields<'_>, sink: &mut S) -> Vec<Payload> {
        let cpu = fields.cpu.unwrap_or(0);
        let said = self.groups.claim(event, cpu, fields.time, fields.ip);
        // Labels that waited for a sample, and it is not this one.
        if let Some((kept, said)) = self.groups.passed(event, cpu, None) {
            self.stands(event, &kept.raw(), &said, sink);
        }
        said
    }

    /// The turn of a payload of a handler from an object on `of`. `None` if it is none.
    fn written<S: Sink>(
        &mut self,
        raw: &RawRecord<'_>,
        event: usize,
        of: usize,
        written: Option<u64>,
        sink: &mut S,
    ) -> Option<()> {
        let (_, payload) = self.payload(raw, event)?;
        let (hdr, _) = groups::read(payload)?;
        if let Some((kept, said)) = self.groups.passed(of, hdr.cpu, Some((of, hdr.cpu, hdr.seq))) {
            self.stands(of, &kept.raw(), &said, sink);
        }
        if let Turn::Stands(said) = self.groups.turn(of, raw, &hdr, written)? {
            self.stands(of, raw, &said, sink);
        }
        Some(())
    }

    /// The first record of what was written of a sample goes out as a sample: of the event that takes the output, or of
    /// `of`, whose handlers wrote it, where all that there is of its samples was written by handlers.
    fn stands<S: Sink>(&mut self, of: usize, raw: &RawRecord<'_>, said: &[Payload], sink: &mut S) {
        let Some(event) = self.reader.event_for(raw) else { return };
        let Some(outer) = self.times.shapes().get(event).and_then(|shape| shape.fields(raw)) else { return };
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
        let said = &read_all(said);
        self.deliver(raw, event, target, fields, Rest { count: 1, misc, cgroup: None, emitted: true, said }, sink);
    }

    /// A sample whose raw data are what the `emit` handler wrote. `None` if they are another handler's.
    fn emitted<S: Sink>(
        &mut self,
        raw: &RawRecord<'_>,
        event: usize,
        target: usize,
        outer: &Fields<'_>,
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
    fn deliver<S: Sink>(
        &mut self,
        raw: &RawRecord<'_>,
        recorded_as: usize,
        event: usize,
        fields: Fields<'_>,
        rest: Rest<'_>,
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
            stack_end: None,
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

    fn cgroup(&self, raw: &RawRecord<'_>, event: usize) -> Option<u64> {
        Sample::decode(raw, self.reader.layout(event)?).ok()?.cgroup
    }

    #[cold]
    fn undecodable(&mut self, error: Error) {
        self.stats.undecodable += 1;
        self.stats.first_undecodable.get_or_insert(error);
    }
}

/// What a sample has beside its fields.
struct Rest<'s> {
    count: u64,
    misc: u16,
    cgroup: Option<u64>,
    emitted: bool,
    said: &'s [Said<'s>],
}

/// What handlers said, read from what they wrote.
fn read_all(payloads: &[Payload]) -> Vec<Said<'_>> {
    payloads.iter().filter_map(|payload| Some(groups::read(payload)?.1)).collect()
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

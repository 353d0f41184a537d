//! Values and labels of handlers from objects, and the samples that they are of.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;
#[path = "../../perf-data/tests/common/types.rs"]
#[allow(dead_code, unreachable_pub, reason = "made for another crate's tests")]
mod types;

use afterimage_perf_data::record::{Record, Sample, cpumode};
use afterimage_perf_data::{
    AiHdr, EmitPayload, EventDesc, EventTally, Features, FileReader, HandlerDesc, HandlerTypes, LabelPayload, Private,
    RecordingTally, Tally, ValuePayload,
};
use afterimage_profile::{
    AggregateOptions, Key, ReplayOptions, ResolveOptions, Resolver, Said, SaidTypes, Sink, SortKey, State, TimedSample,
    aggregate, replay,
};
use proptest::prelude::*;

use common::{Recording, attr, bpf_output, event};
use types::{Builder, SIGNED};

/// Types: 1 an int, 2 char, 3 char[8].
fn handler_types() -> Vec<u8> {
    let mut b = Builder::new(false);
    b.int("int", 4, SIGNED);
    let chr = b.int("char", 1, SIGNED);
    b.array(chr, 8);
    b.finish()
}

const TEXT: u32 = 3;
const CPU: u32 = 1;

fn hdr(kind: u16, time: u64, ip: u64, seq: u64) -> AiHdr {
    AiHdr { version: 1, kind, handler: 16, cpu: CPU, time, ip, seq, ..AiHdr::default() }
}

/// A recording of one event, whose handler writes into the second.
struct Made(Recording);

impl Made {
    fn new() -> Made {
        let frequency = EventDesc { attr: attr(), ids: vec![1], name: "cpu-clock".into() };
        Made(Recording::of(vec![frequency, event(bpf_output(), 2, "cpu-clock/mine")]))
    }

    fn sample(&mut self, time: u64, ip: u64) -> &mut Made {
        self.0.sample(time, 5, ip);
        self
    }

    fn round(&mut self) -> &mut Made {
        self.0.round();
        self
    }

    /// Written at `at` of the sample at `time`.
    fn raw(&mut self, at: u64, payload: &[u8]) -> &mut Made {
        let sample = Sample {
            identifier: Some(2),
            ip: Some(0),
            pid: Some(5),
            tid: Some(6),
            time: Some(at),
            cpu: Some(CPU),
            misc: cpumode::KERNEL,
            raw: Some(payload),
            ..Sample::default()
        };
        self.0.record(1, &Record::Sample(sample));
        self
    }

    fn value(&mut self, at: u64, hdr: AiHdr, number: i32) -> &mut Made {
        let mut payload = Vec::new();
        ValuePayload { hdr: AiHdr { kind: AiHdr::VALUE, ..hdr }, type_id: 1, bytes: &number.to_le_bytes() }
            .encode(&mut payload);
        self.raw(at, &payload)
    }

    fn label(&mut self, at: u64, hdr: AiHdr, key: &str, text: &str) -> &mut Made {
        let mut payload = Vec::new();
        LabelPayload { hdr, type_id: TEXT, key: key.as_bytes(), bytes: text.as_bytes() }.encode(&mut payload);
        self.raw(at, &payload)
    }

    /// `chained`: how many samples the tally says went to the sampling ring.
    fn finish(self, chained: u64) -> Vec<u8> {
        self.finish_after(chained, &[])
    }

    /// After handlers that ran before.
    fn finish_after(self, chained: u64, before: &[HandlerDesc]) -> Vec<u8> {
        let handler = HandlerDesc {
            name: "mine".into(),
            chain: true,
            output_event: Some(1),
            id: 16,
            program: Some("mine".into()),
            object: Some("mine.bpf.o".into()),
            ..HandlerDesc::default()
        };
        let tally = Tally { chained, ..Tally::default() };
        let private = Private {
            tally: Some(RecordingTally {
                events: vec![EventTally::new("cpu-clock", vec![(1, tally)])],
                complete: true,
                off_cpu: None,
            }),
            handlers: [before, &[handler]].concat(),
            handler_types: vec![HandlerTypes { handler: 16, btf: handler_types() }],
            ..Private::default()
        };
        self.0.finish_with(&Features::default(), Some(&private))
    }
}

/// Each sample as `EVENT@TIME ip what was said`.
struct Told<'f>(SaidTypes<'f>, Vec<String>);

impl Sink for Told<'_> {
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>) {
        self.said(state, sample, &[]);
    }

    fn said(&mut self, _: &State, s: &TimedSample<'_>, said: &[Said<'_>]) {
        let mut line = format!("{}@{} {:#x}", s.event, s.time.unwrap_or(0), s.ip);
        for one in said {
            let value = self.0.read(one).map_or_else(|reason| format!("<{reason}>"), |value| value.bare());
            line += &one.name().map_or_else(|| format!(" {value}"), |name| format!(" {name}={value}"));
        }
        self.1.push(line);
    }
}

fn told(bytes: &[u8]) -> Vec<String> {
    let reader = FileReader::open(bytes).unwrap();
    let mut sink = Told(SaidTypes::new(reader.private()), Vec::new());
    let stats = replay(&reader, &ReplayOptions::default(), &mut sink).stats;
    assert!(stats.error.is_none());
    assert_eq!(stats.samples, sink.1.len() as u64);
    sink.1
}

#[test]
fn a_label_belongs_to_the_sample_of_its_time() {
    let [a, b, c] = [10, 20, 30].map(|time| hdr(AiHdr::LABEL, time, 0x1000, time / 10));
    let expected = ["0@10 0x1000 tier=gold depth=3", "0@20 0x1000", "0@30 0x1000 tier=tin"];
    // Whatever ring was drained first.
    let mut made = Made::new();
    made.sample(10, 0x1000).sample(20, 0x1000).sample(30, 0x1000);
    made.label(11, a, "tier", "gold").label(12, a, "depth", "3").label(31, c, "tier", "tin").round();
    assert_eq!(told(&made.finish(3)), expected);
    let mut made = Made::new();
    made.label(11, a, "tier", "gold").label(12, a, "depth", "3").label(31, c, "tier", "tin");
    made.sample(10, 0x1000).sample(20, 0x1000).sample(30, 0x1000).round();
    assert_eq!(told(&made.finish(3)), expected);
    // In the next round, even a part of it.
    let mut made = Made::new();
    made.sample(10, 0x1000).label(11, a, "tier", "gold").round();
    made.label(12, a, "depth", "3").sample(20, 0x1000).round();
    made.sample(30, 0x1000).round().label(31, c, "tier", "tin").round();
    assert_eq!(told(&made.finish(3)), expected);
    // Of another sample on that CPU, and of one that was dropped.
    let mut made = Made::new();
    made.sample(10, 0x1000).label(21, b, "tier", "tin").sample(30, 0x1000).round();
    assert_eq!(told(&made.finish(2)), ["0@10 0x1000", "1@20 0x1000 tier=tin", "0@30 0x1000"]);
}

#[test]
fn another_cpu_or_number_is_another_sample() {
    let here = hdr(AiHdr::LABEL, 10, 0x1000, 1);
    let mut made = Made::new();
    made.sample(10, 0x1000);
    made.label(11, AiHdr { cpu: 0, ..here }, "cpu", "0").label(11, here, "cpu", "1").round();
    assert_eq!(told(&made.finish(1)), ["0@10 0x1000 cpu=1", "1@10 0x1000 cpu=0"]);
}

#[test]
fn all_values_of_one_sample_are_one() {
    let [a, b] = [10, 20].map(|time| hdr(AiHdr::LABEL, time, 0x1000, time / 10));
    let write = |made: &mut Made| {
        made.value(11, a, -7).value(12, a, 8).label(13, a, "tier", "gold").value(21, b, 9).round();
    };
    // Nothing was chained: what was written stands for the samples.
    let mut made = Made::new();
    write(&mut made);
    assert_eq!(told(&made.finish(0)), ["0@10 0x1000 -7 8 tier=gold", "0@20 0x1000 9"]);
    // The first was chained, too: there it has its label, and beside it is what was written.
    let mut made = Made::new();
    made.sample(10, 0x1000);
    write(&mut made);
    let expected = ["0@10 0x1000 tier=gold", "1@10 0x1000 -7 8 tier=gold", "1@20 0x1000 9"];
    assert_eq!(told(&made.finish(1)), expected);
}

/// Before 6.2 the sample gets its time after the handler has run, and the handler knows none.
#[test]
fn without_a_time_the_address_and_the_order_tell() {
    let [a, b, c, d] = [1, 2, 3, 4].map(|seq| hdr(AiHdr::LABEL, 0, 0x1000 * seq, seq));
    let mut made = Made::new();
    // a: chained. b: dropped. c: dropped, and the next sample has another address. d: the last, dropped.
    made.label(11, a, "n", "1").label(12, a, "m", "1").label(21, b, "n", "2").label(31, c, "n", "3");
    made.label(51, d, "n", "4");
    made.sample(15, 0x1000).sample(41, 0x9000).round();
    let expected = ["0@15 0x1000 n=1 m=1", "1@21 0x2000 n=2", "0@41 0x9000", "1@31 0x3000 n=3", "1@51 0x4000 n=4"];
    let mut told = told(&made.finish(2));
    told[2..4].sort();
    assert_eq!(told, expected);
}

#[test]
fn what_cannot_be_read_has_a_reason() {
    let here = hdr(AiHdr::VALUE, 10, 0x1000, 1);
    let mut made = Made::new();
    let payload = |hdr: AiHdr, type_id, bytes: &[u8]| {
        let mut payload = Vec::new();
        ValuePayload { hdr, type_id, bytes }.encode(&mut payload);
        payload
    };
    made.raw(11, &payload(here, 1, &[1, 2])).raw(12, &payload(here, 77, &[1]));
    made.raw(13, &payload(AiHdr { handler: 17, ..here }, 1, &[1; 4]));
    // It says that it is longer than it is.
    let whole = payload(here, 1, &[1; 8]);
    made.raw(14, &whole[..52]);
    // Not even a header, a kind that is not known, and a header alone.
    made.raw(20, &[1, 0, 0]).raw(21, &payload(AiHdr { kind: 9, seq: 2, ..here }, 1, &[1; 4]));
    made.raw(22, &payload(AiHdr { seq: 3, time: 22, ..here }, 1, &[])[..40]).round();
    let expected = [
        concat!(
            "0@10 0x1000 <2 of the type's 4 bytes> <the handler has no type 77> ",
            "<the recording has no types of the handler> <the record is damaged>"
        ),
        "0@20 0x0",
        "0@21 0x0",
        "0@22 0x1000 <the record is damaged>",
    ];
    assert_eq!(told(&made.finish(0)), expected);
}

/// `emit` wrote for samples that it took; then a handler from an object chained, and wrote beside the samples.
#[test]
fn built_in_and_own_handlers_one_after_the_other() {
    let mut made = Made::new();
    let mut payload = Vec::new();
    let emit = AiHdr { handler: 1, ..hdr(AiHdr::EMIT, 10, 0x1000, 1) };
    EmitPayload { hdr: emit, pid: 5, tid: 5, period: 9, ..EmitPayload::default() }.encode(&mut payload);
    made.raw(11, &payload).sample(20, 0x2000).value(21, hdr(AiHdr::VALUE, 20, 0x2000, 2), 3);
    let emit = HandlerDesc { name: "emit".into(), id: 1, output_event: Some(1), ..HandlerDesc::default() };
    let bytes = made.finish_after(1, &[emit]);
    assert_eq!(told(&bytes), ["0@10 0x1000", "0@20 0x2000", "1@20 0x2000 3"]);
}

fn rows(bytes: &[u8], sort: &[SortKey], labels: &[&str]) -> Vec<String> {
    let reader = FileReader::open(bytes).unwrap();
    let mut resolver = Resolver::new(&reader, ResolveOptions::default());
    let options = AggregateOptions {
        sort: sort.to_vec(),
        labels: labels.iter().map(|name| (*name).to_owned()).collect(),
        ..AggregateOptions::default()
    };
    let profile = aggregate(&reader, &options, &mut resolver);
    let mut told = Vec::new();
    for (nth, event) in profile.events.iter().enumerate() {
        for row in profile.rows(nth) {
            let keys = row.keys.iter().map(|key| match key {
                Key::Label(name, value) => format!("{name}={}", value.as_ref().map_or("(none)", |value| &value.text)),
                Key::Cpu(cpu) => format!("cpu{}", cpu.unwrap()),
                key => panic!("{key:?}"),
            });
            told.push(format!("{} {} {}", event.name, row.own.samples, keys.collect::<Vec<_>>().join(" ")));
        }
    }
    told
}

#[test]
fn rows_by_label() {
    let mut made = Made::new();
    for (nth, tier, depth) in [(1, "gold", "1"), (2, "gold", "2"), (3, "tin", ""), (4, "", ""), (5, "gold", "1")] {
        made.sample(nth * 10, 0x1000);
        let hdr = hdr(AiHdr::LABEL, nth * 10, 0x1000, nth);
        for (name, value) in [("tier", tier), ("depth", depth)].iter().filter(|(_, value)| !value.is_empty()) {
            made.label(nth * 10 + 1, hdr, name, value);
        }
    }
    // Another type, the same text; a value beside it counts as what it is.
    made.value(61, hdr(AiHdr::VALUE, 60, 0x1000, 6), 4);
    let bytes = made.finish(5);
    let tier = SortKey::Label(0);
    assert_eq!(
        rows(&bytes, &[tier], &["tier"]),
        ["cpu-clock 3 tier=gold", "cpu-clock 1 tier=tin", "cpu-clock 1 tier=(none)", "cpu-clock/mine 1 tier=(none)"]
    );
    assert_eq!(
        rows(&bytes, &[SortKey::Label(1), SortKey::Cpu, tier], &["tier", "depth"]),
        [
            "cpu-clock 2 depth=1 cpu1 tier=gold",
            "cpu-clock 1 depth=2 cpu1 tier=gold",
            "cpu-clock 1 depth=(none) cpu1 tier=tin",
            "cpu-clock 1 depth=(none) cpu1 tier=(none)",
            "cpu-clock/mine 1 depth=(none) cpu1 tier=(none)"
        ]
    );
}

fn mixture() -> Vec<u8> {
    let mut made = Made::new();
    for nth in 1..6 {
        let hdr = hdr(AiHdr::LABEL, if nth % 2 == 0 { 0 } else { nth * 10 }, 0x1000, nth);
        made.sample(nth * 10, 0x1000).label(nth * 10 + 1, hdr, "tier", "gold").value(nth * 10 + 2, hdr, 3);
        made.round();
    }
    made.finish(5)
}

proptest! {
    #[test]
    fn any_bytes(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20)) {
        let mut bytes = mixture();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let Ok(reader) = FileReader::open(&bytes) else { return Ok(()) };
        let mut sink = Told(SaidTypes::new(reader.private()), Vec::new());
        struct Count<'s, 'f>(&'s mut Told<'f>, u64);
        impl Sink for Count<'_, '_> {
            fn sample(&mut self, _: &State, _: &TimedSample<'_>) {
                self.1 += 1;
            }
            fn said(&mut self, state: &State, sample: &TimedSample<'_>, said: &[Said<'_>]) {
                self.0.said(state, sample, said);
                self.1 += 1;
            }
        }
        let mut count = Count(&mut sink, 0);
        let stats = replay(&reader, &ReplayOptions::default(), &mut count).stats;
        prop_assert_eq!(count.1, stats.samples);
    }
}

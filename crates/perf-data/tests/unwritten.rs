//! A recording that was not finished, and a journal that knows of more samples than it holds.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::io::Cursor;

use afterimage_perf_data::record::{Record, Sample};
use afterimage_perf_data::tally::{Flow, MapFlow};
use afterimage_perf_data::{
    Endian, EventTally, FileReader, FileWriter, HandlerDesc, Layout, RecordingTally, Tally, journal,
};

/// Samples of the first event: so many on CPU 0 and on CPU 1. Of the second, so many on CPU 0.
fn unfinished(first: [usize; 2], second: usize) -> Vec<u8> {
    let events = common::events();
    let layout = Layout::new(&events[0].attr, Endian::Little);
    let mut writer = FileWriter::create(Cursor::new(Vec::new()), &events).unwrap();
    for (id, cpu, samples) in [(11, 0, first[0]), (12, 1, first[1]), (21, 0, second)] {
        for _ in 0..samples {
            let sample = Sample { identifier: Some(id), cpu: Some(cpu), ..Sample::default() };
            writer.record(&Record::Sample(sample), &layout).unwrap();
        }
    }
    writer.finished_round().unwrap();
    writer.checkpoint().unwrap();
    let mut bytes = writer.finish(&common::features(), None).unwrap().into_inner();
    bytes[72..104].fill(0);
    bytes
}

fn handler(name: &str, chain: bool, output_event: Option<usize>) -> HandlerDesc {
    HandlerDesc { name: name.to_owned(), chain, output_event, ..HandlerDesc::default() }
}

/// The tally that a reader of the file shows, of the first event.
fn shown(file: &[u8], handler: HandlerDesc, counts: &[(usize, &[u64])], per_cpu: [Tally; 2]) -> EventTally {
    shown_of(file, &[handler], counts, per_cpu)
}

fn shown_of(file: &[u8], handlers: &[HandlerDesc], counts: &[(usize, &[u64])], per_cpu: [Tally; 2]) -> EventTally {
    let mut journal = journal::Writer::create(Cursor::new(Vec::new())).unwrap();
    journal.handlers(handlers).unwrap();
    counts.iter().for_each(|(event, counts)| journal.true_counts(*event, counts).unwrap());
    let [zero, one] = per_cpu;
    let event = EventTally::new("clock", vec![(0, zero), (1, one)]);
    journal.tally(&RecordingTally { events: vec![event], ..RecordingTally::default() }).unwrap();
    let mut reader = FileReader::open(file).unwrap();
    assert!(!reader.finished());
    reader.use_journal(&journal.into_inner().into_inner()).unwrap();
    let tally = reader.private().unwrap().tally.clone().unwrap();
    assert_eq!(tally.check(), Ok(()));
    assert_eq!(reader.events()[0].name, "clock");
    tally.events[0].clone()
}

fn chained(delivered: u64, lost: u64) -> Tally {
    Tally { chained: delivered + lost, ring: Flow::new(delivered, lost), ..Tally::default() }
}

#[test]
fn ordinary_samples() {
    let file = unfinished([5, 7], 0);
    let tally = shown(&file, handler("none", true, None), &[], [chained(5, 2), chained(9, 0)]);
    assert_eq!((tally.per_cpu[0].1.ring.unwritten, tally.per_cpu[1].1.ring.unwritten), (0, 2));
    assert_eq!((tally.sum.ring.delivered, tally.sum.ring.lost), (12, 4));
    assert_eq!(tally.sum.human(), "16 samples: 12 kept, 2 lost (ring full), 2 lost (not written)");
    // A journal that knows no more than the file is left as it is.
    let tally = shown(&file, handler("none", true, None), &[], [chained(5, 2), chained(7, 0)]);
    assert_eq!(tally.sum.ring, Flow::new(12, 2));
}

#[test]
fn records_of_a_handler() {
    let file = unfinished([5, 0], 3);
    let both = Tally { emitted: 6, handler_ring: Flow::new(5, 1), ..chained(8, 0) };
    let tally = shown(&file, handler("emit", true, Some(1)), &[], [both, Tally::default()]);
    assert_eq!((tally.sum.ring.delivered, tally.sum.ring.unwritten), (5, 3));
    let handler_ring = tally.sum.handler_ring;
    assert_eq!((handler_ring.delivered, handler_ring.lost, handler_ring.unwritten), (3, 3, 2));
}

/// A handler that writes nothing and chains what it likes, and one that was swapped in and writes.
#[test]
fn samples_of_a_handler_from_an_object() {
    let file = unfinished([5, 0], 3);
    let tally = shown(&file, handler("mine", false, None), &[], [chained(8, 0), Tally::default()]);
    assert_eq!((tally.sum.ring.delivered, tally.sum.ring.unwritten), (5, 3));
}

#[test]
fn entries_of_a_count_table() {
    let counted = |n| Tally {
        handled: Some(n),
        filtered: Some(0),
        dropped: Some(0),
        passed: Some(n),
        counted: n,
        map: MapFlow { stored: n, ..MapFlow::default() },
        ..Tally::default()
    };
    // Three entries on CPU 0 and one on CPU 1 of the two that the last pass brought for it.
    let file = unfinished([3, 1], 0);
    let counts: &[(usize, &[u64])] = &[(0, &[10, 1, 4]), (0, &[7, 6])];
    let tally = shown(&file, handler("count", false, None), counts, [counted(15), counted(13)]);
    assert_eq!((tally.per_cpu[0].1.map.stored, tally.per_cpu[1].1.map.stored), (15, 7));
    assert_eq!(tally.sum.map.lost.other["unwritten"], 6);
    assert_eq!(tally.sum.human(), "28 samples: 22 kept, 6 lost (not written)");
    // Beside the samples themselves.
    let file = unfinished([3, 0], 1);
    let both = Tally { ring: Flow::new(4, 0), chained: 4, ..counted(4) };
    let tally = shown(&file, handler("count", true, Some(1)), &[(1, &[3, 1])], [both, Tally::default()]);
    assert_eq!((tally.sum.map.stored, tally.sum.ring.delivered, tally.sum.ring.unwritten), (3, 3, 1));
}

/// Behind damage nobody can tell which entry is whose; nothing is moved to another CPU for it.
#[test]
fn entries_behind_damage() {
    let counted = |n| Tally { counted: n, map: MapFlow { stored: n, ..MapFlow::default() }, ..Tally::default() };
    let mut file = unfinished([20, 1], 0);
    let offsets: Vec<usize> =
        FileReader::open(&file).unwrap().records().map(|raw| raw.unwrap().offset as usize).collect();
    let counts: Vec<u64> = (1..=20).chain([1000]).collect();
    let of = |file: &[u8]| shown(file, handler("count", false, None), &[(0, &counts)], [counted(210), counted(1000)]);
    let stored = |tally: EventTally| (tally.per_cpu[0].1.map.stored, tally.per_cpu[1].1.map.stored);
    assert_eq!(stored(of(&file)), (210, 1000));
    file[offsets[10] + 6..offsets[10] + 8].fill(0);
    // Ten whose counts are known, nine that are one at least.
    assert_eq!(stored(of(&file)), (55 + 9, 1));
}

/// One handler after the other: entries have an id of their own among the event's samples.
#[test]
fn entries_among_samples() {
    let counted = HandlerDesc { entries_id: Some(12), ..handler("count", false, None) };
    let handlers = [handler("none", true, None), counted];
    // Five samples on CPU 0, and two entries on CPU 1, the second of which is not in the file.
    let file = unfinished([5, 1], 0);
    let zero = chained(6, 0);
    let one = Tally { counted: 30, map: MapFlow { stored: 30, ..MapFlow::default() }, ..Tally::default() };
    let tally = shown_of(&file, &handlers, &[(0, &[10, 20])], [zero, one]);
    assert_eq!((tally.per_cpu[0].1.ring.delivered, tally.per_cpu[0].1.ring.unwritten), (5, 1));
    assert_eq!((tally.per_cpu[1].1.map.stored, tally.per_cpu[1].1.map.lost.other["unwritten"]), (10, 20));
}

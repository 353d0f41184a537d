//! Time order, and what the machine was like at the time of each sample.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use afterimage_perf_data::record::{Lost, Record, SampleId, Throttle, kind};
use afterimage_perf_data::{
    AiHdr, Callchain, EmitPayload, Endian, Features, FileReader, HandlerDesc, Private, TrueCounts, context,
};
use afterimage_profile::{ReplayOptions, Replayed, Sink, State, TimedSample, replay};
use common::{Recording, attr, bpf_output, event, id, lines, lines_with};
use proptest::prelude::*;

#[test]
fn an_exec_gives_a_name_and_takes_the_maps_when_the_new_image_has_its_own() {
    let mut r = Recording::new();
    r.comm(0, 5, "sh", false);
    r.mmap(0, 5, 0x1000, 0x1000, 0, "/bin/sh");
    r.sample(10, 5, 0x1010);
    r.mmap(15, 5, 0x8000, 0x1000, 0, "/lib/libc.so");
    r.comm(20, 5, "md5sum", true);
    r.fork(20, 5, 6);
    r.comm(21, 5, "renamed", false);
    r.comm(22, 5, "md5sum", true);
    // The kernel has named the new image, but the registers are still the old one's.
    r.sample(23, 5, 0x8010);
    r.sample(23, 6, 0x8010);
    r.sample(24, 5, 0x9010);
    r.mmap(25, 5, 0x1000, 0x1000, 0x3000, "/bin/md5sum");
    r.sample(26, 5, 0x1010);
    r.sample(27, 5, 0x8010);
    r.mmap(28, 5, 0x7000, 0x1000, 0, "[vdso]");
    r.sample(30, 5, 0x1010);
    r.sample(31, 5, 0x8010);
    r.sample(32, 6, 0x8010);
    let (lines, stats) = lines(&r.finish());
    assert_eq!(
        lines,
        [
            "10 5 sh /bin/sh+0x10",
            "23 5 md5sum /lib/libc.so+0x10",
            "23 6 md5sum /lib/libc.so+0x10",
            "24 5 md5sum nothing+0x9010",
            "26 5 md5sum /bin/md5sum+0x3010",
            "27 5 md5sum /lib/libc.so+0x10",
            "30 5 md5sum /bin/md5sum+0x3010",
            "31 5 md5sum nothing+0x8010",
            "32 6 md5sum /lib/libc.so+0x10"
        ]
    );
    assert_eq!((stats.samples, stats.late, stats.finished), (9, 0, true));
    assert_eq!((stats.first_time, stats.last_time), (Some(10), Some(32)));
}

/// Not every machine has the page that the kernel maps last.
#[test]
fn a_new_image_that_maps_for_itself_has_nothing_of_the_old_one() {
    let mut r = Recording::new();
    r.comm(0, 5, "sh", false);
    r.mmap(0, 5, 0x1000, 0x1000, 0, "/bin/sh");
    r.comm(10, 5, "md5sum", true);
    for (n, path) in ["/bin/md5sum", "/lib/ld.so", "/lib/a.so"].into_iter().enumerate() {
        r.mmap(11, 5, 0x10000 * (n as u64 + 1), 0x1000, 0, path);
    }
    r.sample(12, 5, 0x1010);
    r.mmap(13, 5, 0x80000, 0x1000, 0, "/lib/libc.so");
    r.sample(14, 5, 0x1010);
    let (lines, _) = lines(&r.finish());
    assert_eq!(lines, ["12 5 md5sum /bin/sh+0x10", "14 5 md5sum nothing+0x1010"]);
}

#[test]
fn a_fork_has_its_parents_maps_until_it_changes_them() {
    let mut r = Recording::new();
    r.comm(0, 5, "sh", false);
    r.mmap(0, 5, 0x1000, 0x1000, 0, "/bin/sh");
    r.fork(10, 5, 6);
    r.sample(11, 6, 0x1010);
    r.mmap(12, 6, 0x1000, 0x1000, 0, "/lib/other.so");
    r.sample(13, 6, 0x1010);
    r.sample(14, 5, 0x1010);
    r.mmap(15, 5, 0x8000, 0x1000, 0, "/lib/parent.so");
    r.sample(16, 6, 0x8010);
    r.sample(17, 5, 0x8010);
    let (lines, _) = lines(&r.finish());
    assert_eq!(
        lines,
        [
            "11 6 sh /bin/sh+0x10",
            "13 6 sh /lib/other.so+0x10",
            "14 5 sh /bin/sh+0x10",
            "16 6 sh nothing+0x8010",
            "17 5 sh /lib/parent.so+0x10"
        ]
    );
}

#[test]
fn a_pid_used_again_is_another_process() {
    let mut r = Recording::new();
    r.comm(0, 5, "old", false);
    r.mmap(0, 5, 0x1000, 0x1000, 0, "/bin/old");
    r.comm(0, 9, "parent", false);
    r.sample(10, 5, 0x1010);
    r.fork(20, 9, 5);
    r.sample(30, 5, 0x1010);
    let (lines, _) = lines(&r.finish());
    assert_eq!(lines, ["10 5 old /bin/old+0x10", "30 5 parent nothing+0x1010"]);
}

#[test]
fn a_map_over_another_leaves_what_lies_beside_it() {
    let mut r = Recording::new();
    r.mmap(0, 5, 0x1000, 0x3000, 0, "/lib/a.so");
    r.mmap(10, 5, 0x2000, 0x1000, 0x7000, "/lib/b.so");
    for addr in [0x1fff, 0x2000, 0x2fff, 0x3000, 0x4000] {
        r.sample(20, 5, addr);
    }
    let (lines, _) = lines(&r.finish());
    let places: Vec<_> = lines.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(
        places,
        ["/lib/a.so+0xfff", "/lib/b.so+0x7000", "/lib/b.so+0x7fff", "/lib/a.so+0x2000", "nothing+0x4000"]
    );
}

#[test]
fn a_kernel_address_used_twice_in_one_round_has_two_names() {
    const ADDR: u64 = 0xffff_ffff_c000_1000;
    let mut r = Recording::new();
    // As two rings are drained: the samples of one CPU first, what happened on the other behind them.
    for time in [5, 15, 25, 35] {
        r.sample(time, 1, ADDR + 8);
    }
    r.ksymbol(10, ADDR, 64, "bpf_prog_a", false);
    r.ksymbol(20, ADDR, 64, "bpf_prog_a", true);
    r.ksymbol(30, ADDR, 64, "bpf_prog_b", false);
    r.round();
    let (lines, _) = lines(&r.finish());
    let names: Vec<_> = lines.iter().map(|line| line.split([' ', '+']).nth(3).unwrap()).collect();
    assert_eq!(names, ["kernel", "bpf_prog_a", "kernel", "bpf_prog_b"]);
}

#[test]
fn records_out_of_order_across_rounds_come_in_order() {
    let mut r = Recording::new();
    for time in [10, 30, 50, 20, 40] {
        r.sample(time, 1, time);
    }
    r.round();
    // Older than the newest of the round before, as perf's rule allows.
    for time in [60, 45, 49] {
        r.sample(time, 1, time);
    }
    r.round();
    r.sample(70, 1, 70);
    r.sample(55, 1, 55);
    let (lines, stats) = lines(&r.finish());
    let times: Vec<u64> = lines.iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(times, [10, 20, 30, 40, 45, 49, 50, 55, 60, 70]);
    assert_eq!((stats.late, stats.rounds), (0, 2));
}

#[test]
fn late_records_are_counted_and_not_dropped() {
    let mut r = Recording::new();
    r.sample(100, 1, 1);
    r.round();
    r.sample(200, 1, 1);
    r.round();
    r.sample(50, 1, 1);
    let (lines, stats) = lines(&r.finish());
    assert_eq!(lines.len(), 3);
    assert_eq!(stats.late, 1);
}

#[test]
fn without_rounds_a_full_queue_lets_the_older_half_go() {
    let mut r = Recording::new();
    for time in 1..=100u64 {
        r.sample(time ^ 3, 1, 1);
    }
    let bytes = r.finish();
    let (all, stats) = lines(&bytes);
    let (bounded, bounded_stats) = lines_with(&bytes, &ReplayOptions { max_pending: 8, ..ReplayOptions::default() });
    assert_eq!((all.len(), stats.late), (100, 0));
    assert_eq!((&bounded, bounded_stats.late), (&all, 0), "disorder is smaller than the queue");
}

#[test]
fn a_clock_that_jumps_loses_no_sample() {
    let mut r = Recording::new();
    for round in 0..4_u64 {
        r.sample(100 + round * 10, 1, 1);
        // Once far ahead, then back.
        r.sample(if round == 1 { u64::MAX / 2 } else { 105 + round * 10 }, 1, 1);
        r.round();
    }
    let (lines, stats) = lines(&r.finish());
    assert_eq!((lines.len(), stats.samples), (8, 8));
    assert!(stats.late > 0, "what comes behind the jump is late, and that is said");
}

#[test]
fn losses_and_throttles_are_counted() {
    let mut r = Recording::new();
    r.record(0, &Record::Lost(Lost { event_id: 1, lost: 7, misc: 0, id: id(1, 10) }));
    r.record(0, &Record::Throttle(Throttle { time: 20, event_id: 1, stream_id: 1, misc: 0, id: id(1, 20) }));
    let (_, stats) = lines(&r.finish());
    assert_eq!((stats.lost, stats.throttles, stats.records), (7, 1, 2));
}

#[test]
fn lost_names_are_no_lost_samples() {
    let dummy = event(afterimage_perf_data::Attr { config: 9, ..attr() }, 3, "dummy:HG");
    let lost = |version: &str| {
        let mut r = Recording::of(vec![event(attr(), 1, "cpu-clock"), dummy.clone()]);
        let id = SampleId { identifier: Some(3), ..id(1, 10) };
        r.record(1, &Record::Lost(Lost { event_id: 3, lost: 7, misc: 0, id }));
        let features = Features { version: Some(version.to_owned()), ..Features::default() };
        let (_, stats) = lines(&r.finish_with(&features, None));
        (stats.lost, stats.sideband_lost)
    };
    assert_eq!(lost("afterimage 0.1.0"), (0, 7));
    assert_eq!(lost("6.1.1"), (7, 0), "perf's tracking event writes into the rings of samples");
}

#[derive(Default)]
struct Samples(Vec<(usize, u32, u64, u64, usize, bool)>);

impl Sink for Samples {
    fn sample(&mut self, _: &State, s: &TimedSample<'_>) {
        self.0.push((s.event, s.tid, s.period, s.count, s.chain.len(), s.is_emitted()));
    }
}

fn emitted(chain: bool) -> Vec<(usize, u32, u64, u64, usize, bool)> {
    let mut r = Recording::of(vec![event(attr(), 1, "cpu-clock"), event(bpf_output(), 2, "bpf-output")]);
    r.sample(10, 5, 0x1000);
    let ips: Vec<u8> = [context::USER, 0x1000, 0x2000].iter().flat_map(|v| v.to_le_bytes()).collect();
    let hdr = AiHdr { version: 1, kind: AiHdr::EMIT, cpu: 1, time: 20, ip: 0x1000, ..AiHdr::default() };
    let mut payload = Vec::new();
    EmitPayload { hdr, pid: 7, tid: 8, period: 99, callchain: Callchain::new(&ips, Endian::Little) }
        .encode(&mut payload);
    r.raw(1, 21, &payload);
    r.raw(1, 22, b"something else");
    let private = Private {
        handlers: vec![HandlerDesc { name: "emit".into(), chain, output_event: Some(1), ..HandlerDesc::default() }],
        ..Private::default()
    };
    let bytes = r.finish_with(&Features::default(), Some(&private));
    let reader = FileReader::open(&bytes).unwrap();
    let mut sink = Samples::default();
    replay(&reader, &ReplayOptions::default(), &mut sink);
    sink.0
}

#[test]
fn what_emit_wrote_stands_for_samples() {
    assert_eq!(emitted(false), [(0, 5, 10, 1, 0, false), (0, 8, 99, 1, 3, true), (0, 1, 1, 1, 0, false)]);
    assert_eq!(emitted(true)[1], (1, 8, 99, 1, 3, true), "beside the samples it is an event of its own");
}

#[test]
fn a_counted_sample_stands_for_many() {
    let mut r = Recording::new();
    for time in [30, 10, 20] {
        r.sample(time, time as u32, 0x1000);
    }
    let counts = TrueCounts { event: 0, counts: vec![300, 100] };
    let bytes = r.finish_with(&Features::default(), Some(&Private { true_counts: vec![counts], ..Private::default() }));
    let reader = FileReader::open(&bytes).unwrap();
    let mut sink = Samples::default();
    replay(&reader, &ReplayOptions::default(), &mut sink);
    let counts: Vec<_> = sink.0.iter().map(|s| (s.1, s.3)).collect();
    assert_eq!(counts, [(10, 100), (20, 1), (30, 300)], "by the order in the file; what has no count is one");
}

/// A sample that is lost does not give its count to the next one.
#[test]
fn counts_behind_damage_are_those_of_their_samples() {
    let mut r = Recording::of(vec![event(attr(), 1, "cpu-clock"), event(attr(), 2, "page-faults")]);
    for time in 1..=40 {
        r.sample(time, time as u32, 0x1000);
    }
    let counts = TrueCounts { event: 0, counts: (101..=140).collect() };
    let private = Private { true_counts: vec![counts], ..Private::default() };
    let bytes = r.finish_with(&Features::default(), Some(&private));
    let offsets: Vec<usize> =
        FileReader::open(&bytes).unwrap().records().map(|raw| raw.unwrap().offset as usize).collect();
    let read = |bytes: &[u8]| {
        let reader = FileReader::open(bytes).unwrap();
        let mut sink = Samples::default();
        let stats = replay(&reader, &ReplayOptions::default(), &mut sink).stats;
        (sink.0.iter().map(|s| (s.1, s.3)).collect::<Vec<_>>(), stats)
    };
    let own = |time: u64| (time as u32, 100 + time);
    assert_eq!(read(&bytes).0.len(), 40);
    // One record: what stands behind it is numbered from the end.
    let mut hurt = bytes.clone();
    hurt[offsets[9] + 6..offsets[9] + 8].fill(0);
    let (samples, stats) = read(&hurt);
    let expected: Vec<_> = (1..=40).filter(|time| *time != 10).map(own).collect();
    assert_eq!((samples, stats.damaged, stats.unknown_count), (expected.clone(), 1, 0));
    // An id that no event has.
    let mut hurt = bytes.clone();
    hurt[offsets[9] + 8..offsets[9] + 16].fill(0xee);
    let (samples, stats) = read(&hurt);
    assert_eq!((samples, stats.unknown_event, stats.unknown_count), (expected, 1, 0));
    // Two places: those between them have counts that nobody can tell.
    let mut hurt = bytes;
    hurt[offsets[9] + 6..offsets[9] + 8].fill(0);
    hurt[offsets[29] + 6..offsets[29] + 8].fill(0);
    let (samples, stats) = read(&hurt);
    let expected = |time: u64| if (11..30).contains(&time) { (time as u32, 1) } else { own(time) };
    let expected: Vec<_> = (1..=40).filter(|time| ![10, 30].contains(time)).map(expected).collect();
    assert_eq!((samples, stats.damaged, stats.unknown_count), (expected, 2, 19));
}

#[test]
fn damage_ends_the_reading_at_its_place() {
    let mut r = Recording::new();
    r.sample(10, 1, 1);
    r.sample(20, 1, 1);
    let mut bytes = r.killed();
    let second = {
        let reader = FileReader::open(&bytes).unwrap();
        reader.records().nth(1).unwrap().unwrap().offset as usize
    };
    bytes.truncate(second + 20);
    let (lines, stats) = lines(&bytes);
    assert_eq!(lines.len(), 1);
    assert!(!stats.finished);
    assert_eq!(stats.error.unwrap().offset(), Some(second as u64));
}

#[test]
fn a_sample_whose_chain_is_longer_than_it_is_left_out_and_told() {
    let mut r = Recording::new();
    r.chain(10, 1, 1, &[context::USER, 1]);
    r.sample(20, 1, 1);
    let mut bytes = r.finish();
    let at = {
        let reader = FileReader::open(&bytes).unwrap();
        let raw = reader.records().find(|raw| raw.as_ref().unwrap().header.kind == kind::SAMPLE).unwrap().unwrap();
        raw.offset as usize + raw.bytes.len() - 24
    };
    bytes[at..at + 8].copy_from_slice(&(u64::MAX / 8 + 3).to_le_bytes());
    let (lines, stats) = lines(&bytes);
    assert_eq!((lines.len(), stats.undecodable), (1, 1));
    assert!(stats.first_undecodable.unwrap().offset().is_some());
}

/// The fields that the fast path reads are those of the full decoder.
struct Compare(u64);

impl Sink for Compare {
    fn sample(&mut self, _: &State, s: &TimedSample<'_>) {
        let full = s.decode().unwrap();
        assert_eq!(full.ip.unwrap_or(0), s.ip);
        assert_eq!((full.pid.unwrap_or(u32::MAX), full.tid.unwrap_or(u32::MAX)), (s.pid, s.tid));
        assert_eq!((full.time, full.cpu, full.addr, full.cgroup), (s.time, s.cpu, s.addr, s.cgroup));
        // With counter values the period is how far the counter went.
        if full.read.is_none() {
            assert_eq!(full.period.unwrap_or(s.period), s.period);
        }
        assert_eq!(full.callchain.unwrap_or_default(), s.chain);
        self.0 += 1;
    }
}

proptest! {
    #[test]
    fn the_fast_path_reads_what_the_decoder_reads(
        bits in 0u64..(1 << 25),
        read_format in 0u64..32,
        words in prop::collection::vec(0u64..4, 16..200),
    ) {
        let sample_type = afterimage_perf_data::SampleType::from_bits_retain(bits);
        let read_format = afterimage_perf_data::ReadFormat::from_bits_retain(read_format);
        let attr = afterimage_perf_data::Attr { sample_type, read_format, ..attr() };
        let mut r = Recording::of(vec![event(attr, 0, "x")]);
        // Small numbers make counts that may or may not fit.
        let body: Vec<u8> = words.iter().flat_map(|v| v.to_le_bytes()).collect();
        r.record(0, &Record::Unknown(afterimage_perf_data::record::Unknown { kind: kind::SAMPLE, misc: 2, body: &body }));
        let bytes = r.finish();
        let reader = FileReader::open(&bytes).unwrap();
        let decodes = reader.records().next().unwrap().and_then(|raw| reader.decode(&raw)).is_ok();
        let mut sink = Count::default();
        let Replayed { stats, .. } = replay(&reader, &ReplayOptions::default(), &mut sink);
        if decodes {
            // And of each event that went on there is a sample.
            let reads = sample_type.contains(afterimage_perf_data::SampleType::READ);
            prop_assert_eq!((reads || sink.0 == 1, stats.undecodable), (true, 0));
            replay(&reader, &ReplayOptions::default(), &mut Compare(0));
        }
    }

    #[test]
    fn any_bytes_replay_to_an_end(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..30), cut in any::<prop::sample::Index>()) {
        let mut r = Recording::new();
        r.comm(0, 5, "sh", false);
        r.mmap(0, 5, 0x1000, 0x1000, 0, "/bin/sh");
        r.ksymbol(3, 0xffff_ffff_c000_0000, 64, "bpf_prog_a", false);
        r.chain(10, 5, 0x1010, &[context::USER, 0x1010, 0x1020]);
        r.round();
        r.fork(20, 5, 6);
        r.sample(21, 6, 0xffff_ffff_c000_0004);
        let mut bytes = r.finish();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(reader) = FileReader::open(&bytes) {
            replay(&reader, &ReplayOptions::default(), &mut Count::default());
        }
    }
}

#[derive(Default)]
struct Count(u64);

impl Sink for Count {
    fn sample(&mut self, state: &State, s: &TimedSample<'_>) {
        self.0 += 1;
        state.walk(s, |_| {});
    }
}

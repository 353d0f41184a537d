//! One recording in every form that a recording can have reads the same.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;
#[path = "common/forms.rs"]
mod forms;

use std::io::Read;

use afterimage_perf_data::record::kind;
use afterimage_perf_data::{
    AnySource, ArchiveDesc, Endian, ErrorKind, Features, FileReader, PartsSource, PipeWriter, Private, RecordStream,
    stream,
};
use afterimage_profile::{ReplayOptions, ReplayStats, Sink, State, TimedSample, replay_from};
use afterimage_testkit::{Need, corpus, has};
use common::{Lines, Recording, attr, bpf_output, event, lines};
use forms::{compressed, mixture, records_of, streamed, swapped};

/// What comes in pieces of a few bytes, as from a slow pipe.
struct Slow<'a>(&'a [u8], usize);

impl Read for Slow<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let most = self.1.min(to.len());
        self.0.read(&mut to[..most])
    }
}

fn from_source(reader: &FileReader<'_>, mut source: AnySource<'_>) -> (Vec<String>, ReplayStats) {
    let mut sink = Lines::default();
    let stats = replay_from(reader, &mut source, &ReplayOptions::default(), &mut sink).stats;
    (sink.0, stats)
}

/// Reads a stream as it comes.
fn from_pipe(bytes: &[u8], piece: usize) -> (Vec<String>, ReplayStats) {
    let mut from = Slow(bytes, piece);
    let head = stream::read_head(&mut from, 1 << 30).unwrap();
    let reader = FileReader::open_packed(&head).unwrap();
    assert!(reader.is_pipe());
    let packed = reader.is_compressed();
    let stream = RecordStream::new(&head, from, reader.table().clone(), packed);
    from_source(&reader, AnySource::Stream(Box::new(stream)))
}

#[test]
fn a_stream_reads_as_the_file_does() {
    let file = mixture(3000);
    let (expected, stats) = lines(&file);
    assert_eq!((expected.len(), stats.late, stats.rounds), (4000, 0, 300));
    let pipe = streamed(&file);
    for piece in [pipe.len(), 4096, 13] {
        let (lines, stats) = from_pipe(&pipe, piece);
        assert_eq!(lines, expected, "pieces of {piece}");
        assert_eq!((stats.damaged, stats.cut_bytes, stats.finished), (0, 0, true));
        assert!(stats.error.is_none());
    }
}

#[test]
fn a_stream_that_still_grows_is_read_to_its_last_whole_record() {
    let file = mixture(300);
    let (expected, _) = lines(&file);
    let pipe = streamed(&file);
    let mut cut_short = 0;
    for end in (pipe.len() / 2..pipe.len()).step_by(7) {
        let (lines, stats) = from_pipe(&pipe[..end], 1000);
        assert!(expected.starts_with(&lines), "{end}");
        assert!(stats.error.is_none() && stats.damaged == 0, "{end}: {stats:?}");
        assert_eq!(stats.finished, stats.cut_bytes == 0);
        cut_short += usize::from(!stats.finished);
        // The same bytes in memory.
        let (same, _) = common::lines(&pipe[..end]);
        assert_eq!(same, lines, "{end}");
    }
    assert!(cut_short > 10);
}

#[test]
fn compressed_records_read_as_the_file_does() {
    let file = mixture(3000);
    let (expected, _) = lines(&file);
    let packed = compressed(&file);
    let reader = FileReader::open_packed(&packed).unwrap();
    assert!(reader.is_compressed());
    let (lines, stats) = from_source(&reader, AnySource::Stream(Box::new(reader.unpacked())));
    assert_eq!(lines, expected);
    assert_eq!((stats.damaged, stats.late), (0, 0));
    // Not finished: the records themselves say that they are compressed.
    let mut unfinished = packed.clone();
    unfinished[72..104].fill(0);
    let reader = FileReader::open_packed(&unfinished).unwrap();
    assert!(!reader.finished() && reader.is_compressed());
    assert_eq!(from_source(&reader, AnySource::Stream(Box::new(reader.unpacked()))).0, expected);
    // Damaged in the middle: what came before is there, and the rest is told.
    let mut damaged = packed;
    let at = damaged.len() / 2;
    damaged[at..at + 60].fill(0xff);
    let reader = FileReader::open_packed(&damaged).unwrap();
    let (some, stats) = from_source(&reader, AnySource::Stream(Box::new(reader.unpacked())));
    assert!(some.len() > 500 && some.len() < expected.len() && expected[..500] == some[..500], "{}", some.len());
    assert!(stats.damaged + u64::from(stats.error.is_some()) > 0, "{stats:?}");
    assert!(stats.skipped_bytes > 0);
}

/// A finished recording that was cut lacks its feature sections, and with them the one that tells of the compression.
#[test]
fn a_compressed_recording_that_was_cut_is_read_up_to_there() {
    let file = mixture(3000);
    let (expected, _) = lines(&file);
    let packed = compressed(&file);
    let reader = FileReader::open_packed(&packed).unwrap();
    let (from, size) = (reader.data_offset() as usize, reader.data_size() as usize);
    let last = reader.records().map(|raw| raw.unwrap().offset).last().unwrap() as usize;
    // All records are there, the last is not, it is there in part, and half of the bytes.
    for (end, least) in [(from + size, 4000), (last, 3000), (from + size - 5, 3000), (from + size / 2, 1000)] {
        let cut = &packed[..end];
        assert_eq!(FileReader::open(cut).unwrap_err().kind(), ErrorKind::Unsupported, "{end}");
        let reader = FileReader::open_packed(cut).unwrap();
        assert!(reader.finished() && reader.is_compressed() && !reader.problems().is_empty(), "{end}");
        let (some, stats) = from_source(&reader, AnySource::Stream(Box::new(reader.unpacked())));
        assert!(some.len() >= least && expected.starts_with(&some), "{end}: {} lines", some.len());
        let error = stats.error.as_ref().map(|e| (e.kind(), e.offset().is_some()));
        let whole = end == from + size;
        assert_eq!(error, (!whole).then_some((ErrorKind::Truncated, true)), "{end}: {stats:?}");
        assert_eq!(some.len() == expected.len(), whole);
    }
}

/// A stream, and how much of it was read.
struct Counting<'a>(&'a [u8], &'a std::cell::Cell<usize>);

impl Read for Counting<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let got = self.0.read(to)?;
        self.1.set(self.1.get() + got);
        Ok(got)
    }
}

/// How much was read, how much of it was handed on, and the most that lay between the two.
struct Given<'a>(&'a std::cell::Cell<usize>, usize, usize);

impl Sink for Given<'_> {
    fn sample(&mut self, _: &State, sample: &TimedSample<'_>) {
        self.2 = self.2.max(self.0.get() - self.1);
        self.1 += sample.raw.bytes.len();
    }
}

/// Large records without rounds: no more of them waits than may be held.
#[test]
fn what_is_held_of_a_stream_is_bounded() {
    let mut r = Recording::new();
    let chain = vec![0x1000; 8000];
    for time in 1..=600 {
        r.chain(time, 7, 0x1000, &chain);
    }
    let file = r.finish();
    let pipe = streamed(&file);
    let (head, rest) = pipe.split_at(1 << 20);
    let reader = FileReader::open_packed(head).unwrap();
    let read = std::cell::Cell::new(head.len());
    let stream = RecordStream::new(head, Counting(rest, &read), reader.table().clone(), false);
    let mut given = Given(&read, 0, 0);
    let options = ReplayOptions { max_held: 4 << 20, ..ReplayOptions::default() };
    let stats = replay_from(&reader, &mut AnySource::Stream(Box::new(stream)), &options, &mut given).stats;
    assert_eq!((stats.samples, stats.late), (600, 0));
    assert!(pipe.len() > 36 << 20 && given.2 < 16 << 20, "{} bytes waited", given.2);
}

/// perf names events behind the maps of the kernel; what comes behind samples is too late, and said.
#[test]
fn what_a_stream_tells_behind_its_first_records() {
    let file = mixture(3000);
    let reader = FileReader::open(&file).unwrap();
    let update = |name: &str| {
        let mut body = [2_u64.to_le_bytes(), reader.events()[0].ids[0].to_le_bytes()].concat();
        body.extend(name.as_bytes());
        body.resize(body.len().next_multiple_of(8), 0);
        let size = u16::try_from(8 + body.len()).unwrap();
        [&kind::EVENT_UPDATE.to_le_bytes()[..], &[0, 0], &size.to_le_bytes(), &body].concat()
    };
    let records = forms::records_of(&reader);
    let first = reader.records().next().unwrap().unwrap();
    assert!(first.header.kind != kind::SAMPLE);
    let (maps, samples) = records.split_at(first.bytes.len());
    let mut writer = PipeWriter::create(Vec::new(), reader.events(), reader.features()).unwrap();
    for piece in [maps, &update("named-late"), samples, &update("named-late"), &update("too-late")] {
        writer.write(piece).unwrap();
    }
    let pipe = writer.finish(reader.features()).unwrap();
    let mut from = Slow(&pipe, 100);
    // Nobody has to read further than to the end of the first round for it.
    let head = stream::read_head(&mut from, 1 << 30).unwrap();
    assert!(head.len() < pipe.len());
    let told = FileReader::open_packed(&head).unwrap();
    assert_eq!(told.events()[0].name, "named-late");
    let stream = RecordStream::new(&head, from, told.table().clone(), false);
    let (_, stats) = from_source(&told, AnySource::Stream(Box::new(stream)));
    assert_eq!((stats.told_late, stats.problems.len()), (1, 0));
}

/// A file for each recording thread, without rounds: the samples of two CPUs, each in order, put together.
#[test]
fn files_of_several_threads_are_merged() {
    let events = vec![event(attr(), 1, "cpu-clock"), event(bpf_output(), 2, "bpf-output")];
    let mut first = Recording::of(events.clone());
    first.comm(0, 7, "worker", false);
    let first = first.finish();
    let mut parts = Vec::new();
    let mut all = Recording::of(events.clone());
    all.comm(0, 7, "worker", false);
    for cpu in 0..3_u64 {
        let mut one = Recording::of(events.clone());
        for time in 0..20_000 {
            one.sample(time * 3 + cpu + 1, 7, 0x1000 + cpu);
        }
        let bytes = one.finish();
        let reader = FileReader::open(&bytes).unwrap();
        parts.push(forms::records_of(&reader));
    }
    for time in 0..60_000 {
        all.sample(time + 1, 7, 0x1000 + time % 3);
    }
    let (expected, _) = lines(&all.finish());
    let reader = FileReader::open(&first).unwrap();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let (lines, stats) = from_source(&reader, AnySource::Parts(PartsSource::new(&first, reader.records(), &slices)));
    assert!(lines == expected, "{} of {} lines", lines.len(), expected.len());
    assert_eq!((stats.late, stats.damaged), (0, 0));
    // What is damaged in one of them has its place there.
    let mut hurt = parts.clone();
    hurt[1][6..8].fill(0);
    let slices: Vec<&[u8]> = hurt.iter().map(Vec::as_slice).collect();
    let (_, stats) = from_source(&reader, AnySource::Parts(PartsSource::new(&first, reader.records(), &slices)));
    let damage = stats.first_damage.unwrap();
    assert_eq!((stats.samples, damage.offset()), (59_999, Some(0)));
    assert!(damage.to_string().starts_with("data file 2, record of 0 bytes"), "{damage}");
}

#[test]
fn the_other_byte_order_reads_the_same() {
    let file = mixture(3000);
    let twin = swapped(&file);
    let reader = FileReader::open(&twin).unwrap();
    assert_eq!(reader.endian(), Endian::Big);
    assert!(reader.problems().is_empty() && reader.features().hostname.as_deref() == Some("here"));
    let (expected, stats) = lines(&file);
    let (swapped, of_twin) = lines(&twin);
    assert_eq!(swapped, expected);
    assert_eq!((of_twin.samples, of_twin.late, of_twin.rounds), (stats.samples, stats.late, stats.rounds));
}

#[test]
fn twins_of_what_others_recorded_read_the_same() {
    if !has("twins_of_what_others_recorded_read_the_same", &[Need::Corpus]) {
        return;
    }
    let mut compared = 0;
    for folder in std::fs::read_dir(corpus().unwrap()).unwrap().flatten().filter(|e| e.path().is_dir()) {
        for path in std::fs::read_dir(folder.path()).unwrap().flatten().map(|e| e.path()) {
            let bytes = std::fs::read(&path).unwrap();
            let Ok(reader) = FileReader::open(&bytes) else { continue };
            // Data behind AUXTRACE records is none of samples, and has no place in the twin.
            if reader.is_pipe() || reader.records().any(|raw| raw.is_err()) {
                continue;
            }
            let twin = swapped(&bytes);
            let of_twin = FileReader::open(&twin).unwrap();
            assert_eq!(of_twin.events().len(), reader.events().len());
            let ((expected, stats), (lines, swapped_stats)) = (lines(&bytes), lines(&twin));
            assert!(lines == expected, "{}", path.display());
            assert_eq!(stats.samples, swapped_stats.samples, "{}", path.display());
            compared += 1;
        }
    }
    assert!(compared >= 19, "{compared}");
}

/// With another private section everything else stays: records byte for byte, features, whatever the form and byte order.
#[test]
fn written_again_with_another_private_section() {
    let plain = mixture(500);
    let private = Private {
        archive: Some(ArchiveDesc { tool: "a test".to_owned(), unfinished: false }),
        objects: vec![vec![1; 10_000], Vec::new(), b"third".to_vec()],
        kernel_symbols: b"ffffffff81000000 t _stext\n".to_vec(),
        ..Private::default()
    };
    for bytes in [&plain, &compressed(&plain), &swapped(&plain)] {
        let reader = FileReader::open_packed(bytes).unwrap();
        let mut again = Vec::new();
        reader.write_again(&private, &mut again).unwrap();
        let new = FileReader::open_packed(&again).unwrap();
        assert!(new.problems().is_empty(), "{:?}", new.problems());
        assert_eq!(new.private(), Some(&private));
        assert_eq!((new.endian(), new.finished()), (reader.endian(), true));
        assert!(records_of(&new) == records_of(&reader));
        let features = |reader: &FileReader<'_>| Features { private: None, ..reader.features().clone() };
        assert_eq!(features(&new), features(&reader));
        assert_eq!(new.events(), reader.events());
        // Once more, without: nothing is left of it.
        let (mut third, mut fourth) = (Vec::new(), Vec::new());
        new.write_again(&Private::default(), &mut third).unwrap();
        reader.write_again(&Private::default(), &mut fourth).unwrap();
        assert!(third == fourth);
    }
    // What was not finished stays so.
    let unfinished = Private { archive: Some(ArchiveDesc { unfinished: true, ..ArchiveDesc::default() }), ..private };
    let reader = FileReader::open(&plain).unwrap();
    let mut again = Vec::new();
    reader.write_again(&unfinished, &mut again).unwrap();
    let new = FileReader::open(&again).unwrap();
    assert!(!new.finished() && new.features().hostname.is_some() && records_of(&new) == records_of(&reader));
    // A stream has no place for it.
    let stream = streamed(&plain);
    let error = FileReader::open(&stream).unwrap().write_again(&unfinished, &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

/// An entry that unpacks to more than its section may hold costs itself alone, and no memory.
#[test]
fn an_object_that_unpacks_without_end() {
    let bomb = vec![0; 200 << 20];
    let private = Private { objects: vec![vec![7; 100], bomb, vec![8; 100]], ..Private::default() };
    let section = private.encode().unwrap();
    assert!(section.len() < 1 << 20);
    let read = Private::decode(&section, 0).unwrap();
    assert_eq!((read.objects.len(), read.lost_objects), (2, 1));
}

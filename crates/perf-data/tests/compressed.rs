//! Recordings whose records are packed with zstd.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::io::Cursor;

use zstd::stream::raw::{InBuffer, Operation, OutBuffer};

use afterimage_perf_data::features::Compressed;
use afterimage_perf_data::record::{RawRecord, Record, UserRecord, kind};
use afterimage_perf_data::{
    Endian, Error, ErrorKind, Features, FileReader, FileWriter, Layout, PackedCounts, RecordStream, Source,
};

/// The records of a stream but for the ends of rounds, and what was damaged in it.
fn all(stream: &mut RecordStream<'_>) -> (Vec<Vec<u8>>, Vec<Error>) {
    let (mut records, mut damage) = (Vec::new(), Vec::new());
    while let Some(next) = stream.next_record() {
        match next {
            Ok(raw) if raw.header.kind == kind::FINISHED_ROUND => (),
            Ok(raw) => records.push(raw.bytes.to_vec()),
            Err(error) => damage.push(error),
        }
    }
    (records, damage)
}

fn samples(records: &[Vec<u8>]) -> usize {
    let kind = |bytes: &Vec<u8>| RawRecord::parse(bytes, 0, Endian::Little).unwrap().header.kind;
    records.iter().filter(|bytes| kind(bytes) == kind::SAMPLE).count()
}

/// One zstd stream in several records, cut where it pleases the compressor, with plain records between them.
#[test]
fn compressed_records() {
    let plain = common::recording();
    let file = FileReader::open(&plain).unwrap();
    let data: Vec<u8> = file.records().flat_map(|r| r.unwrap().bytes.to_vec()).collect();
    let layout = Layout::new(&common::events()[0].attr, Endian::Little);
    let features = Features {
        compressed: Some(Compressed { version: 1, kind: 1, level: 3, ratio: 2, mmap_len: 1 << 20 }),
        ..common::features()
    };
    let mut writer = FileWriter::create(Cursor::new(Vec::new()), &common::events()).unwrap();
    let mut zstd = zstd::stream::raw::Encoder::new(3).unwrap();
    for chunk in data.chunks(4001) {
        let mut room = vec![0; 1 << 16];
        let mut out = OutBuffer::around(&mut room[..]);
        zstd.run(&mut InBuffer::around(chunk), &mut out).unwrap();
        assert_eq!(zstd.flush(&mut out).unwrap(), 0);
        let body = out.as_slice();
        writer.record(&Record::User(UserRecord { kind: kind::COMPRESSED, misc: 0, body }), &layout).unwrap();
        writer.finished_round().unwrap();
    }
    let bytes = writer.finish(&features, Some(&common::private())).unwrap().into_inner();
    assert_eq!(FileReader::open(&bytes).unwrap_err().kind(), ErrorKind::Unsupported);
    let reader = FileReader::open_packed(&bytes).unwrap();
    assert!(reader.is_compressed() && reader.finished() && reader.problems().is_empty());
    assert_eq!(reader.private(), Some(&common::private()));
    let mut stream = reader.unpacked();
    let (records, damage) = all(&mut stream);
    assert!(damage.is_empty(), "{damage:?}");
    let first = data.chunks(4001).count() as u64;
    assert_eq!(stream.packed_counts(), PackedCounts { first, second: 0 });
    assert_eq!(samples(&records), common::SAMPLES);
    let not_round = |r: &RawRecord<'_>| r.header.kind != kind::FINISHED_ROUND;
    let plain: Vec<Vec<u8>> = file.records().map(Result::unwrap).filter(not_round).map(|r| r.bytes.to_vec()).collect();
    assert_eq!(records, plain);

    // Unfinished: no feature says that it is compressed, the records do.
    let mut unfinished = bytes.clone();
    unfinished[72..104].fill(0);
    let reader = FileReader::open_packed(&unfinished).unwrap();
    assert!(reader.is_compressed() && !reader.finished());
    assert_eq!(samples(&all(&mut reader.unpacked()).0), common::SAMPLES);

    // A damaged stream: what was decompressed before is there.
    let mut damaged = bytes.clone();
    let at = file.data_offset() as usize + 400;
    damaged[at..at + 40].fill(0xff);
    let (records, damage) = all(&mut FileReader::open_packed(&damaged).unwrap().unpacked());
    assert!(!damage.is_empty() && records.len() < plain.len());
    assert_eq!(records[..], plain[..records.len()]);
}

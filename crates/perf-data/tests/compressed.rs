//! Recordings whose records are packed with zstd.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::io::Cursor;

use zstd::stream::raw::{InBuffer, Operation, OutBuffer};

use afterimage_perf_data::compressed::unpack;
use afterimage_perf_data::features::Compressed;
use afterimage_perf_data::record::{RawRecord, Record, UserRecord, kind};
use afterimage_perf_data::{Endian, ErrorKind, Features, FileReader, FileWriter, Layout};

fn samples(file: &FileReader<'_>) -> usize {
    file.records().filter(|r| r.as_ref().is_ok_and(|r| r.header.kind == kind::SAMPLE)).count()
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
    let unpacked = unpack(&bytes, 1 << 30).unwrap().unwrap();
    assert!(unpacked.damage.is_none());
    let read = FileReader::open(&unpacked.bytes).unwrap();
    assert!(read.finished() && read.problems().is_empty());
    assert_eq!(read.private(), Some(&common::private()));
    assert_eq!(samples(&read), common::SAMPLES);
    let records = |f: &FileReader<'_>| -> Vec<Vec<u8>> {
        let not_round = |r: &RawRecord<'_>| r.header.kind != kind::FINISHED_ROUND;
        f.records().map(Result::unwrap).filter(not_round).map(|r| r.bytes.to_vec()).collect()
    };
    assert_eq!(records(&read), records(&file));

    // Unfinished: no feature says that it is compressed, the records do.
    let mut unfinished = bytes.clone();
    unfinished[72..104].fill(0);
    let unpacked = unpack(&unfinished, 1 << 30).unwrap().unwrap();
    let read = FileReader::open(&unpacked.bytes).unwrap();
    assert_eq!((samples(&read), read.finished()), (common::SAMPLES, false));

    // A damaged stream: what was decompressed before is there.
    let mut damaged = bytes;
    let at = file.data_offset() as usize + 400;
    damaged[at..at + 40].fill(0xff);
    let unpacked = unpack(&damaged, 1 << 30).unwrap().unwrap();
    assert!(unpacked.damage.is_some());
    assert!(FileReader::open(&unpacked.bytes).unwrap().records().all(|r| r.is_ok()));
    assert!(unpack(&plain, 0).unwrap().is_none());
}

//! Damage in the records: what it hit is told with its place, what stands around it is read.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use afterimage_perf_data::record::{RawRecord, UserRecord, kind};
use afterimage_perf_data::{Endian, ErrorKind, FileReader, Layout, Record, RecordStream, Source};

/// Places of the good records, and what is told of the others.
fn read(bytes: &[u8]) -> (Vec<u64>, Vec<(ErrorKind, u64)>, u64) {
    let file = FileReader::open(bytes).unwrap();
    let mut records = file.records();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for raw in records.by_ref() {
        match raw {
            Ok(raw) => good.push(raw.offset),
            Err(e) => bad.push((e.kind(), e.offset().unwrap())),
        }
    }
    assert!(records.is_at_end());
    (good, bad, records.skipped())
}

/// The byte at a place of the damage.
type Fill = fn(usize) -> u8;

/// Bytes of any kind over one record or several.
#[test]
fn records_go_on_behind_damage() {
    let bytes = common::recording();
    let (all, bad, skipped) = read(&bytes);
    assert_eq!((bad.len(), skipped), (0, 0));
    let fills: [(&str, Fill); 5] = [
        ("zeros", |_| 0),
        ("ones", |_| 0xff),
        ("text", |i| b"It was a dark and stormy night; "[i % 32]),
        ("counting", |i| i as u8),
        ("small numbers", |i| if i % 8 == 0 { (i / 8 % 23) as u8 } else { 0 }),
    ];
    for (name, fill) in fills {
        for first in (2..all.len() - 30).step_by(17) {
            for count in [1, 3, 10] {
                let (from, to) = (all[first] as usize, all[first + count] as usize);
                let mut hurt = bytes.clone();
                hurt[from..to].iter_mut().enumerate().for_each(|(i, b)| *b = fill(i));
                let (good, bad, skipped) = read(&hurt);
                let what = format!("{name} over {count} from record {first}");
                assert_eq!(bad.first().map(|(_, at)| *at), Some(from as u64), "{what}");
                assert_eq!(
                    (&good[..first], &good[good.len() - (all.len() - first - count)..]),
                    (&all[..first], &all[first + count..]),
                    "{what}"
                );
                assert_eq!(skipped, (to - from) as u64, "{what}");
            }
        }
    }
}

/// A size that is wrong takes no more with it than what it reaches.
#[test]
fn sizes_that_lie_cost_one_record() {
    let bytes = common::recording();
    let (all, _, _) = read(&bytes);
    for first in (2..all.len() - 30).step_by(11) {
        let at = all[first] as usize;
        let next = all[first + 1] as usize;
        for size in [0_u16, 1, 7, 13] {
            let mut hurt = bytes.clone();
            hurt[at + 6..at + 8].copy_from_slice(&size.to_le_bytes());
            let (good, bad, _) = read(&hurt);
            assert!(!bad.is_empty(), "{size} at {first}");
            let behind = all.len() - first - 1;
            assert_eq!(good[good.len() - behind..], all[first + 1..], "{size} at {first}");
            assert!(good.len() <= all.len() && bad[0].1 < next as u64, "{size} at {first}");
        }
    }
}

/// Types that only their writer knows are records like others; bytes that look like such a type are none.
#[test]
fn records_of_other_writers_are_passed_over() {
    let layout = Layout::new(&common::events()[0].attr, Endian::Little);
    let mut writer =
        afterimage_perf_data::FileWriter::create(std::io::Cursor::new(Vec::new()), &common::events()).unwrap();
    let chain = common::chain();
    // simpleperf's begin at 32768; somebody else may use any number, and kernels will have new ones.
    let types = [32_769, 32_770, 32_770, 40_000, 0x1234_5678, 63, 30, 200];
    for kind in types {
        let body: &[u8] = b"what only simpleperf knows......";
        writer.record(&Record::User(UserRecord { kind, misc: 0, body }), &layout).unwrap();
        for _ in 0..3 {
            writer.record(&Record::Sample(common::sample(0, &chain)), &layout).unwrap();
        }
    }
    // simpleperf has the higher bits of a size where others have flags.
    let mut large = vec![0; 0x1_0004];
    large[..4].copy_from_slice(&32_777_u32.to_le_bytes());
    large[4..8].copy_from_slice(&[1, 0, 4, 0]);
    writer.write(&large).unwrap();
    writer.record(&Record::Sample(common::sample(0, &chain)), &layout).unwrap();
    let bytes = writer.finish(&common::features(), None).unwrap().into_inner();
    let file = FileReader::open(&bytes).unwrap();
    let mut kinds: Vec<u32> = file.records().map(|raw: Result<RawRecord<'_>, _>| raw.unwrap().header.kind).collect();
    kinds.dedup();
    let expected: Vec<u32> = types.into_iter().chain([32_777]).flat_map(|kind| [kind, kind::SAMPLE]).collect();
    assert_eq!(kinds, expected);
}

/// The types of the records of a file, and of the same as a stream.
fn kinds_of(records: &[u8]) -> [Vec<u32>; 2] {
    let mut writer =
        afterimage_perf_data::FileWriter::create(std::io::Cursor::new(Vec::new()), &common::events()).unwrap();
    writer.write(records).unwrap();
    let file = writer.finish(&common::features(), None).unwrap().into_inner();
    let file = FileReader::open(&file).unwrap();
    let in_file = file.records().map(|raw| raw.unwrap().header.kind).collect();
    let mut stream = RecordStream::new(&[0; 16], records, file.table().clone(), false);
    let mut in_stream = Vec::new();
    while let Some(raw) = stream.next_record() {
        in_stream.push(raw.unwrap().header.kind);
    }
    [in_file, in_stream]
}

fn record_of(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).unwrap();
    [&kind.to_le_bytes()[..], &[0, 0], &size.to_le_bytes(), body].concat()
}

/// Several types that are newer than this stand next to each other, and one before data whose end cannot be seen.
#[test]
fn strangers_stand_next_to_each_other() {
    let layout = Layout::new(&common::events()[0].attr, Endian::Little);
    let chain = common::chain();
    let mut sample = Vec::new();
    Record::Sample(common::sample(0, &chain)).encode(&layout, &mut sample).unwrap();
    let samples = sample.repeat(2000);
    let strangers = [63, 30, 33, 100, 32_769, 63, 23, 127];
    let mut records = sample.clone();
    strangers.iter().for_each(|kind| records.extend(record_of(*kind, &[7; 24])));
    records.extend(&samples);
    let expected: Vec<u32> = [kind::SAMPLE].into_iter().chain(strangers).chain([kind::SAMPLE; 2000]).collect();
    assert_eq!(kinds_of(&records), [expected.clone(), expected]);
    // AUX data of a size that nobody holds.
    let mut records = sample.clone();
    records.extend(record_of(30, &[7; 24]));
    let mut body = [0; 40];
    body[..8].copy_from_slice(&(1_u64 << 20).to_le_bytes());
    records.extend(record_of(kind::AUXTRACE, &body));
    records.resize(records.len() + (1 << 20), 0xee);
    records.extend(&samples);
    let kinds = [kind::SAMPLE, 30, kind::AUXTRACE];
    let expected: Vec<u32> = kinds.into_iter().chain([kind::SAMPLE; 2000]).collect();
    assert_eq!(kinds_of(&records), [expected.clone(), expected]);
}

/// Only simpleperf's records have 32 bits for their size. A stream does not wait for gigabytes to see that it was a lie.
#[test]
fn sizes_beyond_any_record_are_damage() {
    let layout = Layout::new(&common::events()[0].attr, Endian::Little);
    let chain = common::chain();
    let mut sample = Vec::new();
    Record::Sample(common::sample(0, &chain)).encode(&layout, &mut sample).unwrap();
    let records = [&sample[..], &[1, 0x80, 0, 0, 0xff, 0x7f, 0, 0], &sample.repeat(1 << 15)].concat();
    let table = FileReader::open(&common::recording()).unwrap().table().clone();
    let mut read = 0;
    let counted = std::io::Read::chain(&records[..], std::io::empty());
    let counted = Counted(counted, &mut read);
    let mut stream = RecordStream::new(&[0; 16], counted, table, false);
    assert!(stream.next_record().unwrap().is_ok());
    let error = stream.next_record().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::BadSize, Some(16 + sample.len() as u64)));
    assert!(stream.next_record().unwrap().is_ok() && stream.skipped() == 8);
    drop(stream);
    assert!(read < records.len() / 2, "{read} of {}", records.len());
}

/// Counts what was read.
struct Counted<'a, R>(R, &'a mut usize);

impl<R: std::io::Read> std::io::Read for Counted<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let got = self.0.read(to)?;
        *self.1 += got;
        Ok(got)
    }
}

/// Nothing that can be a record follows: reading ends, and what is left is counted.
#[test]
fn damage_up_to_the_end() {
    let bytes = common::recording();
    let file = FileReader::open(&bytes).unwrap();
    let (all, _, _) = read(&bytes);
    let (from, end) = (all[all.len() - 5], file.data_offset() + file.data_size());
    let mut hurt = bytes.clone();
    hurt[from as usize..end as usize].fill(0xee);
    let (good, bad, skipped) = read(&hurt);
    assert_eq!((good.len(), bad.len(), skipped), (all.len() - 5, 1, end - from));
    assert_eq!(bad[0].1, from);
}

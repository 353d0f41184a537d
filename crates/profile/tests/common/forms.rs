//! The same recording in other forms: as a stream, compressed, with its bytes in the other order.

use std::io::Cursor;

use afterimage_perf_data::features::{Compressed, bit};
use afterimage_perf_data::record::{Record, UserRecord, kind};
use afterimage_perf_data::{Attr, Endian, Features, FileReader, FileWriter, Layout, PipeWriter};
use zstd::stream::raw::{Encoder, InBuffer, Operation, OutBuffer};

use crate::common::{Recording, attr, bpf_output, event};

/// A recording with two events, processes that come and go, stacks, and rounds.
pub(crate) fn mixture(samples: u64) -> Vec<u8> {
    let mut r = Recording::of(vec![event(attr(), 1, "cpu-clock"), event(bpf_output(), 2, "bpf-output")]);
    for i in 0..samples {
        let pid = 100 + (i / 50) as u32;
        if i % 50 == 0 {
            r.fork(i * 10 + 1, 1, pid);
            r.comm(i * 10 + 2, pid, &format!("worker-{}", i / 50), true);
            r.mmap(i * 10 + 3, pid, 0x40_0000, 0x1000, 0, "/bin/worker");
            r.ksymbol(i * 10 + 3, 0xffff_ffff_c000_0000 + i * 64, 64, "bpf_prog_1", false);
        }
        r.chain(i * 10 + 9 - i % 4, pid, 0x40_0000 + i % 7 * 16, &[u64::MAX - 511, 0x40_0000 + i % 7 * 16, 0x40_0800]);
        if i % 3 == 0 {
            r.raw(1, i * 10 + 9, b"twelve bytes");
        }
        if i % 10 == 9 {
            r.round();
        }
    }
    let features = Features { hostname: Some("here".into()), os_release: Some("6.1".into()), ..Features::default() };
    r.finish_with(&features, None)
}

/// The records of a recording as they stand in it.
pub(crate) fn records_of(reader: &FileReader<'_>) -> Vec<u8> {
    reader.records().flat_map(|raw| raw.unwrap().bytes.to_vec()).collect()
}

/// In pipe form.
pub(crate) fn streamed(bytes: &[u8]) -> Vec<u8> {
    let reader = FileReader::open(bytes).unwrap();
    let mut writer = PipeWriter::create(Vec::new(), reader.events(), reader.features()).unwrap();
    writer.write(&records_of(&reader)).unwrap();
    writer.finish(reader.features()).unwrap()
}

/// As `perf record -z` writes it: records in one zstd stream, cut anywhere.
pub(crate) fn compressed(bytes: &[u8]) -> Vec<u8> {
    let reader = FileReader::open(bytes).unwrap();
    let layout = Layout::new(&reader.events()[0].attr, Endian::Little);
    let mut writer = FileWriter::create(Cursor::new(Vec::new()), reader.events()).unwrap();
    let mut zstd = Encoder::new(3).unwrap();
    for chunk in records_of(&reader).chunks(4001) {
        let mut room = vec![0; 1 << 16];
        let mut out = OutBuffer::around(&mut room[..]);
        zstd.run(&mut InBuffer::around(chunk), &mut out).unwrap();
        assert_eq!(zstd.flush(&mut out).unwrap(), 0);
        let body = out.as_slice();
        writer.record(&Record::User(UserRecord { kind: kind::COMPRESSED, misc: 0, body }), &layout).unwrap();
    }
    let packed = Compressed { version: 1, kind: 1, level: 3, ratio: 2, mmap_len: 1 << 20 };
    let features = Features { compressed: Some(packed), ..reader.features().clone() };
    writer.finish(&features, None).unwrap().into_inner()
}

/// With every number in the order of a big-endian machine: header, attrs, ids, records and features.
pub(crate) fn swapped(bytes: &[u8]) -> Vec<u8> {
    let big = Endian::Big;
    let reader = FileReader::open(bytes).unwrap();
    let mut data = Vec::new();
    for raw in reader.records() {
        let raw = raw.unwrap();
        let record = reader.decode(&raw).unwrap();
        // What tools write for themselves says nothing about samples, and its numbers are not known here.
        if matches!(record, Record::User(_)) {
            continue;
        }
        let event = reader.event_for(&raw).unwrap_or(0);
        record.encode(&Layout::new(&reader.events()[event].attr, big), &mut data).unwrap();
    }
    let entry = u64::from(Attr::MAX_SIZE) + 16;
    let (mut attrs, mut ids) = (Vec::new(), Vec::new());
    let ids_at = 104 + entry * reader.events().len() as u64;
    for event in reader.events() {
        event.attr.encode_as(&mut attrs, big, Attr::MAX_SIZE);
        attrs.extend(big.put_u64(ids_at + ids.len() as u64));
        attrs.extend(big.put_u64(8 * event.ids.len() as u64));
        ids.extend(event.ids.iter().flat_map(|id| big.put_u64(*id)));
    }
    let data_at = ids_at + ids.len() as u64;
    let features = reader.features().encode(big, None).unwrap();
    let mut bits = [0_u64; 4];
    features
        .iter()
        .filter(|(feature, _)| *feature < bit::COUNT)
        .for_each(|(f, _)| bits[*f as usize / 64] |= 1 << (f % 64));
    let magic = u64::from_le_bytes(*b"PERFILE2");
    let head = [magic, 104, entry, 104, entry * reader.events().len() as u64, data_at, data.len() as u64, 0, 0];
    let mut out: Vec<u8> = head.iter().chain(&bits).flat_map(|word| big.put_u64(*word)).collect();
    out.extend(attrs);
    out.extend(ids);
    out.extend(&data);
    let mut at = out.len() as u64 + 16 * features.len() as u64;
    for (_, section) in &features {
        out.extend(big.put_u64(at));
        out.extend(big.put_u64(section.len() as u64));
        at += section.len() as u64;
    }
    features.iter().for_each(|(_, section)| out.extend(section));
    out
}

//! What the fuzz targets do with their input. Here so that a plain test can replay their corpora; no part of the API.
//!
//! Beside "no panic, no endless loop, no memory by an unchecked length" each asserts what must hold of any input: what
//! was decoded, encoded and decoded again is the same the second time.

use crate::bytes::Cursor;
use crate::features::decode_one;
use crate::record::{Record, kind};
use crate::{
    AiHdr, Attr, AttrFlags, EmitPayload, Endian, Features, FileReader, LabelPayload, Layout, Private, RawRecord,
    ReadFormat, RecordStream, Records, SampleType, Source, ValuePayload, btf, decode, journal, private,
};

/// Bytes at the start of the input of [`record_decode`] that make the layout; then come records.
pub const LAYOUT_BYTES: usize = 16;

/// The layout in the first bytes of an input.
pub fn layout_of(seed: &[u8; LAYOUT_BYTES]) -> Layout {
    let [a, b, c, d, read_format, flags, branch, _, regs @ ..] = *seed;
    let bit = |mask: u8| flags & mask != 0;
    let mut attr = Attr {
        sample_type: SampleType::from_bits_retain(u32::from_le_bytes([a, b, c, d]).into()),
        read_format: ReadFormat::from_bits_retain(read_format.into()),
        branch_sample_type: u64::from(branch) << 12,
        sample_regs_user: u64::from_le_bytes(regs),
        sample_regs_intr: u64::from_le_bytes(regs) >> 3,
        ..Attr::default()
    };
    attr.flags.set(AttrFlags::SAMPLE_ID_ALL, bit(1));
    Layout::new(&attr, if bit(2) { Endian::Big } else { Endian::Little })
}

/// Records of one layout.
pub fn record_decode(data: &[u8]) {
    let Some((seed, records)) = data.split_first_chunk::<LAYOUT_BYTES>() else { return };
    let layout = layout_of(seed);
    for raw in Records::new(records, 0, layout.endian) {
        let Ok(raw) = raw else { return };
        let Ok(record) = decode(&raw, &layout) else { continue };
        look_at(&record);
        let mut once = Vec::new();
        if record.encode(&layout, &mut once).is_err() {
            continue;
        }
        // Padding may have been added the first time; never the second. Parsed alone, since what follows an AUXTRACE
        // record is no part of it.
        let again = RawRecord::parse(&once, 0, layout.endian).and_then(|raw| decode(&raw, &layout)).ok();
        let mut twice = Vec::new();
        let encoded = again.map(|r| r.encode(&layout, &mut twice));
        assert!(matches!(encoded, Some(Ok(()))), "{record:?} does not read back");
        assert_eq!(once, twice, "{record:?} changes");
    }
}

/// Calls what reads lazily.
fn look_at(record: &Record<'_>) {
    match record {
        Record::Sample(s) => {
            let chain = s.callchain.map_or(0, |c| c.iter().fold(0, u64::wrapping_add));
            let branches = s.branch_stack.map_or(0, |b| b.iter().map(|e| u64::from(e.cycles())).sum::<u64>());
            let reads = s.read.map_or(0, |r| r.iter().count() as u64 + r.enabled().unwrap_or(0) % 2);
            std::hint::black_box((chain, branches, reads));
            if let Some(raw) = s.raw {
                let _ = std::hint::black_box((AiHdr::decode(raw).is_ok(), EmitPayload::decode(raw).is_ok()));
                payloads(raw);
            }
        }
        Record::Read(r) => {
            std::hint::black_box(r.values.iter().count());
        }
        Record::Namespaces(n) => {
            std::hint::black_box(n.iter().count());
        }
        _ => {}
    }
    std::hint::black_box(record.time());
}

/// Payloads of values and labels, where the bytes are one.
fn payloads(raw: &[u8]) {
    let mut again = Vec::new();
    if let Ok(value) = ValuePayload::decode(raw) {
        value.encode(&mut again);
        let hdr = AiHdr { size: again.len() as u16, ..value.hdr };
        assert_eq!(ValuePayload::decode(&again).ok(), Some(ValuePayload { hdr, ..value }));
    }
    again.clear();
    if let Ok(label) = LabelPayload::decode(raw) {
        label.encode(&mut again);
        let hdr = AiHdr { size: again.len() as u16, ..label.hdr };
        assert_eq!(LabelPayload::decode(&again).ok(), Some(LabelPayload { hdr, ..label }));
        std::hint::black_box(label.name());
    }
}

/// A whole file or a journal.
pub fn container(data: &[u8]) {
    if data.starts_with(&journal::MAGIC) {
        if let Ok(journal) = journal::read(data) {
            private_again(&journal.private);
        }
        return;
    }
    streamed(data);
    file(data);
}

/// A file as it comes through a pipe, its compressed records unpacked.
fn streamed(data: &[u8]) {
    let Ok(reader) = FileReader::open_packed(data) else { return };
    let packed = reader.is_compressed();
    let mut stream = match reader.is_pipe() {
        true => RecordStream::new(data, std::io::empty(), reader.table().clone(), packed),
        false if packed => reader.unpacked(),
        false => return,
    };
    while let Some(next) = stream.next_record() {
        let Ok(raw) = next else { continue };
        let (offset, size) = (raw.offset, raw.header.size);
        if raw.header.kind == kind::SAMPLE {
            assert!(stream.record_at(offset, size).is_some());
        }
        stream.release(offset);
    }
    assert!(stream.is_at_end());
}

fn file(data: &[u8]) {
    let Ok(file) = FileReader::open(data) else { return };
    for raw in file.records() {
        // They go on behind damage.
        let Ok(raw) = raw else { continue };
        std::hint::black_box(file.event_for(&raw));
        if let Ok(record) = file.decode(&raw) {
            look_at(&record);
        }
    }
    for (_, range) in &file.features().unknown {
        assert!(file.bytes(range).is_some(), "a kept section outside the file");
    }
    for problem in file.problems() {
        std::hint::black_box(problem.to_string());
    }
    features_again(file.features(), file.endian());
}

/// Entries of the private section, each a kind, a length of two bytes and that many bytes: texts, images, programs and
/// all else that it holds. What is no entry of its kind is passed over.
pub fn private(data: &[u8]) {
    let mut private = Private::default();
    let mut rest = data;
    while let Some(([kind, low, high], tail)) = rest.split_first_chunk::<3>() {
        let (entry, tail) = tail.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(tail.len()));
        let _ = private.apply(u32::from(*kind % 10), entry);
        rest = tail;
    }
    private.settle();
    private_again(&private);
    assert!(private.texts.is_sorted_by(|a, b| a.number < b.number), "a text twice");
}

/// A journal with right checksums: entries as in [`private`], then cut so many bytes before its end as the last byte says.
pub fn journal(data: &[u8]) {
    let Ok(mut writer) = journal::Writer::create(std::io::Cursor::new(Vec::new())) else { return };
    let mut rest = data;
    let mut written = 0;
    while let Some(([kind, low, high], tail)) = rest.split_first_chunk::<3>() {
        let (entry, tail) = tail.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(tail.len()));
        written += u64::from(writer.append(u32::from(*kind), entry.to_vec()).is_ok());
        rest = tail;
    }
    let mut bytes = writer.into_inner().into_inner();
    bytes.truncate(bytes.len() - usize::from(rest.last().copied().unwrap_or(0)).min(bytes.len()));
    let Ok(read) = journal::read(&bytes) else { return };
    assert!(read.entries <= written);
    private_again(&read.private);
    // And as it stands, with whatever checksums it has.
    if let Ok(read) = journal::read(data) {
        private_again(&read.private);
    }
}

/// BTF and the bytes of a value: a length of two bytes, so many bytes of BTF, and what is left.
///
/// Beside what every target asserts: a value that is read has a size, and the size of its type is no more.
pub fn values(data: &[u8]) {
    let Some((len, rest)) = data.split_first_chunk::<2>() else { return };
    let (btf, bytes) = rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()));
    let Ok(types) = btf::Types::parse(btf) else { return };
    let last = u32::try_from(types.len()).unwrap_or(u32::MAX);
    for id in (0..=last.saturating_add(1)).take(50) {
        std::hint::black_box(types.name(id).len());
        let Ok(value) = types.value(id, bytes) else { continue };
        assert!(types.values(id, bytes).is_ok());
        let size = types.size(id);
        let is_list = matches!(value, btf::Value::List(_) | btf::Value::Text(_));
        assert!(size.is_some_and(|size| is_list || size <= bytes.len() as u64), "type {id} of {size:?} bytes");
        assert!(!value.to_string().is_empty());
        std::hint::black_box((value.bare().len(), value.to_json().is_null()));
    }
}

/// One feature section; the first byte picks which, and the byte order.
pub fn features(data: &[u8]) {
    let Some((pick, section)) = data.split_first() else { return };
    let endian = if pick & 0x80 != 0 { Endian::Big } else { Endian::Little };
    let feature = match pick & 0x7f {
        127 => private::FEATURE_BIT,
        n => u32::from(n) % 33,
    };
    let mut features = Features { nr_cpus: Some((2, 2)), ..Features::default() };
    if decode_one(&mut features, feature, Cursor::new(section, 0, endian)).is_ok() {
        features_again(&features, endian);
    }
}

/// What was read is written, read and written again; the second writing must be like the first.
fn features_again(features: &Features, endian: Endian) {
    for prog in &features.bpf_progs {
        std::hint::black_box((prog.id(), prog.name(), prog.jited_ksyms().iter().count(), prog.jited_func_lens().len()));
        std::hint::black_box((prog.jited_insns().len(), prog.prog_tags().count(), prog.btf_id()));
        std::hint::black_box((prog.code_of(1).map(<[u8]>::len), prog.xlated_insns().len(), prog.func_info().count()));
        std::hint::black_box((prog.line_info().0.len(), prog.jited_line_info().iter().count()));
    }
    let Ok(once) = features.encode(endian, features.private.as_ref()) else { return };
    let mut read = Features::default();
    for (feature, data) in &once {
        let result = decode_one(&mut read, *feature, Cursor::new(data, 0, endian));
        assert!(result.is_ok(), "feature {feature} does not read back: {result:?}");
    }
    let twice = read.encode(endian, read.private.as_ref());
    assert!(twice.is_ok_and(|twice| twice == once), "features change");
}

fn private_again(p: &Private) {
    let Ok(bytes) = p.encode() else { return };
    let again = Private::decode(&bytes, 0);
    // What could not be read is not written.
    let p = &Private { lost_objects: 0, lost_jit: 0, ..p.clone() };
    assert!(again.is_ok_and(|again| again == *p), "a private section changes");
    if let Some(tally) = &p.tally {
        let _ = std::hint::black_box((tally.check(), tally.total().human()));
    }
}

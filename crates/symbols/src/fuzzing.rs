//! What the fuzz targets do with their input. Here so that a plain test can replay their corpora; no part of the API.

use crate::bytes::Cursor;
use crate::kept::KeptObject;
use crate::lines::{BpfLines, BpfParts};
use crate::{KernelTable, ObjectFile};

/// A text in the form of /proc/kallsyms, or one of our tables as it is kept in the cache (after a first byte of 1).
///
/// Beside "no panic" it asserts that every symbol is found at its own address, that none reaches beyond its extent, and
/// that a table that was encoded, decoded and encoded again is the same.
pub fn kallsyms(data: &[u8]) {
    let table = match data.split_first() {
        Some((1, encoded)) => match KernelTable::decode(encoded) {
            Some(table) => table,
            None => return,
        },
        _ => KernelTable::parse(data),
    };
    for start in table.starts().take(200) {
        let Some(hit) = table.lookup(start) else { continue };
        assert!(hit.start.checked_add(hit.offset) == Some(start), "{hit:?} at {start:#x}");
        if let Some(extent) = table.extent(start) {
            assert!(extent.contains(&start), "{extent:?} without {start:#x}");
        }
    }
    let excerpt = KernelTable::parse(&table.excerpt(table.starts().take(50)));
    std::hint::black_box((excerpt.len(), table.hidden(), table.contains(table.start())));
    let once = table.encode();
    let again = KernelTable::decode(&once);
    assert!(again.is_some_and(|again| again.encode() == once), "a table changes");
}

/// BTF line info: two counts, the sizes and addresses of functions, addresses of lines, then records and BTF.
///
/// Beside "no panic, no memory by an unchecked length" it asserts that every line lies in its function, that lines
/// ascend, and that both ways to ask agree.
pub fn btf_lines(data: &[u8]) {
    let Some(input) = Input::parse(data) else { return };
    let parts = BpfParts {
        addresses: &input.addresses,
        lengths: &input.lengths,
        records: input.records,
        record_len: input.record_len,
        natives: &input.natives,
        big_endian: input.flags & 1 != 0,
        btf: (input.flags & 2 == 0).then_some(input.btf),
    };
    let Ok(lines) = BpfLines::new(&parts) else { return };
    for (function, len) in input.lengths.iter().enumerate() {
        let mut last = None;
        for (start, line) in lines.starts(function) {
            assert!(start < u64::from(*len) && last.is_none_or(|last| last < start), "{start} in {len}");
            assert_eq!(lines.at(function, start).as_ref(), Some(&line));
            assert!(lines.insns_at(function, start).is_some());
            last = Some(start);
        }
        assert_eq!(lines.at(function, u64::from(*len)), None);
    }
    for native in &input.natives {
        if let Some((function, offset)) = lines.function_at(*native) {
            assert!(input.lengths.get(function).is_some_and(|len| offset < u64::from(*len)));
        }
    }
}

/// What an archive keeps of an object, with a checksum in front that need not be right.
///
/// Beside "no panic, no memory by an unchecked length" it asserts that what was decoded is encoded and decoded to the same,
/// and asks for a name, code and lines at the addresses that it tells of.
pub fn kept(data: &[u8]) {
    let Some(kept) = KeptObject::decode_payload(data) else { return };
    let bytes = kept.encode();
    let again = KeptObject::decode(&bytes);
    assert!(again.is_some_and(|again| again.encode() == bytes), "an object changes");
    let Ok(content) = kept.content else { return };
    let file = ObjectFile::kept(content.clone());
    let lines = file.lines().ok();
    for start in content.table().iter().map(|hit| hit.start).take(100) {
        std::hint::black_box((content.lookup_offset(start).is_ok(), file.code(start, 64)));
        std::hint::black_box(lines.as_ref().map(|lines| lines.frames(start)));
    }
    for segment in content.table().segments().iter().take(100) {
        std::hint::black_box((content.lookup_offset(segment.offset).is_ok(), file.vaddr_of_offset(segment.offset)));
    }
}

/// A payload that [`kept`] takes, with the checksum that archives have.
pub fn seal_kept(payload: &[u8]) -> Vec<u8> {
    KeptObject::seal(payload)
}

struct Input<'a> {
    flags: u8,
    record_len: u32,
    addresses: Vec<u64>,
    lengths: Vec<u32>,
    natives: Vec<u64>,
    records: &'a [u8],
    btf: &'a [u8],
}

impl<'a> Input<'a> {
    fn parse(data: &'a [u8]) -> Option<Input<'a>> {
        let mut c = Cursor(data);
        let &[flags, record_len, functions, lines] = c.take(4)? else { return None };
        let addresses = c.words(functions.into(), u64::from_le_bytes)?;
        let lengths = c.words(functions.into(), u32::from_le_bytes)?;
        let natives = c.words(lines.into(), u64::from_le_bytes)?;
        let records = c.take(usize::from(lines) * usize::from(record_len))?;
        Some(Input { flags, record_len: record_len.into(), addresses, lengths, natives, records, btf: c.0 })
    }
}

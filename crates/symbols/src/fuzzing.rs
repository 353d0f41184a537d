//! What the fuzz targets do with their input. Here so that a plain test can replay their corpora; no part of the API.

use std::path::Path;

use crate::bytes::Cursor;
use crate::kept::KeptObject;
use crate::lines::{BpfLines, BpfParts};
use crate::{KernelTable, ObjectFile, container, jit, jitdump, perfmap};

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

/// A dump of a JIT compiler.
///
/// Beside "no panic, no memory by an unchecked length" it asserts that whole records stay whole, that nothing reaches out of
/// the dump, and that each piece of code has its own name at its start when it has just come.
pub fn jitdump(data: &[u8]) {
    let Some(header) = jitdump::Header::read(data) else { return };
    let Some(records) = data.get(header.len as usize..) else { return };
    if let Some(whole) = header.whole(records) {
        assert!(whole <= records.len());
        let again = records.get(..whole).and_then(|records| header.whole(records));
        assert_eq!(again, Some(whole));
    }
    for event in header.records(records) {
        match event {
            jitdump::Event::Lines(lines) => assert!(lines.iter().count() <= data.len() / 17),
            jitdump::Event::Load(load) => assert!(load.code.len() <= data.len() && load.name.len() <= data.len()),
            _ => {}
        }
    }
    let mut bytes = header.records(records);
    while let Some(record) = bytes.next_bytes() {
        if let Some(less) = header.without_code(record) {
            assert_eq!(header.whole(&less), Some(less.len()));
        }
    }
    let mut builder = jit::Builder::default();
    builder.dump(Path::new("/tmp/jit-1.dump"), None, 0, data, &mut jit::Room::default());
    code(builder);
}

/// Lines of maps of JIT compilers, read in pieces where a NUL stands.
pub fn perf_map(data: &[u8]) {
    let mut builder = jit::Builder::default();
    for (at, piece) in (0..).zip(data.split(|byte| *byte == 0)) {
        builder.map(Path::new("/tmp/perf-1.map"), at, piece, &mut jit::Room::default());
    }
    code(builder);
    let map = perfmap::PerfMap::parse(data);
    std::hint::black_box((map.len(), map.lookup(0).is_some(), map.lookup(u64::MAX).is_some()));
}

/// The path of a cgroup.
///
/// Beside "no panic" it asserts that what is found has a text, and no more in it than the path has.
pub fn cgroup_names(data: &[u8]) {
    let path = String::from_utf8_lossy(data);
    let Some(found) = container::of_cgroup(&path) else { return };
    let shown = found.to_string();
    assert!(!shown.is_empty() && found.id.len() <= path.len(), "{found:?} of {path:?}");
    assert!(found.pod.is_none_or(|pod| pod.len() <= path.len()));
}

fn code(builder: jit::Builder) {
    let code = builder.finish(&mut jit::Room::default());
    for change in code.changes.iter().take(1000) {
        assert!(change.start < change.end && (change.layer as usize) < code.layers.len());
        let Some(layer) = code.layers.get(change.layer as usize) else { continue };
        let at = change.start.wrapping_add(change.delta);
        let hit = layer.content.lookup_offset(at);
        // What lies too high has no name.
        assert!(code.left_out > 0 || hit.is_ok_and(|hit| hit.offset == 0 && hit.start == at), "{change:?}");
        let file = ObjectFile::kept(layer.content.clone());
        std::hint::black_box((file.code(at, 64), file.lines().map(|lines| lines.frames(at)).ok()));
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

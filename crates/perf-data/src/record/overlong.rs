//! Records that say they are longer than they are.
//!
//! The kernel builds a KSYMBOL, BPF_EVENT or TEXT_POKE once and hands it to every event on the CPU that listens. For each
//! of them it adds the length of that event's sample id to the size in the header, and never takes it back (seen on 6.1,
//! 6.12 and 6.18): with two recorders at once, the second one finds stale bytes behind its sample id. So in these the
//! sample id stands where their own fields end, not at the end of the record.

use super::{Layout, RawRecord, RecordHeader, kind};
use crate::Endian;

/// How many bytes of the body come before the sample id.
pub(super) fn before_sample_id(raw: &RawRecord<'_>, layout: &Layout) -> Option<usize> {
    let body = raw.body();
    let at_end = body.len().checked_sub(layout.trailer_bytes)?;
    let own = match raw.header.kind {
        kind::KSYMBOL => body.get(16..).and_then(name_bytes).map(|name| 16 + name),
        kind::BPF_EVENT => Some(16),
        kind::TEXT_POKE => piece_bytes(body, layout.endian).map(|pieces| 8 + pieces),
        _ => None,
    };
    // A record that is too short for what it says is told when its fields are read.
    Some(own.map_or(at_end, |own| own.min(at_end)))
}

/// The old and the new bytes with their lengths in front, padded to 8 bytes.
fn piece_bytes(body: &[u8], endian: Endian) -> Option<usize> {
    let length = |at: usize| Some(usize::from(endian.u16(*body.get(at..)?.first_chunk()?)));
    Some((4 + length(8)? + length(10)?).next_multiple_of(8))
}

/// A name with the zero at its end, padded to 8 bytes.
fn name_bytes(name: &[u8]) -> Option<usize> {
    Some((name.iter().position(|byte| *byte == 0)? + 1).next_multiple_of(8))
}

/// A record of a ring of this machine, without the stale bytes at its end: appended to `out` as it ought to be.
pub fn append_repaired(record: &[u8], layout: &Layout, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(record);
    let Ok(raw) = RawRecord::parse(record, 0, Endian::NATIVE) else { return };
    let Some(before) = before_sample_id(&raw, layout) else { return };
    let size = RecordHeader::SIZE + before + layout.trailer_bytes;
    if let (true, Ok(short)) = (size < record.len(), u16::try_from(size)) {
        out.truncate(start + size);
        out[start + 6..start + 8].copy_from_slice(&short.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BpfEvent, Ksymbol, Mmap, TextPoke};
    use crate::{Attr, AttrFlags, Record, SampleId, SampleType, decode};

    fn layout() -> Layout {
        let sample_type = SampleType::TID | SampleType::TIME | SampleType::CPU | SampleType::IDENTIFIER;
        Layout::new(&Attr { sample_type, flags: AttrFlags::SAMPLE_ID_ALL, ..Attr::default() }, Endian::NATIVE)
    }

    /// The record, and the same as a second listener gets it.
    fn both(record: &Record<'_>) -> (Vec<u8>, Vec<u8>) {
        let mut bytes = Vec::new();
        record.encode(&layout(), &mut bytes).unwrap();
        let mut long = bytes.clone();
        long.extend([0xa5; 32]);
        let size = long.len() as u16;
        long[6..8].copy_from_slice(&size.to_ne_bytes());
        (bytes, long)
    }

    #[test]
    fn the_sample_id_stands_behind_the_fields() {
        let (time, cpu, identifier) = (Some(77), Some(1), Some(9));
        let id = SampleId { pid: Some(4), tid: Some(5), time, cpu, identifier, ..SampleId::default() };
        for name in [&b"bpf_prog_x"[..], b"1234567", b"12345678"] {
            let records = [
                Record::Ksymbol(Ksymbol { addr: 1, len: 2, kind: 1, flags: 0, name, misc: 0, id }),
                Record::BpfEvent(BpfEvent { kind: 1, flags: 0, prog_id: 3, tag: [7; 8], misc: 0, id }),
                Record::TextPoke(TextPoke { addr: 1, old: name, new: &name[..2], misc: 0, id }),
            ];
            for record in &records {
                let (bytes, long) = both(record);
                let raw = RawRecord::parse(&long, 0, Endian::NATIVE).unwrap();
                assert_eq!(&decode(&raw, &layout()).unwrap(), record);
                let mut out = vec![1];
                append_repaired(&long, &layout(), &mut out);
                assert_eq!(out[1..], bytes);
                append_repaired(&bytes, &layout(), &mut out);
                assert_eq!(out[1 + bytes.len()..], bytes, "what is right stays");
            }
        }
    }

    #[test]
    fn other_records_end_with_it() {
        let map =
            Mmap { pid: 1, tid: 1, addr: 2, len: 3, pgoff: 0, filename: b"file", misc: 0, id: SampleId::default() };
        let (_, long) = both(&Record::Mmap(map));
        let mut out = Vec::new();
        append_repaired(&long, &layout(), &mut out);
        assert_eq!(out, long);
    }
}

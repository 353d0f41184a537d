//! Which entry of a table covers an address.

use gimli::{BaseAddresses, CieOrFde, EndianSlice, LittleEndian, UnwindOffset, UnwindSection};
use rustc_hash::FxHashMap;

use crate::table::Section;

pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Finds the entry (FDE) for an address.
#[derive(Debug)]
pub(crate) enum Index {
    /// The sorted table that linkers put beside `.eh_frame`: addresses relative to the header's own.
    Header(Header),
    /// First addresses and offsets of entries, sorted, found by reading all of them.
    Sorted(Vec<(u64, u64)>),
}

/// `.eh_frame_hdr` (Linux Standard Base, Core, 10.6.2) in the one form that linkers write.
#[derive(Debug)]
pub(crate) struct Header {
    section: Section,
    /// The address of the `.eh_frame` that the offsets are into.
    frames: u64,
    entries: usize,
}

/// Bytes before the sorted table.
const HEAD: usize = 12;
/// Bytes of an entry of it.
const ENTRY: usize = 8;

impl Header {
    /// `None` if it is of another form.
    pub(crate) fn new(section: Section, frames: u64) -> Option<Header> {
        // Version 1; a 4-byte relative pointer, a 4-byte count, 4-byte entries relative to the header.
        let stated = match section.bytes.get(..HEAD)? {
            [1, 0x1b, 0x03, 0x3b, _, _, _, _, count @ ..] => u32::from_le_bytes(count.try_into().ok()?),
            _ => return None,
        };
        let room = (section.bytes.len() - HEAD) / ENTRY;
        let entries = usize::try_from(stated).ok()?.min(room);
        (entries > 0).then_some(Header { section, frames, entries })
    }

    /// The address that `.eh_frame` has by its header, which stands at `address`.
    pub(crate) fn frames_of(address: u64, bytes: &[u8]) -> Option<u64> {
        match bytes.get(..8)? {
            [1, 0x1b, _, _, relative @ ..] => {
                let relative = i32::from_le_bytes(relative.try_into().ok()?);
                Some(address.wrapping_add(4).wrapping_add(i64::from(relative) as u64))
            }
            _ => None,
        }
    }

    /// One of the two fields of an entry, as an address.
    fn field(&self, entry: usize, nth: usize) -> Option<u64> {
        let at = HEAD + entry * ENTRY + nth * 4;
        let bytes = self.section.bytes.get(at..at + 4)?;
        let relative = i32::from_le_bytes(bytes.try_into().ok()?);
        Some(self.section.address.wrapping_add(i64::from(relative) as u64))
    }

    fn find(&self, address: u64) -> Option<u64> {
        let (mut from, mut until) = (0, self.entries);
        while from < until {
            let middle = from + (until - from) / 2;
            if self.field(middle, 0)? <= address {
                from = middle + 1;
            } else {
                until = middle;
            }
        }
        self.field(from.checked_sub(1)?, 1)?.checked_sub(self.frames)
    }
}

impl Index {
    /// Reads all entries of a section; of a damaged one, those before the damage.
    pub(crate) fn of<'b, S>(section: &S, bases: &BaseAddresses) -> Index
    where
        S: UnwindSection<Bytes<'b>>,
        S::Offset: UnwindOffset<usize>,
    {
        let mut all: Vec<(u64, u64)> = Vec::new();
        // What entries share stands before them. None is read again for each of them, however long it is.
        let mut shared = FxHashMap::default();
        let mut entries = section.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            let partial = match entry {
                CieOrFde::Cie(cie) => {
                    shared.insert(cie.offset(), cie);
                    continue;
                }
                CieOrFde::Fde(partial) => partial,
            };
            let of = |_: &S, _: &BaseAddresses, offset: S::Offset| {
                let offset: usize = UnwindOffset::into(offset);
                shared.get(&offset).cloned().ok_or(gimli::Error::NotCiePointer)
            };
            let Ok(fde) = partial.parse(of) else { continue };
            // What was left out by the linker stands at address 0.
            if fde.len() > 0 && fde.initial_address() != 0 {
                all.push((fde.initial_address(), fde.offset() as u64));
            }
        }
        all.sort_unstable();
        Index::Sorted(all)
    }

    /// The offset of the last entry that begins at or before an address.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let offset = match self {
            Index::Header(header) => header.find(address)?,
            Index::Sorted(all) => {
                let behind = all.partition_point(|(start, _)| *start <= address);
                all.get(behind.checked_sub(1)?)?.1
            }
        };
        usize::try_from(offset).ok()
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Index::Sorted(all) if all.is_empty())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn header(entries: &[(i32, i32)], stated: u32) -> Section {
        let mut bytes = vec![1, 0x1b, 0x03, 0x3b];
        bytes.extend(0x100_i32.to_le_bytes());
        bytes.extend(stated.to_le_bytes());
        for (start, entry) in entries {
            bytes.extend(start.to_le_bytes());
            bytes.extend(entry.to_le_bytes());
        }
        Section { address: 0x5000, bytes }
    }

    #[test]
    fn the_last_entry_at_or_before() {
        let section = header(&[(-0x4000, 0x200), (-0x3000, 0x240), (-0x2000, 0x280)], 3);
        assert_eq!(Header::frames_of(0x5000, &section.bytes), Some(0x5104));
        let index = Index::Header(Header::new(section, 0x5104).unwrap());
        let found = [0xfff, 0x1000, 0x1fff, 0x2000, 0x9000].map(|address| index.find(address));
        assert_eq!(found, [None, Some(0xfc), Some(0xfc), Some(0x13c), Some(0x17c)]);
    }

    #[test]
    fn a_stated_count_is_not_believed() {
        let section = header(&[(-0x4000, 0x200)], u32::MAX);
        let index = Index::Header(Header::new(section, 0x5104).unwrap());
        assert_eq!(index.find(0x9000), Some(0xfc));
        assert!(Header::new(header(&[], u32::MAX), 0).is_none());
        assert!(Header::new(Section { address: 0, bytes: vec![1, 0x1b] }, 0).is_none());
        // An entry below the table that it is of.
        let section = header(&[(-0x4000, -0x4000)], 1);
        assert_eq!(Index::Header(Header::new(section, 0x5104).unwrap()).find(0x1000), None);
    }
}

//! A recording written once more with another private section: everything else stays byte for byte where it was.
//!
//! Sections stand behind the records, so that header, attrs and records are copied as they are, in whatever byte order and
//! form. Only where the feature bits and the size of the records stand in the header is it written over.

use std::io::Write;
use std::ops::Range;

use crate::bytes::Out;
use crate::header::{Bits, SIZE, Section};
use crate::private::FEATURE_BIT;
use crate::writer::describe;
use crate::{Error, ErrorKind, Features, FileReader, Private, Result};

/// Where the header holds the size of the records, and its feature bits.
const DATA_SIZE_AT: Range<usize> = 48..56;
const BITS_AT: usize = 72;
const BITS_END: usize = 104;

/// A section of the new file.
enum Part<'a> {
    /// It stands before the end of the records, and stays there.
    InFront(Section),
    Copied(&'a [u8]),
    Made(Vec<u8>),
}

impl FileReader<'_> {
    /// Writes the recording again with `private` in place of its private section. One that was not finished gets the sections
    /// that are known of it, from its journal; `private` ought to say that it was not.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a recording in pipe form and for one of the first tools, which have no place for the
    /// section; [`ErrorKind::BadOffset`] for one whose attrs stand behind its records; when it cannot be written.
    pub fn write_again(&self, private: &Private, to: &mut impl Write) -> Result<()> {
        let end = self.end_of_records()?;
        let all = self.file_bytes().get(..end).unwrap_or_default();
        // Only the header changes.
        let (head, records) = all.split_at_checked(BITS_END).unwrap_or((all, &[]));
        let mut head = head.to_vec();
        let parts = self.parts(private, end as u64)?;
        let mut bits = Bits::default();
        parts.iter().for_each(|(feature, _)| bits.set(*feature));
        self.patch(&mut head, bits, end)?;
        let mut table = Vec::new();
        let mut at = end as u64 + 16 * parts.len() as u64;
        for (_, part) in &parts {
            let section = match part {
                Part::InFront(section) => *section,
                other => {
                    let size = other.bytes().len() as u64;
                    at += size;
                    Section { offset: at - size, size }
                }
            };
            section.encode(&mut Out { buf: &mut table, endian: self.endian() });
        }
        let written = to.write_all(&head).and_then(|()| to.write_all(records)).and_then(|()| to.write_all(&table));
        let written = written.and_then(|()| parts.iter().try_for_each(|(_, part)| to.write_all(part.bytes())));
        written.map_err(|e| Error::io("write the archive", e))
    }

    /// One past the last byte of the records.
    fn end_of_records(&self) -> Result<usize> {
        if self.is_pipe() || !self.has_feature_bits() {
            return Err(Error::new(ErrorKind::Unsupported, "private section in a recording of this form"));
        }
        let end = self.data_offset().saturating_add(self.data_size()).min(self.file_bytes().len() as u64);
        let outside = |what| Error::at(ErrorKind::BadOffset, what, end);
        // What they point to would be left behind.
        if self.data_offset() < SIZE || self.end_of_attrs() > end {
            return Err(outside("event attrs"));
        }
        usize::try_from(end).map_err(|_| outside("records"))
    }

    fn parts(&self, private: &Private, end: u64) -> Result<Vec<(u32, Part<'_>)>> {
        if !self.is_whole() {
            let mut features = Features { private: None, unknown: Vec::new(), ..self.features().clone() };
            if features.event_desc.is_empty() {
                features.event_desc = describe(self.events());
            }
            let mut parts: Vec<(u32, Part<'_>)> = Vec::new();
            // Formats of tracepoints stand in front of the records of one of ours.
            let in_front = self.sections().filter(|(feature, _)| *feature != FEATURE_BIT);
            parts.extend(in_front.filter(|(_, s)| s.offset + s.size <= end).map(|(f, s)| (f, Part::InFront(s))));
            let made = features.encode(self.endian(), Some(private))?;
            let have: Vec<u32> = parts.iter().map(|(feature, _)| *feature).collect();
            parts.extend(made.into_iter().filter(|(f, _)| !have.contains(f)).map(|(f, data)| (f, Part::Made(data))));
            parts.sort_by_key(|(feature, _)| *feature);
            return Ok(parts);
        }
        let mut parts = Vec::new();
        for (feature, section) in self.sections().filter(|(feature, _)| *feature != FEATURE_BIT) {
            // What leads out of the file cannot be carried along; whoever read it was told.
            let Ok(bytes) = section.of(self.file_bytes(), "feature section") else { continue };
            let in_front = section.offset + section.size <= end;
            parts.push((feature, if in_front { Part::InFront(section) } else { Part::Copied(bytes) }));
        }
        parts.push((FEATURE_BIT, Part::Made(private.encode()?)));
        parts.sort_by_key(|(feature, _)| *feature);
        Ok(parts)
    }

    fn patch(&self, head: &mut [u8], bits: Bits, end: usize) -> Result<()> {
        let mut words = Vec::new();
        let mut o = Out { buf: &mut words, endian: self.endian() };
        o.u64(end as u64 - self.data_offset());
        bits.0.into_iter().for_each(|word| o.u64(word));
        let (size, bits) = words.split_at(8);
        let short = || Error::new(ErrorKind::Truncated, "file header");
        head.get_mut(DATA_SIZE_AT).ok_or_else(short)?.copy_from_slice(size);
        head.get_mut(BITS_AT..BITS_END).ok_or_else(short)?.copy_from_slice(bits);
        Ok(())
    }
}

impl Part<'_> {
    /// What is written behind the table.
    fn bytes(&self) -> &[u8] {
        match self {
            Part::InFront(_) => &[],
            Part::Copied(bytes) => bytes,
            Part::Made(bytes) => bytes,
        }
    }
}

//! Records as they come, and where they are until their turn has come.
//!
//! A replay reads records in the order of the file and needs them again in the order of time. Of a file in memory they
//! are where they were; a stream keeps what was read for as long as something in it is waited for.

use std::fmt;

use crate::record::RawRecord;
use crate::records::Records;
use crate::stream::RecordStream;
use crate::{Endian, Error, Result};

/// What a CPU fetches from memory at once, in bytes.
const LINE: u64 = 64;

/// Where a replay gets its records from.
pub trait Source {
    /// The next record. An error is damage: after it records go on, or end.
    fn next_record(&mut self) -> Option<Result<RawRecord<'_>>>;

    /// A record that [`Source::next_record`] gave and that was not [released](Source::release).
    fn record_at(&self, offset: u64, size: u16) -> Option<RawRecord<'_>>;

    /// These records, by place and size, are asked for next, and lie far from each other: those that are in memory may be
    /// brought near the CPU, all at one time.
    fn come_next(&self, places: impl Iterator<Item = (u64, u16)>) {
        let _ = places;
    }

    /// The record at `offset` will not be asked for again.
    fn release(&mut self, offset: u64) {
        let _ = offset;
    }

    /// No record before `offset` waits for its turn any more. It is said now and then, not of each record.
    fn passed(&mut self, offset: u64) {
        let _ = offset;
    }

    /// Whether a FINISHED_ROUND speaks of all records before it.
    fn has_rounds(&self) -> bool {
        true
    }

    /// Bytes that are held for records which were not released.
    fn held_bytes(&self) -> u64 {
        0
    }

    /// Bytes so far that belong to no record, because of damage.
    fn skipped(&self) -> u64;

    /// Bytes of a last record that the recorder had not finished.
    fn cut(&self) -> u64;

    /// How many records so far held others, which were given in their place.
    fn packed_counts(&self) -> PackedCounts {
        PackedCounts::default()
    }

    /// Whether nothing comes any more.
    fn is_at_end(&self) -> bool;
}

/// Numbers of compressed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PackedCounts {
    /// Of type COMPRESSED.
    pub first: u64,
    /// Of type COMPRESSED2.
    pub second: u64,
}

/// Who wants to know how far the reading of a file has come: the pages of one that is mapped need not be kept behind that.
pub trait Behind: fmt::Debug + Sync {
    /// Bytes of the file before `offset` are not looked at any more, or seldom: they have to be there all the same.
    fn passed(&self, offset: u64);
}

/// Records of one file in memory.
#[derive(Debug)]
pub struct FileSource<'a> {
    file: &'a [u8],
    records: Records<'a>,
    endian: Endian,
    behind: Option<&'a dyn Behind>,
}

impl<'a> FileSource<'a> {
    /// `records` of the file whose bytes are `file`.
    pub fn new(file: &'a [u8], records: Records<'a>) -> Self {
        Self { file, endian: records.endian(), records, behind: None }
    }

    /// The records from the next one on, for who finds them on another thread.
    pub fn records(&self) -> Records<'a> {
        self.records.clone()
    }

    /// The same, and `behind` is told how far it has come.
    pub fn telling(self, behind: &'a dyn Behind) -> Self {
        Self { behind: Some(behind), ..self }
    }
}

impl Source for FileSource<'_> {
    #[inline]
    fn next_record(&mut self) -> Option<Result<RawRecord<'_>>> {
        self.records.next()
    }

    #[inline]
    fn record_at(&self, offset: u64, size: u16) -> Option<RawRecord<'_>> {
        record_in(self.file, offset, offset, size, self.endian)
    }

    #[inline]
    fn come_next(&self, places: impl Iterator<Item = (u64, u16)>) {
        let byte = |at: u64| usize::try_from(at).ok().and_then(|at| self.file.get(at)).copied().unwrap_or(0);
        // No load waits for another, so that the CPU has many under way. Taken one by one, as records are decoded, each is
        // waited for, which was half of all the time. Between beginning and end the CPU foresees what comes.
        let near = places.fold(0, |all, (offset, size)| {
            all ^ byte(offset) ^ byte(offset + LINE) ^ byte(offset + u64::from(size).saturating_sub(1))
        });
        std::hint::black_box(near);
    }

    fn passed(&mut self, offset: u64) {
        if let Some(behind) = self.behind {
            behind.passed(offset);
        }
    }

    fn skipped(&self) -> u64 {
        self.records.skipped()
    }

    fn cut(&self) -> u64 {
        self.records.cut()
    }

    fn is_at_end(&self) -> bool {
        self.records.is_at_end()
    }
}

/// The record at `at` of some bytes, which is at `offset` of the recording.
#[inline]
fn record_in(bytes: &[u8], at: u64, offset: u64, size: u16, endian: Endian) -> Option<RawRecord<'_>> {
    let start = usize::try_from(at).ok()?;
    let bytes = bytes.get(start..start.checked_add(usize::from(size))?)?;
    RawRecord::parse(bytes, offset, endian).ok()
}

/// Records of several files of one recording (`perf record --threads`): each has those of some CPUs, and no rounds end.
///
/// They are read in turns, a piece of the one that is furthest behind, so that their times stay near each other.
#[derive(Debug)]
pub struct PartsSource<'a> {
    parts: Vec<Part<'a>>,
    current: usize,
    /// Bytes of the current part until it is the next one's turn.
    turn: u64,
    endian: Endian,
}

#[derive(Debug)]
struct Part<'a> {
    file: &'a [u8],
    /// What has to be taken from a record's place to have its place in `file`.
    base: u64,
    records: Records<'a>,
    /// The newest time in it so far.
    time: u64,
    done: bool,
}

/// Bytes of a turn.
const TURN: u64 = 256 << 10;

impl<'a> PartsSource<'a> {
    /// `records` of the first file, and those of files that hold nothing but records of the same events. Places of records
    /// in the second file begin where the first ends, and so on.
    pub fn new(first: &'a [u8], records: Records<'a>, others: &[&'a [u8]]) -> Self {
        let endian = records.endian();
        let table = records.table();
        let mut base = first.len() as u64;
        let mut parts = vec![Part { file: first, base: 0, records, time: 0, done: false }];
        for file in others {
            let records = Records::of_part(file, base, table.clone());
            parts.push(Part { file, base, records, time: 0, done: false });
            base += file.len() as u64;
        }
        Self { parts, current: 0, turn: u64::MAX, endian }
    }

    /// Whose turn it is now: the first part is read to its end before all others, since it tells what was there before.
    fn next_part(&mut self) -> Option<usize> {
        let left = self.parts.iter().enumerate().filter(|(_, part)| !part.done);
        let next = left.min_by_key(|(nth, part)| (*nth != 0, part.time)).map(|(nth, _)| nth)?;
        self.turn = TURN;
        Some(next)
    }
}

impl Source for PartsSource<'_> {
    fn next_record(&mut self) -> Option<Result<RawRecord<'_>>> {
        loop {
            if self.turn == 0 || self.parts.get(self.current).is_none_or(|part| part.done) {
                self.current = self.next_part()?;
            }
            let part = self.parts.get_mut(self.current)?;
            match part.records.next() {
                Some(Ok(raw)) => {
                    self.turn = self.turn.saturating_sub(raw.bytes.len() as u64);
                    if let Some(time) = part.records.time_of(&raw) {
                        part.time = part.time.max(time);
                    }
                    return Some(Ok(raw));
                }
                Some(Err(e)) if self.current == 0 => return Some(Err(e)),
                Some(Err(e)) => return Some(Err(in_part(e, self.current, part.base))),
                None => part.done = true,
            }
        }
    }

    fn record_at(&self, offset: u64, size: u16) -> Option<RawRecord<'_>> {
        let nth = self.parts.partition_point(|part| part.base <= offset).checked_sub(1)?;
        let part = self.parts.get(nth)?;
        record_in(part.file, offset - part.base, offset, size, self.endian)
    }

    fn has_rounds(&self) -> bool {
        self.parts.len() == 1
    }

    fn skipped(&self) -> u64 {
        self.parts.iter().map(|part| part.records.skipped()).sum()
    }

    fn cut(&self) -> u64 {
        self.parts.iter().map(|part| part.records.cut()).sum()
    }

    fn is_at_end(&self) -> bool {
        self.parts.iter().all(|part| part.records.is_at_end())
    }
}

/// The error with its place in the file that it is of.
fn in_part(e: Error, nth: usize, base: u64) -> Error {
    let at = e.offset().unwrap_or(base).saturating_sub(base);
    Error::at(e.kind(), e.what().to_owned(), at).within(&format!("data file {nth}"))
}

/// Any of the sources.
#[derive(Debug)]
pub enum AnySource<'a> {
    /// A file in memory.
    File(FileSource<'a>),
    /// Several files in memory.
    Parts(PartsSource<'a>),
    /// A stream, or the contents of compressed records.
    Stream(Box<RecordStream<'a>>),
}

impl AnySource<'_> {
    /// What a stream told about itself behind the beginning of its records: build IDs most of all.
    pub fn told_late(&mut self) -> Option<&crate::Features> {
        match self {
            AnySource::Stream(stream) => Some(&stream.told().features),
            AnySource::File(_) | AnySource::Parts(_) => None,
        }
    }

    /// How many records of a stream told too late of events, names or features, which were not used; and what could not be
    /// read of those that tell, given out once.
    pub fn told_in_vain(&mut self) -> (u64, Vec<Error>) {
        match self {
            AnySource::Stream(stream) => {
                let told = stream.told();
                (told.unused, std::mem::take(&mut told.problems))
            }
            AnySource::File(_) | AnySource::Parts(_) => (0, Vec::new()),
        }
    }
}

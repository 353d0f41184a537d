//! Records one after the other, and over what is none.

use std::sync::Arc;

use crate::record::{RawRecord, RecordHeader, kind};
use crate::table::EventTable;
use crate::{Endian, Error, ErrorKind, Result, resync};

/// The records in some bytes.
///
/// What is no record is an error with its place; those of a [recording](crate::FileReader::records) go on with the next
/// record that can be found behind it, others end there.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    data: &'a [u8],
    offset: u64,
    endian: Endian,
    /// By which records are known again after damage.
    table: Option<Arc<EventTable>>,
    end: End,
    /// Bytes that belong to no record.
    skipped: u64,
    /// Bytes of a last record that is cut short, where that is no damage.
    cut: u64,
}

/// What the end of the bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The end of the last record.
    Whole,
    /// The file ends before its header says that the records do.
    Missing,
    /// As far as the recorder came: the last record may lack its end.
    Growing,
}

impl<'a> Records<'a> {
    /// Records in a piece of a ring or a file that begins at `offset`. They end at the first error.
    pub fn new(data: &'a [u8], offset: u64, endian: Endian) -> Self {
        Self { data, offset, endian, table: None, end: End::Whole, skipped: 0, cut: 0 }
    }

    /// Records of these events, which go on after damage.
    pub(crate) fn of(data: &'a [u8], offset: u64, table: Arc<EventTable>, end: End) -> Self {
        Self { data, offset, endian: table.endian(), table: Some(table), end, skipped: 0, cut: 0 }
    }

    /// Records of a further file of the same recording, whose first byte has the place `offset`.
    pub(crate) fn of_part(data: &'a [u8], offset: u64, table: Option<Arc<EventTable>>) -> Self {
        match table {
            Some(table) => Self::of(data, offset, table, End::Growing),
            None => Self::new(data, offset, Endian::default()),
        }
    }

    pub(crate) fn endian(&self) -> Endian {
        self.endian
    }

    pub(crate) fn table(&self) -> Option<Arc<EventTable>> {
        self.table.clone()
    }

    /// The time of a record of the kernel, if it has one.
    pub(crate) fn time_of(&self, raw: &RawRecord<'_>) -> Option<u64> {
        let table = self.table.as_deref().filter(|_| raw.header.kind < kind::FIRST_USER)?;
        table.decode(raw).ok()?.time().filter(|time| *time != u64::MAX)
    }

    /// Bytes so far that belong to no record, because of damage.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Bytes of a last record that the recorder had not finished; they are no damage.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Whether there is nothing more to come.
    pub fn is_at_end(&self) -> bool {
        self.data.is_empty() && self.end != End::Missing
    }

    fn advance(&mut self, raw: &RawRecord<'a>) -> Result<()> {
        let whole = (raw.bytes.len() as u64).saturating_add(bytes_behind(raw, self.endian));
        match usize::try_from(whole).ok().and_then(|n| self.data.get(n..)) {
            Some(rest) => {
                self.data = rest;
                self.offset += whole;
                Ok(())
            }
            None => Err(Error::at(ErrorKind::Truncated, "data after a record", self.offset)),
        }
    }

    /// Goes on behind damage where records are found again, and ends where there are none.
    #[cold]
    fn damaged<T>(&mut self, e: Error) -> Option<Result<T>> {
        let found = self.table.as_deref().and_then(|table| resync::find(table, self.data, self.offset, true));
        if let Some(skip) = found {
            self.data = self.data.get(skip..).unwrap_or_default();
            self.offset += skip as u64;
            self.skipped += skip as u64;
            return Some(Err(e));
        }
        let left = std::mem::take(&mut self.data).len() as u64;
        if self.end == End::Growing && e.kind() == ErrorKind::Truncated {
            self.cut = left;
            return None;
        }
        self.end = End::Whole;
        self.skipped += left;
        Some(Err(e))
    }

    /// The next record, and its bytes with those that follow it.
    #[inline]
    pub(crate) fn next_whole(&mut self) -> Option<Result<(RawRecord<'a>, &'a [u8])>> {
        if self.data.is_empty() {
            if self.end == End::Missing {
                self.end = End::Whole;
                return Some(Err(Error::at(ErrorKind::Truncated, "records", self.offset)));
            }
            return None;
        }
        let before = self.data;
        let raw = match RawRecord::parse(before, self.offset, self.endian) {
            Ok(raw) if resync::is_known(raw.header.kind) && !self.lies(&raw) => raw,
            Ok(raw) => match self.strange(raw) {
                Ok(raw) => raw,
                Err(e) => return self.damaged(e),
            },
            Err(e) => return self.damaged(e),
        };
        match self.advance(&raw) {
            Ok(()) => Some(Ok((raw, &before[..before.len() - self.data.len()]))),
            Err(e) => self.damaged(e),
        }
    }

    /// Whether a record reaches over others.
    #[inline]
    fn lies(&self, raw: &RawRecord<'_>) -> bool {
        self.table.as_deref().is_some_and(|table| resync::is_too_large(raw, table))
    }

    /// A record of a type that is not known (newer than this, another writer's, or none), or one that is too large.
    #[cold]
    fn strange(&self, raw: RawRecord<'a>) -> Result<RawRecord<'a>> {
        let Some(table) = &self.table else { return Ok(raw) };
        let behind = self.data.get(raw.bytes.len()..).unwrap_or_default();
        let place = raw.offset + raw.bytes.len() as u64;
        let known = resync::is_known(raw.header.kind);
        match !known && resync::may_be_private(&raw, behind, place, true, table) {
            true => Ok(raw),
            false => Err(not_a_record(&raw)),
        }
    }
}

pub(crate) fn not_a_record(raw: &RawRecord<'_>) -> Error {
    let RecordHeader { kind, size, .. } = raw.header;
    Error::at(ErrorKind::BadValue, format!("record of type {kind} and {size} bytes"), raw.offset)
}

/// Bytes that follow a record without being part of it: AUX data, and the trace data of a pipe.
pub(crate) fn bytes_behind(raw: &RawRecord<'_>, endian: Endian) -> u64 {
    match raw.header.kind {
        kind::AUXTRACE => raw.body().first_chunk::<8>().map_or(0, |b| endian.u64(*b)),
        kind::HEADER_TRACING_DATA => {
            let size = raw.body().first_chunk::<4>().map_or(0, |b| endian.u32(*b));
            u64::from(size).next_multiple_of(8)
        }
        _ => 0,
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.next_whole().map(|r| r.map(|(raw, _)| raw))
    }
}

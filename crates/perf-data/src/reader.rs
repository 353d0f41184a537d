//! Reading of a perf.data file that is in memory (or mapped).
//!
//! What can be read is read: damage in a feature section costs that section, damage in the records ends them, and both
//! are told with their place. Only a header or an attr that makes no sense is an error of [`FileReader::open`].

use crate::bytes::Cursor;
use crate::features::{DescribedEvent, decode_one};
use crate::header::{FileHeader, SIZE_PIPE, Section};
use crate::pipe;
use crate::record::{RawRecord, Record, decode, kind};
use crate::{Attr, Endian, Error, ErrorKind, EventDesc, Features, Layout, Private, Result, journal, unwritten};

/// A recording.
#[derive(Debug)]
pub struct FileReader<'a> {
    file: &'a [u8],
    header: FileHeader,
    events: Vec<EventDesc>,
    layouts: Vec<Layout>,
    ids: IdTable,
    features: Features,
    problems: Vec<Error>,
    data: Section,
    finished: bool,
}

impl<'a> FileReader<'a> {
    /// Opens a recording in seekable or in pipe form.
    ///
    /// # Errors
    /// When the header or the attrs make no sense, and [`ErrorKind::Unsupported`] for a compressed recording, which
    /// [`crate::compressed::unpack`] makes readable.
    pub fn open(file: &'a [u8]) -> Result<Self> {
        let mut header = FileHeader::decode(file)?;
        let finished = header.settle(file);
        let mut this = Self {
            file,
            header,
            events: Vec::new(),
            layouts: Vec::new(),
            ids: IdTable::default(),
            features: Features::default(),
            problems: Vec::new(),
            data: header.data,
            finished,
        };
        if header.pipe {
            this.data = Section { offset: SIZE_PIPE, size: file.len() as u64 - SIZE_PIPE };
            let records = this.records();
            pipe::scan(&mut this.events, &mut this.features, &mut this.problems, records)?;
        } else {
            this.open_seekable()?;
        }
        if this.features.compressed.is_some() {
            return Err(Error::new(ErrorKind::Unsupported, "compressed recording"));
        }
        this.layouts = this.events.iter().map(|e| Layout::new(&e.attr, header.endian)).collect();
        this.ids = IdTable::new(&this.events);
        Ok(this)
    }

    fn open_seekable(&mut self) -> Result<()> {
        let len = self.file.len() as u64;
        if self.data.offset > len {
            return Err(Error::at(ErrorKind::BadOffset, "records", self.data.offset));
        }
        self.events = self.read_attrs()?;
        self.read_features();
        let described = std::mem::take(&mut self.features.event_desc);
        name_events(&mut self.events, &described);
        self.features.event_desc = described;
        Ok(())
    }

    fn read_attrs(&mut self) -> Result<Vec<EventDesc>> {
        const W: &str = "event attrs";
        let endian = self.header.endian;
        let entry = self.header.attr_size;
        if entry < u64::from(Attr::MIN_SIZE) + 16 {
            return Err(Error::at(ErrorKind::BadSize, format!("{W} of {entry} bytes each"), 16));
        }
        let section = self.header.attrs.of(self.file, W)?;
        let entry_len = usize::try_from(entry).unwrap_or(usize::MAX);
        let mut events = Vec::new();
        for (i, bytes) in section.chunks_exact(entry_len).enumerate() {
            let at = self.header.attrs.offset + i as u64 * entry;
            let (attr, ids) = bytes.split_at(bytes.len() - 16);
            let attr = Attr::decode(attr, endian).map_err(|e| Error::at(e.kind(), e.what().to_owned(), at))?;
            let ids = Section::read(ids, at + entry - 16, endian)?;
            // Ids that cannot be read cost the attribution, not the recording.
            let ids = match ids.of(self.file, "event ids") {
                Ok(bytes) => crate::Words::new(bytes, endian).iter().collect(),
                Err(e) => {
                    self.problems.push(e);
                    Vec::new()
                }
            };
            events.push(EventDesc::named_by_attr(attr, ids));
        }
        if events.is_empty() {
            return Err(Error::at(ErrorKind::BadSize, W, self.header.attrs.offset));
        }
        Ok(events)
    }

    /// The table of sections stands after the records.
    fn read_features(&mut self) {
        const W: &str = "feature table";
        let endian = self.header.endian;
        let table = self.data.offset.saturating_add(self.data.size);
        for (i, feature) in self.header.features.iter().enumerate() {
            let at = Section { offset: table.saturating_add(16 * i as u64), size: 16 };
            let section = at.of(self.file, W).and_then(|b| Section::read(b, at.offset, endian));
            let read = section.and_then(|section| {
                let bytes =
                    section.of(self.file, "feature section").map_err(|e| e.within(&format!("feature {feature}")))?;
                decode_one(&mut self.features, feature, Cursor::new(bytes, section.offset, endian))
            });
            if let Err(e) = read {
                self.problems.push(e);
            }
        }
    }

    /// The byte order.
    pub fn endian(&self) -> Endian {
        self.header.endian
    }

    /// Whether it is in pipe form.
    pub fn is_pipe(&self) -> bool {
        self.header.pipe
    }

    /// The events, in file order.
    pub fn events(&self) -> &[EventDesc] {
        &self.events
    }

    /// The layout of an event's records.
    pub fn layout(&self, event: usize) -> Option<&Layout> {
        self.layouts.get(event)
    }

    /// Whether the recorder finished the file. An unfinished one has no features (but for TRACING_DATA in ours), and its
    /// records may end in one that is cut short.
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// What the recording says about itself.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// What the recording holds beyond perf's format.
    pub fn private(&self) -> Option<&Private> {
        self.features.private.as_ref()
    }

    /// Takes what a journal beside an unfinished recording holds as its private section, its BPF programs as features, and
    /// the names of its events.
    /// Samples that its tally knows and the recording lacks count as lost there. Damage in the journal is put to the
    /// problems, but for a last entry that is cut short: a killed recorder leaves that.
    ///
    /// # Errors
    /// When the bytes are no journal.
    pub fn use_journal(&mut self, bytes: &[u8]) -> Result<()> {
        let journal = journal::read(bytes)?;
        self.problems.extend(journal.damage.filter(|e| e.kind() != ErrorKind::Truncated));
        // Names stand in a section that an unfinished file lacks. The events of the tally are the first of the file.
        let tallies = journal.private.tally.iter().flat_map(|tally| &tally.events);
        for (event, tally) in self.events.iter_mut().zip(tallies) {
            event.name.clone_from(&tally.name);
        }
        let mut private = journal.private;
        unwritten::settle(&mut private, self);
        // A clean end would have put these into features.
        self.features.bpf_progs.append(&mut private.programs);
        self.features.bpf_btfs.append(&mut private.program_types);
        self.features.private = Some(private);
        Ok(())
    }

    /// What could not be read, apart from records.
    pub fn problems(&self) -> &[Error] {
        &self.problems
    }

    /// Where the records begin.
    pub fn data_offset(&self) -> u64 {
        self.data.offset
    }

    /// Bytes of records, as the header says; up to the end of the file where it says nothing.
    pub fn data_size(&self) -> u64 {
        self.data.size
    }

    /// The bytes of a range of the file, such as a section in [`Features::unknown`].
    pub fn bytes(&self, range: &std::ops::Range<u64>) -> Option<&'a [u8]> {
        self.file.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
    }

    /// The records, in file order.
    pub fn records(&self) -> Records<'a> {
        let start = usize::try_from(self.data.offset).unwrap_or(usize::MAX).min(self.file.len());
        let size = usize::try_from(self.data.size).unwrap_or(usize::MAX);
        let end = start.saturating_add(size).min(self.file.len());
        Records {
            data: &self.file[start..end],
            offset: self.data.offset,
            endian: self.header.endian,
            missing: size > end - start,
        }
    }

    /// The event that a record belongs to. Records without an id belong to the first event, as in perf; a SAMPLE with
    /// an id of no event belongs to none.
    #[inline]
    pub fn event_for(&self, raw: &RawRecord<'_>) -> Option<usize> {
        let first = self.layouts.first()?;
        if self.layouts.len() == 1 {
            return Some(0);
        }
        if raw.header.kind >= kind::FIRST_USER {
            return Some(0);
        }
        let Some(place) = id_place(first, raw) else { return Some(0) };
        let id = raw.bytes.get(place..)?.first_chunk::<8>()?;
        match self.header.endian.u64(*id) {
            0 => Some(0),
            id => self.ids.get(id),
        }
    }

    /// The id that a SAMPLE carries, by which [`FileReader::event_for`] knows its event.
    pub fn id_of(&self, raw: &RawRecord<'_>) -> Option<u64> {
        let place = id_place(self.layouts.first()?, raw)?;
        Some(self.header.endian.u64(*raw.bytes.get(place..)?.first_chunk::<8>()?))
    }

    /// Decodes a record as one of its event's, or of the first event's where it belongs to none.
    ///
    /// # Errors
    /// When a field does not fit into the record.
    #[inline]
    pub fn decode(&self, raw: &RawRecord<'a>) -> Result<Record<'a>> {
        let event = self.event_for(raw).unwrap_or(0);
        match self.layouts.get(event) {
            Some(layout) => decode(raw, layout),
            None => decode(raw, &Layout::new(&Attr::default(), self.header.endian)),
        }
    }
}

/// Where the id of a record of the kernel stands in it.
fn id_place(layout: &Layout, raw: &RawRecord<'_>) -> Option<usize> {
    if raw.header.kind == kind::SAMPLE {
        return layout.id_in_sample();
    }
    layout.id_from_end().and_then(|from_end| raw.bytes.len().checked_sub(from_end))
}

/// Gives the events the names that EVENT_DESC has for them, found by their ids or else by their place.
fn name_events(events: &mut [EventDesc], described: &[DescribedEvent]) {
    for (i, event) in events.iter_mut().enumerate() {
        let by_id = event.ids.first().and_then(|id| described.iter().find(|d| d.ids.contains(id)));
        let by_place = described.get(i);
        if let Some(found) = by_id.or(by_place).filter(|d| !d.name.is_empty()) {
            event.name.clone_from(&found.name);
        }
    }
}

/// The records of a recording. After an error it ends.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    data: &'a [u8],
    offset: u64,
    endian: Endian,
    /// The file ends before the header says that the records do.
    missing: bool,
}

impl<'a> Records<'a> {
    /// Records in a piece of a ring or a file that begins at `offset`.
    pub fn new(data: &'a [u8], offset: u64, endian: Endian) -> Self {
        Self { data, offset, endian, missing: false }
    }

    pub(crate) fn endian(&self) -> Endian {
        self.endian
    }

    /// Bytes that follow a record without being part of it: AUX data, and the trace data of a pipe.
    fn extra(&self, raw: &RawRecord<'a>) -> u64 {
        let word = |b: &[u8]| b.first_chunk::<8>().map_or(0, |b| self.endian.u64(*b));
        match raw.header.kind {
            kind::AUXTRACE => word(raw.body()),
            kind::HEADER_TRACING_DATA => {
                let size = raw.body().first_chunk::<4>().map_or(0, |b| self.endian.u32(*b));
                u64::from(size).next_multiple_of(8)
            }
            _ => 0,
        }
    }

    fn advance(&mut self, raw: &RawRecord<'a>) -> Result<()> {
        let extra = self.extra(raw);
        let whole = (raw.bytes.len() as u64).saturating_add(extra);
        match usize::try_from(whole).ok().and_then(|n| self.data.get(n..)) {
            Some(rest) => {
                self.data = rest;
                self.offset += whole;
                Ok(())
            }
            None => Err(Error::at(ErrorKind::Truncated, "data after a record", self.offset)),
        }
    }

    fn fail<T>(&mut self, e: Error) -> Option<Result<T>> {
        self.data = &[];
        self.missing = false;
        Some(Err(e))
    }

    /// The next record, and its bytes with those that follow it.
    #[inline]
    pub(crate) fn next_whole(&mut self) -> Option<Result<(RawRecord<'a>, &'a [u8])>> {
        if self.data.is_empty() {
            if self.missing {
                return self.fail(Error::at(ErrorKind::Truncated, "records", self.offset));
            }
            return None;
        }
        let before = self.data;
        let raw = match RawRecord::parse(before, self.offset, self.endian) {
            Ok(raw) => raw,
            Err(e) => return self.fail(e),
        };
        match self.advance(&raw) {
            Ok(()) => Some(Ok((raw, &before[..before.len() - self.data.len()]))),
            Err(e) => self.fail(e),
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.next_whole().map(|r| r.map(|(raw, _)| raw))
    }
}

/// Ids to events.
#[derive(Debug, Default)]
struct IdTable {
    /// Where ids lie close together: events by id from `base` on, `u32::MAX` for none.
    base: u64,
    dense: Vec<u32>,
    /// Where they do not: sorted.
    sparse: Vec<(u64, u32)>,
}

impl IdTable {
    fn new(events: &[EventDesc]) -> Self {
        let all = || events.iter().enumerate().flat_map(|(i, e)| e.ids.iter().map(move |id| (*id, i as u32)));
        let count = all().count() as u64;
        let Some(low) = all().map(|(id, _)| id).min() else { return Self::default() };
        let high = all().map(|(id, _)| id).max().unwrap_or(low);
        if high - low >= count.saturating_mul(8).saturating_add(1024) {
            let mut sparse: Vec<_> = all().collect();
            sparse.sort_by_key(|(id, _)| *id);
            return Self { sparse, ..Self::default() };
        }
        let mut dense = vec![u32::MAX; (high - low + 1) as usize];
        for (id, event) in all() {
            dense[(id - low) as usize] = event;
        }
        Self { base: low, dense, sparse: Vec::new() }
    }

    #[inline]
    fn get(&self, id: u64) -> Option<usize> {
        if self.dense.is_empty() {
            let found = self.sparse.binary_search_by_key(&id, |(id, _)| *id).ok()?;
            return Some(self.sparse.get(found)?.1 as usize);
        }
        let at = usize::try_from(id.checked_sub(self.base)?).ok()?;
        self.dense.get(at).filter(|e| **e != u32::MAX).map(|e| *e as usize)
    }
}

//! Reading of a perf.data file that is in memory (or mapped).
//!
//! What can be read is read: damage in a feature section costs that section, damage in the records those that it hit, and
//! both are told with their place. Only a header or an attr that makes no sense is an error of [`FileReader::open`].

use std::collections::HashMap;
use std::sync::Arc;

use crate::bytes::Cursor;
use crate::features::{DescribedEvent, bit, decode_one};
use crate::header::{FileHeader, SIZE_PIPE, Section};
use crate::record::{RawRecord, Record, kind};
use crate::records::{End, Records};
use crate::source::FileSource;
use crate::stream::RecordStream;
use crate::table::EventTable;
use crate::{Attr, Endian, Error, ErrorKind, EventDesc, Features, Layout, Private, Result, journal, pipe, unwritten};

/// A recording.
#[derive(Debug)]
pub struct FileReader<'a> {
    file: &'a [u8],
    header: FileHeader,
    table: Arc<EventTable>,
    features: Features,
    problems: Vec<Error>,
    data: Section,
    finished: bool,
    /// There are compressed records in the stream.
    packed: bool,
}

impl<'a> FileReader<'a> {
    /// Opens a recording in seekable or in pipe form.
    ///
    /// # Errors
    /// When the header or the attrs make no sense, and [`ErrorKind::Unsupported`] for a compressed recording, whose
    /// records [`FileReader::open_packed`] with a [`crate::RecordStream`] reads.
    pub fn open(file: &'a [u8]) -> Result<Self> {
        let this = Self::open_packed(file)?;
        if this.says_compressed() {
            return Err(Error::new(ErrorKind::Unsupported, "compressed recording"));
        }
        Ok(this)
    }

    /// Opens a recording whose records may be compressed, see [`FileReader::is_compressed`]; of a stream, its beginning is
    /// enough, as [`crate::stream::read_head`] gives it.
    ///
    /// # Errors
    /// When the header or the attrs make no sense.
    pub fn open_packed(file: &'a [u8]) -> Result<Self> {
        let mut header = FileHeader::decode(file)?;
        let finished = header.settle(file);
        let mut this = Self {
            file,
            header,
            table: Arc::default(),
            features: Features::default(),
            problems: Vec::new(),
            data: header.data,
            finished,
            packed: false,
        };
        if header.pipe {
            this.data = Section { offset: SIZE_PIPE, size: file.len() as u64 - SIZE_PIPE };
            this.open_stream();
        } else {
            this.open_seekable()?;
        }
        Ok(this)
    }

    /// Gathers what a stream says about its events and itself.
    fn open_stream(&mut self) {
        let mut told = pipe::Told::default();
        let rest = self.file.get(SIZE_PIPE as usize..).unwrap_or_default();
        let mut damaged_at = None;
        for raw in Records::new(rest, SIZE_PIPE, self.header.endian) {
            match raw {
                Ok(raw) => told.take(&raw, self.header.endian),
                Err(e) => damaged_at = e.offset(),
            }
        }
        // What stands behind damage is found by the events that stand before it.
        if let Some(at) = damaged_at {
            let rest = usize::try_from(at).ok().and_then(|at| self.file.get(at..)).unwrap_or_default();
            let table = Arc::new(EventTable::new(told.events.clone(), self.header.endian));
            let records = Records::of(rest, at, table, End::Growing);
            records.filter_map(Result::ok).for_each(|raw| told.take(&raw, self.header.endian));
        }
        self.table = Arc::new(EventTable::new(told.events, self.header.endian));
        self.features = told.features;
        self.problems = told.problems;
        self.packed = told.packed;
    }

    fn open_seekable(&mut self) -> Result<()> {
        let len = self.file.len() as u64;
        if self.data.offset > len {
            return Err(Error::at(ErrorKind::BadOffset, "records", self.data.offset));
        }
        let mut events = self.read_attrs()?;
        self.read_features();
        // An archive of an unfinished recording is written to its end, and holds no more than that had.
        self.finished &= !self.private().and_then(|private| private.archive.as_ref()).is_some_and(|a| a.unfinished);
        name_events(&mut events, &self.features.event_desc);
        self.table = Arc::new(EventTable::new(events, self.header.endian));
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
        // Ids are not counted twice, however many events point to the same ones.
        let mut room = self.file.len() as u64;
        let entry_len = usize::try_from(entry).unwrap_or(usize::MAX);
        let mut events = Vec::new();
        for (i, bytes) in section.chunks_exact(entry_len).enumerate() {
            let at = self.header.attrs.offset + i as u64 * entry;
            let (attr, ids) = bytes.split_at(bytes.len() - 16);
            let attr = Attr::decode(attr, endian).map_err(|e| Error::at(e.kind(), e.what().to_owned(), at))?;
            let ids = Section::read(ids, at + entry - 16, endian)?;
            // Ids that cannot be read cost the attribution, not the recording.
            let ids = match ids.of(self.file, "event ids").and_then(|bytes| take_room(&mut room, bytes, ids.offset)) {
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

    /// The whole file.
    pub(crate) fn file_bytes(&self) -> &'a [u8] {
        self.file
    }

    /// Whether the header has room for feature bits.
    pub(crate) fn has_feature_bits(&self) -> bool {
        self.header.has_features
    }

    /// Whether the sections are those that the recorder, or who put the recording in an archive, wrote at the end.
    pub(crate) fn is_whole(&self) -> bool {
        self.finished || self.is_archive()
    }

    fn is_archive(&self) -> bool {
        self.private().is_some_and(|private| private.archive.is_some())
    }

    /// One past the last byte of attrs and ids.
    pub(crate) fn end_of_attrs(&self) -> u64 {
        let attrs = self.header.attrs;
        let entry = self.header.attr_size;
        let end = attrs.offset.saturating_add(attrs.size);
        let ids =
            (1..).map(|nth: u64| nth.saturating_mul(entry)).take_while(|behind| entry > 16 && *behind <= attrs.size);
        let ends = ids.filter_map(|behind| {
            let at = attrs.offset.checked_add(behind)?.checked_sub(16)?;
            let section = Section { offset: at, size: 16 };
            let bytes = section.of(self.file, "event ids").ok()?;
            let ids = Section::read(bytes, at, self.header.endian).ok()?;
            // Ids that cannot be read are none.
            ids.of(self.file, "event ids").ok().map(|_| ids.offset + ids.size)
        });
        ends.fold(end, u64::max)
    }

    /// The feature sections by their bits, as the table has them.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (u32, Section)> + use<'_, 'a> {
        let table = self.data.offset.saturating_add(self.data.size);
        self.header.features.iter().enumerate().filter_map(move |(nth, feature)| {
            let at = Section { offset: table.saturating_add(16 * nth as u64), size: 16 };
            let bytes = at.of(self.file, "feature table").ok()?;
            Some((feature, Section::read(bytes, at.offset, self.header.endian).ok()?))
        })
    }

    /// The byte order.
    pub fn endian(&self) -> Endian {
        self.header.endian
    }

    /// The events, and which records are theirs.
    pub fn table(&self) -> &Arc<EventTable> {
        &self.table
    }

    /// Whether records stand compressed in others, so that [`FileReader::records`] does not show them.
    pub fn is_compressed(&self) -> bool {
        // Of a seekable recording only a finished one says so itself.
        let unsaid = || !self.header.pipe && !self.finished && self.header.has_features;
        self.says_compressed() || unsaid() && self.has_compressed()
    }

    /// The feature section stands behind the records and may be lost with the end of the file, where its bit in the header
    /// is left; the records themselves show whether that is true.
    fn says_compressed(&self) -> bool {
        self.features.compressed.is_some()
            || self.packed
            || self.header.features.has(bit::COMPRESSED) && self.has_compressed()
    }

    fn has_compressed(&self) -> bool {
        let packed = |raw: RawRecord<'_>| matches!(raw.header.kind, kind::COMPRESSED | kind::COMPRESSED2);
        self.records().filter_map(Result::ok).any(packed)
    }

    /// Whether it is in pipe form.
    pub fn is_pipe(&self) -> bool {
        self.header.pipe
    }

    /// The events, in file order.
    pub fn events(&self) -> &[EventDesc] {
        self.table.events()
    }

    /// The layout of an event's records.
    pub fn layout(&self, event: usize) -> Option<&Layout> {
        self.table.layout(event)
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
        for (event, tally) in Arc::make_mut(&mut self.table).events_mut().iter_mut().zip(tallies) {
            event.name.clone_from(&tally.name);
        }
        if let Some(off_cpu) = journal.private.tally.as_ref().and_then(|tally| tally.off_cpu.as_ref()) {
            let event = Arc::make_mut(&mut self.table).events_mut().get_mut(off_cpu.event);
            event.into_iter().for_each(|event| event.name.clone_from(&off_cpu.name));
            if let Some(wakers) = &off_cpu.wakers {
                let event = Arc::make_mut(&mut self.table).events_mut().get_mut(wakers.event);
                event.into_iter().for_each(|event| event.name.clone_from(&wakers.name));
            }
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

    /// The records, in file order. What is damaged is an error each time, and they go on behind it.
    pub fn records(&self) -> Records<'a> {
        let (records, end) = self.record_bytes();
        Records::of(records, self.data.offset, Arc::clone(&self.table), end)
    }

    /// The bytes of the records, and what their end is.
    fn record_bytes(&self) -> (&'a [u8], End) {
        let start = usize::try_from(self.data.offset).unwrap_or(usize::MAX).min(self.file.len());
        let size = usize::try_from(self.data.size).unwrap_or(usize::MAX);
        let end = start.saturating_add(size).min(self.file.len());
        let growing = self.header.pipe || !self.finished;
        let at_end = match size > end - start {
            true => End::Missing,
            false if growing => End::Growing,
            false => End::Whole,
        };
        (&self.file[start..end], at_end)
    }

    /// The same as a [`crate::Source`].
    pub fn source(&self) -> FileSource<'a> {
        FileSource::new(self.file, self.records())
    }

    /// The records of a compressed recording in memory, with what the compressed ones hold in place of these.
    pub fn unpacked(&self) -> RecordStream<'a> {
        let (records, end) = self.record_bytes();
        RecordStream::packed(records, self.data.offset, Arc::clone(&self.table), end)
    }

    /// The event that a record belongs to, see [`EventTable::event_for`].
    #[inline]
    pub fn event_for(&self, raw: &RawRecord<'_>) -> Option<usize> {
        self.table.event_for(raw)
    }

    /// The id that a SAMPLE carries, by which [`FileReader::event_for`] knows its event.
    pub fn id_of(&self, raw: &RawRecord<'_>) -> Option<u64> {
        self.table.id_of(raw)
    }

    /// Decodes a record as one of its event's, or of the first event's where it belongs to none.
    ///
    /// # Errors
    /// When a field does not fit into the record.
    #[inline]
    pub fn decode<'r>(&self, raw: &RawRecord<'r>) -> Result<Record<'r>> {
        self.table.decode(raw)
    }
}

/// The bytes, where there is room for so many.
fn take_room<'b>(room: &mut u64, bytes: &'b [u8], at: u64) -> Result<&'b [u8]> {
    match room.checked_sub(bytes.len() as u64) {
        Some(left) => {
            *room = left;
            Ok(bytes)
        }
        None => Err(Error::at(ErrorKind::BadSize, "event ids", at)),
    }
}

/// Gives the events the names that EVENT_DESC has for them, found by their ids or else by their place.
fn name_events(events: &mut [EventDesc], described: &[DescribedEvent]) {
    let mut of_id = HashMap::new();
    for (nth, described) in described.iter().enumerate() {
        described.ids.iter().for_each(|id| _ = of_id.entry(*id).or_insert(nth));
    }
    for (i, event) in events.iter_mut().enumerate() {
        let by_id = event.ids.first().and_then(|id| described.get(*of_id.get(id)?));
        let by_place = described.get(i);
        if let Some(found) = by_id.or(by_place).filter(|d| !d.name.is_empty()) {
            event.name.clone_from(&found.name);
        }
    }
}

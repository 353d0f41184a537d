//! Writing of a perf.data file in seekable form.
//!
//! The order in the file is perf's: header, ids, attrs, records, table of sections, sections. While recording, the
//! feature bits are zero and the size of the records is that of the last [`FileWriter::checkpoint`]: stock perf reads
//! such a file up to there, so that a killed recorder loses no more than one pass.
//!
//! Formats of tracepoints are what stock perf wants before the first record. They stand in front of the records, and
//! each checkpoint puts a table of that one section behind them. The records of the next pass take the table's place
//! last of all, so that there is a whole one whenever the recorder is killed.

use std::io::{self, Seek, SeekFrom, Write};

use crate::bytes::Out;
use crate::features::{DescribedEvent, bit};
use crate::header::{Bits, FileHeader, SIZE, Section};
use crate::journal::PackedEntry;
use crate::private;
use crate::record::{Record, RecordHeader};
use crate::{Attr, Endian, Error, ErrorKind, EventDesc, Features, Layout, Private, Result};

/// Records are gathered up to this many bytes before they are written.
const GATHER: usize = 256 << 10;
/// From this many bytes on a copy costs more than a write of their own.
const DIRECT: usize = 16 << 10;
/// Where the header holds the size of the records. An empty section follows, then the first word of the feature bits.
const DATA_SIZE_AT: u64 = 48;
/// Bytes of a table of one section.
const TABLE: usize = 16;

/// Writes one recording, little-endian.
#[derive(Debug)]
pub struct FileWriter<W: Write + Seek> {
    to: W,
    header: FileHeader,
    events: Vec<EventDesc>,
    gathered: Vec<u8>,
    formats: Option<Formats>,
}

/// TRACING_DATA in front of the records.
#[derive(Debug)]
struct Formats {
    section: Section,
    /// The first bytes behind the last checkpoint, whose place its table has.
    pending: Vec<u8>,
    /// Where that checkpoint ended.
    table_at: u64,
}

impl<W: Write + Seek> FileWriter<W> {
    /// Begins a recording of these events at the start of `to`.
    ///
    /// # Errors
    /// When there are no events, or the header cannot be written.
    pub fn create(to: W, events: &[EventDesc]) -> Result<Self> {
        Self::create_with_formats(to, events, None)
    }

    /// Begins a recording with the contents of a TRACING_DATA section, which readers then have before the recording is
    /// finished. [`FileWriter::finish`] wants the same section among the features.
    ///
    /// # Errors
    /// As for [`FileWriter::create`].
    pub fn create_with_formats(to: W, events: &[EventDesc], formats: Option<&[u8]>) -> Result<Self> {
        if events.is_empty() {
            return Err(Error::new(ErrorKind::BadValue, "recording without events"));
        }
        let attr_size = u64::from(Attr::SIZE) + 16;
        let id_bytes: u64 = events.iter().map(|e| 8 * e.ids.len() as u64).sum();
        let attrs = Section { offset: SIZE + id_bytes, size: attr_size * events.len() as u64 };
        let behind_attrs = attrs.offset + attrs.size;
        let section = formats.map(|bytes| Section { offset: behind_attrs, size: bytes.len() as u64 });
        let records_at = section.map_or(behind_attrs, |s| (s.offset + s.size).next_multiple_of(8));
        let header = FileHeader {
            endian: Endian::Little,
            pipe: false,
            attr_size,
            attrs,
            data: Section { offset: records_at, size: 0 },
            features: Bits::default(),
            has_features: true,
        };
        let formats_at = section.map(|section| Formats { section, pending: Vec::new(), table_at: records_at });
        let mut this = Self { to, header, events: events.to_vec(), gathered: Vec::new(), formats: formats_at };
        let mut head = this.head();
        head.extend_from_slice(formats.unwrap_or_default());
        head.resize(head.len().next_multiple_of(8), 0);
        let written = this.to.seek(SeekFrom::Start(0)).and_then(|_| this.to.write_all(&head));
        written.and_then(|()| this.to.flush()).map_err(|e| Error::io("write the header of the recording", e))?;
        Ok(this)
    }

    /// Everything before the records.
    fn head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        let mut o = Out { buf: &mut head, endian: Endian::Little };
        self.header.encode(&mut o);
        self.events.iter().flat_map(|e| &e.ids).for_each(|id| o.u64(*id));
        let mut ids = Section { offset: SIZE, size: 0 };
        for event in &self.events {
            ids = Section { offset: ids.offset + ids.size, size: 8 * event.ids.len() as u64 };
            event.attr.encode(o.buf);
            ids.encode(&mut o);
        }
        head
    }

    /// Appends whole records, as they come from a ring.
    ///
    /// # Errors
    /// When they cannot be written. The file then holds the whole records that went in, [`FileWriter::bytes_written`]
    /// counts them, and some of `records` may be gone; the next call tries again.
    pub fn write(&mut self, records: &[u8]) -> Result<()> {
        if records.len() >= DIRECT || self.gathered.len() + records.len() > GATHER {
            self.flush_gathered()?;
        }
        if records.len() >= DIRECT {
            let (whole, result) = self.put(records);
            self.header.data.size += whole as u64;
            return self.after(result);
        }
        self.gathered.extend_from_slice(records);
        Ok(())
    }

    /// Appends one record made here.
    ///
    /// # Errors
    /// When the record is too long or cannot be written.
    pub fn record(&mut self, record: &Record<'_>, layout: &Layout) -> Result<()> {
        let start = self.gathered.len();
        record.encode(layout, &mut self.gathered)?;
        if self.gathered.len() > GATHER {
            let last = self.gathered.split_off(start);
            self.flush_gathered()?;
            self.gathered = last;
        }
        Ok(())
    }

    /// Appends the record that ends a pass over all rings.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finished_round(&mut self) -> Result<()> {
        self.record(&Record::FinishedRound, &Layout::new(&Attr::default(), Endian::Little))
    }

    /// Writes what is gathered and tells the header how far the records go, so that a reader of the file as it is now
    /// sees all of them.
    ///
    /// # Errors
    /// When either cannot be written; the header is told all the same about what was.
    pub fn checkpoint(&mut self) -> Result<()> {
        let flushed = self.flush_gathered();
        let told = self.tell();
        let back = self.to.seek(SeekFrom::Start(self.end()));
        flushed?;
        told.and_then(|()| back.map(|_| ())).map_err(|e| Error::io("write the header of the recording", e))
    }

    /// Makes what was written the file's. Where the table finds no room, the file stays as it was.
    fn tell(&mut self) -> io::Result<()> {
        let end = self.end();
        let mut words = [0; 4];
        words[0] = self.header.data.size;
        // Without records a file with bits would be one that is finished.
        if let Some(formats) = self.formats.as_mut().filter(|_| words[0] > 0) {
            words[3] = 1 << bit::TRACING_DATA;
            let mut table = Vec::with_capacity(TABLE);
            formats.section.encode(&mut Out { buf: &mut table, endian: Endian::Little });
            self.to.seek(SeekFrom::Start(end))?;
            self.to.write_all(&table)?;
            if !formats.pending.is_empty() {
                self.to.seek(SeekFrom::Start(formats.table_at))?;
                self.to.write_all(&formats.pending)?;
                formats.pending.clear();
            }
            formats.table_at = end;
        }
        let told: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let told = if self.formats.is_some() { &told[..] } else { &told[..8] };
        self.to.seek(SeekFrom::Start(DATA_SIZE_AT))?;
        self.to.write_all(told)?;
        self.to.flush()
    }

    /// Where the recording is written to.
    pub fn get_ref(&self) -> &W {
        &self.to
    }

    /// Bytes of records so far, those not written yet included.
    pub fn bytes_written(&self) -> u64 {
        self.header.data.size + self.gathered.len() as u64
    }

    /// Writes the feature sections, and the private one last; the file is then finished. Where `features` describes no
    /// events, those of the recording are described.
    ///
    /// # Errors
    /// When something cannot be written; the file is then as after a [`FileWriter::checkpoint`].
    pub fn finish(self, features: &Features, private: Option<&Private>) -> Result<W> {
        self.finish_with(features, private, &[])
    }

    /// As [`FileWriter::finish`]; the private section, which must be there, goes on with entries of a journal as they are,
    /// so that their contents need no memory.
    ///
    /// # Errors
    /// As for [`FileWriter::finish`].
    pub fn finish_with(
        mut self,
        features: &Features,
        private: Option<&Private>,
        carried: &[PackedEntry<'_>],
    ) -> Result<W> {
        self.checkpoint()?;
        if private.is_none() && !carried.is_empty() {
            return Err(Error::new(ErrorKind::BadValue, "entries of a journal without a private section"));
        }
        let more: u64 = carried.iter().map(private::size_of).sum();
        let sections = self.sections(features, private)?;
        let mut tail = Vec::new();
        let mut o = Out { buf: &mut tail, endian: Endian::Little };
        let mut at = self.end() + 16 * sections.len() as u64;
        let in_front = self.formats.as_ref().map(|formats| formats.section);
        let is_in_front = |feature: u32| feature == bit::TRACING_DATA && in_front.is_some();
        for (feature, data) in &sections {
            self.header.features.set(*feature);
            match in_front.filter(|_| is_in_front(*feature)) {
                Some(section) => section.encode(&mut o),
                None => {
                    let size = data.len() as u64 + if *feature == private::FEATURE_BIT { more } else { 0 };
                    Section { offset: at, size }.encode(&mut o);
                    at += size;
                }
            }
        }
        let mut head = Vec::new();
        self.header.encode(&mut Out { buf: &mut head, endian: Endian::Little });
        let write = |to: &mut W| -> io::Result<()> {
            to.write_all(&tail)?;
            let behind = sections.iter().filter(|(feature, _)| !is_in_front(*feature));
            behind.into_iter().try_for_each(|(_, data)| to.write_all(data))?;
            // The private section is the last one.
            carried.iter().try_for_each(|entry| private::write_entry(entry, to))?;
            to.flush()?;
            // Only now: a header with feature bits promises all of the sections.
            to.seek(SeekFrom::Start(0))?;
            to.write_all(&head)?;
            to.flush()?;
            to.seek(SeekFrom::Start(at)).map(|_| ())
        };
        write(&mut self.to).map_err(|e| Error::io("write the end of the recording", e))?;
        Ok(self.to)
    }

    fn sections(&self, features: &Features, private: Option<&Private>) -> Result<Vec<(u32, Vec<u8>)>> {
        if !features.event_desc.is_empty() {
            return features.encode(Endian::Little, private);
        }
        let described = Features { event_desc: describe(&self.events), ..features.clone() };
        described.encode(Endian::Little, private)
    }

    /// Where the records end.
    fn end(&self) -> u64 {
        self.header.data.offset + self.header.data.size
    }

    fn flush_gathered(&mut self) -> Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        let (whole, result) = self.put(&gathered);
        self.header.data.size += whole as u64;
        self.gathered = gathered;
        self.gathered.drain(..whole);
        self.after(result)
    }

    /// Writes at the end; gives the bytes of the whole records that went in.
    fn put(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut done = match self.keep_pending(bytes) {
            Ok(kept) => kept,
            Err(e) => return (0, Err(e)),
        };
        while done < bytes.len() {
            match self.to.write(&bytes[done..]) {
                Ok(0) => return (whole_records(bytes, done), Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return (whole_records(bytes, done), Err(e)),
            }
        }
        (done, Ok(()))
    }

    /// Keeps back what would stand in the place of the table, and steps over that place.
    fn keep_pending(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(formats) = &mut self.formats else { return Ok(0) };
        let kept = bytes.len().min(TABLE - formats.pending.len());
        formats.pending.extend_from_slice(&bytes[..kept]);
        if kept > 0 {
            self.to.seek(SeekFrom::Start(formats.table_at + formats.pending.len() as u64))?;
        }
        Ok(kept)
    }

    /// After a failed write the next one must begin behind the last whole record.
    fn after(&mut self, result: io::Result<()>) -> Result<()> {
        result.map_err(|e| {
            let end = self.end();
            if let Some(formats) = &mut self.formats {
                let whole = usize::try_from(end - formats.table_at).unwrap_or(TABLE);
                formats.pending.truncate(whole);
            }
            let _ = self.to.seek(SeekFrom::Start(end));
            Error::io("write the recording", e)
        })
    }
}

/// EVENT_DESC of a recording's events.
pub(crate) fn describe(events: &[EventDesc]) -> Vec<DescribedEvent> {
    let one = |e: &EventDesc| DescribedEvent { attr: e.attr.clone(), name: e.name.clone(), ids: e.ids.clone() };
    events.iter().map(one).collect()
}

/// Bytes of the records that lie wholly in the first `limit` of `bytes`.
fn whole_records(bytes: &[u8], limit: usize) -> usize {
    let mut end = 0;
    while let Some(head) = bytes.get(end..).and_then(|b| b.first_chunk::<8>()) {
        let size = usize::from(RecordHeader::decode(*head, Endian::Little).size);
        if size < RecordHeader::SIZE || end + size > limit {
            break;
        }
        end += size;
    }
    end
}

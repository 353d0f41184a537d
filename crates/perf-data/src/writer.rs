//! Writing of a perf.data file in seekable form.
//!
//! The order in the file is perf's: header, ids, attrs, records, table of sections, sections. While recording, the
//! feature bits are zero and the size of the records is that of the last [`FileWriter::checkpoint`]: stock perf reads
//! such a file up to there, so that a killed recorder loses no more than one pass.

use std::io::{self, Seek, SeekFrom, Write};

use crate::bytes::Out;
use crate::features::DescribedEvent;
use crate::header::{Bits, FileHeader, SIZE, Section};
use crate::record::{Record, RecordHeader};
use crate::{Attr, Endian, Error, ErrorKind, EventDesc, Features, Layout, Private, Result};

/// Records are gathered up to this many bytes before they are written.
const GATHER: usize = 256 << 10;
/// Where the header holds the size of the records.
const DATA_SIZE_AT: u64 = 48;

/// Writes one recording, little-endian.
#[derive(Debug)]
pub struct FileWriter<W: Write + Seek> {
    to: W,
    header: FileHeader,
    events: Vec<EventDesc>,
    gathered: Vec<u8>,
}

impl<W: Write + Seek> FileWriter<W> {
    /// Begins a recording of these events at the start of `to`.
    ///
    /// # Errors
    /// When there are no events, or the header cannot be written.
    pub fn create(to: W, events: &[EventDesc]) -> Result<Self> {
        if events.is_empty() {
            return Err(Error::new(ErrorKind::BadValue, "recording without events"));
        }
        let attr_size = u64::from(Attr::SIZE) + 16;
        let id_bytes: u64 = events.iter().map(|e| 8 * e.ids.len() as u64).sum();
        let attrs = Section { offset: SIZE + id_bytes, size: attr_size * events.len() as u64 };
        let header = FileHeader {
            endian: Endian::Little,
            pipe: false,
            attr_size,
            attrs,
            data: Section { offset: attrs.offset + attrs.size, size: 0 },
            features: Bits::default(),
            has_features: true,
        };
        let mut this = Self { to, header, events: events.to_vec(), gathered: Vec::new() };
        let head = this.head();
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
        if self.gathered.len() + records.len() > GATHER {
            self.flush_gathered()?;
        }
        if records.len() >= GATHER {
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
        let size = self.header.data.size.to_le_bytes();
        let end = self.end();
        let told = self.to.seek(SeekFrom::Start(DATA_SIZE_AT)).and_then(|_| self.to.write_all(&size));
        let told = told.and_then(|()| self.to.seek(SeekFrom::Start(end))).and_then(|_| self.to.flush());
        flushed?;
        told.map_err(|e| Error::io("write the header of the recording", e))
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
    pub fn finish(mut self, features: &Features, private: Option<&Private>) -> Result<W> {
        self.checkpoint()?;
        let sections = self.sections(features, private)?;
        let mut tail = Vec::new();
        let mut o = Out { buf: &mut tail, endian: Endian::Little };
        let mut at = self.end() + 16 * sections.len() as u64;
        for (feature, data) in &sections {
            self.header.features.set(*feature);
            Section { offset: at, size: data.len() as u64 }.encode(&mut o);
            at += data.len() as u64;
        }
        let mut head = Vec::new();
        self.header.encode(&mut Out { buf: &mut head, endian: Endian::Little });
        let write = |to: &mut W| -> io::Result<()> {
            to.write_all(&tail)?;
            sections.iter().try_for_each(|(_, data)| to.write_all(data))?;
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
        let mut done = 0;
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

    /// After a failed write the next one must begin behind the last whole record.
    fn after(&mut self, result: io::Result<()>) -> Result<()> {
        result.map_err(|e| {
            let _ = self.to.seek(SeekFrom::Start(self.end()));
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

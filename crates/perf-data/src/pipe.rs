//! The pipe form: a stream in which everything is a record, events and features too.

use std::collections::HashMap;
use std::io::Write;

use crate::bytes::{Cursor, Out};
use crate::event::name_of_attr_alone;
use crate::features::{BuildIdEntry, bit, decode_one};
use crate::header::{MAGIC, SIZE_PIPE};
use crate::private::FEATURE_BIT;
use crate::record::{MAX_RECORD, RawRecord, RecordHeader, framed, kind};
use crate::table::EventTable;
use crate::writer::describe;
use crate::{Attr, Endian, Error, ErrorKind, EventDesc, Features, Result};

/// EVENT_UPDATE of this type carries a name (`PERF_EVENT_UPDATE__NAME`).
const UPDATE_NAME: u64 = 2;

/// Writes one recording as a stream, little-endian. There is no private section and no journal in it.
#[derive(Debug)]
pub struct PipeWriter<W: Write> {
    to: W,
    bytes: u64,
}

impl<W: Write> PipeWriter<W> {
    /// Begins a stream: header, events, their names, features. Features that do not fit into a record are left out, but
    /// for TRACING_DATA, which has a record of its own.
    ///
    /// # Errors
    /// When there are no events, one has too many ids, or the stream cannot be written.
    pub fn create(to: W, events: &[EventDesc], features: &Features) -> Result<Self> {
        if events.is_empty() {
            return Err(Error::new(ErrorKind::BadValue, "recording without events"));
        }
        let mut head = Vec::new();
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&SIZE_PIPE.to_le_bytes());
        for event in events {
            framed(kind::HEADER_ATTR, 0, Endian::Little, &mut head, |o| {
                event.attr.encode(o.buf);
                event.ids.iter().for_each(|id| o.u64(*id));
            })?;
        }
        for event in events {
            framed(kind::EVENT_UPDATE, 0, Endian::Little, &mut head, |o| update(event, o))?;
        }
        let described = Features { event_desc: describe(events), build_ids: Vec::new(), ..features.clone() };
        for (feature, data) in described.encode(Endian::Little, None)? {
            if feature == bit::TRACING_DATA {
                tracing_data(&data, &mut head)?;
            } else if feature != FEATURE_BIT && data.len() <= MAX_RECORD - RecordHeader::SIZE - 16 {
                // No padding: perf 6.1 takes it for more of the section.
                framed(kind::HEADER_FEATURE, 0, Endian::Little, &mut head, |o| {
                    o.u64(feature.into());
                    o.bytes(&data);
                })?;
            }
        }
        let mut this = Self { to, bytes: 0 };
        this.put(&head)?;
        Ok(this)
    }

    /// Appends whole records.
    ///
    /// # Errors
    /// When the stream cannot be written.
    pub fn write(&mut self, records: &[u8]) -> Result<()> {
        self.put(records)
    }

    /// Appends the record that ends a pass over all rings, and flushes.
    ///
    /// # Errors
    /// When the stream cannot be written.
    pub fn finished_round(&mut self) -> Result<()> {
        let mut record = Vec::new();
        framed(kind::FINISHED_ROUND, 0, Endian::Little, &mut record, |_| ())?;
        self.put(&record)?;
        self.to.flush().map_err(|e| Error::io("write the recording", e))
    }

    /// What it writes to.
    pub fn get_ref(&self) -> &W {
        &self.to
    }

    /// Bytes of the stream so far.
    pub fn bytes_written(&self) -> u64 {
        self.bytes
    }

    /// Ends the stream with the build IDs of `features`, which are not known before.
    ///
    /// # Errors
    /// When the stream cannot be written.
    pub fn finish(mut self, features: &Features) -> Result<W> {
        let mut tail = Vec::new();
        let mut o = Out { buf: &mut tail, endian: Endian::Little };
        features.build_ids.iter().try_for_each(|entry| entry.encode(kind::HEADER_BUILD_ID, &mut o))?;
        self.put(&tail)?;
        self.to.flush().map_err(|e| Error::io("write the recording", e))?;
        Ok(self.to)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        self.to.write_all(bytes).map_err(|e| Error::io("write the recording", e))
    }
}

/// The formats of tracepoints: the record tells the size of what follows it, padded to 8.
fn tracing_data(data: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let padded = data.len().next_multiple_of(8);
    let size = u32::try_from(padded).map_err(|_| Error::new(ErrorKind::TooLong, "formats of tracepoints"))?;
    framed(kind::HEADER_TRACING_DATA, 0, Endian::Little, out, |o| {
        o.u32(size);
        o.u32(0);
    })?;
    out.extend_from_slice(data);
    out.resize(out.len() + padded - data.len(), 0);
    Ok(())
}

/// The body of an EVENT_UPDATE with the event's name.
fn update(event: &EventDesc, o: &mut Out<'_>) {
    o.u64(UPDATE_NAME);
    o.u64(event.ids.first().copied().unwrap_or(0));
    let start = o.buf.len();
    o.name(event.name.as_bytes());
    o.pad(start, 8);
}

/// What a stream tells about its events and itself.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) events: Vec<EventDesc>,
    pub(crate) features: Features,
    pub(crate) problems: Vec<Error>,
    /// There are compressed records.
    pub(crate) packed: bool,
    /// Records that told something new too late for it to be used.
    pub(crate) unused: u64,
    /// The event of each id, the first that names it.
    by_id: HashMap<u64, usize>,
}

/// Problems of a stream that are kept, the first ones: it may tell of itself as often as it likes.
const MOST_PROBLEMS: usize = 1000;

impl Told {
    /// Takes what a record tells, if it is one of those that do.
    pub(crate) fn take(&mut self, raw: &RawRecord<'_>, endian: Endian) {
        let mut c = Cursor::new(raw.body(), raw.offset + RecordHeader::SIZE as u64, endian);
        let features = &mut self.features;
        let done = match raw.header.kind {
            kind::HEADER_ATTR => event(raw, endian).map(|e| {
                let nth = self.events.len();
                e.ids.iter().for_each(|id| _ = self.by_id.entry(*id).or_insert(nth));
                self.events.push(e);
            }),
            kind::EVENT_UPDATE => name_of(&mut c).map(|named| {
                let Some((id, name)) = named else { return };
                if let Some(event) = self.by_id.get(&id).and_then(|nth| self.events.get_mut(*nth)) {
                    event.name = name;
                }
            }),
            kind::HEADER_FEATURE => {
                c.u64("HEADER_FEATURE record").and_then(|feature| decode_one(features, feature as u32, c))
            }
            kind::HEADER_TRACING_DATA => c.u32("TRACING_DATA record").map(|size| {
                let start = raw.offset + raw.bytes.len() as u64;
                features.unknown.push((bit::TRACING_DATA, start..start + u64::from(size)));
            }),
            kind::HEADER_BUILD_ID => {
                let mut whole = Cursor::new(raw.bytes, raw.offset, endian);
                BuildIdEntry::decode(&mut whole).map(|entry| features.build_ids.push(entry))
            }
            kind::COMPRESSED | kind::COMPRESSED2 => {
                self.packed = true;
                Ok(())
            }
            _ => Ok(()),
        };
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.extend(done.err());
        }
    }

    /// Takes what a record behind the head tells: build IDs are used whenever they come; what would change the events of
    /// `table` or other features comes too late.
    pub(crate) fn take_late(&mut self, raw: &RawRecord<'_>, table: &EventTable) {
        let endian = table.endian();
        let mut c = Cursor::new(raw.body(), raw.offset + RecordHeader::SIZE as u64, endian);
        let unused = match raw.header.kind {
            kind::HEADER_ATTR => event(raw, endian).is_ok_and(|e| e.ids.iter().any(|id| table.of_id(*id).is_none())),
            kind::EVENT_UPDATE => match name_of(&mut c) {
                Ok(Some((id, name))) => table.of_id(id).is_none_or(|event| event.name != name),
                _ => false,
            },
            kind::HEADER_FEATURE => c.u64("HEADER_FEATURE record").is_ok_and(|bit| bit != u64::from(bit::BUILD_ID)),
            kind::HEADER_TRACING_DATA => true,
            _ => false,
        };
        self.unused += u64::from(unused);
        match raw.header.kind {
            // There is no end to the events that these could make.
            kind::HEADER_ATTR | kind::EVENT_UPDATE | kind::HEADER_TRACING_DATA => (),
            _ => self.take(raw, endian),
        }
    }
}

/// A HEADER_ATTR record: the attr as long as it says, ids up to the end.
fn event(raw: &RawRecord<'_>, endian: Endian) -> Result<EventDesc> {
    let at = |e: Error| Error::at(e.kind(), e.what().to_owned(), raw.offset);
    let body = raw.body();
    let attr = Attr::decode(body, endian).map_err(at)?;
    let ids = body.get(Attr::stated_size(body, endian)..).unwrap_or_default();
    let name = name_of_attr_alone(&attr);
    Ok(EventDesc { attr, ids: crate::Words::new(ids, endian).iter().collect(), name })
}

/// The id of an event and the name that an EVENT_UPDATE gives it; `None` where it tells something else.
fn name_of(c: &mut Cursor<'_>) -> Result<Option<(u64, String)>> {
    const W: &str = "EVENT_UPDATE record";
    let (what, id) = (c.u64(W)?, c.u64(W)?);
    Ok((what == UPDATE_NAME).then(|| (id, String::from_utf8_lossy(c.name()).into_owned())))
}

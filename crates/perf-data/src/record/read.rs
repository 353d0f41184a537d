use super::{Layout, RawRecord, RecordHeader, SampleId};
use crate::bytes::{Cursor, Out};
use crate::{ReadFormat, Result, Words};

/// The values of one event or one group as a read gives them (`struct read_format`), borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReadValues<'a> {
    format: ReadFormat,
    words: Words<'a>,
}

/// One event's part of [`ReadValues`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReadValue {
    /// The count.
    pub value: u64,
    /// The event's id.
    pub id: Option<u64>,
    /// Samples lost for want of ring space.
    pub lost: Option<u64>,
}

impl<'a> ReadValues<'a> {
    /// Values in the words of a read; they must begin where the read does.
    ///
    /// # Errors
    /// When the words end before the values do.
    pub fn new(format: ReadFormat, words: Words<'a>) -> Result<Self> {
        Self::decode(&mut Cursor::new(words.bytes(), 0, words.endian()), format)
    }

    pub(super) fn decode(c: &mut Cursor<'a>, format: ReadFormat) -> Result<Self> {
        const W: &str = "counter values";
        let times = Self::times(format);
        let each = u64::from(1 + Self::extras(format));
        let count = if format.contains(ReadFormat::GROUP) {
            let events = c.clone().u64(W)?;
            events.saturating_mul(each).saturating_add(u64::from(1 + times))
        } else {
            each + u64::from(times)
        };
        Ok(Self { format, words: c.words(count, W)? })
    }

    pub(super) fn encode(&self, o: &mut Out<'_>) {
        o.words(self.words);
    }

    /// Zeros where there are no values: as many as an event alone, or a group of none, has.
    pub(super) fn encode_zeros(format: ReadFormat, o: &mut Out<'_>) {
        let mut words = 1 + Self::times(format);
        if !format.contains(ReadFormat::GROUP) {
            words += Self::extras(format);
        }
        (0..words).for_each(|_| o.u64(0));
    }

    fn times(format: ReadFormat) -> u32 {
        (format & (ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING)).bits().count_ones()
    }

    fn extras(format: ReadFormat) -> u32 {
        (format & (ReadFormat::ID | ReadFormat::LOST)).bits().count_ones()
    }

    /// Which fields there are.
    pub fn format(&self) -> ReadFormat {
        self.format
    }

    /// ns that the event was enabled.
    pub fn enabled(&self) -> Option<u64> {
        self.has(ReadFormat::TOTAL_TIME_ENABLED).then(|| self.words.get(1))?
    }

    /// ns that the event was counting.
    pub fn running(&self) -> Option<u64> {
        let before = usize::from(self.has(ReadFormat::TOTAL_TIME_ENABLED));
        self.has(ReadFormat::TOTAL_TIME_RUNNING).then(|| self.words.get(1 + before))?
    }

    /// The value of each event; one when it is no group.
    pub fn iter(&self) -> impl Iterator<Item = ReadValue> + use<'a> {
        let this = *self;
        let times = Self::times(this.format) as usize;
        let each = 1 + Self::extras(this.format) as usize;
        let events = if this.is_group() { (this.words.len().saturating_sub(1 + times)) / each } else { 1 };
        (0..events).map(move |event| {
            // Alone the times stand between the value and its id; in a group before all values.
            let (value, extra) = if this.is_group() {
                let first = 1 + times + event * each;
                (first, first + 1)
            } else {
                (0, 1 + times)
            };
            let id = this.has(ReadFormat::ID);
            ReadValue {
                value: this.words.get(value).unwrap_or_default(),
                id: if id { this.words.get(extra) } else { None },
                lost: if this.has(ReadFormat::LOST) { this.words.get(extra + usize::from(id)) } else { None },
            }
        })
    }

    fn is_group(&self) -> bool {
        self.has(ReadFormat::GROUP)
    }

    fn has(&self, bit: ReadFormat) -> bool {
        self.format.contains(bit)
    }
}

/// PERF_RECORD_READ: a counter's value when a child ended (`inherit_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_READ")]
pub struct Read<'a> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The values.
    pub values: ReadValues<'a>,
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl<'a> Read<'a> {
    pub(super) fn decode(raw: &RawRecord<'a>, layout: &Layout) -> Result<Self> {
        const W: &str = "READ record";
        let (body, id) = SampleId::split(raw, layout)?;
        let mut c = Cursor::new(body, raw.offset + RecordHeader::SIZE as u64, layout.endian);
        let (pid, tid) = (c.u32(W)?, c.u32(W)?);
        let values = ReadValues::decode(&mut c, layout.read_format)?;
        Ok(Self { pid, tid, values, misc: raw.header.misc, id })
    }

    pub(super) fn encode(&self, layout: &Layout, o: &mut Out<'_>) {
        o.u32(self.pid);
        o.u32(self.tid);
        self.values.encode(o);
        self.id.encode(layout, o);
    }
}

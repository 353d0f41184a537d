use super::{Layout, RawRecord, RecordHeader, overlong};
use crate::bytes::{Cursor, Out};
use crate::{Error, ErrorKind, Result, SampleType};

/// What stands at the end of every record but SAMPLE when the event has `sample_id_all` (`struct sample_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SampleId {
    /// The process.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// ns on the event's clock.
    pub time: Option<u64>,
    /// The id of the event or its group leader.
    pub id: Option<u64>,
    /// The id of the event.
    pub stream_id: Option<u64>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// The id, at the very end.
    pub identifier: Option<u64>,
}

impl SampleId {
    /// The record's body without its sample id, and the sample id.
    #[inline]
    pub(super) fn split<'a>(raw: &RawRecord<'a>, layout: &Layout) -> Result<(&'a [u8], Self)> {
        let body = raw.body();
        if !layout.sample_id_all {
            return Ok((body, Self::default()));
        }
        let Some((body, trailer)) = overlong::before_sample_id(raw, layout).and_then(|at| body.split_at_checked(at))
        else {
            return Err(Error::at(ErrorKind::Truncated, "sample id of a record", raw.offset));
        };
        let at = body.len();
        let mut c = Cursor::new(trailer, raw.offset + (RecordHeader::SIZE + at) as u64, layout.endian);
        Ok((body, Self::decode(&mut c, layout.sample_type)?))
    }

    fn decode(c: &mut Cursor<'_>, fields: SampleType) -> Result<Self> {
        const W: &str = "sample id";
        let mut id = Self::default();
        if fields.contains(SampleType::TID) {
            id.pid = Some(c.u32(W)?);
            id.tid = Some(c.u32(W)?);
        }
        if fields.contains(SampleType::TIME) {
            id.time = Some(c.u64(W)?);
        }
        if fields.contains(SampleType::ID) {
            id.id = Some(c.u64(W)?);
        }
        if fields.contains(SampleType::STREAM_ID) {
            id.stream_id = Some(c.u64(W)?);
        }
        if fields.contains(SampleType::CPU) {
            id.cpu = Some(c.u32(W)?);
            c.u32(W)?;
        }
        if fields.contains(SampleType::IDENTIFIER) {
            id.identifier = Some(c.u64(W)?);
        }
        Ok(id)
    }

    pub(super) fn encode(&self, layout: &Layout, o: &mut Out<'_>) {
        if !layout.sample_id_all {
            return;
        }
        let fields = layout.sample_type;
        if fields.contains(SampleType::TID) {
            o.u32(self.pid.unwrap_or(0));
            o.u32(self.tid.unwrap_or(0));
        }
        if fields.contains(SampleType::TIME) {
            o.u64(self.time.unwrap_or(0));
        }
        if fields.contains(SampleType::ID) {
            o.u64(self.id.unwrap_or(0));
        }
        if fields.contains(SampleType::STREAM_ID) {
            o.u64(self.stream_id.unwrap_or(0));
        }
        if fields.contains(SampleType::CPU) {
            o.u32(self.cpu.unwrap_or(0));
            o.u32(0);
        }
        if fields.contains(SampleType::IDENTIFIER) {
            o.u64(self.identifier.unwrap_or(0));
        }
    }
}

use super::{Body, SampleId};
use crate::Result;
use crate::bytes::{Cursor, Out};

/// PERF_RECORD_LOST: records that found no room in the ring since the last one. The kernel puts it before the next record
/// that fits, so that it may belong to another event than its sample id says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_LOST")]
pub struct Lost {
    /// The id of the event whose write put this record.
    pub event_id: u64,
    /// How many records.
    pub lost: u64,
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl Body<'_> for Lost {
    fn decode(c: &mut Cursor<'_>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "LOST record";
        Ok(Self { event_id: c.u64(W)?, lost: c.u64(W)?, misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u64(self.event_id);
        o.u64(self.lost);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}

/// PERF_RECORD_LOST_SAMPLES: samples lost in hardware, or counted by the tool that wrote the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_LOST_SAMPLES")]
pub struct LostSamples {
    /// How many.
    pub lost: u64,
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl Body<'_> for LostSamples {
    fn decode(c: &mut Cursor<'_>, misc: u16, id: SampleId) -> Result<Self> {
        Ok(Self { lost: c.u64("LOST_SAMPLES record")?, misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u64(self.lost);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}

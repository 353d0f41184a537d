use super::{Body, SampleId};
use crate::Result;
use crate::bytes::{Cursor, Out};

/// PERF_RECORD_AUX: bytes arrived in the AUX area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_AUX")]
pub struct Aux {
    /// Where in the AUX area, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub size: u64,
    /// 1 truncated, 2 overwritten, 4 partial, 8 collision; bits 8 to 15 a format.
    pub flags: u64,
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl Body<'_> for Aux {
    fn decode(c: &mut Cursor<'_>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "AUX record";
        Ok(Self { offset: c.u64(W)?, size: c.u64(W)?, flags: c.u64(W)?, misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u64(self.offset);
        o.u64(self.size);
        o.u64(self.flags);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}

/// PERF_RECORD_ITRACE_START: hardware tracing of a thread began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_ITRACE_START")]
pub struct ItraceStart {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl Body<'_> for ItraceStart {
    fn decode(c: &mut Cursor<'_>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "ITRACE_START record";
        Ok(Self { pid: c.u32(W)?, tid: c.u32(W)?, misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u32(self.pid);
        o.u32(self.tid);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}

/// PERF_RECORD_AUX_OUTPUT_HW_ID: which hardware id stands for the event in the AUX area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_AUX_OUTPUT_HW_ID")]
pub struct AuxOutputHwId {
    /// The hardware id.
    pub hw_id: u64,
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl Body<'_> for AuxOutputHwId {
    fn decode(c: &mut Cursor<'_>, misc: u16, id: SampleId) -> Result<Self> {
        Ok(Self { hw_id: c.u64("AUX_OUTPUT_HW_ID record")?, misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u64(self.hw_id);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}

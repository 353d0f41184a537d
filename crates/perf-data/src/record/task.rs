use super::{Body, SampleId};
use crate::Result;
use crate::bytes::{Cursor, Out};

/// PERF_RECORD_FORK and PERF_RECORD_EXIT: a thread began or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_FORK")]
#[doc(alias = "PERF_RECORD_EXIT")]
pub struct Task {
    /// The process.
    pub pid: u32,
    /// Its parent.
    pub ppid: u32,
    /// The thread.
    pub tid: u32,
    /// The thread that made it.
    pub ptid: u32,
    /// When, in ns on the event's clock.
    pub time: u64,
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl Body<'_> for Task {
    fn decode(c: &mut Cursor<'_>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "FORK or EXIT record";
        Ok(Self { pid: c.u32(W)?, ppid: c.u32(W)?, tid: c.u32(W)?, ptid: c.u32(W)?, time: c.u64(W)?, misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u32(self.pid);
        o.u32(self.ppid);
        o.u32(self.tid);
        o.u32(self.ptid);
        o.u64(self.time);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}

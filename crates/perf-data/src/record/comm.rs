use super::{Body, SampleId, misc};
use crate::Result;
use crate::bytes::{Cursor, Out};

/// PERF_RECORD_COMM: a thread's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_COMM")]
pub struct Comm<'a> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The name, at most 15 bytes.
    pub comm: &'a [u8],
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl Comm<'_> {
    /// Whether an exec gave the name, so that all maps of the process are new.
    pub fn is_exec(&self) -> bool {
        self.misc & misc::COMM_EXEC != 0
    }
}

impl<'a> Body<'a> for Comm<'a> {
    fn decode(c: &mut Cursor<'a>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "COMM record";
        Ok(Self { pid: c.u32(W)?, tid: c.u32(W)?, comm: c.name(), misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u32(self.pid);
        o.u32(self.tid);
        o.name(self.comm);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}

use super::{Body, SampleId};
use crate::Result;
use crate::bytes::{Cursor, Out};

/// PERF_RECORD_MMAP: a map, without the identity of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_MMAP")]
pub struct Mmap<'a> {
    /// The process; -1 as u32 for the kernel.
    pub pid: u32,
    /// The thread that mapped it.
    pub tid: u32,
    /// Where it begins.
    pub addr: u64,
    /// Its bytes.
    pub len: u64,
    /// Offset into the file in bytes.
    pub pgoff: u64,
    /// The file's path, or a name in brackets.
    pub filename: &'a [u8],
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl<'a> Body<'a> for Mmap<'a> {
    fn decode(c: &mut Cursor<'a>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "MMAP record";
        Ok(Self {
            pid: c.u32(W)?,
            tid: c.u32(W)?,
            addr: c.u64(W)?,
            len: c.u64(W)?,
            pgoff: c.u64(W)?,
            filename: c.name(),
            misc,
            id,
        })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u32(self.pid);
        o.u32(self.tid);
        o.u64(self.addr);
        o.u64(self.len);
        o.u64(self.pgoff);
        o.name(self.filename);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}

use super::{Body, SampleId};
use crate::Result;
use crate::bytes::{Cursor, Out};

/// PERF_RECORD_BPF_EVENT: a BPF program came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_BPF_EVENT")]
pub struct BpfEvent {
    /// [`BpfEvent::LOAD`] or [`BpfEvent::UNLOAD`].
    pub kind: u16,
    /// None are defined.
    pub flags: u16,
    /// The program's id.
    pub prog_id: u32,
    /// The program's tag, a hash of its instructions. Not unique.
    pub tag: [u8; 8],
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl BpfEvent {
    /// The program was loaded.
    pub const LOAD: u16 = 1;
    /// The program is about to be freed.
    pub const UNLOAD: u16 = 2;
}

impl Body<'_> for BpfEvent {
    fn decode(c: &mut Cursor<'_>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "BPF_EVENT record";
        Ok(Self { kind: c.u16(W)?, flags: c.u16(W)?, prog_id: c.u32(W)?, tag: c.bytes(W)?, misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u16(self.kind);
        o.u16(self.flags);
        o.u32(self.prog_id);
        o.bytes(&self.tag);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}

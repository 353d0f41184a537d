use super::{Body, SampleId};
use crate::Result;
use crate::bytes::{Cursor, Out};

/// PERF_RECORD_TEXT_POKE: kernel text was changed in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_TEXT_POKE")]
pub struct TextPoke<'a> {
    /// Where.
    pub addr: u64,
    /// The bytes before; at most 65,535.
    pub old: &'a [u8],
    /// The bytes after; at most 65,535.
    pub new: &'a [u8],
    /// The header's `misc`.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl<'a> Body<'a> for TextPoke<'a> {
    fn decode(c: &mut Cursor<'a>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "TEXT_POKE record";
        let addr = c.u64(W)?;
        let (old, new) = (c.u16(W)?, c.u16(W)?);
        Ok(Self { addr, old: c.take(old.into(), W)?, new: c.take(new.into(), W)?, misc, id })
    }

    fn encode(&self, o: &mut Out<'_>) {
        // Longer pieces make the record larger than its size field can say, so that encode refuses it.
        o.u64(self.addr);
        o.u16(self.old.len() as u16);
        o.u16(self.new.len() as u16);
        o.bytes(self.old);
        o.bytes(self.new);
    }

    fn misc(&self) -> u16 {
        self.misc
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}

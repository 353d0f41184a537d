//! Kind 1: a sample in short form.

use crate::bytes::Cursor;
use crate::record::Callchain;
use crate::{AiHdr, Endian, Result};

/// The payload of the `emit` handler: a sample in short form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EmitPayload<'a> {
    /// The header, of kind [`AiHdr::EMIT`].
    pub hdr: AiHdr,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Counts that the sample stands for.
    pub period: u64,
    /// The stack with its markers; empty where the event has none.
    pub callchain: Callchain<'a>,
}

impl<'a> EmitPayload<'a> {
    /// Bytes before the addresses: header, pid, tid, period, count.
    pub const FIXED: usize = AiHdr::SIZE + 24;

    /// Reads a payload; bytes after the last address are left alone.
    ///
    /// # Errors
    /// When it is not of kind emit, of another version, or shorter than it says.
    pub fn decode(payload: &'a [u8]) -> Result<Self> {
        const W: &str = "emit payload";
        let mut c = Cursor::new(payload, 0, Endian::Little);
        let hdr = AiHdr::read_kind(&mut c, AiHdr::EMIT)?;
        let (pid, tid, period) = (c.u32(W)?, c.u32(W)?, c.u64(W)?);
        let count = c.u64(W)?;
        Ok(Self { hdr, pid, tid, period, callchain: c.words(count, W)?.into() })
    }

    /// Appends the payload; the size in its header is worked out here.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let count = self.callchain.len();
        let size = u16::try_from(Self::FIXED + 8 * count).unwrap_or(u16::MAX);
        AiHdr { size, ..self.hdr }.encode(out);
        out.extend_from_slice(&self.pid.to_le_bytes());
        out.extend_from_slice(&self.tid.to_le_bytes());
        out.extend_from_slice(&self.period.to_le_bytes());
        out.extend_from_slice(&(count as u64).to_le_bytes());
        self.callchain.iter().for_each(|ip| out.extend_from_slice(&ip.to_le_bytes()));
    }
}

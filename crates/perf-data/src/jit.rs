//! What JIT compilers told of their code while a recording ran: entries of kind 14 of the private section.

use crate::bytes::{Cursor, Out};
use crate::{Endian, Result};

/// A part of what one process told: lines of its map (`/tmp/perf-PID.map`), or records of its dump (`jit-PID.dump`), as they
/// stood in the file.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct JitPiece {
    /// The process, by its number where the recorder was.
    pub pid: u32,
    /// Where it is from: [`JitPiece::MAP`] or [`JitPiece::DUMP`].
    pub source: u32,
    /// When the process began or last called exec, ns on the recording's clock; 0: before the recording.
    pub since_ns: u64,
    /// When this was read, ns on the recording's clock.
    pub at_ns: u64,
    /// The file's path, as the process names it.
    pub path: Vec<u8>,
    /// Whole lines; or the header of the dump and whole records behind it, in the dump's byte order.
    pub data: Vec<u8>,
}

impl JitPiece {
    /// [`JitPiece::source`]: lines of a map.
    pub const MAP: u32 = 1;
    /// [`JitPiece::source`]: the header and records of a dump.
    pub const DUMP: u32 = 2;

    /// The entry's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut data = Vec::with_capacity(40 + self.path.len() + self.data.len());
        let mut o = Out { buf: &mut data, endian: Endian::Little };
        o.u32(self.pid);
        o.u32(self.source);
        o.u64(self.since_ns);
        o.u64(self.at_ns);
        o.u64(self.path.len() as u64);
        o.bytes(&self.path);
        o.bytes(&self.data);
        data
    }

    /// # Errors
    /// When the entry is cut short.
    pub(crate) fn decode(data: &[u8]) -> Result<Self> {
        const W: &str = "what a JIT compiler told";
        let mut c = Cursor::new(data, 0, Endian::Little);
        let (pid, source, since_ns, at_ns) = (c.u32(W)?, c.u32(W)?, c.u64(W)?, c.u64(W)?);
        let len = c.u64(W)?;
        let path = c.take(len, W)?.to_vec();
        Ok(Self { pid, source, since_ns, at_ns, path, data: c.rest().to_vec() })
    }
}

//! What handlers put into their ring: the Rust twin of `struct ai_hdr` and of the payload of the `emit` handler.
//!
//! A payload is the raw data of a sample of a `bpf-output` event. It is little-endian, whatever machine reads it, and up
//! to 7 bytes of padding may follow it.

use crate::bytes::Cursor;
use crate::record::Callchain;
use crate::{Endian, Error, ErrorKind, Result};

/// `struct ai_hdr`: what every payload of a handler begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "ai_hdr")]
pub struct AiHdr {
    /// 1.
    pub version: u16,
    /// Bytes of the whole payload, this header included and padding not.
    pub size: u16,
    /// [`AiHdr::EMIT`], [`AiHdr::VALUE`] or [`AiHdr::LABEL`].
    pub kind: u16,
    /// Which handler: its number at load time.
    pub handler: u16,
    /// Which pair of slots was current.
    pub generation: u32,
    /// The CPU.
    pub cpu: u32,
    /// The sample's own time in ns; 0 where the kernel gives none.
    pub time: u64,
    /// The sample's instruction pointer.
    pub ip: u64,
    /// The stub's counter on this CPU: a sample's number.
    pub seq: u64,
}

impl AiHdr {
    /// Bytes of the header.
    pub const SIZE: usize = 40;
    /// The version that this code reads.
    pub const VERSION: u16 = 1;
    /// A sample in short form.
    pub const EMIT: u16 = 1;
    /// A value with its name.
    pub const VALUE: u16 = 2;
    /// A label of the task.
    pub const LABEL: u16 = 3;

    /// Reads the header at the start of a payload.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`], or [`ErrorKind::Unsupported`] for another version.
    pub fn decode(payload: &[u8]) -> Result<Self> {
        Self::read(&mut Cursor::new(payload, 0, Endian::Little))
    }

    fn read(c: &mut Cursor<'_>) -> Result<Self> {
        const W: &str = "handler header";
        let hdr = Self {
            version: c.u16(W)?,
            size: c.u16(W)?,
            kind: c.u16(W)?,
            handler: c.u16(W)?,
            generation: c.u32(W)?,
            cpu: c.u32(W)?,
            time: c.u64(W)?,
            ip: c.u64(W)?,
            seq: c.u64(W)?,
        };
        if hdr.version != Self::VERSION {
            return Err(Error::new(ErrorKind::Unsupported, format!("handler payload of version {}", hdr.version)));
        }
        Ok(hdr)
    }

    /// Appends the header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for half in [self.version, self.size, self.kind, self.handler] {
            out.extend_from_slice(&half.to_le_bytes());
        }
        for word in [self.generation, self.cpu] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for long in [self.time, self.ip, self.seq] {
            out.extend_from_slice(&long.to_le_bytes());
        }
    }
}

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
        let hdr = AiHdr::read(&mut c)?;
        if hdr.kind != AiHdr::EMIT {
            return Err(Error::new(ErrorKind::BadValue, format!("handler payload of kind {}", hdr.kind)));
        }
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

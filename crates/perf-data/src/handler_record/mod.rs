//! What handlers put into their ring: the Rust twin of `struct ai_hdr`, and the payloads that begin with it.
//!
//! A payload is the raw data of a sample of a `bpf-output` event. It is little-endian, whatever machine reads it, and up
//! to 7 bytes of padding may follow it.

mod emit;
mod value;

pub use emit::EmitPayload;
pub use value::{LabelPayload, ValuePayload};

use crate::bytes::Cursor;
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
    /// A value of a type that the handler's BTF describes.
    pub const VALUE: u16 = 2;
    /// A label of the sample: a value with a name.
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

    /// Reads the header of a payload that has to be of this kind.
    fn read_kind(c: &mut Cursor<'_>, kind: u16) -> Result<Self> {
        let hdr = Self::read(c)?;
        if hdr.kind != kind {
            return Err(Error::new(ErrorKind::BadValue, format!("handler payload of kind {}", hdr.kind)));
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

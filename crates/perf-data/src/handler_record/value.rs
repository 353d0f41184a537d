//! Kinds 2 and 3: values of types that the handler's own BTF describes.

use std::borrow::Cow;

use crate::bytes::{Cursor, until_nul};
use crate::{AiHdr, Endian, Error, ErrorKind, Result};

/// The payload of `ai_emit`: one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ValuePayload<'a> {
    /// The header, of kind [`AiHdr::VALUE`].
    pub hdr: AiHdr,
    /// The value's type: an id in the BTF of the handler (see [`crate::private::HandlerTypes`]).
    pub type_id: u32,
    /// The value in memory order of the machine that recorded.
    pub bytes: &'a [u8],
}

impl<'a> ValuePayload<'a> {
    /// Bytes before the value: header, type, size.
    pub const FIXED: usize = AiHdr::SIZE + 8;

    /// Reads a payload; bytes behind the value are left alone.
    ///
    /// # Errors
    /// When it is not of kind value, of another version, shorter than it says, or when the value has no room in the size
    /// of the whole payload.
    pub fn decode(payload: &'a [u8]) -> Result<Self> {
        const W: &str = "value payload";
        let mut c = Cursor::new(payload, 0, Endian::Little);
        let hdr = AiHdr::read_kind(&mut c, AiHdr::VALUE)?;
        let (type_id, size) = (c.u32(W)?, c.u32(W)?);
        let bytes = value(&mut c, hdr, Self::FIXED, size, W)?;
        Ok(Self { hdr, type_id, bytes })
    }

    /// Appends the payload; the size in its header is worked out here.
    pub fn encode(&self, out: &mut Vec<u8>) {
        AiHdr { size: whole(Self::FIXED, self.bytes), ..self.hdr }.encode(out);
        out.extend_from_slice(&self.type_id.to_le_bytes());
        out.extend_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(self.bytes);
    }
}

/// The payload of `ai_label`: a value with a name, said of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LabelPayload<'a> {
    /// The header, of kind [`AiHdr::LABEL`].
    pub hdr: AiHdr,
    /// The value's type, as in [`ValuePayload::type_id`].
    pub type_id: u32,
    /// The label's name, without the NULs behind it; at most [`LabelPayload::KEY_MAX`] bytes.
    pub key: &'a [u8],
    /// The value in memory order of the machine that recorded.
    pub bytes: &'a [u8],
}

impl<'a> LabelPayload<'a> {
    /// Bytes that a label's name has room for.
    pub const KEY_MAX: usize = 32;
    /// Bytes before the value: header, type, size, name.
    pub const FIXED: usize = AiHdr::SIZE + 8 + Self::KEY_MAX;

    /// Reads a payload; bytes behind the value are left alone.
    ///
    /// # Errors
    /// As [`ValuePayload::decode`].
    pub fn decode(payload: &'a [u8]) -> Result<Self> {
        const W: &str = "label payload";
        let mut c = Cursor::new(payload, 0, Endian::Little);
        let hdr = AiHdr::read_kind(&mut c, AiHdr::LABEL)?;
        let (type_id, size) = (c.u32(W)?, c.u32(W)?);
        let key = until_nul(c.take(Self::KEY_MAX as u64, W)?);
        let bytes = value(&mut c, hdr, Self::FIXED, size, W)?;
        Ok(Self { hdr, type_id, key, bytes })
    }

    /// The label's name; what is no UTF-8 in it is replaced.
    pub fn name(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.key)
    }

    /// Appends the payload; the size in its header is worked out here, a name that is too long is cut, and one that has a
    /// NUL ends there.
    pub fn encode(&self, out: &mut Vec<u8>) {
        AiHdr { size: whole(Self::FIXED, self.bytes), ..self.hdr }.encode(out);
        out.extend_from_slice(&self.type_id.to_le_bytes());
        out.extend_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        let start = out.len();
        out.extend(until_nul(self.key).iter().take(Self::KEY_MAX));
        out.resize(start + Self::KEY_MAX, 0);
        out.extend_from_slice(self.bytes);
    }
}

/// The value behind the `fixed` first bytes of a payload.
fn value<'a>(c: &mut Cursor<'a>, hdr: AiHdr, fixed: usize, size: u32, what: &'static str) -> Result<&'a [u8]> {
    if u64::from(hdr.size) < fixed as u64 + u64::from(size) {
        return Err(Error::new(ErrorKind::BadSize, format!("{what}: {size} bytes in one of {}", hdr.size)));
    }
    c.take(size.into(), what)
}

fn whole(fixed: usize, bytes: &[u8]) -> u16 {
    u16::try_from(fixed + bytes.len()).unwrap_or(u16::MAX)
}

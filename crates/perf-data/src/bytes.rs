//! Checked reading and plain writing of the two byte orders.

use crate::{Endian, Error, ErrorKind, Result};

/// A place in some bytes. Every step is checked; an error names what was read and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    /// Place of `rest` in the file, for errors.
    at: u64,
    pub(crate) endian: Endian,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], at: u64, endian: Endian) -> Self {
        Self { rest: bytes, at, endian }
    }

    #[inline]
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn error(&self, kind: ErrorKind, what: &'static str) -> Error {
        Error::at(kind, what, self.at)
    }

    #[inline]
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.rest = rest;
                self.at += N as u64;
                Ok(*head)
            }
            None => Err(self.error(ErrorKind::Truncated, what)),
        }
    }

    #[inline]
    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16> {
        Ok(self.endian.u16(self.array(what)?))
    }

    #[inline]
    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32> {
        Ok(self.endian.u32(self.array(what)?))
    }

    #[inline]
    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64> {
        Ok(self.endian.u64(self.array(what)?))
    }

    #[inline]
    pub(crate) fn bytes<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        self.array(what)
    }

    /// The next `n` bytes.
    #[inline]
    pub(crate) fn take(&mut self, n: u64, what: &'static str) -> Result<&'a [u8]> {
        let split = usize::try_from(n).ok().and_then(|n| self.rest.split_at_checked(n));
        match split {
            Some((head, rest)) => {
                self.rest = rest;
                self.at += n;
                Ok(head)
            }
            None => Err(self.error(ErrorKind::Truncated, what)),
        }
    }

    /// The next `count` things of `each` bytes.
    #[inline]
    pub(crate) fn take_many(&mut self, count: u64, each: u64, what: &'static str) -> Result<&'a [u8]> {
        match count.checked_mul(each) {
            Some(n) => self.take(n, what),
            None => Err(self.error(ErrorKind::BadSize, what)),
        }
    }

    /// The next `count` u64 values.
    #[inline]
    pub(crate) fn words(&mut self, count: u64, what: &'static str) -> Result<Words<'a>> {
        let endian = self.endian;
        Ok(Words { bytes: self.take_many(count, 8, what)?, endian })
    }

    /// Everything that is left, up to the first NUL.
    #[inline]
    pub(crate) fn name(&mut self) -> &'a [u8] {
        let rest = std::mem::take(&mut self.rest);
        self.at += rest.len() as u64;
        until_nul(rest)
    }
}

/// The bytes before the first NUL, or all of them.
#[inline]
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    match bytes.iter().position(|&b| b == 0) {
        Some(n) => &bytes[..n],
        None => bytes,
    }
}

/// Borrowed u64 values in the byte order of their recording. Nothing is copied or swapped before it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Words<'a> {
    bytes: &'a [u8],
    endian: Endian,
}

impl<'a> Words<'a> {
    /// Values in `bytes`; a length that is no multiple of 8 loses its tail.
    #[inline]
    pub fn new(bytes: &'a [u8], endian: Endian) -> Self {
        Self { bytes: &bytes[..bytes.len() & !7], endian }
    }

    /// The bytes as they are in the recording.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How many values.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() / 8
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The byte order of [`Words::bytes`].
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// The value at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<u64> {
        let bytes = self.bytes.get(index.checked_mul(8)?..)?.first_chunk::<8>()?;
        Some(self.endian.u64(*bytes))
    }

    /// The values in order.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + Clone + use<'a> {
        let endian = self.endian;
        self.bytes.chunks_exact(8).map(move |b| endian.u64(<[u8; 8]>::try_from(b).unwrap_or_default()))
    }
}

/// Bytes being written in one byte order.
pub(crate) struct Out<'a> {
    pub(crate) buf: &'a mut Vec<u8>,
    pub(crate) endian: Endian,
}

impl Out<'_> {
    pub(crate) fn u16(&mut self, v: u16) {
        self.buf.extend_from_slice(&self.endian.put_u16(v));
    }

    pub(crate) fn u32(&mut self, v: u32) {
        self.buf.extend_from_slice(&self.endian.put_u32(v));
    }

    pub(crate) fn u64(&mut self, v: u64) {
        self.buf.extend_from_slice(&self.endian.put_u64(v));
    }

    pub(crate) fn bytes(&mut self, v: &[u8]) {
        self.buf.extend_from_slice(v);
    }

    /// The values in this output's byte order, whatever order they were read in.
    pub(crate) fn words(&mut self, words: Words<'_>) {
        if words.endian == self.endian {
            self.bytes(words.bytes);
        } else {
            words.iter().for_each(|w| self.u64(w));
        }
    }

    /// A name with its NUL. A NUL inside the name ends it.
    pub(crate) fn name(&mut self, name: &[u8]) {
        self.bytes(until_nul(name));
        self.buf.push(0);
    }

    /// Zeros until the length since `start` is a multiple of `to`.
    pub(crate) fn pad(&mut self, start: usize, to: usize) {
        let len = self.buf.len() - start;
        self.buf.resize(start + len.next_multiple_of(to), 0);
    }
}

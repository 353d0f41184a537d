//! Little-endian fields and a checksum, for what this crate keeps on disk.

/// Takes fields off the front of a slice. Every method returns `None` where the bytes run out.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// A 64-bit count as an index type.
    pub(crate) fn count(&mut self) -> Option<usize> {
        usize::try_from(self.u64()?).ok()
    }

    /// `count` words of `N` bytes. The bytes must be there before anything is allocated.
    pub(crate) fn words<const N: usize, T>(&mut self, count: usize, word: impl Fn([u8; N]) -> T) -> Option<Vec<T>> {
        let bytes = self.take(count.checked_mul(N)?)?;
        Some(bytes.chunks_exact(N).filter_map(|c| c.try_into().ok()).map(word).collect())
    }

    /// A block behind its own length.
    pub(crate) fn block(&mut self) -> Option<&'a [u8]> {
        let len = self.count()?;
        self.take(len)
    }
}

/// Appends a block behind its own length.
pub(crate) fn put_block(out: &mut Vec<u8>, block: &[u8]) {
    out.extend((block.len() as u64).to_le_bytes());
    out.extend(block);
}

/// A 64-bit checksum against torn and flipped bytes, not against an adversary.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = (bytes.len() as u64) ^ 0x9e37_79b9_7f4a_7c15;
    let mut mix = |word: u64| {
        sum = (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        sum ^= sum >> 32;
    };
    let (words, tail) = bytes.as_chunks_8();
    for word in words {
        mix(u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(tail) {
        *to = *from;
    }
    mix(u64::from_le_bytes(last));
    sum
}

/// `slice::as_chunks` for eight bytes, which is newer than the oldest compiler that must build this.
trait Chunks8 {
    fn as_chunks_8(&self) -> (impl Iterator<Item = &[u8; 8]>, &[u8]);
}

impl Chunks8 for [u8] {
    fn as_chunks_8(&self) -> (impl Iterator<Item = &[u8; 8]>, &[u8]) {
        let chunks = self.chunks_exact(8);
        let tail = chunks.remainder();
        (chunks.filter_map(|c| c.try_into().ok()), tail)
    }
}

/// Wraps a payload: magic, checksum, length, payload.
pub(crate) fn seal(magic: &[u8; 8], payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 24);
    out.extend(magic);
    out.extend(checksum(payload).to_le_bytes());
    put_block(&mut out, payload);
    out
}

/// The payload of what [`seal`] made, when nothing is missing, added or changed.
pub(crate) fn unseal<'a>(magic: &[u8; 8], sealed: &'a [u8]) -> Option<&'a [u8]> {
    let mut cursor = Cursor(sealed);
    let right = cursor.take(8)? == magic;
    let sum = cursor.u64()?;
    let payload = cursor.block()?;
    (right && cursor.0.is_empty() && checksum(payload) == sum).then_some(payload)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_seal_holds_until_any_bit_changes() {
        let sealed = seal(b"ABCDEFGH", b"some payload of no round length");
        assert_eq!(unseal(b"ABCDEFGH", &sealed).unwrap(), b"some payload of no round length");
        assert_eq!(unseal(b"XBCDEFGH", &sealed), None);
        for at in 0..sealed.len() {
            assert_eq!(unseal(b"ABCDEFGH", &sealed[..at]), None, "cut at {at}");
            let mut flipped = sealed.clone();
            flipped[at] ^= 0x10;
            assert_eq!(unseal(b"ABCDEFGH", &flipped), None, "flip at {at}");
        }
    }

    #[test]
    fn words_are_not_allocated_by_their_count() {
        let mut cursor = Cursor(&[0; 16]);
        assert!(cursor.words(usize::MAX / 4, u64::from_le_bytes).is_none());
        assert_eq!(cursor.words(2, u64::from_le_bytes).unwrap(), [0, 0]);
    }
}

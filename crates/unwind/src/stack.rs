//! The copied stack of a sample.

/// Part of a process's stack as it was when the sample was taken; little-endian.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// The address of the first byte: the stack pointer.
    pub start: u64,
    /// The bytes from there on.
    pub bytes: &'a [u8],
}

/// Why a word could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// It lies behind the end of the copy.
    Behind,
    /// It lies below the stack pointer, or is no value at all.
    Elsewhere,
}

impl StackCopy<'_> {
    /// The eight bytes at an address.
    #[inline]
    pub(crate) fn word(&self, address: u64) -> Result<u64, Miss> {
        self.read(address, 8)
    }

    /// So many bytes at an address, at most eight, the higher ones 0.
    pub(crate) fn read(&self, address: u64, size: u8) -> Result<u64, Miss> {
        let offset = address.checked_sub(self.start).ok_or(Miss::Elsewhere)?;
        let offset = usize::try_from(offset).map_err(|_| Miss::Behind)?;
        let from = self.bytes.get(offset..).ok_or(Miss::Behind)?;
        let bytes = from.get(..usize::from(size.min(8))).ok_or(Miss::Behind)?;
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(bytes) {
            *to = *from;
        }
        Ok(u64::from_le_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_beyond_the_copy() {
        let stack = StackCopy { start: 0x1000, bytes: &[1, 2, 3, 4, 5, 6, 7, 8, 9] };
        assert_eq!(stack.word(0x1000), Ok(0x0807_0605_0403_0201));
        assert_eq!(stack.word(0x1001), Ok(0x0908_0706_0504_0302));
        assert_eq!(stack.word(0x1002), Err(Miss::Behind));
        assert_eq!(stack.word(0xfff), Err(Miss::Elsewhere));
        assert_eq!(stack.read(0x1008, 1), Ok(9));
        assert_eq!(stack.word(u64::MAX), Err(Miss::Behind));
        assert_eq!(StackCopy { start: u64::MAX, bytes: &[1; 16] }.word(0), Err(Miss::Elsewhere));
    }
}

use std::fmt;
use std::str::FromStr;

use crate::{Error, ErrorKind};

/// A build ID of up to 20 bytes, as an ELF note `NT_GNU_BUILD_ID` holds it. Displays as lower-case hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct BuildId {
    bytes: [u8; 20],
    len: u8,
}

impl BuildId {
    /// The longest build ID that perf's records carry, in bytes.
    pub const MAX: usize = 20;

    /// A build ID of the first 20 of `bytes`.
    pub fn new(bytes: &[u8]) -> Self {
        let mut id = Self::default();
        for (to, from) in id.bytes.iter_mut().zip(bytes) {
            *to = *from;
            id.len += 1;
        }
        id
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(Self::MAX)]
    }

    /// The 20-byte field that records hold, zeros after the build ID.
    pub(crate) fn field(&self) -> [u8; 20] {
        self.bytes
    }

    /// Whether it has no bytes, or only zeros.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().iter().all(|&b| b == 0)
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

impl FromStr for BuildId {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Error> {
        let bad = || Error::new(ErrorKind::BadValue, format!("build ID {s:?}"));
        let digits = s.as_bytes();
        if digits.is_empty() || digits.len() > 2 * Self::MAX || digits.len() % 2 != 0 {
            return Err(bad());
        }
        let mut bytes = [0; Self::MAX];
        for (to, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |b: u8| char::from(b).to_digit(16).ok_or_else(bad);
            *to = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Self::new(&bytes[..digits.len() / 2]))
    }
}

//! A label as a key: which one, and what stands behind a stack for it.

use std::sync::Arc;

use afterimage_perf_data::btf::{Types, Unreadable, Value};

use crate::object::Object;

/// A label, and the object whose handler gives it to samples. What that handler drops is not counted.
#[derive(Clone, Debug)]
pub struct GivenBy {
    /// The label's name.
    pub name: String,
    /// The object.
    pub object: Arc<Object>,
}

/// A label of samples that were counted together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// The type of the value, in the types of the object.
    pub type_id: u32,
    /// Bytes of the value.
    pub size: u32,
    /// The value; empty when it is longer than [`Label::LONGEST`].
    pub bytes: Vec<u8>,
}

impl Label {
    /// AI_LABEL_BYTES: bytes of the longest value that is a key.
    pub const LONGEST: u32 = 64;
    /// AI_LABEL_WORDS.
    pub(crate) const WORDS: usize = 1 + Label::LONGEST as usize / 8;

    /// From the words of [`CountEntry::label`](crate::CountEntry::label); `None` when the handler gave none.
    pub fn of(words: &[u64]) -> Option<Label> {
        let (first, rest) = words.split_first()?;
        let (type_id, size) = (*first as u32, (*first >> 32) as u32);
        if size == 0 {
            return None;
        }
        let mut bytes: Vec<u8> = rest.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.truncate(if size > Label::LONGEST { 0 } else { size as usize });
        Some(Label { type_id, size, bytes })
    }

    /// The value by its type.
    ///
    /// # Errors
    /// When it was too long for a key, or its type is not known.
    pub fn value<'b>(&self, types: &Types<'b>) -> Result<Value<'b>, Unreadable> {
        if self.size > Label::LONGEST {
            return Err(Unreadable::Short { there: Label::LONGEST.into(), wanted: self.size.into() });
        }
        types.values(self.type_id, &self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_labels() {
        assert_eq!(Label::of(&[]), None);
        assert_eq!(Label::of(&[0; 9]), None);
        let mut words = [0u64; 9];
        (words[0], words[1]) = (5 << 32 | 3, u64::from_ne_bytes(*b"abcde\0\0\0"));
        assert_eq!(Label::of(&words), Some(Label { type_id: 3, size: 5, bytes: b"abcde".to_vec() }));
        words[0] = 65 << 32 | 3;
        assert_eq!(Label::of(&words), Some(Label { type_id: 3, size: 65, bytes: Vec::new() }));
    }
}

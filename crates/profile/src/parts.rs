//! Raw stacks: where their parts end, and which parts are known.
//!
//! ```text
//!   KERNEL k k k k | USER u u u u u         The part in the kernel means the same in every process, and the part of a
//!   ───────────────┼────────────────        process the same while its maps are what they are. Each is found by its
//!     kernel part  │   user part            bytes, and the places of its addresses are looked up once.
//! ```

use std::hash::Hasher;

use afterimage_perf_data::{Callchain, context};
use hashbrown::HashTable;
use rustc_hash::FxHasher;

use crate::sample::TimedSample;
use crate::state::{SpaceId, State};

/// A raw stack as its two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split<'c> {
    /// From the marker of the kernel on, an address behind it and no other marker; empty without one.
    pub kernel: Callchain<'c>,
    /// From the marker of the process on, an address behind it; empty without one.
    pub user: Callchain<'c>,
}

impl<'c> Split<'c> {
    /// The parts of a stack of the usual form: each part has its marker, and an address behind it. `None` for any other.
    #[inline]
    pub fn of(chain: Callchain<'c>) -> Option<Split<'c>> {
        let mut words = chain.iter();
        let none = Callchain::default();
        match words.next()? {
            context::USER | context::UNWOUND => has_address(chain).then_some(Split { kernel: none, user: chain }),
            context::KERNEL => {
                if !has_address(chain) {
                    return None;
                }
                let Some(addresses) = words.position(context::is_marker) else {
                    return Some(Split { kernel: chain, user: none });
                };
                let (kernel, rest) = chain.split_at(1 + addresses);
                match rest.iter().next()? {
                    context::USER | context::UNWOUND if has_address(rest) => Some(Split { kernel, user: rest }),
                    // Nothing is known of the user part, which comes in a record of its own.
                    context::USER_DEFERRED => Some(Split { kernel, user: none }),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// Whether the addresses of a part behind its first are those that calls return to. Those of an unwound part are of the
/// calls themselves.
#[inline]
pub fn has_return_addresses(part: Callchain<'_>) -> bool {
    part.iter().next() != Some(context::UNWOUND)
}

/// Whether an address follows the marker.
fn has_address(part: Callchain<'_>) -> bool {
    part.iter().nth(1).is_some_and(|value| !context::is_marker(value))
}

/// What the places of a part depend on beside its bytes. While it stays the same, so do they, but for addresses where
/// nothing is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Under(u64);

impl Under {
    /// Of the kernel's part: the texts that there are.
    #[inline]
    pub fn kernel(state: &State) -> Under {
        Under(state.kernel_version())
    }

    /// Of the part of a sample's process: what it has mapped.
    #[inline]
    pub fn process(sample: &TimedSample<'_>) -> Under {
        let SpaceId(number) = sample.space;
        Under(number.into())
    }

    /// A number that stands for it.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Parts of raw stacks of one kind (the kernel's, or those of processes) with what they stand for. When there is no room
/// any more all are forgotten: those that come again are found out again.
#[derive(Debug)]
pub struct KnownParts<T> {
    bytes: Vec<u8>,
    table: HashTable<Known<T>>,
    most: usize,
}

#[derive(Clone, Copy, Debug)]
struct Known<T> {
    hash: u64,
    under: Under,
    start: u32,
    len: u32,
    value: T,
}

/// The hash of a part, by which it is found and kept.
#[derive(Clone, Copy, Debug)]
pub struct PartHash(pub u64);

impl<T: Copy> KnownParts<T> {
    /// At most so many bytes of raw parts are kept.
    pub fn with_room(most: usize) -> KnownParts<T> {
        KnownParts { bytes: Vec::new(), table: HashTable::new(), most: most.min(u32::MAX as usize) }
    }

    /// What a part stands for, if it is known.
    #[inline]
    pub fn find(&self, part: Callchain<'_>, under: Under) -> (PartHash, Option<T>) {
        let raw = part.bytes();
        let mut hasher = FxHasher::default();
        hasher.write(raw);
        hasher.write_u64(under.0);
        let hash = hasher.finish();
        let bytes = &self.bytes;
        let same = |known: &Known<T>| {
            known.hash == hash
                && known.under == under
                && bytes.get(known.start as usize..).and_then(|rest| rest.get(..known.len as usize)) == Some(raw)
        };
        (PartHash(hash), self.table.find(hash, same).map(|known| known.value))
    }

    /// Keeps what a part stands for that was not found. `false` where all others were forgotten to make room.
    pub fn keep(&mut self, hash: PartHash, part: Callchain<'_>, under: Under, value: T) -> bool {
        let raw = part.bytes();
        let had_room = self.bytes.len() + raw.len() <= self.most;
        if !had_room {
            self.clear();
        }
        let (Ok(start), Ok(len)) = (u32::try_from(self.bytes.len()), u32::try_from(raw.len())) else { return had_room };
        self.bytes.extend_from_slice(raw);
        let known = Known { hash: hash.0, under, start, len, value };
        self.table.insert_unique(hash.0, known, |known| known.hash);
        had_room
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.table.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use afterimage_perf_data::Endian;

    use super::*;

    const K: u64 = 0xffff_ffff_8100_0000;

    fn bytes(words: &[u64], endian: Endian) -> Vec<u8> {
        words.iter().flat_map(|word| endian.put_u64(*word)).collect()
    }

    fn lengths(words: &[u64]) -> Option<(usize, usize)> {
        let both = [Endian::Little, Endian::Big].map(|endian| {
            let bytes = bytes(words, endian);
            Split::of(Callchain::new(&bytes, endian)).map(|split| (split.kernel.len(), split.user.len()))
        });
        assert_eq!(both[0], both[1]);
        both[0]
    }

    #[test]
    fn stacks_of_the_usual_form_have_two_parts() {
        use context::{GUEST_USER, KERNEL, UNWOUND, USER, USER_DEFERRED};
        assert_eq!(lengths(&[KERNEL, K, K + 1, USER, 1, 2, 3]), Some((3, 4)));
        assert_eq!(lengths(&[KERNEL, K]), Some((2, 0)));
        assert_eq!(lengths(&[KERNEL, K, UNWOUND, 1, 2]), Some((2, 3)));
        assert_eq!(lengths(&[UNWOUND, 1, 2]), Some((0, 3)));
        assert_eq!(lengths(&[USER, 5]), Some((0, 2)));
        assert_eq!(lengths(&[KERNEL, K, USER_DEFERRED, 77]), Some((2, 0)));
        for other in
            [&[][..], &[K, K], &[KERNEL], &[USER], &[KERNEL, USER, 1], &[KERNEL, K, USER], &[KERNEL, K, GUEST_USER, 1]]
        {
            assert_eq!(lengths(other), None, "{other:x?}");
        }
    }

    #[test]
    fn parts_are_known_by_their_bytes_and_what_they_stand_under() {
        let mut known = KnownParts::with_room(40);
        let (one, two) = (bytes(&[1, 2], Endian::Little), bytes(&[1, 3], Endian::Little));
        let (one, two) = (Callchain::new(&one, Endian::Little), Callchain::new(&two, Endian::Little));
        let (hash, none) = known.find(one, Under(7));
        assert_eq!(none, None);
        assert!(known.keep(hash, one, Under(7), 11));
        assert_eq!(known.find(one, Under(7)).1, Some(11));
        assert_eq!(known.find(one, Under(8)).1, None);
        let (hash, none) = known.find(two, Under(7));
        assert_eq!(none, None);
        assert!(known.keep(hash, two, Under(7), 12));
        assert_eq!((known.find(one, Under(7)).1, known.find(two, Under(7)).1), (Some(11), Some(12)));
        let (hash, _) = known.find(one, Under(9));
        assert!(!known.keep(hash, one, Under(9), 13));
        assert_eq!((known.find(one, Under(7)).1, known.find(one, Under(9)).1), (None, Some(13)), "no room for all");
    }
}

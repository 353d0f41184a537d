//! What was at one start address, life by life.

use crate::rows::NEVER;
use crate::text::TextId;

/// One text at its start address, from when to when. A life that ends when it begins is never seen by a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// The earliest time at which the address is taken to be this text's.
    pub(crate) born: u64,
    /// [`NEVER`] while it lives.
    pub(crate) gone: u64,
    pub(crate) text: TextId,
    /// Bytes that it covers.
    pub(crate) len: u32,
}

impl Life {
    /// No life at all.
    pub(crate) const NOTHING: Life = Life { born: 0, gone: 0, text: TextId(std::num::NonZeroU32::MAX), len: 0 };

    /// No text, but an end that was told of: a text that is told of later and began before it ends there.
    pub(crate) fn end_alone(time: u64) -> Life {
        Life { born: time, gone: time, ..Life::NOTHING }
    }

    pub(crate) fn is_end_alone(&self) -> bool {
        self.text.0 == std::num::NonZeroU32::MAX
    }

    #[inline(always)]
    pub(crate) fn is_alive(&self, time: u64) -> bool {
        self.born <= time && (time < self.gone || self.gone == NEVER)
    }
}

/// The lives at one start address in time order: none begins before the one before it has ended.
#[derive(Clone, Debug)]
pub(crate) enum Lives {
    /// Nearly always.
    One(Life),
    Many(Many),
}

/// Other than one life. An enum of its own, so that [`Lives`] needs no room beside the life to tell what it is.
#[derive(Clone, Debug)]
pub(crate) enum Many {
    /// Up to [`FEW`].
    Few(Box<[Life]>),
    /// More, with a table to search them by.
    Long(Box<Long>),
}

/// Lives of one start in one block.
const FEW: usize = 16;
/// Lives behind one entry of the table: three lines of the cache.
const GROUP: usize = 8;

/// Many lives, and when each [`GROUP`]th begins: a look-up reads this table and then a single group.
#[derive(Clone, Debug)]
pub(crate) struct Long {
    lives: Vec<Life>,
    groups: Vec<u64>,
}

impl Long {
    fn new(lives: Vec<Life>) -> Long {
        let mut long = Long { lives, groups: Vec::new() };
        long.learn(0);
        long
    }

    /// Brings the table up to date from the life at `at` on.
    fn learn(&mut self, at: usize) {
        let group = at / GROUP;
        self.groups.truncate(group);
        self.groups.extend(self.lives.iter().skip(group * GROUP).step_by(GROUP).map(|life| life.born));
    }

    #[inline(always)]
    fn position(&self, time: u64) -> usize {
        let begun = self.groups.partition_point(|born| *born <= time);
        let first = begun.saturating_sub(1) * GROUP;
        let group = self.lives.get(first..self.lives.len().min(first + GROUP)).unwrap_or_default();
        first + group.partition_point(|life| life.born <= time)
    }
}

impl Many {
    fn of(lives: Vec<Life>) -> Many {
        if lives.len() > FEW { Many::Long(Box::new(Long::new(lives))) } else { Many::Few(lives.into()) }
    }
}

impl Lives {
    /// As small as it goes.
    fn of(lives: Vec<Life>) -> Lives {
        match lives[..] {
            [one] => Lives::One(one),
            _ => Lives::Many(Many::of(lives)),
        }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[Life] {
        match self {
            Lives::One(life) => std::slice::from_ref(life),
            Lives::Many(Many::Few(lives)) => lives,
            Lives::Many(Many::Long(long)) => &long.lives,
        }
    }

    /// Alters the life at a place; answers what it is now.
    pub(crate) fn alter(&mut self, place: usize, change: impl FnOnce(&mut Life)) -> Option<Life> {
        let life = match self {
            Lives::One(life) => Some(life).filter(|_| place == 0)?,
            Lives::Many(Many::Few(lives)) => lives.get_mut(place)?,
            Lives::Many(Many::Long(long)) => long.lives.get_mut(place)?,
        };
        change(life);
        let life = *life;
        if let Lives::Many(Many::Long(long)) = self {
            if let (0, Some(born)) = (place % GROUP, long.groups.get_mut(place / GROUP)) {
                *born = life.born;
            }
        }
        Some(life)
    }

    pub(crate) fn insert(&mut self, at: usize, life: Life) {
        if let Lives::Many(Many::Long(long)) = self {
            let at = at.min(long.lives.len());
            long.lives.insert(at, life);
            long.learn(at);
            return;
        }
        let old = self.as_slice();
        let mut lives = Vec::with_capacity(if old.len() == FEW { 2 * FEW } else { old.len() + 1 });
        lives.extend_from_slice(old);
        lives.insert(at.min(old.len()), life);
        *self = Lives::of(lives);
    }

    /// Takes the lives out that are not to be kept; answers whether none is left.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Life) -> bool) -> bool {
        if let Lives::One(one) = self {
            return !keep(one);
        }
        if let Lives::Many(Many::Long(long)) = self {
            long.lives.retain(&keep);
            let left = long.lives.len();
            if left > FEW / 2 {
                long.learn(0);
                // Room for many that have been retired is given back.
                if long.lives.capacity() > 4 * left + 8 {
                    long.lives.shrink_to(2 * left);
                    long.groups.shrink_to(2 * long.groups.len());
                }
                return false;
            }
        }
        let left: Vec<Life> = self.as_slice().iter().copied().filter(keep).collect();
        let none = left.is_empty();
        *self = Lives::of(left);
        none
    }

    /// How many began at or before this time.
    #[inline(always)]
    pub(crate) fn position(&self, time: u64) -> usize {
        match self {
            Lives::One(life) => usize::from(life.born <= time),
            Lives::Many(Many::Few(lives)) => lives.partition_point(|life| life.born <= time),
            Lives::Many(Many::Long(long)) => long.position(time),
        }
    }

    /// What was alive at this time.
    #[inline(always)]
    pub(crate) fn at(&self, time: u64) -> Option<&Life> {
        let last = match self {
            Lives::One(life) => Some(life),
            Lives::Many(_) => self.as_slice().get(self.position(time).checked_sub(1)?),
        };
        last.filter(|life| life.is_alive(time))
    }

    /// Whether the last life goes on.
    pub(crate) fn is_open(&self) -> bool {
        self.as_slice().last().is_some_and(|life| life.gone == NEVER)
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Lives::One(_) => 0,
            Lives::Many(Many::Few(lives)) => size_of_val(&**lives),
            Lives::Many(Many::Long(long)) => {
                size_of::<Long>()
                    + long.lives.capacity() * size_of::<Life>()
                    + long.groups.capacity() * size_of::<u64>()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::TextId;

    fn life(born: u64, gone: u64) -> Life {
        Life { born, gone, text: TextId::from_index(born as usize).unwrap(), len: 1 }
    }

    /// Of each size, put together from both ends and from the middle, every question answered as by a plain list.
    #[test]
    fn lives_of_every_number_are_found_and_taken_out() {
        for size in 1..100_u64 {
            let mut lives = Lives::One(life(10 * (size / 2), 10 * (size / 2) + 5));
            let mut plain = lives.as_slice().to_vec();
            for i in (0..size).filter(|i| *i != size / 2) {
                let one = life(10 * i, 10 * i + 5);
                let at = plain.partition_point(|life| life.born <= one.born);
                assert_eq!(lives.position(one.born), at);
                lives.insert(at, one);
                plain.insert(at, one);
            }
            if size > 3 {
                assert_eq!(
                    lives.alter(3, |life| life.born += 2),
                    plain.get_mut(3).map(|life| {
                        life.born += 2;
                        *life
                    })
                );
            }
            while !plain.is_empty() {
                assert_eq!(lives.as_slice(), plain);
                for time in 0..10 * size + 10 {
                    let expected = plain.iter().rfind(|life| life.born <= time && time < life.gone);
                    assert_eq!(lives.at(time), expected, "{size} lives at {time}");
                }
                let taken = plain.remove(plain.len() * 2 / 3).text;
                assert_eq!(lives.retain(|life| life.text != taken), plain.is_empty());
            }
        }
    }

    #[test]
    fn a_place_is_as_small_as_promised() {
        assert_eq!((size_of::<Life>(), size_of::<Lives>()), (24, 24));
    }
}

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

    pub(crate) fn is_alive(&self, time: u64) -> bool {
        self.born <= time && (time < self.gone || self.gone == NEVER)
    }
}

/// The lives at one start address in time order: none begins before the one before it has ended.
#[derive(Clone, Debug)]
pub(crate) enum Lives {
    /// Nearly always.
    One(Life),
    #[expect(clippy::box_collection, reason = "a Vec would make all of them larger")]
    Many(Box<Vec<Life>>),
}

impl Lives {
    pub(crate) fn as_slice(&self) -> &[Life] {
        match self {
            Lives::One(life) => std::slice::from_ref(life),
            Lives::Many(lives) => lives,
        }
    }

    pub(crate) fn as_mut(&mut self) -> &mut [Life] {
        match self {
            Lives::One(life) => std::slice::from_mut(life),
            Lives::Many(lives) => lives,
        }
    }

    pub(crate) fn insert(&mut self, at: usize, life: Life) {
        match self {
            Lives::One(one) => {
                let both = if at == 0 { vec![life, *one] } else { vec![*one, life] };
                *self = Lives::Many(Box::new(both));
            }
            Lives::Many(lives) => lives.insert(at.min(lives.len()), life),
        }
    }

    /// Takes the lives out that are not to be kept; answers whether none is left.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Life) -> bool) -> bool {
        match self {
            Lives::One(one) => !keep(one),
            Lives::Many(lives) => {
                lives.retain(keep);
                if let [one] = lives[..] {
                    *self = Lives::One(one);
                    return false;
                }
                // Room for many that have been retired is given back.
                if lives.capacity() > 4 * lives.len() + 8 {
                    lives.shrink_to(2 * lives.len());
                }
                lives.is_empty()
            }
        }
    }

    /// How many began at or before this time.
    pub(crate) fn position(&self, time: u64) -> usize {
        match self {
            Lives::One(life) => usize::from(life.born <= time),
            Lives::Many(lives) => lives.partition_point(|life| life.born <= time),
        }
    }

    /// What was alive at this time.
    #[inline]
    pub(crate) fn at(&self, time: u64) -> Option<&Life> {
        match self {
            Lives::One(life) => Some(life).filter(|life| life.is_alive(time)),
            Lives::Many(lives) => {
                let before = lives.partition_point(|life| life.born <= time);
                lives.get(before.checked_sub(1)?).filter(|life| life.is_alive(time))
            }
        }
    }

    /// Whether the last life goes on.
    pub(crate) fn is_open(&self) -> bool {
        self.as_slice().last().is_some_and(|life| life.gone == NEVER)
    }
}

//! Counter values in samples: how far each counter went since its last one.

use rustc_hash::FxHashMap;

/// The last value of each counter.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// By id; of inherited events, which have one id for all threads, also by thread.
    last: FxHashMap<(u64, u32), u64>,
}

impl Reads {
    /// How far a counter went since it was here last, or since it began.
    pub(crate) fn step(&mut self, id: u64, thread: u32, value: u64) -> u64 {
        value.wrapping_sub(self.last.insert((id, thread), value).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told_apart() {
        let mut reads = Reads::default();
        assert_eq!(reads.step(1, 0, 10), 10);
        assert_eq!(reads.step(2, 0, 100), 100);
        assert_eq!(reads.step(1, 0, 15), 5);
        assert_eq!(reads.step(1, 7, 3), 3);
        assert_eq!((reads.step(1, 0, 15), reads.step(1, 7, 4)), (0, 1));
    }
}

//! Changes of text in place.

use std::collections::BTreeMap;

/// One change: from its time on `new` stands where `old` stood. Where one of the two is shorter, there was (or is)
/// nothing known behind it.
#[derive(Clone, Debug)]
pub(crate) struct Poke {
    pub(crate) time: u64,
    pub(crate) addr: u64,
    pub(crate) old: Box<[u8]>,
    pub(crate) new: Box<[u8]>,
}

impl Poke {
    fn len(&self) -> u64 {
        self.old.len().max(self.new.len()) as u64
    }
}

/// The changes of a recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pokes {
    /// By address, then in the order in which they were told.
    by_addr: BTreeMap<(u64, u64), Poke>,
    told: u64,
    longest: u64,
}

impl Pokes {
    pub(crate) fn add(&mut self, time: u64, addr: u64, old: &[u8], new: &[u8]) {
        let poke = Poke { time, addr, old: old.into(), new: new.into() };
        if poke.len() == 0 || addr.checked_add(poke.len()).is_none() {
            return;
        }
        self.longest = self.longest.max(poke.len());
        self.by_addr.insert((addr, self.told), poke);
        self.told += 1;
    }

    /// Those that touch a range, in time order.
    pub(crate) fn over(&self, addr: u64, end: u64) -> Vec<&Poke> {
        let from = addr.saturating_sub(self.longest);
        let there = self.by_addr.range((from, 0)..(end, 0)).map(|(_, poke)| poke);
        let mut there: Vec<&Poke> = there.filter(|poke| poke.addr + poke.len() > addr).collect();
        there.sort_by_key(|poke| poke.time);
        there
    }

    /// Forgets those before a time.
    pub(crate) fn forget(&mut self, before: u64) {
        self.by_addr.retain(|_, poke| poke.time >= before);
    }

    #[cfg(feature = "capture")]
    pub(crate) fn len(&self) -> usize {
        self.by_addr.len()
    }
}

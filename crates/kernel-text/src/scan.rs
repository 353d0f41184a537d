//! What there was when somebody looked: which texts came and went while records were lost.
//!
//! A look is worth less than a record. A text that is not seen has gone, but a record may say later when that was; one that is
//! seen and that nothing told of began somewhere before; and one that is seen although it was taken to have ended, because
//! another one went at its place, ended later than that.

use std::collections::{HashMap, HashSet};

use crate::change::Around;
use crate::lives::Life;
use crate::rows::flag;
use crate::text::{TextId, TextKind};
use crate::timeline::{Seen, Timeline, until_nul};

impl Timeline {
    /// Takes into account what there was after a loss: `known` was read after `time`. Texts of the kinds in `kinds` that lived
    /// then and are not among `known` have gone, and those of `known` that nothing told of have come since the loss. Both are
    /// uncertain. Told when the records of that time have been told, but for those that were lost: what is told later of a
    /// text that was found by looking would else make a second one of it.
    pub fn rescan(&mut self, time: u64, known: &[Seen<'_>], kinds: &[TextKind]) {
        let there = self.end_what_is_not(time, known, kinds);
        let lost = self.losses_in(0, time).last().copied();
        for seen in there {
            // It took its place when that was free.
            let from = match (lost, self.free_from(seen.addr, time)) {
                (Some(lost), free) => lost.max(free.unwrap_or(0)),
                (None, Some(_)) => time,
                (None, None) => 0,
            };
            let text = self.came(from, seen);
            if let (Some(text), Some(_)) = (text, lost) {
                self.born_unseen(text);
            }
        }
        let at = self.scans.partition_point(|scan| *scan <= time);
        self.scans.insert(at, time);
    }

    /// Ends those texts that go on and are not among `known`. Answers those of `known` that are no such text.
    pub(crate) fn end_what_is_not<'k, 'n>(
        &mut self,
        time: u64,
        known: &'k [Seen<'n>],
        kinds: &[TextKind],
    ) -> Vec<&'k Seen<'n>> {
        let mut there: HashMap<u64, &Seen<'_>> = known.iter().map(|seen| (seen.addr, seen)).collect();
        // What went or came since then is told by its records.
        there.retain(|addr, seen| {
            let name = String::from_utf8_lossy(until_nul(seen.name));
            let lives = self.starts.get(*addr).map_or(&[][..], |lives| lives.as_slice());
            !lives.iter().rev().take_while(|life| life.gone > time).any(|life| self.is_seen(life.text, seen, &name))
        });
        there.retain(|_, seen| !self.outlived(time, seen));
        let all: HashSet<u64> = known.iter().map(|seen| seen.addr).collect();
        let mut gone = Vec::new();
        self.starts.open(|addr, life| {
            let missed = !all.contains(&addr) || there.contains_key(&addr);
            if missed && life.born <= time && self.rows.get(life.text).is_some_and(|row| kinds.contains(&row.kind)) {
                gone.push((addr, life.born));
            }
        });
        for (addr, born) in gone {
            // Where another one stands by now, it went with the records that were lost.
            let lost = if there.contains_key(&addr) { self.losses_in(born, time).last().copied() } else { None };
            let place = self.around(addr, time).place;
            let missed = place.checked_sub(1).and_then(|at| self.end(addr, at, lost.unwrap_or(time), flag::MISSED));
            if let Some(text) = missed {
                self.set(text, flag::UNCERTAIN);
            }
        }
        let mut there: Vec<&Seen<'_>> = there.into_values().collect();
        there.sort_by_key(|seen| seen.addr);
        there
    }

    /// A text was seen at this time, and its end before that was only concluded from what came after it: it ended later.
    fn outlived(&mut self, time: u64, seen: &Seen<'_>) -> bool {
        let name = String::from_utf8_lossy(until_nul(seen.name)).into_owned();
        let lives = self.starts.get(seen.addr).map_or(&[][..], |lives| lives.as_slice());
        let begun = lives.iter().enumerate().filter(|(_, life)| !life.is_end_alone() && life.born <= time);
        // An orphan is taken to begin where the text before it ends.
        let is_it = |life: &Life| !self.has(life.text, flag::TOLD) && self.is_seen(life.text, seen, &name);
        let found = begun.rev().find(|(_, life)| !self.has(life.text, flag::ORPHAN) || life.gone <= time);
        let Some((place, _)) = found.filter(|(_, life)| is_it(life)) else { return false };
        let Some(next) = lives.get(place + 1).copied() else { return false };
        let until = if self.has(next.text, flag::ORPHAN) { time.min(next.gone) } else { next.born };
        self.end(seen.addr, place, until, flag::UNCERTAIN).is_some()
    }

    /// Since when a start has been free at this time, as far as is known; `None` if nothing ever was there before.
    pub(crate) fn free_from(&self, addr: u64, time: u64) -> Option<u64> {
        let Around { before, .. } = self.around(addr, time);
        before.map(|life| life.gone.min(time))
    }

    /// What was found by looking, after a loss: its beginning lies somewhere before.
    pub(crate) fn born_unseen(&mut self, text: TextId) {
        if let Some(row) = self.rows.get_mut(text) {
            row.born = 0;
        }
        self.set(text, flag::UNCERTAIN);
    }
}

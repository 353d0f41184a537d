//! How texts come and go at one start address, in whatever order it is told.
//!
//! Of two things that are told of one start and one time, the end comes before the beginning: a place is free before it is
//! used again, and no text lives for no time.
//!
//! An end without its beginning makes an **orphan**: a text that is taken to live from the end of what stood there
//! before. While that end is not known either, the place is the earlier text's up to the orphan's own end. So the lives
//! at a start are the same in the end, however the records of several CPUs were mixed.

use crate::lives::Life;
use crate::rows::{NEVER, New, flag};
use crate::text::{BpfProgram, Loader, TextId, TextKind};
use crate::timeline::{Seen, Timeline};

/// What is told of a text that comes or goes.
pub(crate) struct Coming<'a> {
    pub(crate) addr: u64,
    /// As reported, and true; one of them is 0.
    pub(crate) len: u32,
    pub(crate) length: u32,
    pub(crate) name: &'a str,
    pub(crate) kind: TextKind,
}

/// The lives at a start around a time: how many began up to it, the last of these, and the next one.
pub(crate) struct Around {
    pub(crate) place: usize,
    pub(crate) before: Option<Life>,
    after: Option<Life>,
}

impl Timeline {
    pub(crate) fn range_of<'a>(&mut self, seen: &Seen<'_>, name: &'a str) -> Option<Coming<'a>> {
        if seen.len == 0 || seen.addr.checked_add(u64::from(seen.len)).is_none() {
            self.ignored += 1;
            return None;
        }
        Some(Coming { addr: seen.addr, len: 0, length: seen.len, name, kind: seen.kind })
    }

    pub(crate) fn around(&self, addr: u64, time: u64) -> Around {
        let lives = self.starts.get(addr);
        let place = lives.map_or(0, |lives| lives.position(time));
        let lives = lives.map_or(&[][..], |lives| lives.as_slice());
        let before = place.checked_sub(1).and_then(|at| lives.get(at)).copied();
        Around { place, before, after: lives.get(place).copied() }
    }

    /// The lives at a start around an end at this time: what begins at that very time begins after it.
    fn around_end(&self, addr: u64, time: u64) -> Around {
        self.around(addr, time.saturating_sub(1))
    }

    /// A text came. Finds the text that another source told of already: the scan of what was loaded (time 0), a file,
    /// or the record of its end that was read first.
    pub(crate) fn comes(&mut self, time: u64, new: &Coming<'_>) -> Option<TextId> {
        let Around { place, before, after } = self.around(new.addr, time);
        if let Some(life) = before.filter(|life| self.is_coming(life.text, new)) {
            let row = self.rows.get(life.text)?;
            if row.born == time {
                return Some(life.text);
            }
            if row.born == 0 && life.is_alive(time) {
                self.born(new, place - 1, time);
                return Some(life.text);
            }
        }
        if let Some(life) = after.filter(|life| self.is_coming(life.text, new)) {
            let ended = before.is_some_and(|before| before.is_alive(time) && self.has(before.text, flag::TOLD));
            if self.has(life.text, flag::ORPHAN) && !ended {
                self.born(new, place, time);
                if before.is_some_and(|before| before.is_alive(time)) {
                    self.end(new.addr, place - 1, time, 0);
                }
                return Some(life.text);
            }
            if time == 0 {
                return Some(life.text);
            }
        }
        let orphan = |life: &Life| self.has(life.text, flag::ORPHAN);
        let gone = match (before, after) {
            // The orphan comes after it.
            (Some(life), _) if life.is_alive(time) && orphan(&life) => {
                self.starts.alter(new.addr, place - 1, |life| life.born = life.gone);
                return self.add(new, time, life.gone, time, place - 1);
            }
            (Some(life), _) if life.is_alive(time) => {
                // An end that was told is that of another text with the same name, told of later.
                if self.is_told(&life, after) {
                    self.starts.insert(new.addr, Life::end_alone(life.gone), place);
                }
                // One that was missed when somebody looked says nothing of what came since.
                let missed = self.has(life.text, flag::MISSED);
                self.end(new.addr, place - 1, time, 0);
                if missed { after.map_or(NEVER, |after| after.born) } else { life.gone }
            }
            (_, Some(life)) if orphan(&life) => {
                self.starts.alter(new.addr, place, |life| life.born = life.gone);
                life.gone
            }
            (_, Some(life)) => life.born,
            _ => NEVER,
        };
        self.add(new, time, gone, time, place)
    }

    /// A text went.
    pub(crate) fn went(&mut self, time: u64, old: &Coming<'_>) -> Option<TextId> {
        let Around { place, before, after } = self.around_end(old.addr, time);
        let Some(life) = before else {
            return self.orphan(time, old, place, 0);
        };
        if let Some(text) = self.ended_at(time, old, place) {
            return Some(text);
        }
        if self.last_text(old.addr, place).is_none_or(|last| !self.is_coming(last, old)) {
            if let Some(earlier) = self.concluded_before(time, place, &life, old) {
                return self.is_over(old.addr, earlier, time, old.len);
            }
            return self.orphan_after(time, old, place, life, after);
        }
        if life.is_alive(time) {
            // An end that was told stays one, for what may be told of later; a free is the end of this same text.
            let told = self.is_told(&life, after) && !self.has(life.text, flag::FREED);
            if told {
                self.starts.insert(old.addr, Life::end_alone(life.gone), place);
            }
            return self.is_over(old.addr, place - 1, time, old.len);
        }
        if after.is_none_or(|after| time <= after.born) {
            // An end that was only concluded, from a loss or from nobody having seen it, was too early.
            if !life.is_end_alone() && !self.has(life.text, flag::TOLD) {
                return self.is_over(old.addr, place - 1, time, old.len);
            }
            if after.is_none_or(|after| time < after.born) {
                self.starts.insert(old.addr, Life::end_alone(time), place);
            }
        }
        None
    }

    /// The end of a life was told of.
    fn is_over(&mut self, addr: u64, place: usize, time: u64, len: u32) -> Option<TextId> {
        let text = self.end(addr, place, time, flag::TOLD)?;
        if let Some(row) = self.rows.get_mut(text) {
            row.len = if row.len == 0 { len } else { row.len };
            // Both its ends are told.
            row.flags &= if row.born == 0 { !0 } else { !flag::UNCERTAIN };
        }
        Some(text)
    }

    /// Where the life of this text is, if an orphan, of which less is known, is all that stands between it and the end that
    /// is told of, and its end was only concluded.
    fn concluded_before(&self, time: u64, place: usize, last: &Life, old: &Coming<'_>) -> Option<usize> {
        if !self.has(last.text, flag::ORPHAN) || last.gone < time {
            return None;
        }
        let earlier = place.checked_sub(2)?;
        let life = self.starts.get(old.addr)?.as_slice().get(earlier)?;
        (self.is_coming(life.text, old) && !self.has(life.text, flag::TOLD)).then_some(earlier)
    }

    /// A text was freed.
    pub(crate) fn is_freed(&mut self, time: u64, seen: &Seen<'_>, old: &Coming<'_>) -> Option<TextId> {
        let Around { mut place, before, after } = self.around_end(seen.addr, time);
        let Some(mut life) = before else {
            return self.orphan(time, old, place, flag::FREED);
        };
        if life.is_end_alone() {
            // One that was told of the text before it, which is freed now.
            let lives = self.starts.get(seen.addr).map_or(&[][..], |lives| lives.as_slice());
            let text = lives.get(..place).unwrap_or_default().iter().rposition(|life| !life.is_end_alone());
            let there = text.and_then(|at| Some((at, *lives.get(at)?)));
            let there = there
                .filter(|(_, there)| self.is_seen(there.text, seen, old.name) && !self.has(there.text, flag::FREED));
            if let Some((at, there)) = there {
                (place, life) = (at + 1, there);
            }
        }
        if !self.is_seen(life.text, seen, old.name) {
            // Its record may have ended it already, and its place have been taken over by one that is freed later.
            let earlier = place.checked_sub(2).and_then(|at| self.starts.get(seen.addr)?.as_slice().get(at)).copied();
            if let Some(earlier) = earlier.filter(|earlier| self.is_seen(earlier.text, seen, old.name)) {
                if self.has(life.text, flag::ORPHAN) && !self.has(earlier.text, flag::FREED) {
                    self.starts.alter(seen.addr, place - 2, |life| life.len = seen.len);
                    self.set(earlier.text, flag::FREED);
                    return Some(earlier.text);
                }
            }
            let text = self.orphan_after(time, old, place, life, after)?;
            self.set(text, flag::FREED);
            return Some(text);
        }
        self.starts.alter(seen.addr, place - 1, |life| life.len = seen.len);
        if life.is_alive(time) && !self.is_told(&life, after) {
            self.end(seen.addr, place - 1, time, flag::FREED | flag::TOLD);
        }
        Some(life.text)
    }

    /// Whether a life's end was told of, and not concluded from what begins there.
    fn is_told(&self, life: &Life, after: Option<Life>) -> bool {
        if self.has(life.text, flag::MISSED) {
            return false;
        }
        let concluded = after.is_some_and(|after| match self.has(after.text, flag::ORPHAN) {
            true => !self.has(life.text, flag::TOLD),
            false => life.gone >= after.born,
        });
        life.gone != NEVER && !concluded
    }

    /// The text whose end at this very time was told before, or concluded from what began then.
    fn ended_at(&mut self, time: u64, old: &Coming<'_>, place: usize) -> Option<TextId> {
        let lives = self.starts.get(old.addr)?.as_slice().get(..place)?.iter().rev();
        let mut ended = lives.take_while(|life| life.gone >= time).filter(|life| life.gone == time);
        let text = ended.find(|life| self.is_coming(life.text, old)).map(|life| life.text)?;
        let row = self.rows.get_mut(text)?;
        if !row.has(flag::TOLD) {
            row.flags = row.flags & !flag::MISSED | flag::TOLD;
            row.flags &= if row.born == 0 { !0 } else { !flag::UNCERTAIN };
            self.mark(text);
        }
        Some(text)
    }

    /// The text that began last of the first `place` lives, whether it has ended or not.
    fn last_text(&self, addr: u64, place: usize) -> Option<TextId> {
        let lives = self.starts.get(addr)?.as_slice().get(..place)?;
        lives.iter().rev().find(|life| !life.is_end_alone()).map(|life| life.text)
    }

    /// An end of another text than the one that stands there: that one ended before it, at a time that is not known.
    fn orphan_after(
        &mut self,
        time: u64,
        old: &Coming<'_>,
        place: usize,
        before: Life,
        after: Option<Life>,
    ) -> Option<TextId> {
        if !before.is_alive(time) {
            return self.orphan(time, old, place, 0);
        }
        if self.has(before.text, flag::ORPHAN) {
            // That one ends later, so it came later.
            let text = self.orphan(time, old, place - 1, 0)?;
            self.starts.alter(old.addr, place, |life| life.born = time);
            return Some(text);
        }
        let told = self.is_told(&before, after);
        let lost = self.losses_in(before.born, time).last().copied();
        if told {
            self.starts.insert(old.addr, Life::end_alone(before.gone), place);
        }
        self.end(old.addr, place - 1, lost.unwrap_or(time), 0);
        self.set(before.text, flag::UNCERTAIN);
        let text = self.orphan(time, old, place, 0)?;
        self.set(text, flag::UNCERTAIN);
        Some(text)
    }

    /// A text of which only the end is known, behind `place` others at its start.
    fn orphan(&mut self, time: u64, old: &Coming<'_>, place: usize, flags: u8) -> Option<TextId> {
        let lives = self.starts.get(old.addr).map_or(&[][..], |lives| lives.as_slice());
        let from = place.checked_sub(1).and_then(|at| lives.get(at)).map_or(0, |life| life.gone);
        let text = self.add(old, 0, time, from.min(time), place)?;
        self.set(text, flags | flag::ORPHAN | flag::TOLD);
        self.orphans += 1;
        self.bound(old.addr, text);
        self.bound_next(old.addr, place);
        Some(text)
    }

    fn add(&mut self, new: &Coming<'_>, born: u64, gone: u64, from: u64, place: usize) -> Option<TextId> {
        let Coming { addr, len, length, name, kind } = *new;
        let text = self.rows.add(&New { addr, born, gone, len, length, name, kind })?;
        let covers = if length != 0 { length } else { len };
        self.starts.insert(addr, Life { born: from, gone, text, len: covers }, place);
        self.version += 1;
        self.mark(text);
        self.bound_next(addr, place);
        if gone != NEVER {
            self.note_end(text);
            self.bound_others(addr, text);
        }
        Some(text)
    }

    /// Gives a life its end.
    pub(crate) fn end(&mut self, addr: u64, place: usize, time: u64, flags: u8) -> Option<TextId> {
        let mut ended = None;
        self.starts.alter(addr, place, |life| {
            // What began later than that lived for no time at all.
            life.gone = time.max(life.born);
            ended = Some(*life);
        });
        let life = ended.filter(|life| !life.is_end_alone())?;
        if let Some(row) = self.rows.get_mut(life.text) {
            row.gone = life.gone;
            row.flags = row.flags & !(flag::FREED | flag::TOLD | flag::MISSED) | flags;
        }
        self.version += 1;
        self.mark(life.text);
        self.note_end(life.text);
        self.bound_next(addr, place);
        self.bound_others(addr, life.text);
        Some(life.text)
    }

    /// Brings the life of a text in line with its length.
    pub(crate) fn covers(&mut self, addr: u64, text: TextId) {
        let Some(covers) = self.rows.get(text).map(|row| row.covers()) else { return };
        let lives = self.starts.get(addr).map_or(&[][..], |lives| lives.as_slice());
        if let Some(place) = lives.iter().rposition(|life| life.text == text) {
            self.starts.alter(addr, place, |life| life.len = covers);
        }
    }

    /// Gives a text the beginning that was not known.
    fn born(&mut self, new: &Coming<'_>, place: usize, time: u64) {
        let mut text = None;
        self.starts.alter(new.addr, place, |life| {
            life.born = time.min(life.gone);
            text = Some(life.text);
        });
        let Some(text) = text else { return };
        if let Some(row) = self.rows.get_mut(text) {
            self.orphans -= usize::from(row.has(flag::ORPHAN));
            row.flags &= !(flag::ORPHAN | if row.has(flag::TOLD) { flag::UNCERTAIN } else { 0 });
            row.born = time;
            row.len = if row.len == 0 { new.len } else { row.len };
        }
        self.version += 1;
        self.mark(text);
    }

    /// Bounds the orphan anew that follows a life at its start, if one does.
    fn bound_next(&mut self, addr: u64, place: usize) {
        let lives = self.starts.get(addr).map_or(&[][..], |lives| lives.as_slice());
        let Some((this, next)) = lives.get(place).copied().zip(lives.get(place + 1).copied()) else { return };
        if self.has(next.text, flag::ORPHAN) {
            self.bound(addr, next.text);
            if self.has(this.text, flag::TOLD) {
                self.unset(next.text, flag::UNCERTAIN);
            }
        }
    }

    /// An orphan lives from the end of what stood at its start before. One that only its free told of also lives from
    /// the last end of what lay over any part of it.
    pub(crate) fn bound(&mut self, addr: u64, text: TextId) {
        let Some(row) = self.rows.get(text) else { return };
        let lives = self.starts.get(addr).map_or(&[][..], |lives| lives.as_slice());
        // Among the last: what is told anew is new.
        let Some(place) = lives.iter().rposition(|life| life.text == text) else { return };
        let mut bound = place.checked_sub(1).and_then(|at| lives.get(at)).map_or(0, |life| life.gone);
        if row.len == 0 {
            bound = bound.max(self.last_end(addr, addr.saturating_add(u64::from(row.covers())), row.gone));
        }
        self.starts.alter(addr, place, |life| life.born = bound.min(life.gone));
        self.version += 1;
    }

    /// The last end, not after `time`, of what lay over a range, at other starts than the range's own.
    fn last_end(&self, addr: u64, end: u64, time: u64) -> u64 {
        let mut bound = 0;
        self.starts.over(addr, end, |start, lives| {
            let ended = lives.partition_point(|life| life.gone <= time);
            let lives = lives.get(..ended).unwrap_or_default().iter().rev();
            let mut there = lives.take_while(|life| life.gone > bound);
            let reaches = |life: &&Life| {
                let over = start.saturating_add(u64::from(life.len)) > addr;
                over && self.rows.get(life.text).is_some_and(|row| row.is_exact())
            };
            if let Some(life) = (start != addr).then(|| there.find(reaches)).flatten() {
                bound = life.gone;
            }
        });
        bound
    }

    /// Bounds those anew that only their free told of, and that lie over a text which has ended.
    pub(crate) fn bound_others(&mut self, addr: u64, ended: TextId) {
        if self.orphans == 0 {
            return;
        }
        let Some(row) = self.rows.get(ended).filter(|row| row.is_exact() && row.gone != NEVER) else { return };
        let (end, gone) = (addr.saturating_add(u64::from(row.covers())), row.gone);
        let mut others = Vec::new();
        self.starts.over(addr, end, |start, lives| {
            let later = lives.get(lives.partition_point(|life| life.gone <= gone)..).unwrap_or_default().iter();
            for life in later.filter(|life| start.saturating_add(u64::from(life.len)) > addr) {
                let orphan = self.rows.get(life.text).is_some_and(|row| row.has(flag::ORPHAN) && row.len == 0);
                if orphan && start != addr {
                    others.push((start, life.text));
                }
            }
        });
        for (start, text) in others {
            self.bound(start, text);
        }
    }
}

/// Which text is meant, and what is known of it.
impl Timeline {
    /// Whether what a record tells of is this text.
    fn is_coming(&self, text: TextId, new: &Coming<'_>) -> bool {
        let Some(row) = self.rows.get(text) else { return false };
        let same_length = match (row.len, new.len) {
            (0, _) | (_, 0) => !new.kind.length_is_exact() || row.covers() == new.len.max(new.length),
            (known, told) => known == told,
        };
        same_length && self.rows.name(text) == Some(new.name)
    }

    /// Whether what was seen is this text: by its name, or by what else is known of both.
    pub(crate) fn is_seen(&self, text: TextId, seen: &Seen<'_>, name: &str) -> bool {
        let Some(row) = self.rows.get(text) else { return false };
        let known = self.rows.name(text).unwrap_or_default();
        if !name.is_empty() && !known.is_empty() {
            return name == known;
        }
        match (row.program().filter(|program| program.id != 0), seen.id) {
            (Some(program), Some(id)) => program.id == id && row.function() == seen.function,
            _ => name == known && row.kind == seen.kind && row.gone == NEVER,
        }
    }

    /// Fills in what a text lacks.
    pub(crate) fn details(&mut self, text: TextId, seen: &Seen<'_>) {
        let Some(row) = self.rows.get_mut(text) else { return };
        if seen.len != 0 {
            row.length = seen.len;
        }
        if row.program().is_none() && (seen.id.is_some() || seen.tag.is_some()) {
            row.set_program(BpfProgram { id: seen.id.unwrap_or(0), tag: seen.tag.unwrap_or_default() });
        }
        if let (None, Some(function)) = (row.function(), seen.function) {
            row.set_function(function);
        }
        if matches!(row.kind, TextKind::Program | TextKind::OtherBpf | TextKind::OutOfLine | TextKind::Unknown) {
            row.kind = seen.kind;
        }
        if let Some(loader) = seen.loader {
            self.set_loader(text, loader);
        }
        self.mark(text);
    }

    /// Says who loaded a text, where that is learned after the text came. A text that is not kept any more is left alone.
    pub fn set_loader(&mut self, text: TextId, loader: Loader<'_>) {
        self.rows.set_loader(text, loader);
        self.mark(text);
    }

    pub(crate) fn has(&self, text: TextId, flag: u8) -> bool {
        self.rows.get(text).is_some_and(|row| row.has(flag))
    }

    fn unset(&mut self, text: TextId, flags: u8) {
        if let Some(row) = self.rows.get_mut(text) {
            row.flags &= !flags;
        }
        self.mark(text);
    }

    pub(crate) fn set(&mut self, text: TextId, flags: u8) {
        if let Some(row) = self.rows.get_mut(text) {
            row.flags |= flags;
        }
        self.mark(text);
    }

    /// Whether records were lost that may have told of its end: while it lived, before anybody looked again.
    pub(crate) fn is_in_doubt(&self, text: TextId) -> bool {
        let Some(row) = self.rows.get(text) else { return false };
        if self.losses.is_empty() {
            return false;
        }
        if row.has(flag::ORPHAN) {
            // What was lost may have told of others at its place.
            return !self.losses_in(0, row.gone).is_empty();
        }
        if row.has(flag::TOLD) {
            return false;
        }
        let scan = self.scans.partition_point(|scan| *scan <= row.gone);
        let scan = scan.checked_sub(1).and_then(|at| self.scans.get(at)).copied().unwrap_or(0);
        !self.losses_in(row.born.max(scan), row.gone).is_empty()
    }

    /// Losses after the first and before the second time.
    pub(crate) fn losses_in(&self, after: u64, before: u64) -> &[u64] {
        let first = self.losses.partition_point(|loss| *loss <= after);
        let end = self.losses.partition_point(|loss| *loss < before);
        self.losses.get(first..end).unwrap_or_default()
    }

    /// Those who follow the changes are told of the text the next time that they ask.
    pub(crate) fn mark(&mut self, text: TextId) {
        if !self.followed {
            return;
        }
        if let Some(row) = self.rows.get_mut(text).filter(|row| !row.has(flag::CHANGED)) {
            row.flags |= flag::CHANGED;
            self.changed.push(text);
        }
    }

    pub(crate) fn note_end(&mut self, text: TextId) {
        if !self.followed {
            return;
        }
        if let Some(row) = self.rows.get_mut(text).filter(|row| !row.has(flag::ENDED)) {
            row.flags |= flag::ENDED;
            self.ended.push(text);
        }
    }
}

//! All start addresses in order, made for one question: what is the closest start at or below an address that was
//! alive at a time?
//!
//! Starts stand in chunks of up to 32, a list of chunks by their first address above them: two searches
//! find the closest start. Where nothing was alive there, the walk goes on downwards. It ends as soon as nothing further
//! down ever reached the address, and passes over whole chunks in which nothing was alive at the time.

use crate::chunk::{Chunk, Chunks, FULL};
use crate::lives::{Life, Lives};
use crate::rows::NEVER;

/// The lives at all start addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts {
    /// The first start of each chunk.
    firsts: Vec<u64>,
    chunks: Chunks,
}

impl Starts {
    /// The chunk in which an address lies or would lie.
    fn chunk_of(&self, addr: u64) -> usize {
        self.firsts.partition_point(|first| *first <= addr).saturating_sub(1)
    }

    /// The closest start at or below an address that was alive; none if nothing of old reached the address.
    #[inline]
    pub(crate) fn closest(&self, addr: u64, time: u64) -> Option<(u64, Life)> {
        let at = self.firsts.partition_point(|first| *first <= addr).checked_sub(1)?;
        let chunk = self.chunks.get(at)?;
        let below = chunk.up_to(addr).checked_sub(1)?;
        // Nearly always.
        if let Some(life) = chunk.lives.get(below)?.at(time) {
            return Some((*chunk.keys.get(below)?, *life));
        }
        if chunk.reach <= addr { None } else { self.closest_below(addr, time, at, below) }
    }

    /// The walk downwards, from one of a chunk's starts on.
    #[cold]
    fn closest_below(&self, addr: u64, time: u64, mut at: usize, below: usize) -> Option<(u64, Life)> {
        if let Some(found) = self.chunks.get(at)?.last_alive(below, time) {
            return Some(found);
        }
        while at > 0 {
            at -= 1;
            let chunk = self.chunks.get(at)?;
            if chunk.reach <= addr {
                return None;
            }
            if chunk.is_busy(time) {
                if let Some(found) = chunk.last_alive(chunk.len, time) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// The closest start above `addr` and below `end` that was alive.
    pub(crate) fn next_alive(&self, addr: u64, end: u64, time: u64) -> Option<u64> {
        self.next(addr, end, |lives| lives.at(time).is_some())
    }

    /// The closest start above `addr` and below `end` with such lives.
    pub(crate) fn next(&self, addr: u64, end: u64, such: impl Fn(&Lives) -> bool) -> Option<u64> {
        let first = self.chunk_of(addr);
        for at in first..self.chunks.len() {
            let chunk = self.chunks.get(at)?;
            if at > first && self.firsts.get(at).is_none_or(|first| *first >= end) {
                return None;
            }
            let above = chunk.keys.partition_point(|key| *key <= addr);
            let starts = chunk.starts().skip(above).take_while(|(key, _)| *key < end);
            if let Some((key, _)) = starts.into_iter().find(|(_, lives)| such(lives)) {
                return Some(key);
            }
        }
        None
    }

    /// The lives at a start.
    pub(crate) fn get(&self, addr: u64) -> Option<&Lives> {
        let chunk = self.chunks.get(self.chunk_of(addr))?;
        chunk.lives.get(chunk.keys().binary_search(&addr).ok()?)
    }

    /// Alters one of the lives at a start.
    pub(crate) fn alter(&mut self, addr: u64, place: usize, change: impl FnOnce(&mut Life)) {
        let at = self.chunk_of(addr);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let Ok(start) = chunk.keys().binary_search(&addr) else { return };
        let Some(lives) = chunk.lives.get_mut(start) else { return };
        let was_open = lives.is_open();
        let Some(life) = lives.alter(place, change) else { return };
        chunk.open = chunk.open + u32::from(lives.is_open()) - u32::from(was_open);
        chunk.note(addr, &life);
        self.reach_from(at);
    }

    /// Puts a life where `place` of the lives at its start says: how many stand before it.
    pub(crate) fn insert(&mut self, addr: u64, life: Life, place: usize) {
        if self.chunks.is_empty() {
            self.firsts.push(addr);
            self.chunks.insert(0, Chunk::new());
        }
        let at = self.chunk_of(addr);
        let full = self.chunks.get(at).is_some_and(|chunk| chunk.len == FULL);
        if full && self.chunks.get(at).is_some_and(|chunk| chunk.keys().binary_search(&addr).is_err()) {
            self.split(at, addr);
        }
        let at = self.chunk_of(addr);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        match chunk.keys().binary_search(&addr) {
            Ok(start) => {
                if let Some(lives) = chunk.lives.get_mut(start) {
                    let was_open = lives.is_open();
                    lives.insert(place, life);
                    chunk.open = chunk.open + u32::from(lives.is_open()) - u32::from(was_open);
                }
            }
            Err(start) => {
                chunk.put(start, addr, Lives::One(life));
                chunk.open += u32::from(life.gone == NEVER);
                if let (0, Some(first)) = (start, self.firsts.get_mut(at)) {
                    *first = addr;
                }
            }
        }
        chunk.note(addr, &life);
        self.reach_from(at);
    }

    /// Makes room in a full chunk for a start.
    fn split(&mut self, at: usize, addr: u64) {
        let last = at + 1 == self.chunks.len();
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let mut upper = Chunk::new();
        // Starts that come in ascending order leave full chunks behind.
        let ascending = last && chunk.keys().last().is_some_and(|key| *key < addr);
        let first = if ascending {
            addr
        } else {
            chunk.hand_over(FULL / 2, &mut upper);
            chunk.count();
            upper.count();
            upper.keys().first().copied().unwrap_or(addr)
        };
        self.firsts.insert(at + 1, first);
        self.chunks.insert(at + 1, upper);
        self.reach_from(at);
    }

    /// Brings `reach` up to date from a chunk on.
    fn reach_from(&mut self, at: usize) {
        let mut reach = at.checked_sub(1).and_then(|before| self.chunks.get(before)).map_or(0, |chunk| chunk.reach);
        for i in at..self.chunks.len() {
            let Some(chunk) = self.chunks.get_mut(i) else { return };
            reach = reach.max(chunk.end);
            if chunk.reach == reach && i > at {
                return;
            }
            chunk.reach = reach;
        }
    }

    /// Takes out what is not to be kept of the lives at a start.
    pub(crate) fn retain(&mut self, addr: u64, keep: impl Fn(&Life) -> bool) {
        let at = self.chunk_of(addr);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let Ok(start) = chunk.keys().binary_search(&addr) else { return };
        if chunk.lives.get_mut(start).is_some_and(|lives| lives.retain(keep)) {
            chunk.take(start);
        }
        chunk.count();
        if chunk.len == 0 {
            self.chunks.remove(at);
            self.firsts.remove(at);
        } else if let (Some(first), Some(key)) = (self.firsts.get_mut(at), chunk.keys().first()) {
            *first = *key;
            self.join(at);
        }
        self.reach_from(at.saturating_sub(1));
    }

    /// Joins a chunk with the next one when both are nearly empty.
    fn join(&mut self, at: usize) {
        let sizes = [at, at + 1].map(|at| self.chunks.get(at).map(|chunk| chunk.len));
        let [Some(this), Some(next)] = sizes else { return };
        if this + next > FULL / 2 {
            return;
        }
        let Some(mut next) = self.chunks.remove(at + 1) else { return };
        self.firsts.remove(at + 1);
        if let Some(chunk) = self.chunks.get_mut(at) {
            next.hand_over(0, chunk);
            chunk.count();
        }
    }

    /// Calls `visit` with the lives at each start below `end`, down to where nothing reaches beyond `addr`.
    pub(crate) fn over(&self, addr: u64, end: u64, mut visit: impl FnMut(u64, &[Life])) {
        let mut at = self.firsts.partition_point(|first| *first < end);
        while at > 0 {
            at -= 1;
            let Some(chunk) = self.chunks.get(at) else { return };
            if chunk.reach <= addr {
                return;
            }
            if chunk.end <= addr {
                continue;
            }
            let below = chunk.keys().partition_point(|key| *key < end);
            chunk.starts().take(below).for_each(|(key, lives)| visit(key, lives.as_slice()));
        }
    }

    /// Calls `visit` with every life that goes on.
    pub(crate) fn open(&self, mut visit: impl FnMut(u64, &Life)) {
        for chunk in self.chunks.iter().filter(|chunk| chunk.open > 0) {
            for (key, lives) in chunk.starts() {
                if let Some(life) = lives.as_slice().last().filter(|life| life.gone == NEVER) {
                    visit(key, life);
                }
            }
        }
    }

    /// The first address of all, and the first one behind all that ever was.
    pub(crate) fn bounds(&self) -> Option<(u64, u64)> {
        self.firsts.first().copied().zip(self.chunks.iter().next_back().map(|chunk| chunk.reach))
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.firsts.capacity() * size_of::<u64>() + self.chunks.heap_bytes()
    }
}

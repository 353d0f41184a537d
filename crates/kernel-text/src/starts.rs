//! All start addresses in order, made for one question: what is the closest start at or below an address that was
//! alive at a time?
//!
//! Starts stand in chunks of up to 128, a list of chunks by their first address above them: two searches by halves
//! find the closest start. Where nothing was alive there, the walk goes on downwards. It ends as soon as nothing further
//! down ever reached the address, and passes over whole chunks in which nothing was alive at the time.

use std::sync::OnceLock;

use crate::lives::{Life, Lives};
use crate::rows::NEVER;

/// Starts in a chunk before it is split.
const FULL: usize = 128;

/// Neighbouring starts.
#[derive(Clone, Debug, Default)]
struct Chunk {
    keys: Vec<u64>,
    lives: Vec<Lives>,
    /// The first address behind all that ever was in the chunk.
    end: u64,
    /// Starts with a life that goes on.
    open: u32,
    /// Time of the newest beginning or end.
    newest: u64,
    /// When something was alive, as intervals in order, with gaps between them. Made when it is first asked for.
    busy: OnceLock<Box<[(u64, u64)]>>,
}

impl Chunk {
    fn note(&mut self, key: u64, life: &Life) {
        self.end = self.end.max(key.saturating_add(u64::from(life.len)));
        let last = if life.gone == NEVER { life.born } else { life.gone };
        self.newest = self.newest.max(last);
    }

    /// What `end`, `open` and `newest` are.
    fn count(&mut self) {
        (self.end, self.open, self.newest) = (0, 0, 0);
        self.busy.take();
        let (keys, lives) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.lives));
        for (key, lives) in keys.iter().zip(&lives) {
            self.open += u32::from(lives.is_open());
            lives.as_slice().iter().for_each(|life| self.note(*key, life));
        }
        (self.keys, self.lives) = (keys, lives);
    }

    /// Whether anything may have been alive then.
    fn is_busy(&self, time: u64) -> bool {
        if time >= self.newest {
            return self.open > 0;
        }
        let busy = self.busy.get_or_init(|| intervals(self.lives.iter().flat_map(|lives| lives.as_slice())));
        let before = busy.partition_point(|(born, _)| *born <= time);
        before.checked_sub(1).and_then(|at| busy.get(at)).is_some_and(|(_, gone)| time < *gone)
    }

    /// The last of the first `below` starts that was alive.
    #[inline]
    fn last_alive(&self, below: usize, time: u64) -> Option<(u64, Life)> {
        let starts = self.keys.get(..below)?.iter().zip(self.lives.get(..below)?);
        starts.rev().find_map(|(key, lives)| Some((*key, *lives.at(time)?)))
    }
}

fn intervals<'a>(lives: impl Iterator<Item = &'a Life>) -> Box<[(u64, u64)]> {
    let mut all: Vec<(u64, u64)> =
        lives.filter(|life| life.born < life.gone).map(|life| (life.born, life.gone)).collect();
    all.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (born, gone) in all {
        match joined.last_mut() {
            Some((_, end)) if born <= *end => *end = (*end).max(gone),
            _ => joined.push((born, gone)),
        }
    }
    joined.into()
}

/// The lives at all start addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts {
    /// The first start of each chunk.
    firsts: Vec<u64>,
    /// The first address behind all that ever was in the chunk or one before it.
    reach: Vec<u64>,
    chunks: Vec<Chunk>,
}

impl Starts {
    /// The chunk in which an address lies or would lie.
    fn chunk_of(&self, addr: u64) -> usize {
        self.firsts.partition_point(|first| *first <= addr).saturating_sub(1)
    }

    /// The closest start at or below an address that was alive; none if nothing of old reached the address.
    #[inline]
    pub(crate) fn closest(&self, addr: u64, time: u64) -> Option<(u64, Life)> {
        let mut at = self.firsts.partition_point(|first| *first <= addr).checked_sub(1)?;
        if *self.reach.get(at)? <= addr {
            return None;
        }
        let chunk = self.chunks.get(at)?;
        let below = chunk.keys.partition_point(|key| *key <= addr);
        if let Some(found) = chunk.last_alive(below, time) {
            return Some(found);
        }
        while at > 0 {
            at -= 1;
            if *self.reach.get(at)? <= addr {
                return None;
            }
            let chunk = self.chunks.get(at)?;
            if chunk.is_busy(time) {
                if let Some(found) = chunk.last_alive(chunk.keys.len(), time) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// The closest start above `addr` and below `end` that was alive.
    pub(crate) fn next_alive(&self, addr: u64, end: u64, time: u64) -> Option<u64> {
        let first = self.chunk_of(addr);
        for (at, chunk) in self.chunks.iter().enumerate().skip(first) {
            if at > first && self.firsts.get(at).is_none_or(|first| *first >= end) {
                return None;
            }
            let above = chunk.keys.partition_point(|key| *key <= addr);
            let starts = chunk.keys.iter().zip(&chunk.lives).skip(above);
            let alive = starts.take_while(|(key, _)| **key < end).find(|(_, lives)| lives.at(time).is_some());
            if let Some((key, _)) = alive {
                return Some(*key);
            }
        }
        None
    }

    /// The lives at a start.
    pub(crate) fn get(&self, addr: u64) -> Option<&Lives> {
        let chunk = self.chunks.get(self.chunk_of(addr))?;
        chunk.lives.get(chunk.keys.binary_search(&addr).ok()?)
    }

    /// Alters one of the lives at a start.
    pub(crate) fn alter(&mut self, addr: u64, place: usize, change: impl FnOnce(&mut Life)) {
        let at = self.chunk_of(addr);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let Ok(start) = chunk.keys.binary_search(&addr) else { return };
        let Some(lives) = chunk.lives.get_mut(start) else { return };
        let was_open = lives.is_open();
        let Some(life) = lives.as_mut().get_mut(place) else { return };
        change(life);
        let life = *life;
        chunk.open = chunk.open + u32::from(lives.is_open()) - u32::from(was_open);
        chunk.note(addr, &life);
        chunk.busy.take();
        self.reach_from(at);
    }

    /// Puts a life where `place` of the lives at its start says: how many stand before it.
    pub(crate) fn insert(&mut self, addr: u64, life: Life, place: usize) {
        let at = self.chunk_of(addr);
        if self.chunks.is_empty() {
            self.firsts.push(addr);
            self.reach.push(0);
            self.chunks.push(Chunk::default());
        }
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        match chunk.keys.binary_search(&addr) {
            Ok(start) => {
                if let Some(lives) = chunk.lives.get_mut(start) {
                    let was_open = lives.is_open();
                    lives.insert(place, life);
                    chunk.open = chunk.open + u32::from(lives.is_open()) - u32::from(was_open);
                }
            }
            Err(start) => {
                chunk.keys.insert(start, addr);
                chunk.lives.insert(start, Lives::One(life));
                chunk.open += u32::from(life.gone == NEVER);
                if let (0, Some(first)) = (start, self.firsts.get_mut(at)) {
                    *first = addr;
                }
            }
        }
        chunk.note(addr, &life);
        chunk.busy.take();
        if chunk.keys.len() > FULL {
            self.split(at);
        }
        self.reach_from(at);
    }

    fn split(&mut self, at: usize) {
        let last = at + 1 == self.chunks.len();
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        // Starts that come in ascending order leave full chunks behind.
        let middle = if last { FULL } else { FULL / 2 };
        let mut upper =
            Chunk { keys: chunk.keys.split_off(middle), lives: chunk.lives.split_off(middle), ..Chunk::default() };
        chunk.keys.shrink_to(middle);
        chunk.lives.shrink_to(middle);
        chunk.count();
        upper.count();
        self.firsts.insert(at + 1, upper.keys.first().copied().unwrap_or(u64::MAX));
        self.reach.insert(at + 1, 0);
        self.chunks.insert(at + 1, upper);
        self.reach_from(at + 1);
    }

    /// Brings `reach` up to date from a chunk on.
    fn reach_from(&mut self, at: usize) {
        let mut reach = at.checked_sub(1).and_then(|before| self.reach.get(before)).copied().unwrap_or(0);
        for (i, (kept, chunk)) in self.reach.iter_mut().zip(&self.chunks).enumerate().skip(at) {
            reach = reach.max(chunk.end);
            // A split puts a chunk with none yet behind the first.
            if *kept == reach && i > at {
                return;
            }
            *kept = reach;
        }
    }

    /// Takes out what is not to be kept of the lives at a start.
    pub(crate) fn retain(&mut self, addr: u64, keep: impl Fn(&Life) -> bool) {
        let at = self.chunk_of(addr);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let Ok(start) = chunk.keys.binary_search(&addr) else { return };
        let empty = chunk.lives.get_mut(start).is_some_and(|lives| lives.retain(keep));
        if empty {
            chunk.keys.remove(start);
            chunk.lives.remove(start);
        }
        chunk.count();
        if chunk.keys.is_empty() {
            self.chunks.remove(at);
            self.firsts.remove(at);
            self.reach.remove(at);
        } else if let (Some(first), Some(key)) = (self.firsts.get_mut(at), chunk.keys.first()) {
            *first = *key;
            self.join(at);
        }
        self.reach_from(at.saturating_sub(1));
    }

    /// Joins a chunk with the next one when both are nearly empty.
    fn join(&mut self, at: usize) {
        let sizes = [at, at + 1].map(|at| self.chunks.get(at).map(|chunk| chunk.keys.len()));
        let [Some(this), Some(next)] = sizes else { return };
        if this + next > FULL / 2 {
            return;
        }
        let next = self.chunks.remove(at + 1);
        self.firsts.remove(at + 1);
        self.reach.remove(at + 1);
        if let Some(chunk) = self.chunks.get_mut(at) {
            chunk.keys.extend(next.keys);
            chunk.lives.extend(next.lives);
            chunk.count();
        }
    }

    /// Calls `visit` with the lives at each start below `end`, down to where nothing reaches beyond `addr`.
    pub(crate) fn over(&self, addr: u64, end: u64, mut visit: impl FnMut(u64, &[Life])) {
        let mut at = self.firsts.partition_point(|first| *first < end);
        while at > 0 {
            at -= 1;
            let Some((chunk, reach)) = self.chunks.get(at).zip(self.reach.get(at)) else { return };
            if *reach <= addr {
                return;
            }
            if chunk.end <= addr {
                continue;
            }
            let below = chunk.keys.partition_point(|key| *key < end);
            let starts = chunk.keys.iter().zip(&chunk.lives).take(below);
            starts.for_each(|(key, lives)| visit(*key, lives.as_slice()));
        }
    }

    /// Calls `visit` with every life that goes on.
    pub(crate) fn open(&self, mut visit: impl FnMut(u64, &Life)) {
        for chunk in self.chunks.iter().filter(|chunk| chunk.open > 0) {
            for (key, lives) in chunk.keys.iter().zip(&chunk.lives) {
                if let Some(life) = lives.as_slice().last().filter(|life| life.gone == NEVER) {
                    visit(*key, life);
                }
            }
        }
    }

    /// The first address of all, and the first one behind all that ever was.
    pub(crate) fn bounds(&self) -> Option<(u64, u64)> {
        self.firsts.first().copied().zip(self.reach.last().copied())
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let of = |chunk: &Chunk| {
            let many = chunk.lives.iter().filter_map(|lives| match lives {
                Lives::Many(lives) => Some(size_of::<Vec<Life>>() + lives.capacity() * size_of::<Life>()),
                Lives::One(_) => None,
            });
            let busy = chunk.busy.get().map_or(0, |busy| size_of_val(&**busy));
            chunk.keys.capacity() * 8 + chunk.lives.capacity() * size_of::<Lives>() + busy + many.sum::<usize>()
        };
        let words = (self.firsts.capacity() + self.reach.capacity()) * 8;
        words + self.chunks.capacity() * size_of::<Chunk>() + self.chunks.iter().map(of).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_as_small_as_promised() {
        assert_eq!((size_of::<Life>(), size_of::<Lives>()), (24, 24));
    }
}

//! All start addresses in order, made for one question: what is the closest start at or below an address that was
//! alive at a time?
//!
//! Starts stand in chunks of up to 32, a list of chunks by their first address above them: two searches by halves
//! find the closest start. Where nothing was alive there, the walk goes on downwards. It ends as soon as nothing further
//! down ever reached the address, and passes over whole chunks in which nothing was alive at the time.

use std::sync::OnceLock;

use crate::lives::{Life, Lives};
use crate::rows::NEVER;

/// Starts in a chunk before it is split.
const FULL: usize = 32;

/// Neighbouring starts. What every look-up reads stands together: a look-up touches few lines of the cache.
#[derive(Clone, Debug)]
#[repr(C)]
struct Chunk {
    /// In order; behind the first `len` the highest address.
    keys: [u64; FULL],
    lives: [Lives; FULL],
    len: usize,
    /// The first address behind all that ever was in the chunk or one before it.
    reach: u64,
    /// The first address behind all that ever was in the chunk.
    end: u64,
    /// Time of the newest beginning or end.
    newest: u64,
    /// Starts with a life that goes on.
    open: u32,
    /// When something was alive, as intervals in order, with gaps between them. Made when it is first asked for.
    busy: OnceLock<Box<[(u64, u64)]>>,
}

/// In the places of a chunk that no start has yet.
const NOTHING: Lives = Lives::One(Life::NOTHING);

impl Chunk {
    fn new() -> Box<Chunk> {
        Box::new(Chunk {
            keys: [u64::MAX; FULL],
            lives: [NOTHING; FULL],
            len: 0,
            reach: 0,
            end: 0,
            newest: 0,
            open: 0,
            busy: OnceLock::new(),
        })
    }

    fn keys(&self) -> &[u64] {
        self.keys.get(..self.len).unwrap_or_default()
    }

    fn lives(&self) -> &[Lives] {
        self.lives.get(..self.len).unwrap_or_default()
    }

    fn starts(&self) -> impl DoubleEndedIterator<Item = (u64, &Lives)> + ExactSizeIterator {
        self.keys().iter().copied().zip(self.lives())
    }

    /// Puts a start in, which the chunk has room for.
    fn put(&mut self, at: usize, key: u64, lives: Lives) {
        let len = (self.len + 1).min(FULL);
        if let (Some(keys), Some(all)) = (self.keys.get_mut(at..len), self.lives.get_mut(at..len)) {
            keys.rotate_right(1);
            all.rotate_right(1);
            if let (Some(to), Some(place)) = (keys.first_mut(), all.first_mut()) {
                (*to, *place) = (key, lives);
                self.len = len;
            }
        }
    }

    /// Takes a start out.
    fn take(&mut self, at: usize) -> Option<(u64, Lives)> {
        let (keys, all) = (self.keys.get_mut(at..self.len)?, self.lives.get_mut(at..self.len)?);
        let taken = (*keys.first()?, std::mem::replace(all.first_mut()?, NOTHING));
        keys.rotate_left(1);
        all.rotate_left(1);
        *keys.last_mut()? = u64::MAX;
        self.len -= 1;
        Some(taken)
    }

    /// Moves the starts from a place on to the end of another chunk.
    fn hand_over(&mut self, from: usize, to: &mut Chunk) {
        while self.len > from && to.len < FULL {
            let Some((key, lives)) = self.take(from) else { return };
            to.put(to.len, key, lives);
        }
    }

    fn note(&mut self, key: u64, life: &Life) {
        self.end = self.end.max(key.saturating_add(u64::from(life.len)));
        let last = if life.gone == NEVER { life.born } else { life.gone };
        self.newest = self.newest.max(last);
    }

    /// What `end`, `open` and `newest` are.
    fn count(&mut self) {
        self.busy.take();
        let (mut end, mut newest, mut open) = (0, 0, 0);
        for (key, lives) in self.starts() {
            open += u32::from(lives.is_open());
            for life in lives.as_slice() {
                end = end.max(key.saturating_add(u64::from(life.len)));
                newest = newest.max(if life.gone == NEVER { life.born } else { life.gone });
            }
        }
        (self.end, self.newest, self.open) = (end, newest, open);
    }

    /// Whether anything may have been alive then.
    fn is_busy(&self, time: u64) -> bool {
        if time >= self.newest {
            return self.open > 0;
        }
        let busy = self.busy.get_or_init(|| intervals(self.lives().iter().flat_map(|lives| lives.as_slice())));
        let before = busy.partition_point(|(born, _)| *born <= time);
        before.checked_sub(1).and_then(|at| busy.get(at)).is_some_and(|(_, gone)| time < *gone)
    }

    /// The last of the first `below` starts that was alive.
    #[inline]
    fn last_alive(&self, below: usize, time: u64) -> Option<(u64, Life)> {
        self.starts().take(below).rev().find_map(|(key, lives)| Some((key, *lives.at(time)?)))
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
    #[expect(clippy::vec_box, reason = "a new chunk in the middle moves pointers, not chunks")]
    chunks: Vec<Box<Chunk>>,
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
        let chunk = self.chunks.get(at)?;
        let below = chunk.keys.partition_point(|key| *key <= addr).checked_sub(1)?;
        // Nearly always.
        if let Some(life) = chunk.lives.get(below)?.at(time) {
            return Some((*chunk.keys.get(below)?, *life));
        }
        if chunk.reach <= addr {
            return None;
        }
        if let Some(found) = chunk.last_alive(below, time) {
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
        let first = self.chunk_of(addr);
        for (at, chunk) in self.chunks.iter().enumerate().skip(first) {
            if at > first && self.firsts.get(at).is_none_or(|first| *first >= end) {
                return None;
            }
            let above = chunk.keys.partition_point(|key| *key <= addr);
            let starts = chunk.starts().skip(above).take_while(|(key, _)| *key < end);
            if let Some((key, _)) = starts.into_iter().find(|(_, lives)| lives.at(time).is_some()) {
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
        if self.chunks.is_empty() {
            self.firsts.push(addr);
            self.chunks.push(Chunk::new());
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
        chunk.busy.take();
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
        for (i, chunk) in self.chunks.iter_mut().enumerate().skip(at) {
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
        let mut next = self.chunks.remove(at + 1);
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
        self.firsts.first().copied().zip(self.chunks.last().map(|chunk| chunk.reach))
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let of = |chunk: &Chunk| {
            let many = chunk.lives().iter().filter_map(|lives| match lives {
                Lives::Many(lives) => Some(size_of::<Vec<Life>>() + lives.capacity() * size_of::<Life>()),
                Lives::One(_) => None,
            });
            let busy = chunk.busy.get().map_or(0, |busy| size_of_val(&**busy));
            size_of::<Chunk>() + busy + many.sum::<usize>()
        };
        let words = (self.firsts.capacity() + self.chunks.capacity()) * 8;
        words + self.chunks.iter().map(|chunk| of(chunk)).sum::<usize>()
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

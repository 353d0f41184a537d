//! Neighbouring starts, and where all chunks of them stand.

use std::sync::OnceLock;

use crate::lives::{Life, Lives};
use crate::rows::NEVER;

/// Starts in a chunk before it is split; a power of two.
pub(crate) const FULL: usize = 32;

/// Neighbouring starts. What every look-up reads stands together: a look-up touches few lines of the cache.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Chunk {
    /// In order; behind the first `len` the highest address.
    pub(crate) keys: [u64; FULL],
    pub(crate) lives: [Lives; FULL],
    pub(crate) len: usize,
    /// The first address behind all that ever was in the chunk or one before it.
    pub(crate) reach: u64,
    /// The first address behind all that ever was in the chunk.
    pub(crate) end: u64,
    /// Time of the newest beginning or end.
    newest: u64,
    /// Starts with a life that goes on.
    pub(crate) open: u32,
    /// When something was alive, as intervals in order, with gaps between them. Made when it is first asked for.
    busy: OnceLock<Box<[(u64, u64)]>>,
}

/// In the places of a chunk that no start has yet.
const NOTHING: Lives = Lives::One(Life::NOTHING);

impl Chunk {
    pub(crate) fn new() -> Chunk {
        Chunk {
            keys: [u64::MAX; FULL],
            lives: [NOTHING; FULL],
            len: 0,
            reach: 0,
            end: 0,
            newest: 0,
            open: 0,
            busy: OnceLock::new(),
        }
    }

    pub(crate) fn keys(&self) -> &[u64] {
        self.keys.get(..self.len).unwrap_or_default()
    }

    pub(crate) fn lives(&self) -> &[Lives] {
        self.lives.get(..self.len).unwrap_or_default()
    }

    /// How many starts come up to an address, those of empty places too.
    #[inline(always)]
    pub(crate) fn up_to(&self, addr: u64) -> usize {
        let mut last = 0;
        for bit in (0..FULL.ilog2()).rev() {
            let next = last | 1 << bit;
            last = if self.keys[next] <= addr { next } else { last };
        }
        last + usize::from(self.keys[last] <= addr)
    }

    pub(crate) fn starts(&self) -> impl DoubleEndedIterator<Item = (u64, &Lives)> + ExactSizeIterator {
        self.keys().iter().copied().zip(self.lives())
    }

    /// Puts a start in, which the chunk has room for.
    pub(crate) fn put(&mut self, at: usize, key: u64, lives: Lives) {
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
    pub(crate) fn take(&mut self, at: usize) -> Option<(u64, Lives)> {
        let (keys, all) = (self.keys.get_mut(at..self.len)?, self.lives.get_mut(at..self.len)?);
        let taken = (*keys.first()?, std::mem::replace(all.first_mut()?, NOTHING));
        keys.rotate_left(1);
        all.rotate_left(1);
        *keys.last_mut()? = u64::MAX;
        self.len -= 1;
        Some(taken)
    }

    /// Moves the starts from a place on to the end of another chunk.
    pub(crate) fn hand_over(&mut self, from: usize, to: &mut Chunk) {
        while self.len > from && to.len < FULL {
            let Some((key, lives)) = self.take(from) else { return };
            to.put(to.len, key, lives);
        }
    }

    /// Takes a life into account that is new or was altered.
    pub(crate) fn note(&mut self, key: u64, life: &Life) {
        self.busy.take();
        self.end = self.end.max(key.saturating_add(u64::from(life.len)));
        let last = if life.gone == NEVER { life.born } else { life.gone };
        self.newest = self.newest.max(last);
    }

    /// What `end`, `open` and `newest` are.
    pub(crate) fn count(&mut self) {
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
    pub(crate) fn is_busy(&self, time: u64) -> bool {
        if time >= self.newest {
            return self.open > 0;
        }
        let busy = self.busy.get_or_init(|| intervals(self.lives().iter().flat_map(|lives| lives.as_slice())));
        let before = busy.partition_point(|(born, _)| *born <= time);
        before.checked_sub(1).and_then(|at| busy.get(at)).is_some_and(|(_, gone)| time < *gone)
    }

    /// The last of the first `below` starts that was alive.
    #[inline]
    pub(crate) fn last_alive(&self, below: usize, time: u64) -> Option<(u64, Life)> {
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

/// Chunks in a slab.
const SLAB: usize = 16;

/// Chunks in an order. They stand in slabs close to each other, not each where the heap had room when it came: pages
/// that a look-up must have translated are few.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunks {
    slabs: Vec<Vec<Chunk>>,
    /// Where each stands, in order.
    order: Vec<u32>,
    free: Vec<u32>,
}

impl Chunks {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&Chunk> {
        self.standing(*self.order.get(at)?)
    }

    #[inline]
    fn standing(&self, place: u32) -> Option<&Chunk> {
        self.slabs.get(place as usize / SLAB)?.get(place as usize % SLAB)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Chunk> {
        let place = *self.order.get(at)? as usize;
        self.slabs.get_mut(place / SLAB)?.get_mut(place % SLAB)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Chunk> {
        self.order.iter().filter_map(|place| self.standing(*place))
    }

    /// Puts a chunk where `at` of the others stand before it.
    pub(crate) fn insert(&mut self, at: usize, chunk: Chunk) {
        let place = match self.free.pop() {
            Some(place) => {
                if let Some(to) =
                    self.slabs.get_mut(place as usize / SLAB).and_then(|s| s.get_mut(place as usize % SLAB))
                {
                    *to = chunk;
                }
                place
            }
            None => self.stand(chunk),
        };
        self.order.insert(at.min(self.order.len()), place);
    }

    /// Finds a place behind all others.
    fn stand(&mut self, chunk: Chunk) -> u32 {
        if self.slabs.last().is_none_or(|slab| slab.len() == SLAB) {
            self.slabs.push(Vec::with_capacity(SLAB));
        }
        let before = self.slabs.len().saturating_sub(1) * SLAB;
        let Some(slab) = self.slabs.last_mut() else { return 0 };
        slab.push(chunk);
        (before + slab.len() - 1) as u32
    }

    /// Takes a chunk out.
    pub(crate) fn remove(&mut self, at: usize) -> Option<Chunk> {
        let chunk = std::mem::replace(self.get_mut(at)?, Chunk::new());
        self.free.push(self.order.remove(at));
        if self.free.len() > self.order.len() + SLAB {
            self.move_together();
        }
        Some(chunk)
    }

    /// Gives room back.
    fn move_together(&mut self) {
        let mut old = std::mem::take(self);
        for at in 0..old.len() {
            if let Some(chunk) = old.get_mut(at) {
                self.insert(at, std::mem::replace(chunk, Chunk::new()));
            }
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let lives = |chunk: &Chunk| {
            let busy = chunk.busy.get().map_or(0, |busy| size_of_val(&**busy));
            busy + chunk.lives().iter().map(Lives::heap_bytes).sum::<usize>()
        };
        let slabs = self.slabs.iter().map(|slab| slab.capacity() * size_of::<Chunk>()).sum::<usize>();
        let tables =
            self.slabs.capacity() * size_of::<Vec<Chunk>>() + (self.order.capacity() + self.free.capacity()) * 4;
        slabs + tables + self.iter().map(lives).sum::<usize>()
    }
}

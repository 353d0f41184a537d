//! Nodes in memory that the caller has set aside, told by their index.

use crate::Store;

/// No node.
const NONE: u32 = u32::MAX;

/// A place for one node: what it is, and the place behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place<T> {
    item: T,
    bytes: u64,
    since: u64,
    /// One more than the index, so that a place of zeros has none.
    next: u32,
    taken: bool,
}

/// Memory that was set aside for places.
pub trait Places {
    /// What a node stands for.
    type Item: Copy;

    /// All places, always the same.
    fn places(&self) -> &[Place<Self::Item>];

    /// All places, always the same.
    fn places_mut(&mut self) -> &mut [Place<Self::Item>];
}

impl<T: Copy> Places for &mut [Place<T>] {
    type Item = T;

    fn places(&self) -> &[Place<T>] {
        self
    }

    fn places_mut(&mut self) -> &mut [Place<T>] {
        self
    }
}

impl<T: Copy, const LEN: usize> Places for [Place<T>; LEN] {
    type Item = T;

    fn places(&self) -> &[Place<T>] {
        self
    }

    fn places_mut(&mut self) -> &mut [Place<T>] {
        self
    }
}

/// Nodes of one size in memory that was set aside beforehand: taking one never waits and never asks for memory, so it
/// can be done wherever something is freed. [`Place::default`] is what the memory begins with, all zeros if the item is.
/// Taking, giving back and links each take the same short time.
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
#[derive(Debug)]
pub struct Slab<S> {
    places: S,
    /// The first of those that were given back.
    spare: u32,
    /// Places from here on were never taken.
    fresh: u32,
    taken: u32,
}

impl<S> Slab<S> {
    /// All places are free.
    pub const fn new(places: S) -> Slab<S> {
        Slab { places, spare: 0, fresh: 0, taken: 0 }
    }

    /// How many places are taken.
    pub const fn taken(&self) -> u32 {
        self.taken
    }

    /// The memory, once all places have been given back.
    ///
    /// # Errors
    /// The slab itself, while places are taken.
    pub fn into_places(self) -> Result<S, Slab<S>> {
        if self.taken == 0 { Ok(self.places) } else { Err(self) }
    }
}

impl<S: Places> Slab<S> {
    /// A place for something of so many bytes that is handed over at `since`; nothing when all are taken.
    pub fn take(&mut self, item: S::Item, bytes: u64, since: u64) -> Option<u32> {
        let (index, spare, fresh) = match self.spare.checked_sub(1) {
            Some(index) => (index, self.place(index)?.next, self.fresh),
            None => (self.fresh, 0, self.fresh.checked_add(1).filter(|fresh| *fresh < NONE)?),
        };
        *self.places.places_mut().get_mut(usize::try_from(index).ok()?)? =
            Place { item, bytes, since, next: 0, taken: true };
        (self.spare, self.fresh, self.taken) = (spare, fresh, self.taken.saturating_add(1));
        Some(index)
    }

    /// Gives the place of a node back that is in no queue, and says what was there; nothing for a place that is free.
    pub fn give_back(&mut self, index: u32) -> Option<S::Item> {
        let spare = self.spare;
        let place = self.place_mut(index).filter(|place| place.taken)?;
        (place.next, place.taken) = (spare, false);
        let item = place.item;
        (self.spare, self.taken) = (index.saturating_add(1), self.taken.saturating_sub(1));
        Some(item)
    }

    /// What a node stands for.
    pub fn item(&self, index: u32) -> Option<&S::Item> {
        self.place(index).filter(|place| place.taken).map(|place| &place.item)
    }

    fn place(&self, index: u32) -> Option<&Place<S::Item>> {
        self.places.places().get(usize::try_from(index).ok()?)
    }

    fn place_mut(&mut self, index: u32) -> Option<&mut Place<S::Item>> {
        self.places.places_mut().get_mut(usize::try_from(index).ok()?)
    }
}

impl<S: Places> Store for Slab<S> {
    type Node = u32;

    fn next(&self, node: u32) -> Option<u32> {
        self.place(node)?.next.checked_sub(1)
    }

    fn set_next(&mut self, node: u32, next: Option<u32>) {
        if let Some(place) = self.place_mut(node) {
            place.next = next.map_or(0, |next| next.saturating_add(1));
        }
    }

    fn bytes(&self, node: u32) -> u64 {
        self.place(node).map_or(0, |place| place.bytes)
    }

    fn since(&self, node: u32) -> u64 {
        self.place(node).map_or(0, |place| place.since)
    }
}

//! One queue of what waits, and how far each opener is through with it.

use crate::Store;

/// How much may wait. Where a bound is met the oldest goes first, and [`Standing::broken`] tells each opener that was
/// not through with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Nodes.
    pub items: u64,
    /// Sum of [`Store::bytes`].
    pub bytes: u64,
    /// Time since [`Store::since`], in the unit that the caller chose.
    pub age: u64,
}

impl Limits {
    /// No bound at all: for openers that are known to go on.
    pub const NONE: Limits = Limits { items: u64::MAX, bytes: u64::MAX, age: u64::MAX };
}

/// One that has opened what the queue keeps: what its calls are told by. It holds nothing until its first
/// [`Queue::qc`], and nothing again from [`Queue::close`] on; a copy of it that outlives that is not mistaken for another
/// opener. Good for one queue only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Opener {
    slot: usize,
    /// 0: it has not joined.
    ticket: u64,
}

/// There are as many openers with a guarantee as there can be. Nothing is held for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TooMany;

/// No opener has asked for it: the node was not taken over, and can be freed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NotHeld;

/// Why a node was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// All who were there when it was handed over are through with it, or have closed.
    Passed,
    /// [`Limits::items`] was exceeded.
    Items,
    /// [`Limits::bytes`] was exceeded.
    Bytes,
    /// It had waited longer than [`Limits::age`].
    Age,
}

/// What an opener can ask about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Standing {
    /// Nodes that wait for this opener, in all of its lists.
    pub waiting: u64,
    /// Nodes that were freed although this opener was not through with them. While it is 0 the guarantee holds.
    pub broken: u64,
}

/// What each opener with a guarantee has.
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
#[derive(Debug)]
struct Slot {
    /// Whose it is; 0: nobody's.
    ticket: u64,
    /// Where its lists begin, by how many nodes had been handed over: at its last `qc`, at the last but one, and at the
    /// one before that. It is through with what came before `third`.
    first: u64,
    second: u64,
    third: u64,
    broken: u64,
}

impl Slot {
    const FREE: Slot = Slot { ticket: 0, first: 0, second: 0, third: 0, broken: 0 };
}

/// Nodes that wait, in the order in which they were handed over, for up to `OPENERS` openers.
///
/// An opener's three lists are ranges of the one queue: its first list is what came after its last [`Queue::qc`], its
/// second what came between that and the one before, its third what came between that and the third last. What came
/// before that, it is through with. What *all* openers are through with is at the front, and [`Queue::pop`] takes it out
/// one by one. Each call takes a time that `OPENERS` alone decides.
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
#[derive(Debug)]
pub struct Queue<N, const OPENERS: usize> {
    /// First and last.
    ends: Option<(N, N)>,
    /// Nodes ever handed over, and ever given back. Counted up from 0; at one a nanosecond they last 584 years.
    put: u64,
    taken: u64,
    bytes: u64,
    limits: Limits,
    slots: [Slot; OPENERS],
    tickets: u64,
}

impl<N, const OPENERS: usize> Queue<N, OPENERS> {
    /// An empty queue without openers.
    pub const fn new(limits: Limits) -> Self {
        Queue { ends: None, put: 0, taken: 0, bytes: 0, limits, slots: [const { Slot::FREE }; OPENERS], tickets: 0 }
    }

    /// How many nodes wait.
    pub const fn len(&self) -> u64 {
        self.put.saturating_sub(self.taken)
    }

    /// Whether none waits.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all nodes that wait.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many nodes were ever given back.
    pub const fn freed(&self) -> u64 {
        self.taken
    }

    /// Whether any opener has a guarantee, thus whether [`Queue::defer`] takes anything over.
    pub fn is_asked(&self) -> bool {
        self.slots.iter().any(|slot| slot.ticket != 0)
    }

    /// How an opener stands; nothing for one that has not joined.
    pub fn standing(&self, opener: Opener) -> Option<Standing> {
        let slot = self.slots.get(opener.slot).filter(|slot| opener.is_of(slot))?;
        Some(Standing { waiting: self.put.saturating_sub(slot.third.max(self.taken)), broken: slot.broken })
    }

    /// Changes how much may wait; [`Queue::pop`] goes by it from now on.
    pub const fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// A complete pass of this opener has ended: its second list becomes the third, its first the second, and it is
    /// through with what was in the third. With its first call it joins instead, and is given its guarantee: what is
    /// handed over from now on is not given back before its third next call, unless [`Standing::broken`] says so.
    /// Afterwards [`Queue::pop`] has what is free now.
    ///
    /// # Errors
    /// When it cannot join.
    pub fn qc(&mut self, opener: &mut Opener) -> Result<(), TooMany> {
        let put = self.put;
        if let Some(slot) = self.slots.get_mut(opener.slot).filter(|slot| opener.is_of(slot)) {
            (slot.third, slot.second, slot.first) = (slot.second, slot.first, put);
            return Ok(());
        }
        let (index, slot) = self.slots.iter_mut().enumerate().find(|(_, slot)| slot.ticket == 0).ok_or(TooMany)?;
        let ticket = self.tickets.checked_add(1).ok_or(TooMany)?;
        *slot = Slot { ticket, first: put, second: put, third: put, broken: 0 };
        self.tickets = ticket;
        *opener = Opener { slot: index, ticket };
        Ok(())
    }

    /// This opener reads no more. Nothing waits for it any longer: [`Queue::pop`] has what waited for it alone, which is
    /// everything if it was the last. For one that has not joined this does nothing.
    pub fn close(&mut self, opener: Opener) {
        if let Some(slot) = self.slots.get_mut(opener.slot).filter(|slot| opener.is_of(slot)) {
            *slot = Slot::FREE;
        }
    }

    /// Something had to be freed at once because there was no room for a node: every opener is told, as if a bound had
    /// been met.
    pub fn missed(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| slot.ticket != 0) {
            slot.broken = slot.broken.saturating_add(1);
        }
    }

    /// Whether more waits than may, by number or bytes, so that [`Queue::pop`] has something.
    pub const fn is_over(&self) -> bool {
        self.len() > self.limits.items || self.bytes > self.limits.bytes
    }

    /// How many nodes at the front all openers are through with.
    pub fn due(&self) -> u64 {
        let joined = self.slots.iter().filter(|slot| slot.ticket != 0);
        joined.map(|slot| slot.third).min().unwrap_or(self.put).saturating_sub(self.taken)
    }
}

impl<N: Copy, const OPENERS: usize> Queue<N, OPENERS> {
    /// Takes over a node that has gone. It must be in no queue, and stay where it is until it is given back. If that
    /// exceeds a bound, [`Queue::pop`] has what must go for it, here or by whoever may free in this context.
    ///
    /// # Errors
    /// When no opener has joined: the node is still the caller's.
    pub fn defer(&mut self, store: &mut impl Store<Node = N>, node: N) -> Result<(), NotHeld> {
        if !self.is_asked() {
            return Err(NotHeld);
        }
        store.set_next(node, None);
        let bytes = self.bytes.saturating_add(store.bytes(node));
        let first = match self.ends {
            Some((first, last)) => {
                store.set_next(last, Some(node));
                first
            }
            None => node,
        };
        self.ends = Some((first, node));
        self.put = self.put.saturating_add(1);
        self.bytes = bytes;
        Ok(())
    }

    /// The oldest node, if it may or must go at the time `now` (in the unit of [`Limits::age`]). The caller frees it, and
    /// asks again. One node at a time, so that whoever holds a lock around the queue holds it shortly, and frees outside.
    #[must_use = "what is given back has to be freed"]
    pub fn pop(&mut self, store: &mut impl Store<Node = N>, now: u64) -> Option<(N, Why)> {
        let (first, last) = self.ends?;
        let why = self.why(store, first, now)?;
        let left = self.len().saturating_sub(1);
        // By the count, not by the link: what a store makes of a link is not believed further than that.
        let ends = if left > 0 { store.next(first).map(|next| (next, last)) } else { None };
        let bytes = store.bytes(first);
        store.set_next(first, None);
        if why != Why::Passed {
            let taken = self.taken;
            for slot in self.slots.iter_mut().filter(|slot| slot.ticket != 0 && slot.third <= taken) {
                slot.broken = slot.broken.saturating_add(1);
            }
        }
        self.ends = ends;
        self.taken = if ends.is_some() { self.taken.saturating_add(1) } else { self.put };
        self.bytes = if ends.is_some() { self.bytes.saturating_sub(bytes) } else { 0 };
        Some((first, why))
    }

    /// When the oldest node will have waited for too long, in the unit of [`Limits::age`]: [`Queue::pop`] has it
    /// after that.
    pub fn expires(&self, store: &impl Store<Node = N>) -> Option<u64> {
        let (first, _) = self.ends?;
        store.since(first).checked_add(self.limits.age)
    }

    fn why(&self, store: &impl Store<Node = N>, first: N, now: u64) -> Option<Why> {
        let Limits { items, bytes, age } = self.limits;
        if self.due() > 0 {
            Some(Why::Passed)
        } else if self.len() > items {
            Some(Why::Items)
        } else if self.bytes > bytes {
            Some(Why::Bytes)
        } else if now.saturating_sub(store.since(first)) > age {
            Some(Why::Age)
        } else {
            None
        }
    }
}

impl Opener {
    fn is_of(self, slot: &Slot) -> bool {
        self.ticket != 0 && self.ticket == slot.ticket
    }
}

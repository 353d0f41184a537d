//! Frees and arrivals that two ways saw.
//!
//! Where a way at the tracepoint of the kernel's workers and one at the entries of the functions that free are both asked for,
//! each of them tells of the same free. What stood there is one text with two copies: the object that it goes with is the
//! same at the same address, and the ways take turns.

use std::collections::HashMap;

use afterimage_kernel_text::capture::Captured;
use afterimage_kernel_text::{TextId, TextKind, Way};

/// What one way told and the other has not told yet, ns.
const FORGOTTEN: u64 = 5_000_000_000;

/// What was told by one way alone so far.
#[derive(Debug, Default)]
pub(crate) struct Twice {
    once: HashMap<Key, Told>,
}

/// The object, and the text of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    owner: u64,
    addr: u64,
    kind: TextKind,
    freed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    way: Way,
    time: u64,
    text: TextId,
}

impl Key {
    fn of(captured: &Captured) -> Key {
        Key { owner: captured.owner, addr: captured.addr, kind: captured.kind, freed: captured.freed }
    }
}

impl Twice {
    /// The text of a free or arrival that another way told of before.
    pub(crate) fn other(&mut self, captured: &Captured) -> Option<TextId> {
        let key = Key::of(captured);
        let told = self.once.get(&key).filter(|told| told.way != captured.way)?.text;
        self.once.remove(&key);
        Some(told)
    }

    /// A way told of this first.
    pub(crate) fn first(&mut self, captured: &Captured, text: TextId) {
        let told = Told { way: captured.way, time: captured.time, text };
        self.once.insert(Key::of(captured), told);
    }

    /// Forgets what only one of them will ever have told of.
    pub(crate) fn forget(&mut self, now: u64) {
        self.once.retain(|_, told| told.time.saturating_add(FORGOTTEN) > now);
    }
}

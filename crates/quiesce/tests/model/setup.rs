//! What is examined: texts, readers, and the rules that readers keep.

use crate::Limits;

/// How a text announces itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A record when it comes, one when it goes, and some time later its free.
    Program,
    /// Freed right after the record that it goes.
    Trampoline,
    /// No record at all: a classic filter, or a module.
    Silent,
}

/// How a reader learns that records were lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Not at all.
    Ignored,
    /// By the record that says so, which comes with the next one that is not lost.
    Record,
    /// By the count that each ring keeps.
    Count,
}

/// Whether a pass may leave out a ring.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Skips {
    Never,
    /// If the pass before left out none: a thread that is late by less than a pass.
    NotTwice,
    AtWill,
}

/// What can happen, and what the readers' rules are.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) texts: &'static [Kind],
    pub(super) readers: usize,
    /// How often each reader can open.
    pub(super) opens: u8,
    /// How many records can be lost.
    pub(super) losses: u8,
    pub(super) limits: Limits,
    /// How many lists a text goes through. The queue has three: with fewer, a call counts for several.
    pub(super) lists: u8,
    /// Each ring is read by a thread that makes passes of its own.
    pub(super) threads: bool,
    pub(super) skips: Skips,
    /// All readers share one opener, as if the lists were everybody's.
    pub(super) shared: bool,
    /// The first reader is there before anything happens.
    pub(super) early: bool,
    /// Copies may end one pass later.
    pub(super) late: bool,
    /// How many passes end with a call after a record that something went.
    pub(super) unregister: u8,
    pub(super) loss: Loss,
    /// A pass that begins while something waits ends with a call.
    pub(super) query: bool,
}

//! Raw stacks that were seen lately, and what user parts of stacks are like.

use std::hash::Hasher;

use afterimage_perf_data::{Callchain, context};
use rustc_hash::FxHasher;

use super::places::{LocId, StackId};
use crate::loc::CpuMode;
use crate::sample::TimedSample;
use crate::state::{SpaceId, State};

/// Raw stacks that were seen lately with what they stand for. Most samples have the stack of one not long before them,
/// and comparing bytes is much less work than finding the place of each address.
///
/// A fixed number of slots, each for the last stack that fell into it: where nearly all stacks differ, remembering all of
/// them would cost more than it saves.
pub(crate) struct RecentChains(Vec<Recent>);

/// What the places of a stack depend on, and what they are.
#[derive(Clone)]
struct Recent {
    /// The raw stack. A slot that is used again keeps its room.
    bytes: Vec<u8>,
    ip: u64,
    /// Which texts came and went in the kernel.
    version: u64,
    mode: CpuMode,
    /// What was mapped, if the stack has user addresses.
    space: Option<SpaceId>,
    found: Found,
}

/// What a stack stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) leaf: LocId,
    pub(crate) stack: StackId,
    /// The entry that the last sample with it went to: most often the next one's too.
    pub(crate) entry: u32,
}

/// The value of [`Found::entry`] where that is not known.
pub(crate) const NO_ENTRY: u32 = u32::MAX;

/// As a power of two: 64 thousand take 5 MiB, and what the stacks take.
const SLOTS_LOG: u32 = 16;

/// Where a stack is remembered.
#[derive(Clone, Copy)]
pub(crate) struct Slot(usize);

impl Slot {
    /// Where nothing is remembered.
    pub(crate) const NONE: Slot = Slot(usize::MAX);
}

impl RecentChains {
    pub(crate) fn new() -> RecentChains {
        RecentChains(Vec::new())
    }

    /// What the stack of a sample stands for, if it is known; and where to remember it if not.
    #[inline]
    pub(crate) fn find(&self, state: &State, sample: &TimedSample<'_>) -> (Slot, Option<Found>) {
        let bytes = sample.chain.bytes();
        let mut hasher = FxHasher::default();
        hasher.write(bytes);
        hasher.write_u64(sample.ip);
        let slot = (hasher.finish() >> (64 - SLOTS_LOG)) as usize;
        let found = self.0.get(slot).filter(|recent| {
            recent.ip == sample.ip
                && recent.mode == sample.mode()
                && recent.version == state.kernel_version()
                && recent.space.is_none_or(|space| space == sample.space)
                && recent.bytes == bytes
        });
        (Slot(slot), found.map(|recent| recent.found))
    }

    /// Remembers to which entry the last sample with the stack in a slot went.
    #[inline]
    pub(crate) fn went_to(&mut self, slot: Slot, entry: u32) {
        if let Some(recent) = self.0.get_mut(slot.0) {
            recent.found.entry = entry;
        }
    }

    /// Remembers the stack of a sample; `user`: it has user addresses.
    pub(crate) fn keep(&mut self, slot: Slot, state: &State, sample: &TimedSample<'_>, user: bool, found: Found) {
        if self.0.is_empty() {
            // No version is that high.
            let none =
                Recent { bytes: Vec::new(), ip: 0, version: u64::MAX, mode: CpuMode::Unknown, space: None, found };
            self.0 = vec![none; 1 << SLOTS_LOG];
        }
        if let Some(slot) = self.0.get_mut(slot.0) {
            slot.bytes.clear();
            slot.bytes.extend_from_slice(sample.chain.bytes());
            slot.ip = sample.ip;
            slot.version = state.kernel_version();
            slot.mode = sample.mode();
            slot.space = user.then_some(sample.space);
            slot.found = found;
        }
    }
}

/// What the user part of a stack is like, if it has one. Code without frame pointers leaves the kernel one or two frames
/// to find, so its callers are missing. Looks at the first and last values only: user addresses are those of the lower
/// half.
#[inline]
pub(crate) fn user_part(chain: Callchain<'_>) -> Option<UserPart> {
    let values = chain.iter();
    // The end of a long stack may be far from its beginning, which is at hand.
    if values.len() > FEW + 1 && values.clone().next() == Some(context::USER) {
        return Some(UserPart::Long);
    }
    let mut last = None;
    for value in values.rev().take(FEW + 1) {
        if context::is_marker(value) {
            return (value == context::USER).then_some(UserPart::Short);
        }
        last = last.or(Some(value));
    }
    last.filter(|addr| addr >> 63 == 0).map(|_| UserPart::Long)
}

/// Frames of a user part that are suspiciously few.
const FEW: usize = 2;

/// The user part of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserPart {
    /// Ends within two frames.
    Short,
    /// Goes on.
    Long,
}

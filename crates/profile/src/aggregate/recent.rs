//! Addresses that were sampled lately, with their places and entries: most samples of a machine fall on few of them.

use super::places::{LocId, NO_ENTRY};
use crate::loc::CpuMode;
use crate::parts::Under;
use crate::sample::TimedSample;
use crate::state::State;

/// A fixed number of slots, each for the last address that fell into it.
#[derive(Default)]
pub(crate) struct Recent(Vec<Known>);

#[derive(Clone, Copy)]
struct Known {
    ip: u64,
    under: Under,
    mode: CpuMode,
    leaf: LocId,
    /// The entry that the last sample went to: most often the next one's too.
    entry: u32,
}

/// A quarter of a megabyte of slots, which stays near the CPU.
const SLOTS_LOG: u32 = 13;

/// Where an address is remembered.
#[derive(Clone, Copy)]
pub(crate) struct Slot(usize);

impl Slot {
    /// Where nothing is remembered.
    pub(crate) const NONE: Slot = Slot(usize::MAX);
}

/// What the place of a sample's own address depends on; `None` where that is not told so easily.
#[inline]
fn under(state: &State, sample: &TimedSample<'_>, mode: CpuMode) -> Option<Under> {
    match mode {
        CpuMode::Kernel => Some(Under::kernel(state)),
        CpuMode::User => Some(Under::process(sample)),
        _ => None,
    }
}

impl Recent {
    /// The place of a sample's own address, if it is known; and where to remember it if not.
    #[inline]
    pub(crate) fn find(&self, state: &State, sample: &TimedSample<'_>) -> (Slot, Option<LocId>) {
        let mode = sample.mode();
        let Some(under) = under(state, sample, mode) else { return (Slot::NONE, None) };
        let mixed = (sample.ip ^ under.number().rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = (mixed >> (64 - SLOTS_LOG)) as usize;
        let known = self.0.get(slot).filter(|known| (known.ip, known.under, known.mode) == (sample.ip, under, mode));
        (Slot(slot), known.map(|known| known.leaf))
    }

    /// The entry that the last sample of a slot went to.
    #[inline]
    pub(crate) fn entry(&self, slot: Slot) -> u32 {
        self.0.get(slot.0).map_or(NO_ENTRY, |known| known.entry)
    }

    /// Remembers to which entry the last sample of a slot went.
    #[inline]
    pub(crate) fn went_to(&mut self, slot: Slot, entry: u32) {
        if let Some(known) = self.0.get_mut(slot.0) {
            known.entry = entry;
        }
    }

    /// Remembers the place of a sample's own address.
    pub(crate) fn keep(&mut self, slot: Slot, state: &State, sample: &TimedSample<'_>, leaf: LocId) {
        let mode = sample.mode();
        let Some(under) = under(state, sample, mode) else { return };
        if self.0.is_empty() {
            // Of no mode that is looked for.
            let none = Known { ip: 0, under, mode: CpuMode::Unknown, leaf, entry: NO_ENTRY };
            self.0 = vec![none; 1 << SLOTS_LOG];
        }
        if let Some(known) = self.0.get_mut(slot.0) {
            *known = Known { ip: sample.ip, under, mode, leaf, entry: NO_ENTRY };
        }
    }
}

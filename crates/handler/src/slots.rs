//! The pairs of slots that stubs run, and the one number that says which pair is current.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::addr_of_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mapping::Mapping;
use crate::skeleton::builtins::types::ai_control;
use crate::{Error, Result};

/// Pairs of slots, used in turn (AI_PAIRS).
pub(crate) const PAIRS: u32 = 64;
/// The generation that sampling begins with.
const FIRST_GENERATION: u32 = 1;

/// Behind those of the pairs: the object whose label is counted by (AI_LABEL_SLOT), and what counts (AI_BY_SLOT).
pub(crate) const LABEL_SLOT: u32 = 2 * PAIRS;
pub(crate) const BY_SLOT: u32 = LABEL_SLOT + 1;

/// What a pair holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    /// Runs first, and goes on to the handler by itself. `None`: the handler runs at once, out of the gate's slot.
    pub(crate) gate: Option<Arc<OwnedFd>>,
    /// `None`: every sample that the gate lets through chains.
    pub(crate) handler: Option<Arc<OwnedFd>>,
}

/// The array of programs and the control word.
#[derive(Debug)]
pub(crate) struct Slots {
    map: OwnedFd,
    control: Mapping<ai_control>,
    generation: u32,
}

impl Slots {
    /// Slots without a pair. No program may be attached before the first [`Slots::install`].
    pub(crate) fn new(map: OwnedFd, control: Mapping<ai_control>) -> Slots {
        if let Some(control) = control.get(0) {
            // SAFETY: `control` points at a whole ai_control, as long as the mapping lives; no program is attached yet.
            unsafe { (*control).fall_through = 1 };
        }
        Slots { map, control, generation: FIRST_GENERATION - 1 }
    }

    /// The number of the current pair.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Writes the spare pair, then the number: every sample runs the old pair or this one. Returns its number.
    pub(crate) fn install(&mut self, pair: &Pair) -> Result<u32> {
        let failed = |e: io::Error| Error::io("swapping the handler", &e);
        let next = self.generation.wrapping_add(1);
        let slot = (next % PAIRS) * 2;
        let handler = pair.handler.as_ref();
        self.put(slot, pair.gate.as_ref().or(handler)).map_err(failed)?;
        self.put(slot + 1, handler).map_err(failed)?;
        if let Some(control) = self.control.get(0) {
            // SAFETY: `control` points at a whole ai_control as long as `self` lives; programs read the word meanwhile.
            unsafe { AtomicU32::from_ptr(addr_of_mut!((*control).generation)) }.store(next, Ordering::Release);
        }
        self.generation = next;
        Ok(next)
    }

    /// Fills a slot that is not of the current pair, or empties it.
    pub(crate) fn put(&self, slot: u32, program: Option<&Arc<OwnedFd>>) -> io::Result<()> {
        match program {
            Some(program) => update(&self.map, slot, program.as_raw_fd()),
            None => delete(&self.map, slot),
        }
    }
}

/// Stores a descriptor in an array of programs or events.
pub(crate) fn update(map: &OwnedFd, key: u32, value: RawFd) -> io::Result<()> {
    // SAFETY: key and value are of the sizes that both maps were created with, and live through the call.
    let result = unsafe {
        libbpf_sys::bpf_map_update_elem(map.as_raw_fd(), (&raw const key).cast(), (&raw const value).cast(), 0)
    };
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

/// Empties a slot; an empty one is as good.
fn delete(map: &OwnedFd, key: u32) -> io::Result<()> {
    // SAFETY: the key is of the size that the map was created with, and lives through the call.
    let result = unsafe { libbpf_sys::bpf_map_delete_elem(map.as_raw_fd(), (&raw const key).cast()) };
    match -result {
        error if error > 0 && error != libc::ENOENT => Err(io::Error::from_raw_os_error(error)),
        _ => Ok(()),
    }
}

//! Programs that can stand in a slot, and what they share with the stubs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::{Builtin, Mechanism};

/// The number of a handler, as the payloads of a handler ring carry it: built-in ones have fixed numbers, others follow in
/// the order in which they were added. A number is not used again in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandlerId(pub u16);

impl HandlerId {
    /// The first number of a handler that is not built in.
    pub const FIRST: HandlerId = HandlerId(16);
}

impl From<Builtin> for HandlerId {
    fn from(builtin: Builtin) -> HandlerId {
        // AI_HANDLER_*.
        HandlerId(match builtin {
            Builtin::None => 0,
            Builtin::Emit => 1,
            Builtin::Count => 2,
        })
    }
}

/// A loaded program of type perf_event.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) id: HandlerId,
    pub(crate) name: String,
    pub(crate) fd: Arc<OwnedFd>,
}

/// What a program needs to work beside the stubs: their maps, to be taken in place of its own of the same names, and the
/// constants of afterimage.bpf.h.
#[derive(Clone, Copy, Debug)]
pub struct Shared<'a> {
    pub(crate) maps: &'a SharedMaps,
    /// `ai_nr_cpus`: bound of CPU numbers, the stride of everything that is indexed by (event, CPU).
    pub nr_cpus: u32,
    /// Events that carry a stub.
    pub events: u32,
    /// How the stubs get at the sample.
    pub mechanism: Mechanism,
    /// Number of the table that each CPU has for each event, by CPU, as ai_cpu has it; `None`: it has none.
    pub(crate) table_of: &'a [Option<u32>],
    /// Tables of one event.
    pub(crate) nr_tables: u32,
}

impl Shared<'_> {
    /// The map that a program knows under this name; `None` when it is the program's own.
    pub fn map(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.maps.by_name.iter().find(|(known, _)| *known == name).map(|(_, fd)| fd.as_fd())
    }
}

/// Descriptors of the maps that all programs share, by name.
#[derive(Debug)]
pub(crate) struct SharedMaps {
    pub(crate) by_name: Vec<(&'static str, OwnedFd)>,
}

//! Programs that can stand in a slot, and what they share with the stubs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::load::{Dimensions, Late, load_late};
use crate::{Builtin, EventConfig, Mechanism, Options, Result};

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
/// constants of afterimage.bpf.h. It owns what it names, so programs may be loaded on another thread while their
/// [`Handlers`](crate::Handlers) go on.
#[derive(Clone, Debug)]
pub struct Shared {
    pub(crate) maps: Arc<SharedMaps>,
    /// `ai_nr_cpus`: bound of CPU numbers, the stride of everything that is indexed by (event, CPU).
    pub nr_cpus: u32,
    /// Events that carry a stub.
    pub events: u32,
    /// How the stubs get at the sample.
    pub mechanism: Mechanism,
    /// Number of the table that each CPU has for each event, by CPU, as ai_cpu has it; `None`: it has none.
    pub(crate) table_of: Arc<[Option<u32>]>,
    /// Tables of one event.
    pub(crate) nr_tables: u32,
    /// Where samples are counted by a label: what an object has to know.
    pub(crate) labels: Option<Labels>,
    /// What the stubs were loaded by.
    pub(crate) options: Arc<Options>,
    pub(crate) dimensions: Arc<Dimensions>,
}

impl Shared {
    /// The events that carry a stub, as they were told to [`Handlers::load`](crate::Handlers::load).
    pub fn configs(&self) -> &[EventConfig] {
        &self.options.events
    }

    /// Loads a built-in handler for [`Handlers::take_builtin`](crate::Handlers::take_builtin).
    ///
    /// # Errors
    /// As [`Handlers::load`](crate::Handlers::load).
    pub fn load_builtin(&self, builtin: Builtin) -> Result<LoadedBuiltin> {
        load_late(builtin, self).map(LoadedBuiltin)
    }

    /// The map that a program knows under this name; `None` when it is the program's own.
    pub fn map(&self, name: &str) -> Option<BorrowedFd<'_>> {
        let labels = self.labels.as_ref().filter(|_| name == "ai_labels").map(|labels| labels.map.as_fd());
        labels.or_else(|| self.maps.by_name(name))
    }
}

/// The label that samples are counted by.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    pub(crate) name: String,
    /// Where it stands on each CPU while its sample is in flight.
    pub(crate) map: Arc<OwnedFd>,
}

/// A built-in handler that was loaded beside those that run.
#[derive(Debug)]
pub struct LoadedBuiltin(pub(crate) Late);

/// Descriptors of the maps that all programs share, by name.
#[derive(Debug)]
pub(crate) struct SharedMaps {
    pub(crate) slots: OwnedFd,
    pub(crate) control: OwnedFd,
    pub(crate) cpus: OwnedFd,
    pub(crate) counters: OwnedFd,
    pub(crate) outputs: OwnedFd,
}

impl SharedMaps {
    /// The map that a program knows under this name.
    pub(crate) fn by_name(&self, name: &str) -> Option<BorrowedFd<'_>> {
        let map = match name {
            "ai_slots" => &self.slots,
            "ai_control" => &self.control,
            "ai_cpus" => &self.cpus,
            "ai_counters" => &self.counters,
            "ai_outputs" => &self.outputs,
            _ => return None,
        };
        Some(map.as_fd())
    }
}

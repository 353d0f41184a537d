//! What the running kernel has that decides about programs.

use crate::{EventConfig, Mechanism, Shared, cpus};

/// What the checks must know of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The kernel shows programs the sample that it has prepared (`bpf_cast_to_kern_ctx`).
    pub context: bool,
    /// The most frames of a call chain (`kernel.perf_event_max_stack`).
    pub max_stack: u32,
    /// The most context markers in one (`kernel.perf_event_max_contexts_per_stack`).
    pub contexts: u32,
}

impl Limits {
    /// Those of the running kernel, as the stubs found it.
    pub fn of(shared: &Shared) -> Limits {
        let (max_stack, contexts) = cpus::stack_limits();
        Limits { context: shared.mechanism == Mechanism::Kfuncs, max_stack, contexts }
    }

    /// Words of the longest call chain that any sample may have.
    pub fn stack_words(&self) -> u32 {
        self.max_stack.saturating_add(self.contexts)
    }

    /// Words of the longest call chain of these events' samples; 0 when they have none.
    pub(super) fn longest(&self, events: &[EventConfig]) -> u32 {
        let frames = |event: &EventConfig| match event.max_stack {
            0 => self.max_stack,
            frames => self.max_stack.min(frames.into()),
        };
        let chains = events.iter().filter(|event| event.callchain);
        chains.map(|event| frames(event).saturating_add(self.contexts)).max().unwrap_or(0)
    }
}

//! What the running kernel has that decides about programs.

use crate::{Mechanism, Shared, cpus};

/// What the checks must know of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The kernel shows programs the sample that it has prepared (`bpf_cast_to_kern_ctx`).
    pub context: bool,
    /// Words of the longest call chain that a sample may have, context markers included.
    pub stack_words: u32,
}

impl Limits {
    /// Those of the running kernel, as the stubs found it.
    pub fn of(shared: &Shared<'_>) -> Limits {
        Limits { context: shared.mechanism == Mechanism::Kfuncs, stack_words: cpus::chain_words() }
    }
}

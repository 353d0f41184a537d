//! Numbers of the machine that the maps are sized by.

use std::fs;

use afterimage_perf_event::facts::Facts;

use crate::{Error, Result};

/// CPUs that are online.
pub(crate) fn online() -> Result<Vec<u32>> {
    Facts::system().online_cpus().map_err(|e| Error::io("the list of online CPUs", &e))
}

/// One more than the highest CPU number that this kernel may ever use.
pub(crate) fn bound() -> Result<u32> {
    let possible = Facts::system().possible_cpus().map_err(|e| Error::io("the list of possible CPUs", &e))?;
    Ok(possible.into_iter().max().unwrap_or(0) + 1)
}

/// Deepest chain that the programs are built for (AI_CHAIN_MAX).
pub(crate) const CHAIN_MAX: u32 = 1024;

/// Words that the programs read of a chain (`ai_chain_max`).
pub(crate) fn chain_max() -> u32 {
    chain_words().clamp(16, CHAIN_MAX)
}

/// The most frames of a stack, and the most context markers among them (kernel.perf_event_max_stack and
/// kernel.perf_event_max_contexts_per_stack).
pub(crate) fn stack_limits() -> (u32, u32) {
    let frames = Facts::system().max_stack().unwrap_or(127);
    let markers = fs::read_to_string("/proc/sys/kernel/perf_event_max_contexts_per_stack");
    (frames, markers.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(8))
}

/// Words that one callchain may hold: frames, and a context marker before each part.
pub(crate) fn chain_words() -> u32 {
    let (frames, markers) = stack_limits();
    frames.saturating_add(markers)
}

/// The most frames of a stack that programs read whole, if this system allows more.
pub(crate) fn readable_stack() -> Option<u16> {
    readable(stack_limits())
}

fn readable((frames, markers): (u32, u32)) -> Option<u16> {
    let most = CHAIN_MAX.saturating_sub(markers).max(1);
    (frames > most).then(|| u16::try_from(most).unwrap_or(u16::MAX))
}

/// The most frames of a stack (`sample_max_stack`) that bpf_get_stack for the user's half leaves whole: it cuts the sample's
/// own chain to kernel.perf_event_max_stack words, markers included.
pub(crate) fn whole_stack() -> u16 {
    let (frames, markers) = stack_limits();
    u16::try_from(frames.saturating_sub(markers)).unwrap_or(u16::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_no_longer_than_programs_read() {
        assert_eq!(readable((127, 8)), None);
        assert_eq!(readable((1016, 8)), None);
        assert_eq!(readable((1017, 8)), Some(1016));
        assert_eq!(readable((4096, 2000)), Some(1));
    }
}

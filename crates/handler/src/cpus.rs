//! Numbers of the machine that the maps are sized by.

use std::fs;

use crate::{Error, ErrorKind, Result};

/// CPUs that are online.
pub(crate) fn online() -> Result<Vec<u32>> {
    list("/sys/devices/system/cpu/online")
}

/// One more than the highest CPU number that this kernel may ever use.
pub(crate) fn bound() -> Result<u32> {
    Ok(list("/sys/devices/system/cpu/possible")?.into_iter().max().unwrap_or(0) + 1)
}

/// Words that one callchain may hold: frames, and a context marker before each part.
pub(crate) fn chain_words() -> u32 {
    let setting = |name: &str, default| {
        fs::read_to_string(format!("/proc/sys/kernel/{name}"))
            .ok()
            .and_then(|s| s.trim().parse().ok())
            .unwrap_or(default)
    };
    let frames: u32 = setting("perf_event_max_stack", 127);
    frames.saturating_add(setting("perf_event_max_contexts_per_stack", 8))
}

fn list(path: &str) -> Result<Vec<u32>> {
    let text = fs::read_to_string(path).map_err(|e| Error::io(path, &e))?;
    parse_list(text.trim()).ok_or_else(|| Error::new(ErrorKind::System, path, format!("cannot read {text:?}")))
}

/// A list as the kernel prints it: `0-3,8`.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    /// More than any kernel is built for.
    const LIMIT: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= LIMIT {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_the_kernel_prints_them() {
        assert_eq!(parse_list("0"), Some(vec![0]));
        assert_eq!(parse_list("0-2,5,8-9"), Some(vec![0, 1, 2, 5, 8, 9]));
        assert_eq!(parse_list(""), Some(vec![]));
        assert_eq!(parse_list("0-"), None);
        assert_eq!(parse_list("0-4000000000"), None);
    }
}

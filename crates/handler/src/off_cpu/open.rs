//! Threads that still wait at the end, by a program on the kernel's iterator over threads.

use std::io::{self, Read};

use libbpf_rs::{Iter, Link};

use super::LEFT_HEAD;
use crate::{Error, Result};

/// A thread that waits. The fields are those of `struct ai_left` in src/bpf/off_cpu.bpf.c.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenWait {
    /// Since when, ns of CLOCK_MONOTONIC; not before the beginning. 0 of a thread that there was no room for: nobody knows.
    pub since: u64,
    /// How often the task had called exec.
    pub exec_id: u64,
    /// The thread's name, NUL-terminated.
    pub comm: [u8; 16],
    /// The process, as the initial pid namespace numbers it.
    pub pid: u32,
    /// The thread, likewise.
    pub tid: u32,
    /// Why: see [`State::of`](super::State::of).
    pub state: u32,
    /// The CPU that it left; of one that was never seen, where it was last.
    pub cpu: u32,
    /// The stack, with context markers, as a CALLCHAIN holds it.
    pub chain: Vec<u64>,
}

/// Runs the program once and reads what it wrote.
pub(super) fn read(link: &Link) -> Result<Vec<OpenWait>> {
    const WHAT: &str = "reading who waits";
    let mut iterator = Iter::new(link).map_err(|e| Error::io(WHAT, &io::Error::other(e)))?;
    let mut bytes = Vec::new();
    iterator.read_to_end(&mut bytes).map_err(|e| Error::io(WHAT, &e))?;
    Ok(decode(&bytes))
}

/// One thread after the other, up to what is cut short.
fn decode(mut bytes: &[u8]) -> Vec<OpenWait> {
    let mut all = Vec::new();
    while let Some((one, rest)) = one(bytes) {
        all.push(one);
        bytes = rest;
    }
    all
}

fn one(bytes: &[u8]) -> Option<(OpenWait, &[u8])> {
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let words = usize::try_from(half(48)?).ok()?;
    let (head, rest) = bytes.split_at_checked(LEFT_HEAD)?;
    let (chain, rest) = rest.split_at_checked(words.checked_mul(8)?)?;
    let wait = OpenWait {
        since: word(0)?,
        exec_id: word(8)?,
        comm: head.get(16..32)?.try_into().ok()?,
        pid: half(32)?,
        tid: half(36)?,
        state: half(40)?,
        cpu: half(44)?,
        chain: chain.chunks_exact(8).filter_map(|word| Some(u64::from_ne_bytes(*word.first_chunk()?))).collect(),
    };
    Some((wait, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_whole_is_read() {
        let mut bytes = Vec::new();
        for (tid, chain) in [(7_u32, &[1_u64, 2][..]), (8, &[])] {
            bytes.extend(5_u64.to_ne_bytes());
            bytes.extend(6_u64.to_ne_bytes());
            bytes.extend(*b"name\0\0\0\0\0\0\0\0\0\0\0\0");
            [3, tid, 1, 9, chain.len() as u32, 0].iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
            chain.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        }
        let all = decode(&bytes);
        let seen: Vec<_> = all.iter().map(|wait| (wait.since, wait.tid, wait.state, wait.cpu, &*wait.chain)).collect();
        assert_eq!(seen, [(5, 7, 1, 9, &[1, 2][..]), (5, 8, 1, 9, &[])]);
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).len() < 2);
        }
        bytes[48..52].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(decode(&bytes), []);
    }
}

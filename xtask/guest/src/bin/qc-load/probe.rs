//! How long a function of the kernel takes, by two programs: one at its entry, one where it returns.

use crate::{Result, sys};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Times that are kept, a power of two.
const KEPT: usize = 4096;
/// The one value of the map: when the function was entered, how often it returned, and the times.
const WORDS: usize = 2 + KEPT;
/// Helper functions (linux/bpf.h).
const KTIME_GET_NS: i32 = 5;

/// Both programs, attached as long as this lives.
pub(crate) struct Probe {
    map: OwnedFd,
    _programs: [OwnedFd; 2],
    _links: [OwnedFd; 2],
}

impl Probe {
    pub(crate) fn attach(function: &str) -> Result<Probe> {
        let what = |error: std::io::Error| format!("a probe of {function}: {error}");
        let map = sys::array(WORDS * 8).map_err(what)?;
        let entry = sys::load_at(function, true, &entered(&map)).map_err(what)?;
        let exit = sys::load_at(function, false, &left(&map)).map_err(what)?;
        let links = [sys::attach_at(entry.as_fd()).map_err(what)?, sys::attach_at(exit.as_fd()).map_err(what)?];
        Ok(Probe { map, _programs: [entry, exit], _links: links })
    }

    /// Begins anew.
    pub(crate) fn forget(&self) -> Result<()> {
        sys::write_array(&self.map, &[0; WORDS]).map_err(|error| format!("the probe's map: {error}"))
    }

    /// The first `count` times, in nanoseconds, once there are as many.
    pub(crate) fn times(&self, count: usize, patience: Duration) -> Result<Vec<u64>> {
        let end = Instant::now() + patience;
        loop {
            let mut words = vec![0; WORDS];
            sys::read_array(&self.map, &mut words).map_err(|error| format!("the probe's map: {error}"))?;
            if words[1] >= count as u64 {
                return Ok(words[2..2 + count.min(KEPT)].to_vec());
            }
            if Instant::now() > end {
                return Err(format!("{} of {count} calls came", words[1]));
            }
            sleep(Duration::from_millis(10));
        }
    }
}

/// An instruction (Documentation/bpf/standardization/instruction-set.rst), as the number that it is in memory.
const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> u64 {
    code as u64 | (dst as u64) << 8 | (src as u64) << 12 | (off as u16 as u64) << 16 | (imm as u32 as u64) << 32
}

/// r6 = the map's value.
fn value(map: &OwnedFd) -> [u64; 2] {
    use std::os::fd::AsRawFd;
    [insn(0x18, 6, 2, 0, map.as_raw_fd()), 0]
}

const CALL_TIME: u64 = insn(0x85, 0, 0, 0, KTIME_GET_NS);
/// r0 = 0; exit
const END: [u64; 2] = [insn(0xb7, 0, 0, 0, 0), insn(0x95, 0, 0, 0, 0)];

/// Entered: word 0 = now.
fn entered(map: &OwnedFd) -> Vec<u64> {
    let mut code = value(map).to_vec();
    code.extend([CALL_TIME, insn(0x7b, 6, 0, 0, 0)]);
    code.extend(END);
    code
}

/// Left: if it was entered, the word behind the last time = now - word 0, word 1 += 1, word 0 = 0.
fn left(map: &OwnedFd) -> Vec<u64> {
    let mut code = value(map).to_vec();
    code.extend([
        CALL_TIME,
        insn(0x79, 1, 6, 0, 0),
        // Not entered since the probe was attached, or emptied: to the end.
        insn(0x15, 1, 0, 11, 0),
        insn(0x1f, 0, 1, 0, 0),
        insn(0x79, 2, 6, 8, 0),
        insn(0xbf, 3, 2, 0, 0),
        insn(0x57, 3, 0, 0, KEPT as i32 - 1),
        insn(0x67, 3, 0, 0, 3),
        insn(0xbf, 4, 6, 0, 0),
        insn(0x0f, 4, 3, 0, 0),
        insn(0x7b, 4, 0, 16, 0),
        insn(0x07, 2, 0, 0, 1),
        insn(0x7b, 6, 2, 8, 0),
        insn(0x7a, 6, 0, 0, 0),
    ]);
    code.extend(END);
    code
}

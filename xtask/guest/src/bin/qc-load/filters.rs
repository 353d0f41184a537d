//! The quickest way to free text: a classic filter on a socket, replaced by the next.

use crate::Result;
use crate::memory;
use crate::sys;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Instruction codes of linux/bpf_common.h: load a constant, add one, return one.
const LOAD: u16 = 0x00;
const ADD: u16 = 0x04;
const RETURN: u16 = 0x06;
/// What the kernel answers where it cannot compile a filter: the space for native code is used up.
const ENOTSUPP: i32 = 524;
/// Frees happen later, by RCU and work queues: with less memory than this left, they are waited for.
const ENOUGH: u64 = 400 << 20;

/// What a thread that replaces filters did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Made {
    pub(crate) filters: u64,
    /// How often there was no room and it waited.
    pub(crate) waits: u64,
}

/// A socket with a filter.
pub(crate) struct Filters {
    socket: UnixDatagram,
    _other: UnixDatagram,
    n: u32,
}

impl Filters {
    pub(crate) fn new(first: u32) -> Result<Filters> {
        let (socket, _other) = UnixDatagram::pair().map_err(|error| format!("sockets: {error}"))?;
        Ok(Filters { socket, _other, n: first })
    }

    /// Replaces the filter by another one of 3 to 18 instructions. No room is no error.
    pub(crate) fn replace(&mut self) -> Result<bool> {
        self.n = self.n.wrapping_add(1);
        let insn = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
        let mut filter = vec![insn(LOAD, self.n)];
        filter.resize(2 + (self.n.wrapping_mul(0x9e37_79b9) >> 28) as usize, insn(ADD, self.n | 1));
        filter.push(insn(RETURN, u32::MAX));
        match sys::attach(&self.socket, &mut filter) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOMEM | ENOTSUPP)) => Ok(false),
            Err(error) => Err(format!("attach a filter: {error}")),
        }
    }
}

/// Replaces filters as quickly as it goes, until told to stop.
pub(crate) fn storm(first: u32, stop: &AtomicBool) -> Result<Made> {
    let (mut filters, mut made) = (Filters::new(first)?, Made::default());
    while !stop.load(Ordering::Relaxed) {
        if filters.replace()? {
            made.filters += 1;
        } else {
            made.waits += 1;
            sleep(Duration::from_millis(5));
        }
        if made.filters % 128 == 0 && memory::available()? < ENOUGH {
            made.waits += 1;
            sleep(Duration::from_millis(50));
        }
    }
    Ok(made)
}

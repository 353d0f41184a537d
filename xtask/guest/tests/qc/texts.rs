//! Text to be freed: programs of one function.

use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::sys;

/// How long something that must come is waited for: an emulated machine on a busy one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A loaded program. Its text goes some time after it is dropped.
pub(crate) struct Program {
    _fd: OwnedFd,
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Program {
    /// A program like no other: it returns a number with this one in its lower 24 bits.
    pub(crate) fn load(n: i32) -> Program {
        let number = 0x5a00_0000 | n & 0xff_ffff;
        let fd = sys::load_program(number).unwrap();
        let (address, bytes) = sys::text(&fd).unwrap();
        assert!(bytes.windows(4).any(|four| four == number.to_le_bytes()), "its text holds its number: {bytes:02x?}");
        Program { _fd: fd, address, bytes }
    }

    pub(crate) fn overlaps(&self, address: u64, len: usize) -> bool {
        self.address < address + len as u64 && address < self.address + self.bytes.len() as u64
    }
}

/// Waits until something is so.
pub(crate) fn until(what: &str, is: impl Fn() -> bool) {
    found(what, || is().then_some(()));
}

/// Waits for something.
pub(crate) fn found<T>(what: &str, find: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        sleep(Duration::from_millis(1));
    }
}

//! The calls on an open /proc/kcore that keep freed kernel text where it is (kernel/kcore_qc/kcore_qc.h).
//!
//! No kernel has them by itself: without the module every file of /proc answers ENOTTY.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The version of the calls that is known here.
pub const VERSION: u32 = 1;

/// `KCORE_QC`: `_IO('K', 0x51)`.
const QC: u32 = 0x4b51;
/// `KCORE_QC_QUERY`: `_IOR('K', 0x52, struct kcore_qc_query)`.
const QUERY: u32 = 2 << 30 | (size_of::<Query>() as u32) << 16 | 0x4b52;

/// How things stand for an open file: `struct kcore_qc_query`.
#[doc(alias = "kcore_qc_query")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// [`VERSION`], or what this crate does not know.
    pub version: u32,
    /// 1 if the file has a guarantee.
    pub guaranteed: u32,
    /// Texts that wait for the file.
    pub waiting: u64,
    /// Texts that were freed before the file was done with them.
    pub broken: u64,
    /// Texts that wait for anyone.
    pub items: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Texts that waited, and were freed since.
    pub freed: u64,
    /// Texts that were freed at once for want of a place.
    pub missed: u64,
}

/// Says that a pass has ended; the first call of a file gives it its guarantee.
///
/// # Errors
/// ENOTTY where there is no such call, EBUSY when 16 files have a guarantee already, ENOMEM.
#[doc(alias = "KCORE_QC")]
pub fn qc(kcore: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes no argument, and the descriptor is open while it is borrowed.
    check(unsafe { libc::ioctl(kcore.as_raw_fd(), QC as _, 0) })
}

/// Asks how things stand.
///
/// # Errors
/// ENOTTY where there is no such call.
#[doc(alias = "KCORE_QC_QUERY")]
pub fn query(kcore: BorrowedFd<'_>) -> io::Result<Query> {
    let mut query = Query::default();
    // SAFETY: the kernel writes at most the bytes of `query`, whose size is part of the call's number; it lives through
    // the call, and every pattern of bits is a value of its integers.
    check(unsafe { libc::ioctl(kcore.as_raw_fd(), QUERY as _, &raw mut query) })?;
    Ok(query)
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn other_files_do_not_know_the_calls() {
        assert_eq!(QUERY, 0x8038_4b52);
        let other = File::open("/proc/version").unwrap();
        assert_eq!(qc(other.as_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(query(other.as_fd()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}

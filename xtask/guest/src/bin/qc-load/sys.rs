//! The calls into the kernel: all `unsafe` code of this program.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `struct kcore_qc_query` of kcore_qc.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Query {
    pub(crate) version: u32,
    pub(crate) guaranteed: u32,
    pub(crate) waiting: u64,
    pub(crate) broken: u64,
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    pub(crate) freed: u64,
    pub(crate) missed: u64,
}

/// `_IO('K', 0x51)` and `_IOR('K', 0x52, struct kcore_qc_query)`.
const KCORE_QC: u64 = 0x4b51;
const KCORE_QC_QUERY: u64 = 2 << 30 | (size_of::<Query>() as u64) << 16 | 0x4b52;

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn qc(kcore: &File) -> io::Result<()> {
    // SAFETY: a call without an argument.
    check(unsafe { libc::ioctl(kcore.as_raw_fd(), KCORE_QC as _, 0) })
}

pub(crate) fn query(kcore: &File) -> io::Result<Query> {
    let mut query = Query::default();
    // SAFETY: the kernel writes at most the bytes of `query`, whose size is part of the call's number.
    check(unsafe { libc::ioctl(kcore.as_raw_fd(), KCORE_QC_QUERY as _, &raw mut query) })?;
    Ok(query)
}

/// Attaches a classic filter to a socket, in place of the one that it has.
pub(crate) fn attach(socket: &impl AsFd, filter: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let (fd, size) = (socket.as_fd().as_raw_fd(), size_of::<libc::sock_fprog>() as u32);
    // SAFETY: the kernel reads `program` and the `len` instructions that it points at; both outlive the call.
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const program).cast(), size) })
}

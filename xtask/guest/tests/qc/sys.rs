//! The calls into the kernel: all `unsafe` code of these tests.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use crate::kcore::Query;

/// `KCORE_QC` and `KCORE_QC_QUERY` of kcore_qc.h: `_IO('K', 0x51)` and `_IOR('K', 0x52, struct kcore_qc_query)`.
const KCORE_QC: u64 = 0x4b51;
const KCORE_QC_QUERY: u64 = 2 << 30 | (size_of::<Query>() as u64) << 16 | 0x4b52;

/// Commands of bpf(2).
const PROG_LOAD: i64 = 5;
const OBJ_GET_INFO_BY_FD: i64 = 15;
const SOCKET_FILTER: u32 = 1;
/// A program's text: more than any here has.
const MOST: usize = 4096;

/// `BPF_PROG_LOAD`'s part of `union bpf_attr`, as far as it is needed.
#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    insns: u64,
    license: u64,
    log: [u64; 2],
}

/// `BPF_OBJ_GET_INFO_BY_FD`'s part.
#[repr(C)]
struct Ask {
    fd: u32,
    len: u32,
    info: u64,
}

/// `struct bpf_prog_info`, as far as it is needed.
#[repr(C)]
#[derive(Default)]
struct Info {
    head: [u32; 4],
    jited_len: u32,
    xlated_len: u32,
    jited: u64,
    other: [u64; 9],
    symbols: u32,
    lengths: u32,
    symbols_at: u64,
    lengths_at: u64,
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn bpf<T>(command: i64, attr: &mut T) -> io::Result<i64> {
    // SAFETY: the kernel reads and writes `size_of::<T>()` bytes of `attr`; what that points at outlives this call, which
    // the callers see to.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) })
}

/// Loads a program that returns a number.
pub(crate) fn load_program(number: i32) -> io::Result<OwnedFd> {
    // r0 = number; exit
    let insns: [u64; 2] = [0xb7 | u64::from(number as u32) << 32, 0x95];
    let license = c"GPL";
    let mut load = Load {
        kind: SOCKET_FILTER,
        count: 2,
        insns: insns.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log: [0; 2],
    };
    let fd = bpf(PROG_LOAD, &mut load)?;
    // SAFETY: a descriptor that the kernel has just opened for this call, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Where a program's text is, and what it is.
pub(crate) fn text(program: &OwnedFd) -> io::Result<(u64, Vec<u8>)> {
    let mut bytes = vec![0u8; MOST];
    let mut address = 0u64;
    let mut info = Info { jited: bytes.as_mut_ptr() as u64, jited_len: MOST as u32, ..Info::default() };
    (info.symbols, info.symbols_at) = (1, &raw mut address as u64);
    let (fd, len) = (program.as_raw_fd() as u32, size_of::<Info>() as u32);
    bpf(OBJ_GET_INFO_BY_FD, &mut Ask { fd, len, info: &raw mut info as u64 })?;
    bytes.truncate(info.jited_len as usize);
    Ok((address, bytes))
}

pub(crate) fn qc(file: &File) -> io::Result<()> {
    // SAFETY: a call without an argument.
    check(unsafe { libc::ioctl(file.as_raw_fd(), KCORE_QC as _, 0) }.into()).map(drop)
}

pub(crate) fn query(file: &File) -> io::Result<Query> {
    let mut query = Query::default();
    // SAFETY: the kernel writes at most the bytes of `query`, whose size is part of the call's number.
    check(unsafe { libc::ioctl(file.as_raw_fd(), KCORE_QC_QUERY as _, &raw mut query) }.into())?;
    Ok(query)
}

/// A call that nobody knows.
pub(crate) fn other_call(file: &File) -> io::Result<()> {
    // SAFETY: a call without an argument.
    check(unsafe { libc::ioctl(file.as_raw_fd(), 0x4b7f as _, 0) }.into()).map(drop)
}

pub(crate) fn load_module(path: &Path, options: &str) -> io::Result<()> {
    let file = File::open(path)?;
    let options = CString::new(options)?;
    // SAFETY: the kernel reads the options, which outlive the call.
    check(unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), options.as_ptr(), 0) }).map(drop)
}

pub(crate) fn remove_module(name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: the kernel reads the name, which outlives the call.
    check(unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) }).map(drop)
}

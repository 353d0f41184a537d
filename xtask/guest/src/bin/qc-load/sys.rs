//! The calls into the kernel: all `unsafe` code of this program.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use libbpf_sys as bpf;

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

/// Takes what libbpf returns: a descriptor or a negated error number.
fn owned(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: a descriptor that the kernel has just opened for this call, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

fn load(kind: u32, code: &[u64], opts: &mut bpf::bpf_prog_load_opts) -> io::Result<OwnedFd> {
    opts.sz = size_of::<bpf::bpf_prog_load_opts>() as _;
    let (name, licence) = (c"qc_load".as_ptr(), c"Dual MIT/GPL".as_ptr());
    // SAFETY: an instruction is 8 bytes, and all of them live in the caller until this returns.
    owned(unsafe { bpf::bpf_prog_load(kind, name, licence, code.as_ptr().cast(), code.len() as _, opts) })
}

/// Loads the smallest program: r0 = 0; exit.
pub(crate) fn load_program() -> io::Result<OwnedFd> {
    load(bpf::BPF_PROG_TYPE_SOCKET_FILTER, &[0xb7, 0x95], &mut bpf::bpf_prog_load_opts::default())
}

/// Loads a program for the entry of a function of the kernel, or for where it returns.
pub(crate) fn load_at(function: &str, entry: bool, code: &[u64]) -> io::Result<OwnedFd> {
    let kind = if entry { bpf::BPF_TRACE_FENTRY } else { bpf::BPF_TRACE_FEXIT };
    let name = CString::new(function)?;
    // SAFETY: the name ends in NUL and outlives the call.
    let id = unsafe { bpf::libbpf_find_vmlinux_btf_id(name.as_ptr(), kind) };
    let id = u32::try_from(id).map_err(|_| io::Error::from_raw_os_error(-id))?;
    let mut opts = bpf::bpf_prog_load_opts { attach_btf_id: id, expected_attach_type: kind, ..Default::default() };
    load(bpf::BPF_PROG_TYPE_TRACING, code, &mut opts)
}

/// Attaches such a program until the link is closed.
pub(crate) fn attach_at(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: a null name says that the program knows its function.
    owned(unsafe { bpf::bpf_raw_tracepoint_open(ptr::null(), program.as_raw_fd()) })
}

/// A map with one value of so many bytes.
pub(crate) fn array(bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: a literal as name, plain numbers, and null options, which are allowed.
    owned(unsafe { bpf::bpf_map_create(bpf::BPF_MAP_TYPE_ARRAY, c"qc_load".as_ptr(), 4, bytes as u32, 1, ptr::null()) })
}

/// Reads the value of such a map, which has as many bytes as `words`.
pub(crate) fn read_array(map: &OwnedFd, words: &mut [u64]) -> io::Result<()> {
    let key = 0u32;
    // SAFETY: the kernel reads the 4 bytes of the key and writes a value, whose size the caller knows.
    let result =
        unsafe { bpf::bpf_map_lookup_elem(map.as_raw_fd(), (&raw const key).cast(), words.as_mut_ptr().cast()) };
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

/// Writes it.
pub(crate) fn write_array(map: &OwnedFd, words: &[u64]) -> io::Result<()> {
    let key = 0u32;
    // SAFETY: the kernel reads the 4 bytes of the key and a value, whose size the caller knows.
    let result =
        unsafe { bpf::bpf_map_update_elem(map.as_raw_fd(), (&raw const key).cast(), words.as_ptr().cast(), 0) };
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

/// Keeps this process on the first CPU.
pub(crate) fn stay_on_first_cpu() -> io::Result<()> {
    let set = 1u64;
    // SAFETY: the kernel reads the 8 bytes of the set.
    check(unsafe { libc::sched_setaffinity(0, 8, (&raw const set).cast()) })
}

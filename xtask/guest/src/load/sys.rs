//! The system calls of bpf(2) and of socket filters. All `unsafe` code of the load generators is here.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use libbpf_sys as bpf;

use crate::load::insn::{Code, Insn};

/// What a program is loaded as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramType {
    /// Runs for packets of a socket.
    Socket,
    /// Runs for packets of an interface.
    Xdp,
    /// Runs at the entry of the kernel function with that number in the kernel's type information.
    Fentry(u32),
    /// Is a member of a structure of functions of the kernel's, both by their numbers.
    StructOps {
        /// The structure's type.
        ops: u32,
        /// Which of its members, from 0.
        member: u32,
    },
}

/// What the kernel says of a program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Info {
    pub(crate) id: u32,
    pub(crate) tag: [u8; 8],
    /// Native addresses of the functions; empty where they may not be seen.
    pub(crate) addresses: Vec<u64>,
    /// Native lengths of the functions.
    pub(crate) lengths: Vec<u32>,
    /// Tags of the functions.
    pub(crate) tags: Vec<[u8; 8]>,
}

/// `struct bpf_func_info`: which type the function has that begins at an instruction.
#[repr(C)]
struct FuncInfo {
    insn_off: u32,
    type_id: u32,
}

/// Takes what libbpf returns: a descriptor or a negated error number.
fn owned(result: i32) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: a descriptor that the kernel has just opened for this call, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// Loads type information.
pub(crate) fn load_btf(btf: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: libbpf reads `btf.len()` bytes of the slice during the call; null options are allowed.
    owned(unsafe { bpf::bpf_btf_load(btf.as_ptr().cast(), btf.len() as _, ptr::null_mut()) })
}

/// Loads a program whose functions have the types from `first_type` on in `btf`. An error ends with what the verifier
/// said, where it said something.
pub(crate) fn load_program(
    kind: ProgramType,
    code: &Code,
    btf: BorrowedFd<'_>,
    first_type: u32,
) -> io::Result<OwnedFd> {
    let of_function = |(at, (insn_off, _)): (usize, &(u32, String))| FuncInfo {
        insn_off: *insn_off,
        type_id: first_type + at as u32,
    };
    let functions: Vec<FuncInfo> = code.functions.iter().enumerate().map(of_function).collect();
    let mut opts = bpf::bpf_prog_load_opts {
        sz: size_of::<bpf::bpf_prog_load_opts>() as _,
        prog_btf_fd: btf.as_raw_fd() as u32,
        func_info: functions.as_ptr().cast(),
        func_info_cnt: functions.len() as u32,
        func_info_rec_size: size_of::<FuncInfo>() as u32,
        ..Default::default()
    };
    let kind = match kind {
        ProgramType::Socket => bpf::BPF_PROG_TYPE_SOCKET_FILTER,
        ProgramType::Xdp => bpf::BPF_PROG_TYPE_XDP,
        ProgramType::Fentry(id) => {
            opts.attach_btf_id = id;
            opts.expected_attach_type = bpf::BPF_TRACE_FENTRY;
            bpf::BPF_PROG_TYPE_TRACING
        }
        ProgramType::StructOps { ops, member } => {
            opts.attach_btf_id = ops;
            opts.expected_attach_type = member;
            bpf::BPF_PROG_TYPE_STRUCT_OPS
        }
    };
    match load_with(kind, &code.insns, &mut opts) {
        Err(cause) => {
            let mut said = vec![0u8; 1 << 16];
            opts.log_level = 1;
            opts.log_size = said.len() as u32;
            opts.log_buf = said.as_mut_ptr().cast();
            let again = load_with(kind, &code.insns, &mut opts);
            if again.is_ok() { again } else { Err(with_last_line(cause, &said)) }
        }
        loaded => loaded,
    }
}

fn load_with(kind: u32, insns: &[Insn], opts: &mut bpf::bpf_prog_load_opts) -> io::Result<OwnedFd> {
    // SAFETY: instructions, type records and log buffer that `opts` points at live in the caller until this returns,
    // with the lengths given beside them; `Insn` has the layout of `struct bpf_insn`.
    let result = unsafe {
        let (name, licence) = (c"load".as_ptr(), c"Dual MIT/GPL".as_ptr());
        bpf::bpf_prog_load(kind, name, licence, insns.as_ptr().cast(), insns.len() as _, opts)
    };
    owned(result)
}

/// The error with the line before the verifier's summary. Its number stays, for whoever decides by it.
fn with_last_line(cause: io::Error, said: &[u8]) -> io::Error {
    let text = CStr::from_bytes_until_nul(said).map(CStr::to_string_lossy).unwrap_or_default();
    match text.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed ")) {
        Some(line) if cause.raw_os_error() != Some(libc::EPERM) => {
            io::Error::new(cause.kind(), format!("{cause}: {line}"))
        }
        _ => cause,
    }
}

/// What the kernel says of a loaded program with at most `functions` functions.
pub(crate) fn program_info(program: BorrowedFd<'_>, functions: usize) -> io::Result<Info> {
    let mut addresses = vec![0u64; functions];
    let mut lengths = vec![0u32; functions];
    let mut tags = vec![[0u8; 8]; functions];
    let count = functions as u32;
    let mut info = bpf::bpf_prog_info {
        nr_jited_ksyms: count,
        jited_ksyms: addresses.as_mut_ptr() as u64,
        nr_jited_func_lens: count,
        jited_func_lens: lengths.as_mut_ptr() as u64,
        nr_prog_tags: count,
        prog_tags: tags.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut size = size_of::<bpf::bpf_prog_info>() as u32;
    // SAFETY: the kernel writes at most `size` bytes of `info` and, into each of the three buffers, at most as many
    // entries as stand in the field beside its address; all of them outlive the call.
    check(unsafe { bpf::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut size) })?;
    addresses.truncate(info.nr_jited_ksyms as usize);
    addresses.retain(|address| *address != 0);
    lengths.truncate(info.nr_jited_func_lens as usize);
    tags.truncate(info.nr_prog_tags as usize);
    Ok(Info { id: info.id, tag: info.tag, addresses, lengths, tags })
}

/// Runs a program `repeat` times on a packet of zeros. Returns the nanoseconds of one run on average.
pub(crate) fn test_run(program: BorrowedFd<'_>, repeat: u32) -> io::Result<u32> {
    let packet = [0u8; 64];
    let mut opts = bpf::bpf_test_run_opts {
        sz: size_of::<bpf::bpf_test_run_opts>() as _,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len() as u32,
        repeat: repeat.min(i32::MAX as u32) as i32,
        ..Default::default()
    };
    // SAFETY: the kernel reads the packet during the call and writes results into `opts`; no other buffer is given.
    check(unsafe { bpf::bpf_prog_test_run_opts(program.as_raw_fd(), &mut opts) })?;
    Ok(opts.duration)
}

/// Attaches an XDP program to an interface in the generic way, until the link is closed.
pub(crate) fn attach_xdp(program: BorrowedFd<'_>, interface: u32) -> io::Result<OwnedFd> {
    let mut opts = bpf::bpf_link_create_opts { flags: bpf::XDP_FLAGS_SKB_MODE, ..Default::default() };
    opts.sz = size_of::<bpf::bpf_link_create_opts>() as _;
    // SAFETY: plain numbers, and options that are read during the call.
    owned(unsafe { bpf::bpf_link_create(program.as_raw_fd(), interface as i32, bpf::BPF_XDP, &opts) })
}

/// Attaches an fentry program to the function it was loaded for, until the link is closed.
pub(crate) fn attach_fentry(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: a null name says that the program knows its function.
    owned(unsafe { bpf::bpf_raw_tracepoint_open(ptr::null(), program.as_raw_fd()) })
}

/// A map of programs with one entry.
pub(crate) fn program_array() -> io::Result<OwnedFd> {
    let kind = bpf::BPF_MAP_TYPE_PROG_ARRAY;
    // SAFETY: a literal as name, plain numbers, and null options, which are allowed.
    owned(unsafe { bpf::bpf_map_create(kind, c"load_targets".as_ptr(), 4, 4, 1, ptr::null()) })
}

/// Puts a program at entry 0 of a program array, or takes out what is there.
pub(crate) fn set_program(map: BorrowedFd<'_>, program: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let key = 0u32;
    let result = match program {
        Some(program) => {
            let value = program.as_raw_fd();
            // SAFETY: the kernel reads 4 bytes each of key and value, which both have.
            unsafe { bpf::bpf_map_update_elem(map.as_raw_fd(), (&raw const key).cast(), (&raw const value).cast(), 0) }
        }
        // SAFETY: the kernel reads the 4 bytes of the key.
        None => unsafe { bpf::bpf_map_delete_elem(map.as_raw_fd(), (&raw const key).cast()) },
    };
    check(result).map(drop)
}

/// A map whose one value is a structure of functions of the kernel's, with what it counts: the type of that, and its size.
/// The kernel wants type information of the caller's as well, and does not look into it.
pub(crate) fn struct_ops(value: u32, size: u32, btf: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut opts = bpf::bpf_map_create_opts { btf_vmlinux_value_type_id: value, ..Default::default() };
    opts.sz = size_of::<bpf::bpf_map_create_opts>() as _;
    opts.btf_fd = btf.as_raw_fd() as u32;
    let kind = bpf::BPF_MAP_TYPE_STRUCT_OPS;
    // SAFETY: a literal as name, plain numbers, and options that are read during the call.
    owned(unsafe { bpf::bpf_map_create(kind, c"load_ops".as_ptr(), 4, size, 1, &opts) })
}

/// Registers the functions of such a map with the kernel. `value` has the size that the map was made with.
pub(crate) fn register(map: BorrowedFd<'_>, value: &[u8]) -> io::Result<()> {
    let key = 0u32;
    // SAFETY: the kernel reads the 4 bytes of the key, and of the value as many as the map was made with, which it has.
    check(unsafe { bpf::bpf_map_update_elem(map.as_raw_fd(), (&raw const key).cast(), value.as_ptr().cast(), 0) })
        .map(drop)
}

/// Takes the functions of such a map from the kernel again.
pub(crate) fn unregister(map: BorrowedFd<'_>) -> io::Result<()> {
    let key = 0u32;
    // SAFETY: the kernel reads the 4 bytes of the key.
    check(unsafe { bpf::bpf_map_delete_elem(map.as_raw_fd(), (&raw const key).cast()) }).map(drop)
}

/// The id of the kernel's own type information, which is part of the names of trampolines.
pub(crate) fn kernel_btf_id() -> io::Result<u32> {
    let mut id = 0;
    loop {
        // SAFETY: the kernel writes the next id into `id`.
        check(unsafe { bpf::bpf_btf_get_next_id(id, &mut id) })?;
        // SAFETY: plain numbers.
        let Ok(btf) = owned(unsafe { bpf::bpf_btf_get_fd_by_id(id) }) else { continue };
        let mut name = [0u8; 16];
        let mut info = bpf::bpf_btf_info { name: name.as_mut_ptr() as u64, name_len: 16, ..Default::default() };
        let mut size = size_of::<bpf::bpf_btf_info>() as u32;
        // SAFETY: the kernel writes at most `size` bytes of `info` and at most 16 bytes into `name`.
        let asked = check(unsafe { bpf::bpf_btf_get_info_by_fd(btf.as_raw_fd(), &mut info, &mut size) });
        // A name longer than the buffer is an error, and not the one we look for.
        if asked.is_ok() && info.kernel_btf != 0 && name.starts_with(b"vmlinux\0") {
            return Ok(id);
        }
    }
}

/// Attaches a classic filter to a socket, or takes the attached one away.
pub(crate) fn set_filter(socket: &impl AsFd, filter: Option<&mut [libc::sock_filter]>) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let result = match filter {
        Some(filter) => {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            let size = size_of::<libc::sock_fprog>() as u32;
            // SAFETY: the kernel reads `program` and the `len` instructions it points at; both outlive the call.
            unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const program).cast(), size) }
        }
        None => {
            let nothing = 0i32;
            // SAFETY: the kernel takes an int, whose value it does not use.
            unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, (&raw const nothing).cast(), 4) }
        }
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Keeps libbpf from writing to the standard error: an error is one line, and ours.
pub(crate) fn silence_libbpf() {
    // SAFETY: null is allowed and means that nothing is printed.
    unsafe { bpf::libbpf_set_print(None) };
}

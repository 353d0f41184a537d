//! BPF programs by their id (`BPF_PROG_GET_FD_BY_ID`, `BPF_OBJ_GET_INFO_BY_FD`; bpf(2), uapi/linux/bpf.h).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use afterimage_perf_data::Endian;
use afterimage_perf_data::features::{BpfProgInfo, array};

/// Commands of bpf(2).
const PROG_GET_FD_BY_ID: i32 = 13;
const OBJ_GET_INFO_BY_FD: i32 = 15;
const BTF_GET_FD_BY_ID: i32 = 19;

/// The most bytes that the arrays of one program may have: more is refused.
const ARRAYS_MAX: usize = 64 << 20;
/// The most bytes that one BTF may have (BTF_MAX_SIZE).
const TYPES_MAX: u32 = 16 << 20;
/// Bytes of `struct bpf_btf_info`.
const BTF_INFO: usize = 32;

/// One array of `struct bpf_prog_info`: its bit in perf's form, where its count and its pointer stand, bytes of an entry.
struct Array {
    bit: u64,
    count: usize,
    pointer: usize,
    entry: Entry,
}

enum Entry {
    /// So many bytes.
    Bytes(usize),
    /// As many bytes as the 32-bit field there says.
    At(usize),
}

const fn entries(bit: u64, count: usize, pointer: usize, entry: Entry) -> Array {
    Array { bit, count, pointer, entry }
}

/// In the order in which perf packs them.
const ARRAYS: [Array; 9] = [
    entries(array::JITED_INSNS, 16, 24, Entry::Bytes(1)),
    entries(array::XLATED_INSNS, 20, 32, Entry::Bytes(1)),
    entries(array::MAP_IDS, 52, 56, Entry::Bytes(4)),
    entries(array::JITED_KSYMS, 104, 112, Entry::Bytes(8)),
    entries(array::JITED_FUNC_LENS, 108, 120, Entry::Bytes(4)),
    entries(array::FUNC_INFO, 144, 136, Entry::At(132)),
    entries(array::LINE_INFO, 148, 152, Entry::At(172)),
    entries(array::JITED_LINE_INFO, 168, 160, Entry::At(176)),
    entries(array::PROG_TAGS, 180, 184, Entry::Bytes(8)),
];

/// Opens a loaded program. It stays loaded as long as the descriptor is open.
///
/// # Errors
/// ENOENT once its last user has let it go, EPERM without CAP_SYS_ADMIN.
pub fn program(id: u32) -> io::Result<OwnedFd> {
    by_id(PROG_GET_FD_BY_ID, id)
}

/// Everything that the kernel tells of a program, in the form of perf's BPF_PROG_INFO: code, addresses, lines, tags.
/// What the kernel hides from us has zeros for addresses.
///
/// # Errors
/// Of the system call; `InvalidData` when the arrays are longer than anything real.
pub fn program_info(program: BorrowedFd<'_>) -> io::Result<BpfProgInfo> {
    let mut first = [0; BpfProgInfo::INFO_MAX];
    // SAFETY: all addresses and counts in it are 0.
    unsafe { object_info(program, &mut first)? };
    let mut info = [0; BpfProgInfo::INFO_MAX];
    let mut arrays = 0;
    let mut places = [0; ARRAYS.len()];
    let mut total = 0usize;
    for (array, place) in ARRAYS.iter().zip(&mut places) {
        let count = word(&first, array.count);
        let bytes = match array.entry {
            Entry::Bytes(n) => n,
            Entry::At(field) => {
                put(&mut info, field, &first[field..field + 4]);
                word(&first, field) as usize
            }
        };
        let Some(length) = (count as usize).checked_mul(bytes).filter(|&n| n > 0) else { continue };
        *place = total;
        arrays |= array.bit;
        put(&mut info, array.count, &count.to_ne_bytes());
        total = length.checked_next_multiple_of(8).and_then(|n| total.checked_add(n)).unwrap_or(usize::MAX);
        if total > ARRAYS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a program longer than any"));
        }
    }
    let mut data = vec![0u8; total];
    let base = data.as_mut_ptr() as u64;
    for (array, place) in ARRAYS.iter().zip(&places).filter(|(array, _)| arrays & array.bit != 0) {
        put(&mut info, array.pointer, &(base + *place as u64).to_ne_bytes());
    }
    // SAFETY: the addresses are those of `data`, each with room for the count that stands beside it; it lives through the
    // call and nobody else looks at it.
    unsafe { object_info(program, &mut info)? };
    for (array, place) in ARRAYS.iter().zip(&places) {
        let offset = if arrays & array.bit == 0 { 0 } else { *place as u64 };
        put(&mut info, array.pointer, &offset.to_ne_bytes());
    }
    Ok(BpfProgInfo { info: info.to_vec(), arrays, data, endian: Endian::NATIVE })
}

/// How often the kernel has skipped a program because it was running on the same CPU already (`recursion_misses` of
/// struct bpf_prog_info; since Linux 5.12, before that 0).
///
/// # Errors
/// Of the system call.
pub fn recursion_misses(program: BorrowedFd<'_>) -> io::Result<u64> {
    const RECURSION_MISSES: usize = 208;
    let mut info = [0; BpfProgInfo::INFO_MAX];
    // SAFETY: all addresses and counts in it are 0.
    unsafe { object_info(program, &mut info)? };
    let misses = info.get(RECURSION_MISSES..).and_then(|rest| rest.first_chunk());
    Ok(misses.map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
}

/// The types of an id, as [`BpfProgInfo::btf_id`] names them.
///
/// # Errors
/// Of the system calls; `InvalidData` when they are longer than the kernel allows.
pub fn types(id: u32) -> io::Result<Vec<u8>> {
    let btf = by_id(BTF_GET_FD_BY_ID, id)?;
    let mut info = [0; BTF_INFO];
    // SAFETY: all addresses and lengths in it are 0.
    unsafe { object_info(btf.as_fd(), &mut info)? };
    let size = word(&info, 8);
    if size > TYPES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "types longer than the kernel allows"));
    }
    let mut data = vec![0u8; size as usize];
    let mut info = [0; BTF_INFO];
    put(&mut info, 0, &(data.as_mut_ptr() as u64).to_ne_bytes());
    put(&mut info, 8, &size.to_ne_bytes());
    // SAFETY: the address is that of `data`, which has `size` bytes and lives through the call.
    unsafe { object_info(btf.as_fd(), &mut info)? };
    data.truncate(word(&info, 8) as usize);
    Ok(data)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn by_id(command: i32, id: u32) -> io::Result<OwnedFd> {
    let mut attr = [0u32; 4];
    attr[0] = id;
    // SAFETY: the attr lives through the call, and its length is passed; the kernel keeps no pointer to it.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), size_of_val(&attr)) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Fills `info`, a structure of the object's kind.
///
/// # Safety
/// Addresses in it are those of memory that is as long as the counts beside them say, lives through the call, and may be
/// written.
unsafe fn object_info(object: BorrowedFd<'_>, info: &mut [u8]) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        fd: u32,
        info_len: u32,
        info: u64,
    }
    let mut attr = Attr { fd: object.as_raw_fd() as u32, info_len: info.len() as u32, info: info.as_mut_ptr() as u64 };
    // SAFETY: the attr and `info` live through the call and their lengths are passed. The kernel writes at most `info_len`
    // bytes to `info`, and what the caller answers for.
    let result = unsafe { libc::syscall(libc::SYS_bpf, OBJ_GET_INFO_BY_FD, &raw mut attr, size_of::<Attr>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_exist_is_an_error() {
        for error in [program(u32::MAX).unwrap_err(), types(u32::MAX).unwrap_err()] {
            let known = [Some(libc::ENOENT), Some(libc::EPERM), Some(libc::ENOSYS)];
            assert!(known.contains(&error.raw_os_error()), "{error}");
        }
    }

    #[test]
    fn arrays_stand_in_perf_s_order_and_inside_of_the_info() {
        assert!(ARRAYS.windows(2).all(|pair| pair[0].bit < pair[1].bit));
        for array in ARRAYS {
            let size_at = if let Entry::At(at) = array.entry { at } else { 0 };
            assert!(array.count + 4 <= 232 && array.pointer + 8 <= 232 && size_at + 4 <= 232);
        }
    }
}

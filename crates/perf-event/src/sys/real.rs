//! The running kernel.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use afterimage_perf_data::{Attr, Endian};
use perf_event_open_sys::{bindings, ioctls};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Kernel, Mapping};

/// The running kernel's perf calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real;

/// The attr as the kernel reads it, no longer than it must be: older kernels refuse what they do not know.
fn encode(attr: &Attr) -> Vec<u8> {
    let endian = if cfg!(target_endian = "big") { Endian::Big } else { Endian::Little };
    let size = if attr.config3 == 0 { Attr::SIZE } else { Attr::MAX_SIZE };
    let mut bytes = Vec::with_capacity(size as usize);
    attr.encode_as(&mut bytes, endian, size);
    bytes
}

/// Turns the -1 of a C call into the error that errno holds.
fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn open(attr: &Attr, pid: i32, cpu: i32, group: Option<BorrowedFd<'_>>, flags: u32) -> io::Result<OwnedFd> {
    let mut bytes = encode(attr);
    let group = group.map_or(-1, |fd| fd.as_raw_fd());
    let flags = u64::from(flags | bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `bytes` holds an encoded attr whose size field equals its length, and is writable because the kernel
    // stores the size it knows there when it refuses; it lives through the call. The kernel keeps no pointer.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, bytes.as_mut_ptr(), pid, cpu, group, flags) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    check(fd)?;
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Kernel for Real {
    fn perf_event_open(&self, attr: &Attr, pid: i32, cpu: i32, group: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
        open(attr, pid, cpu, group, 0)
    }

    fn perf_event_open_in(
        &self,
        attr: &Attr,
        cgroup: BorrowedFd<'_>,
        cpu: i32,
        group: Option<BorrowedFd<'_>>,
    ) -> io::Result<OwnedFd> {
        open(attr, cgroup.as_raw_fd(), cpu, group, bindings::PERF_FLAG_PID_CGROUP)
    }

    fn enable(&self, fd: BorrowedFd<'_>, group: bool) -> io::Result<()> {
        // SAFETY: the argument is a flag, no memory is passed; `fd` is open while borrowed.
        check(unsafe { ioctls::ENABLE(fd.as_raw_fd(), u32::from(group)) })
    }

    fn disable(&self, fd: BorrowedFd<'_>, group: bool) -> io::Result<()> {
        // SAFETY: as for `enable`.
        check(unsafe { ioctls::DISABLE(fd.as_raw_fd(), u32::from(group)) })
    }

    fn reset(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: as for `enable`.
        check(unsafe { ioctls::RESET(fd.as_raw_fd(), 0) })
    }

    fn refresh(&self, fd: BorrowedFd<'_>, overflows: i32) -> io::Result<()> {
        // SAFETY: the argument is a number, no memory is passed.
        check(unsafe { ioctls::REFRESH(fd.as_raw_fd(), overflows) })
    }

    fn period(&self, fd: BorrowedFd<'_>, period: u64) -> io::Result<()> {
        let at: *const u64 = &period;
        // SAFETY: the kernel reads eight bytes at the address given as the argument; `period` lives through the call.
        check(unsafe { ioctls::PERIOD(fd.as_raw_fd(), at as u64) })
    }

    fn id(&self, fd: BorrowedFd<'_>) -> io::Result<u64> {
        let mut id = 0u64;
        // SAFETY: the kernel writes eight bytes to `id`, which lives through the call.
        check(unsafe { ioctls::ID(fd.as_raw_fd(), &mut id) })?;
        Ok(id)
    }

    fn set_output(&self, fd: BorrowedFd<'_>, target: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let target = target.map_or(-1, |fd| fd.as_raw_fd());
        // SAFETY: the argument is a descriptor number; the kernel takes its own reference to the ring.
        check(unsafe { ioctls::SET_OUTPUT(fd.as_raw_fd(), target) })
    }

    fn set_filter(&self, fd: BorrowedFd<'_>, filter: &CStr) -> io::Result<()> {
        // SAFETY: the kernel copies the NUL-terminated string and never writes through the pointer.
        check(unsafe { ioctls::SET_FILTER(fd.as_raw_fd(), filter.as_ptr().cast_mut()) })
    }

    fn pause_output(&self, fd: BorrowedFd<'_>, pause: bool) -> io::Result<()> {
        // SAFETY: the argument is a flag, no memory is passed.
        check(unsafe { ioctls::PAUSE_OUTPUT(fd.as_raw_fd(), u32::from(pause)) })
    }

    fn read(&self, fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(fd, buf)?)
    }

    fn map(&self, fd: BorrowedFd<'_>, pages: usize) -> io::Result<Mapping> {
        if !pages.is_power_of_two() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let page = rustix::param::page_size();
        let len = pages.checked_add(1).and_then(|n| n.checked_mul(page)).ok_or(io::ErrorKind::InvalidInput)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a null hint lets the kernel choose a free range, so no memory of ours is replaced.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::Other)?;
        // SAFETY: the mapping was just made for this, at offset 0, readable and writable, and nobody else knows it.
        unsafe { Mapping::from_kernel(base, len, page) }
            .ok_or_else(|| io::Error::other("the ring's control page describes no data area"))
    }

    fn raise_nofile(&self) -> io::Result<bool> {
        let now = getrlimit(Resource::Nofile);
        let ceiling = nr_open();
        if now.maximum.is_none_or(|max| max < ceiling)
            && setrlimit(Resource::Nofile, Rlimit { current: Some(ceiling), maximum: Some(ceiling) }).is_ok()
        {
            return Ok(now.current != Some(ceiling));
        }
        if now.current == now.maximum {
            return Ok(false);
        }
        setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum })?;
        Ok(true)
    }
}

/// The kernel's own ceiling of RLIMIT_NOFILE.
fn nr_open() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/fs/nr_open").unwrap_or_default();
    text.trim().parse().unwrap_or(1 << 20)
}

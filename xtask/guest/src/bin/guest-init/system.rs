//! The system around the tests: file systems, devices, modules, and the end of the machine.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// Kind, place, options. Places are made when they are not there.
const MOUNTS: &[(&CStr, &CStr, Option<&CStr>)] = &[
    (c"proc", c"/proc", None),
    (c"sysfs", c"/sys", None),
    (c"devtmpfs", c"/dev", None),
    (c"devpts", c"/dev/pts", None),
    (c"tmpfs", c"/dev/shm", None),
    (c"tmpfs", c"/run", None),
    (c"debugfs", c"/sys/kernel/debug", None),
    (c"tracefs", c"/sys/kernel/tracing", None),
    (c"securityfs", c"/sys/kernel/security", None),
    (c"bpf", c"/sys/fs/bpf", None),
    (c"cgroup2", c"/sys/fs/cgroup", None),
];

/// The I/O port of qemu's `isa-debug-exit`.
const DEBUG_PORT: u16 = 0xf4;

/// Mounts what tests expect and brings the loopback device up; gives what did not work.
pub(crate) fn set_up() -> Vec<String> {
    let mut notes = Vec::new();
    for (kind, place, options) in MOUNTS {
        if let Err(error) = mount(kind, place, *options) {
            notes.push(format!("mount {}: {error}", place.to_string_lossy()));
        }
    }
    if let Err(error) = loopback_up() {
        notes.push(format!("the loopback device: {error}"));
    }
    notes
}

fn mount(kind: &CStr, place: &CStr, options: Option<&CStr>) -> io::Result<()> {
    fs::create_dir_all(place.to_string_lossy().as_ref())?;
    let data = options.map_or(ptr::null(), |options| options.as_ptr().cast());
    // SAFETY: all pointers are to constants that end in NUL, or null, which mount(2) takes for data.
    let status = unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, data) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn loopback_up() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: an ifreq is plain numbers and a union of such; zero is a value of each.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which lives until the call is over.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Loads a module from an uncompressed file. One that is there already is fine.
pub(crate) fn load_module(path: &str) -> io::Result<()> {
    load_module_with(path, "")
}

/// Loads a module with parameters. It may never come back: its code runs in this call.
pub(crate) fn load_module_with(path: &str, parameters: &str) -> io::Result<()> {
    let file = File::open(path)?;
    let parameters = CString::new(parameters)?;
    // SAFETY: the file is open and the text ends in NUL; both outlive the call. The kernel checks the module itself.
    let status = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    let error = io::Error::last_os_error();
    if status == 0 || error.raw_os_error() == Some(libc::EEXIST) { Ok(()) } else { Err(error) }
}

/// Milliseconds since the kernel's start; 0 without a /proc.
pub(crate) fn uptime_ms() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    (seconds * 1000.0) as u64
}

/// The release of the running kernel.
pub(crate) fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Makes a serial port carry bytes as they are.
pub(crate) fn make_raw(port: &File) {
    // SAFETY: a termios is plain numbers; the descriptor is open, and the struct outlives each call.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(port.as_raw_fd(), &raw mut settings) == 0 {
            libc::cfmakeraw(&raw mut settings);
            libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &raw const settings);
        }
    }
}

/// Waits until everything that was written to a serial port has left it.
pub(crate) fn drain(port: &File) {
    // SAFETY: the descriptor is open; nothing else is passed.
    unsafe { libc::tcdrain(port.as_raw_fd()) };
}

/// Ends the machine through the debug port: qemu exits with `2 * value + 1`. Comes back where there is no such port.
pub(crate) fn exit(value: u8) {
    // SAFETY: asks for four I/O ports; no memory is involved.
    if unsafe { libc::ioperm(DEBUG_PORT.into(), 4, 1) } != 0 {
        return;
    }
    // SAFETY: the port was granted above. Nothing in this process goes on if it works.
    unsafe { std::arch::asm!("out dx, al", in("dx") DEBUG_PORT, in("al") value, options(nomem, nostack)) };
}

/// Turns the machine off, or stops it.
pub(crate) fn power_off() {
    // SAFETY: flushes and reboots; no memory is involved.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
}

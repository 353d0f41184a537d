//! Where handlers run: before or after the kernel's own doings at an overflow, and in a context like that of an NMI.

use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use afterimage_handler::Builtin;
use afterimage_perf_data::Attr;
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::sys::{Kernel, Real};
use afterimage_testkit::{Need, has, tracefs};

use crate::support::*;

/// Major and minor of the running kernel.
fn version() -> (u32, u32) {
    let release = Facts::system().release().unwrap();
    let mut parts = release.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap(), parts.next().unwrap())
}

/// A handler that drops a sample keeps it from counting against IOC_REFRESH since 6.10. Before that the kernel counts
/// first and asks the program later: the event ends after as many overflows, dropped or not.
#[test]
fn a_dropped_sample_spares_the_limit_of_refresh_since_6_10() {
    let Some(_one) = alone("a_dropped_sample_spares_the_limit_of_refresh_since_6_10") else { return };
    let event = Event::open(&page_faults(), gettid(), -1, 8);
    let mut handlers = load(Builtin::Count, false, best());
    handlers.attach(0, event.fd.as_fd()).unwrap();
    let pages = Pages::new(500);
    Real.refresh(event.fd.as_fd(), 5).unwrap();
    pages.touch();
    event.disable();
    let seen = total(&handlers);
    println!("{:?}: {} of 500 page faults handled", version(), seen.handled);
    if version() >= (6, 10) {
        assert!(seen.handled >= 500, "{seen:?}");
    } else {
        // The event is stopped by an interrupt that comes a little later.
        assert!((5..250).contains(&seen.handled), "{seen:?}");
    }
}

/// The attr of every event of ours is 128 bytes long, which 6.1 and all later kernels take; a longer one with something
/// in its tail is refused by a kernel that does not know it.
#[test]
fn attrs_of_128_bytes_are_taken_and_longer_ones_may_not_be() {
    if !has("attrs_of_128_bytes_are_taken_and_longer_ones_may_not_be", &[Need::Root]) {
        return;
    }
    let mut bytes = Vec::new();
    page_faults().encode(&mut bytes);
    assert_eq!((bytes.len(), u32::from_ne_bytes(bytes[4..8].try_into().unwrap())), (128, Attr::SIZE));
    let open = |bytes: &[u8]| -> std::io::Result<OwnedFd> {
        // SAFETY: the attr lives through the call and is as long as its size field says; the call gives an fd that is
        // nobody's yet, or -1.
        unsafe {
            let fd = libc::syscall(libc::SYS_perf_event_open, bytes.as_ptr(), 0, -1, -1, 0);
            if fd < 0 { Err(std::io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as i32)) }
        }
    };
    open(&bytes).unwrap();
    bytes.resize(136, 0);
    bytes[4..8].copy_from_slice(&136_u32.to_ne_bytes());
    open(&bytes).unwrap();
    // config3, which came with 6.3.
    bytes[128] = 1;
    let result = open(&bytes);
    if version() >= (6, 3) {
        result.unwrap();
    } else {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::E2BIG));
    }
}

/// A word that the kernel writes for us, once a call: how many bytes wait in a socket.
struct Watched {
    word: Box<i32>,
    socket: UnixDatagram,
}

impl Watched {
    fn new() -> Watched {
        Watched { word: Box::new(0), socket: UnixDatagram::unbound().unwrap() }
    }

    /// An event at each write to the word.
    fn attr(&self) -> Attr {
        const BREAKPOINT: u32 = 5;
        const WRITES: u32 = 2;
        let sampling = sampling(0, 1);
        Attr {
            kind: BREAKPOINT,
            bp_type: WRITES,
            config1: std::ptr::from_ref(&*self.word) as u64,
            config2: size_of::<i32>() as u64,
            ..sampling
        }
    }

    /// Lets the kernel write the word.
    fn write(&mut self, times: usize) {
        for _ in 0..times {
            // SAFETY: the call writes one int, which is ours and lives through it.
            let failed = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::FIONREAD, &raw mut *self.word) };
            assert_eq!(failed, 0);
        }
    }
}

/// A breakpoint that the kernel hits raises a debug exception out of kernel code, which it treats as an NMI: memory is
/// taken and locks are tried as there. So the handlers are run where a counter's interrupt would run them, without one.
#[test]
fn handlers_are_exact_where_the_kernel_hits_a_breakpoint() {
    let Some(_one) = alone("handlers_are_exact_where_the_kernel_hits_a_breakpoint") else { return };
    const WRITES: usize = 1000;
    for builtin in [Builtin::None, Builtin::Emit, Builtin::Count] {
        let mut watched = Watched::new();
        let mut event = Event::open(&watched.attr(), gettid(), -1, 256);
        let mut handlers = load(builtin, false, best());
        let mut outputs = outputs(256);
        give_outputs(&mut handlers, &outputs);
        handlers.attach(0, event.fd.as_fd()).unwrap();
        event.enable();
        watched.write(WRITES);
        event.disable();
        let seen = total(&handlers);
        let ring = event.drained();
        let emitted: Vec<Seen> = outputs.iter_mut().flat_map(|o| o.drained().samples).collect();
        let stored: u64 = counts(&mut handlers).iter().map(|e| e.count).sum();
        println!("{builtin}: {seen:?}");
        assert_eq!((event.read().0, seen.handled), (WRITES as u64, WRITES as u64));
        let lost = seen.emit_lost + seen.lost_full + seen.lost_collision + event.read().1;
        assert_eq!(lost, 0);
        let out = [ring.samples.len(), emitted.len(), usize::try_from(stored).unwrap()];
        let at = [Builtin::None, Builtin::Emit, Builtin::Count].iter().position(|b| *b == builtin).unwrap();
        assert_eq!(out[at], WRITES, "{out:?}");
        assert_eq!(out.iter().sum::<usize>(), WRITES);
        if builtin == Builtin::None {
            assert!(ring.samples.iter().all(|s| s.ip >> 63 == 1), "hits are in the kernel");
        }
    }
}

/// The kernel's own word for it: `Z` or `z` among the flags of a trace line means inside an NMI. Printing out of an NMI
/// often fails in an emulated machine.
#[test]
fn a_breakpoint_that_the_kernel_hits_is_like_an_nmi() {
    let name = "a_breakpoint_that_the_kernel_hits_is_like_an_nmi";
    if !has(name, &[Need::Root, Need::Bpf, Need::Tracefs, Need::NoGuest]) {
        return;
    }
    let _one = alone(name);
    let mut watched = Watched::new();
    let event = Event::open(&watched.attr(), gettid(), -1, 8);
    let program = printing_program();
    // SAFETY: both fds live through the call, which takes a program's fd by value.
    let failed = unsafe { libc::ioctl(event.fd.as_raw_fd(), 0x4004_2408, program.as_raw_fd()) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    // A CPU's buffer that nothing was ever written to drops what comes first out of an NMI.
    stay_on_one_cpu();
    // Printing out of an NMI may fail, and the kernel may empty the trace: some line of some turn is enough.
    let mut ours = Vec::new();
    for _ in 0..10 {
        std::fs::write(tracefs().unwrap().join("trace_marker"), "first\n").unwrap();
        event.enable();
        watched.write(100);
        event.disable();
        ours = traced("kernel hit");
        if !ours.is_empty() {
            break;
        }
    }
    println!("{} lines: {:?}", ours.len(), ours.last());
    assert!(!ours.is_empty());
    // "comm-pid [cpu] flags time: …": irqs off, resched, context, depth of preemption, migration.
    let context = |line: &str| line.split(']').nth(1).and_then(|rest| rest.trim_start().chars().nth(2));
    assert!(ours.iter().all(|line| matches!(context(line), Some('Z' | 'z'))), "{ours:?}");
}

/// The lines of the trace with this message by this thread: those of an earlier run stay in it.
fn traced(message: &str) -> Vec<String> {
    let mut text = String::new();
    std::fs::File::open(tracefs().unwrap().join("trace")).unwrap().read_to_string(&mut text).unwrap();
    let by_us = |line: &&str| line.ends_with(&format!(": {message}")) && line.contains(&format!("-{} ", gettid()));
    text.lines().filter(by_us).map(str::to_owned).collect()
}

/// Keeps this thread on the first CPU.
fn stay_on_one_cpu() {
    // SAFETY: a cpu_set_t is plain bits, of which none set is a value; CPU_SET stays inside of it for CPU 0.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        set
    };
    // SAFETY: the set lives through the call, which reads as many bytes of it as it is told.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) }, 0);
}

/// A program of type perf_event that prints `kernel hit` and drops the sample.
fn printing_program() -> OwnedFd {
    const TEXT: [u8; 16] = *b"kernel hit\n\0\0\0\0\0";
    const LENGTH: i32 = 12;
    let insn = |code: u8, dst: u8, src: u8, off: i16, imm: i32| -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[0] = code;
        bytes[1] = src << 4 | dst;
        bytes[2..4].copy_from_slice(&off.to_le_bytes());
        bytes[4..8].copy_from_slice(&imm.to_le_bytes());
        bytes
    };
    let mut program = Vec::new();
    for (at, word) in TEXT.chunks_exact(4).enumerate() {
        let word = i32::from_le_bytes(word.try_into().unwrap());
        // *(u32 *)(r10 - 16 + 4 * at) = word
        program.push(insn(0x62, 10, 0, -16 + 4 * at as i16, word));
    }
    program.extend([
        insn(0xbf, 1, 10, 0, 0),     // r1 = r10
        insn(0x07, 1, 0, 0, -16),    // r1 += -16
        insn(0xb7, 2, 0, 0, LENGTH), // r2 = length
        insn(0x85, 0, 0, 0, 6),      // bpf_trace_printk
        insn(0xb7, 0, 0, 0, 0),      // r0 = 0
        insn(0x95, 0, 0, 0, 0),      // exit
    ]);
    let program: Vec<u8> = program.concat();
    // SAFETY: instructions and licence live through the call; the instructions are 8 bytes each, as `bpf_insn` is. The
    // call gives an fd that is nobody's yet, or an error.
    unsafe {
        let fd = libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_PERF_EVENT,
            c"kernel_hit".as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            program.as_ptr().cast(),
            (program.len() / 8) as _,
            std::ptr::null_mut(),
        );
        assert!(fd >= 0, "{}", std::io::Error::from_raw_os_error(-fd));
        OwnedFd::from_raw_fd(fd)
    }
}

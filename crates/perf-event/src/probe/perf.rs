//! What the perf system call accepts, learnt by asking it.

use std::io;

use afterimage_perf_data::{Attr, AttrFlags, ReadFormat};

use super::{Answer, Check};
use crate::facts::Facts;
use crate::spec::{kind, software};
use crate::sys::Kernel;

pub(super) fn checks(facts: &Facts, kernel: &dyn Kernel) -> Vec<Check> {
    let probe = Probe { kernel };
    let mut checks = vec![
        probe.cpu_wide(facts),
        probe.kernel_samples(),
        probe.hardware(),
        probe.precise(),
        probe.breakpoints(),
        tracepoints(facts),
        probe.clock(),
        probe.lost_count(),
        probe.inherit(facts),
    ];
    checks.extend(BITS.iter().map(|bit| probe.bit(bit)));
    checks
}

/// A bit of the attr that came after the first kernels that we run on.
struct Bit {
    name: &'static str,
    flag: AttrFlags,
    since: &'static str,
    with: &'static str,
    without: &'static str,
}

const BITS: [Bit; 6] = [
    Bit {
        name: "ksymbol",
        flag: AttrFlags::KSYMBOL,
        since: "5.1",
        with: "kernel symbols that come and go are recorded as they do",
        without: "names of BPF programs and trampolines are those at the start alone",
    },
    Bit {
        name: "bpf-event",
        flag: AttrFlags::BPF_EVENT,
        since: "5.1",
        with: "BPF programs are recorded as they are loaded and unloaded",
        without: "only BPF programs that are there at the start or the end are known",
    },
    Bit {
        name: "text-poke",
        flag: AttrFlags::TEXT_POKE,
        since: "5.9",
        with: "changes of live kernel text are recorded",
        without: "kernel text that is patched while recording is shown as it was at the start",
    },
    Bit {
        name: "build-id-maps",
        flag: AttrFlags::BUILD_ID,
        since: "5.12",
        with: "each map carries the build ID of its file",
        without: "build IDs are read from files after the fact, which may have been replaced by then",
    },
    Bit {
        name: "cgroup-records",
        flag: AttrFlags::CGROUP,
        since: "5.7",
        with: "record --all-cgroups tells cgroups apart by name, also those that are gone",
        without: "cgroups made while recording have numbers, no names",
    },
    Bit {
        name: "namespace-records",
        flag: AttrFlags::NAMESPACES,
        since: "4.12",
        with: "record --namespaces and --all-cgroups tell the namespaces of processes",
        without: "containers are told apart by cgroup alone",
    },
];

/// What one open said about a thing that may be missing.
enum Tried {
    Opened,
    Missing(io::Error),
    CannotTell(io::Error),
}

struct Probe<'a> {
    kernel: &'a dyn Kernel,
}

impl Probe<'_> {
    /// Opens and closes an event on this thread, on any CPU.
    fn own(&self, attr: &Attr) -> io::Result<()> {
        self.kernel.perf_event_open(attr, 0, -1, None).map(drop)
    }

    /// Whether this attr is accepted, where `missing` are the errors that mean it is not there.
    fn accepts(&self, attr: &Attr, missing: &[i32]) -> Tried {
        match self.own(attr) {
            Ok(()) => Tried::Opened,
            Err(e) if e.raw_os_error().is_some_and(|code| missing.contains(&code)) => Tried::Missing(e),
            Err(e) => Tried::CannotTell(e),
        }
    }

    fn cpu_wide(&self, facts: &Facts) -> Check {
        const NAME: &str = "all-cpus";
        let cpu = facts.online_cpus().ok().and_then(|cpus| cpus.first().copied()).unwrap_or(0);
        match self.kernel.perf_event_open(&clock(), -1, i32::try_from(cpu).unwrap_or(0), None) {
            Ok(_) => {
                Check::new(NAME, Answer::Yes, "an event on a whole CPU opens", "-a and -C work; every process is seen")
            }
            // Here the refusal is the answer, not an obstacle to it.
            Err(e) if denied(&e) => Check::new(
                NAME,
                Answer::No,
                format!("the kernel refuses: {e}"),
                "only own processes can be sampled (-p, or a command)",
            )
            .fix("CAP_PERFMON, or: sysctl kernel.perf_event_paranoid=0"),
            Err(e) => unknown(NAME, &e, "-a and -C may not work"),
        }
    }

    fn kernel_samples(&self) -> Check {
        const NAME: &str = "kernel-samples";
        let attr = Attr { flags: AttrFlags::DISABLED, ..clock() };
        match self.own(&attr) {
            Ok(()) => {
                Check::new(NAME, Answer::Yes, "an event that counts in the kernel opens", "kernel code is sampled")
            }
            Err(e) if denied(&e) => Check::new(
                NAME,
                Answer::No,
                format!("the kernel refuses: {e}"),
                "only user code is sampled (:u is added)",
            )
            .fix("CAP_PERFMON, or: sysctl kernel.perf_event_paranoid=1"),
            Err(e) => unknown(NAME, &e, "kernel code may not be sampled"),
        }
    }

    fn hardware(&self) -> Check {
        const NAME: &str = "hardware-counters";
        let attr =
            Attr { kind: kind::HARDWARE, config: 0, period_or_freq: 1_000_000, flags: user_only(), ..Attr::default() };
        match self.accepts(&attr, &[libc::ENOENT, libc::ENODEV, libc::EOPNOTSUPP]) {
            Tried::Opened => Check::new(NAME, Answer::Yes, "cycles opens", "cycles, cache and branch events can be sampled"),
            Tried::Missing(e) => Check::new(
                NAME,
                Answer::No,
                format!("cycles does not open: {e}"),
                "cpu-clock stands in for cycles: a timer interrupt, so kernel code with interrupts off is charged to where they come back on",
            )
            .fix("in a virtual machine, let the host pass its performance counters through"),
            Tried::CannotTell(e) => unknown(NAME, &e, "cpu-clock is taken where cycles does not open"),
        }
    }

    fn precise(&self) -> Check {
        const NAME: &str = "precise-samples";
        let mut attr =
            Attr { kind: kind::HARDWARE, config: 0, period_or_freq: 1_000_000, flags: user_only(), ..Attr::default() };
        attr.set_precise_ip(1);
        match self.accepts(&attr, &[libc::ENOENT, libc::ENODEV, libc::EOPNOTSUPP]) {
            Tried::Opened => {
                Check::new(NAME, Answer::Yes, "cycles:p opens", "with :p the address is that of the instruction")
            }
            Tried::Missing(e) => Check::new(
                NAME,
                Answer::No,
                format!("cycles:p does not open: {e}"),
                "addresses may be some instructions late",
            ),
            Tried::CannotTell(e) => unknown(NAME, &e, "addresses may be some instructions late"),
        }
    }

    fn breakpoints(&self) -> Check {
        const NAME: &str = "breakpoints";
        let watched = 0u64;
        let attr = Attr {
            kind: kind::BREAKPOINT,
            bp_type: 2,
            config1: std::ptr::from_ref(&watched) as u64,
            config2: 8,
            period_or_freq: 1,
            flags: user_only(),
            ..Attr::default()
        };
        match self.accepts(&attr, &[libc::ENOENT, libc::ENODEV, libc::EOPNOTSUPP]) {
            Tried::Opened => Check::new(NAME, Answer::Yes, "a breakpoint on own memory opens", "mem:ADDR works"),
            Tried::Missing(e) => {
                Check::new(NAME, Answer::No, format!("it does not open: {e}"), "mem:ADDR does not work")
            }
            Tried::CannotTell(e) if e.raw_os_error() == Some(libc::ENOSPC) => {
                Check::new(NAME, Answer::Yes, "the machine has them, all in use now", "mem:ADDR works when one is free")
            }
            Tried::CannotTell(e) => unknown(NAME, &e, "mem:ADDR may not work"),
        }
    }

    fn clock(&self) -> Check {
        const NAME: &str = "clockid";
        let mut attr = Attr { clockid: libc::CLOCK_MONOTONIC, ..dummy() };
        attr.flags |= AttrFlags::USE_CLOCKID;
        match self.with_baseline(&attr) {
            Tried::Opened => {
                Check::new(NAME, Answer::Yes, "CLOCK_MONOTONIC is accepted", "times are those of CLOCK_MONOTONIC")
            }
            Tried::Missing(e) => Check::new(
                NAME,
                Answer::No,
                format!("it is refused: {e}"),
                "events cannot be opened: Linux 4.1 is needed",
            ),
            Tried::CannotTell(e) => unknown(NAME, &e, "times may be on another clock"),
        }
    }

    fn lost_count(&self) -> Check {
        const NAME: &str = "lost-count";
        let attr = Attr { read_format: ReadFormat::LOST, ..dummy() };
        match self.with_baseline(&attr) {
            Tried::Opened => Check::new(
                NAME,
                Answer::Yes,
                "PERF_FORMAT_LOST is accepted",
                "losses are counted by the kernel per event",
            ),
            Tried::Missing(e) => Check::new(
                NAME,
                Answer::No,
                format!("PERF_FORMAT_LOST is refused: {e}"),
                "losses are known from LOST records, which miss those at the very end",
            )
            .fix("Linux 6.0 or newer"),
            Tried::CannotTell(e) => unknown(NAME, &e, "losses may be counted from LOST records alone"),
        }
    }

    fn inherit(&self, facts: &Facts) -> Check {
        const NAME: &str = "inherit";
        let cpu = facts.online_cpus().ok().and_then(|cpus| cpus.first().copied()).unwrap_or(0);
        let mut attr = dummy();
        attr.flags |= AttrFlags::INHERIT;
        match self.kernel.perf_event_open(&attr, 0, i32::try_from(cpu).unwrap_or(0), None) {
            Ok(_) => Check::new(
                NAME,
                Answer::Yes,
                "an inherited event opens",
                "-p and commands follow new threads and processes",
            ),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Check::new(
                NAME,
                Answer::No,
                format!("it does not open: {e}"),
                "new threads and processes are not followed",
            ),
            Err(e) => unknown(NAME, &e, "new threads and processes may not be followed"),
        }
    }

    fn bit(&self, bit: &Bit) -> Check {
        let mut attr = dummy();
        attr.flags |= bit.flag;
        match self.with_baseline(&attr) {
            Tried::Opened => Check::new(bit.name, Answer::Yes, "the kernel accepts the attr bit", bit.with),
            Tried::Missing(e) => {
                Check::new(bit.name, Answer::No, format!("the kernel refuses the attr bit: {e}"), bit.without)
                    .fix(format!("Linux {} or newer", bit.since))
            }
            Tried::CannotTell(e) => unknown(bit.name, &e, bit.without),
        }
    }

    /// EINVAL tells of the one thing in `attr` only if an event without it opens.
    fn with_baseline(&self, attr: &Attr) -> Tried {
        match self.own(&dummy()) {
            Ok(()) => self.accepts(attr, &[libc::EINVAL]),
            Err(e) => Tried::CannotTell(e),
        }
    }
}

fn tracepoints(facts: &Facts) -> Check {
    const NAME: &str = "tracepoints";
    let works = "system:name events work";
    match (facts.tracefs(), facts.tracepoint_id("sched", "sched_switch")) {
        (Some(dir), Ok(_)) => Check::new(NAME, Answer::Yes, format!("tracefs is at {}", dir.display()), works),
        (Some(_), Err(e)) if denied(&e) => {
            Check::new(NAME, Answer::Unknown, "tracefs may not be read", "system:name events cannot be named")
                .fix("run as root")
        }
        (Some(_), Err(e)) => unknown(NAME, &e, "system:name events may not work"),
        (None, _) => Check::new(
            NAME,
            Answer::Unknown,
            "no tracefs is mounted, or it may not be seen",
            "system:name events cannot be named",
        )
        .fix("mount -t tracefs nodev /sys/kernel/tracing"),
    }
}

/// EACCES and EPERM.
pub(super) fn denied(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

fn unknown(name: &'static str, e: &io::Error, consequence: &str) -> Check {
    let check = Check::new(name, Answer::Unknown, format!("it could not be tried: {e}"), consequence);
    if denied(e) { check.fix("run as root") } else { check }
}

/// What everybody may open on an own thread where anything may be opened at all.
fn user_only() -> AttrFlags {
    AttrFlags::DISABLED | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV
}

fn clock() -> Attr {
    Attr {
        kind: kind::SOFTWARE,
        config: software::CPU_CLOCK,
        period_or_freq: 1_000_000_000,
        flags: AttrFlags::DISABLED,
        ..Attr::default()
    }
}

fn dummy() -> Attr {
    Attr { kind: kind::SOFTWARE, config: software::DUMMY, flags: user_only(), ..Attr::default() }
}

//! The events that count nothing and tell of everything else: maps, names, forks and exits, kernel text, programs.
//!
//! One enabled dummy event per online CPU with a ring of its own, which wakes its reader at the first byte. Such
//! records are sent by the CPU that did the work (programs unload in kernel workers), so it takes all CPUs to hear of
//! a change of kernel text. Without privileges the events are bound to the sampled tasks.

use std::io;
use std::sync::Arc;

use afterimage_perf_data::{Attr, AttrFlags, SampleType};

use crate::facts::Facts;
use crate::open::{self, Note, OpenError, OpenErrorKind, Opened, Options, Target};
use crate::spec::{EventClass, EventSpec, kind, software};
use crate::sys::Kernel;

/// Records that every kernel we run on knows.
const BASIC: AttrFlags =
    AttrFlags::MMAP.union(AttrFlags::MMAP2).union(AttrFlags::COMM).union(AttrFlags::COMM_EXEC).union(AttrFlags::TASK);

/// Records that came later or need a privilege, each tried on its own.
const OPTIONAL: [(AttrFlags, &str); 6] = [
    (AttrFlags::KSYMBOL, "kernel symbols that come and go (Linux 5.1)"),
    (AttrFlags::BPF_EVENT, "BPF programs that come and go (Linux 5.1)"),
    (AttrFlags::TEXT_POKE, "changes of kernel text (Linux 5.9)"),
    (AttrFlags::BUILD_ID, "build IDs of mapped files (Linux 5.12)"),
    (AttrFlags::CGROUP, "cgroups (Linux 5.7)"),
    (AttrFlags::NAMESPACES, "namespaces (CAP_PERFMON)"),
];

/// The opened sideband.
#[derive(Debug)]
pub struct Sideband {
    /// Events, rings and notes; the one spec is named `dummy`.
    pub opened: Opened,
    /// What its events do not report, and why one would miss it.
    pub missing: Vec<(AttrFlags, &'static str)>,
    /// Whether it hears everything on all CPUs, or only the target's tasks.
    pub all_cpus: bool,
}

impl Sideband {
    /// The attr of its events.
    pub fn attr(&self) -> &Attr {
        &self.opened.specs[0].attr
    }
}

/// Opens the sideband on every online CPU, or on `target` where that is not allowed, and enables it.
///
/// `wanted` is what to report besides maps, names, forks and exits: any of KSYMBOL, BPF_EVENT, TEXT_POKE, BUILD_ID,
/// CGROUP, NAMESPACES. What the kernel refuses is listed in [`Sideband::missing`].
///
/// # Errors
/// When not even the plain records may be had, or no ring fits.
pub fn open(
    kernel: &Arc<dyn Kernel>,
    facts: &Facts,
    target: &Target,
    wanted: AttrFlags,
    options: Options,
) -> Result<Sideband, OpenError> {
    let cpus = facts.online_cpus().map_err(no_cpus)?;
    match open_on(kernel, facts, &Target::Cpus(cpus.clone()), attr(BASIC), wanted, options) {
        Err(e) if target.is_task() && e.kind == OpenErrorKind::CpuWideDenied => {
            let tasks = bound_to(target, cpus);
            let mut sideband = open_on(kernel, facts, &tasks, attr(BASIC), wanted, options)?;
            sideband.all_cpus = false;
            let text = "maps and names are those of the sampled tasks alone; kernel text that comes and goes is not seen without CAP_PERFMON";
            sideband.opened.notes = vec![Note(text.to_owned())];
            Ok(sideband)
        }
        other => other,
    }
}

/// Opens events on every online CPU that tell of BPF text alone, and enables them: for somebody who is to be woken as it
/// comes, and by nothing else.
///
/// # Errors
/// When the kernel refuses such events, or no ring fits.
pub fn open_bpf_text(kernel: &Arc<dyn Kernel>, facts: &Facts, options: Options) -> Result<Opened, OpenError> {
    let cpus = Target::Cpus(facts.online_cpus().map_err(no_cpus)?);
    let attr = attr(AttrFlags::KSYMBOL | AttrFlags::BPF_EVENT);
    Ok(open_on(kernel, facts, &cpus, attr, AttrFlags::empty(), options)?.opened)
}

/// The target's tasks, followed from now on rather than from an exec.
fn bound_to(target: &Target, cpus: Vec<u32>) -> Target {
    match target {
        Target::Tasks { tids, .. } => Target::Tasks { tids: tids.clone(), cpus, inherit: true },
        Target::Command { pid, .. } => Target::Tasks { tids: vec![*pid], cpus, inherit: true },
        Target::Cpus(cpus) => Target::Cpus(cpus.clone()),
    }
}

fn open_on(
    kernel: &Arc<dyn Kernel>,
    facts: &Facts,
    target: &Target,
    attr: Attr,
    wanted: AttrFlags,
    options: Options,
) -> Result<Sideband, OpenError> {
    let mut spec = EventSpec::new("dummy", attr, EventClass::Software);
    // The plain event first: it tells whether privileges fail, so that a later refusal is about one bit.
    open::settle(kernel.as_ref(), facts, std::slice::from_mut(&mut spec), target)?;
    let mut missing = Vec::new();
    for (bit, what) in OPTIONAL {
        if !wanted.contains(bit) {
            continue;
        }
        let mut with = spec.clone();
        with.attr.flags |= bit;
        match open::settle(kernel.as_ref(), facts, std::slice::from_mut(&mut with), target) {
            Ok(_) => spec.attr.flags |= bit,
            Err(_) => missing.push((bit, what)),
        }
    }
    // Only the dummy's name would change, which nobody asked for.
    spec.name = "dummy".to_owned();
    let opened = open::open(kernel, facts, vec![spec], target, options)?;
    opened.enable().map_err(|cause| other("dummy", cause))?;
    Ok(Sideband { opened, missing, all_cpus: true })
}

fn attr(tells: AttrFlags) -> Attr {
    Attr {
        kind: kind::SOFTWARE,
        config: software::DUMMY,
        // A period makes it a sampling event, which alone may have the ids of samples in its records; it never overflows.
        period_or_freq: 1,
        sample_type: SampleType::IDENTIFIER | SampleType::TID | SampleType::TIME | SampleType::CPU,
        flags: tells | AttrFlags::SAMPLE_ID_ALL | AttrFlags::USE_CLOCKID | AttrFlags::WATERMARK | AttrFlags::DISABLED,
        clockid: libc::CLOCK_MONOTONIC,
        wakeup: 1,
        ..Attr::default()
    }
}

fn no_cpus(cause: io::Error) -> OpenError {
    OpenError { event: "dummy".to_owned(), kind: OpenErrorKind::NoCpu, cause: Some(cause) }
}

fn other(event: &str, cause: io::Error) -> OpenError {
    OpenError { event: event.to_owned(), kind: OpenErrorKind::Other, cause: Some(cause) }
}

#[cfg(test)]
mod tests;

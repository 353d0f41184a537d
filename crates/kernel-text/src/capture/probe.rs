//! Which ways of capture work on this kernel, for `doctor`.

use afterimage_perf_event::caps::{Cap, Caps};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::probe::{Answer, Check};
use afterimage_perf_event::sys::bpf;

use super::error::{CaptureError, CaptureErrorKind};
use super::freed::{Freed, MODULES, TRAMPOLINES};
use super::kcore::Kcore;
use super::reader::Reader;

const PRIVILEGES: &str = "run as root, or: setcap cap_bpf,cap_perfmon+ep on the command";
/// A function that every kernel with BPF has.
const KNOWN: &str = "bpf_prog_free_deferred";

/// Every check; each tries the thing itself and leaves nothing behind.
pub fn all() -> Vec<Check> {
    let reader = Reader::load();
    let mut checks = vec![memory(&reader)];
    checks.extend(free_time(&reader));
    checks.extend(kcore(&reader));
    checks.push(entries());
    checks.push(by_id());
    checks
}

fn memory(reader: &Result<Reader, CaptureError>) -> Check {
    let name = "text-memory";
    let with = "the code of sampled kernel functions is kept, also where there is no /proc/kcore";
    let without = "recordings hold no code of the kernel's own functions";
    let read = reader.as_ref().map_err(Clone::clone).and_then(|reader| {
        let mut bytes = [0; 16];
        let read = reader.read(reader.symbol(KNOWN)?, &mut bytes);
        read.map_err(|e| CaptureError::new(CaptureErrorKind::System, "reading kernel text", e))
    });
    judge(name, read, "a program reads kernel text", with, without)
}

fn free_time(reader: &Result<Reader, CaptureError>) -> Vec<Check> {
    let with = "of BPF programs and classic filters a copy is made just before they go, however short they live";
    let without = "short-lived BPF programs are copied only if we come in time; classic filters are not";
    let started = reader.as_ref().map_err(Clone::clone).and_then(|reader| Freed::by_tracepoint(reader, false));
    let (trampolines, modules) = match &started {
        Ok(started) => {
            let of = |part: &str| {
                let missing = started.missing.iter().find(|(missing, _)| *missing == part);
                missing.map_or(Ok(()), |(_, error)| Err(error.clone()))
            };
            (of(TRAMPOLINES), of(MODULES))
        }
        Err(error) => (Err(error.clone()), Err(error.clone())),
    };
    vec![
        judge("text-free-time", started.map(drop), "the workers that free text can be watched", with, without),
        judge(
            "text-trampolines",
            trampolines,
            "the worker that frees BPF trampolines can be watched",
            "trampolines are copied just before they go",
            "trampolines that go are not copied",
        ),
        judge(
            "text-modules",
            modules,
            "modules tell as they come and go",
            "the text of modules is copied as they come and go",
            "modules that go are not copied",
        ),
    ]
}

/// Whether /proc/kcore shows text, and keeps what is freed. Both ask for CAP_SYS_RAWIO.
fn kcore(reader: &Result<Reader, CaptureError>) -> [Check; 2] {
    let opened = Kcore::open(reader.as_ref().ok());
    let shown = opened.and_then(|mut kcore| same_as_in_memory(&mut kcore, reader).map(|()| kcore));
    let error = shown.as_ref().err().cloned();
    // Held for an instant: it is let go of as soon as this returns.
    let held = shown.and_then(|mut kcore| kcore.hold());
    let fixed = |check: Check, error: Option<&CaptureError>| match error.map(|error| error.kind) {
        Some(CaptureErrorKind::NotPermitted) if !Caps::effective().allows(Cap::SysRawio) => {
            Check { answer: Answer::Unknown, ..check }.fix("run as root, or: setcap cap_sys_rawio+ep on the command")
        }
        _ => check,
    };
    let (with, without) = (
        "the code of kernel functions is read from it, also where no program may read kernel memory",
        "kernel code is read by a program of ours alone",
    );
    let plain = match &error {
        None => Check::new("text-kcore", Answer::Yes, "/proc/kcore shows the kernel's text", with),
        Some(error) => fixed(Check::new("text-kcore", Answer::No, error.to_string(), without), Some(error)),
    };
    let (with, without) = (
        "all code that goes is copied afterwards, for the kernel keeps it until it was",
        "code that goes is copied at its free, or by those who come in time",
    );
    let qc = match &held {
        Ok(()) => Check::new("text-kcore-qc", Answer::Yes, "/proc/kcore keeps freed text (KCORE_QC)", with),
        Err(error) if error.kind == CaptureErrorKind::Unsupported && plain.answer == Answer::Yes => {
            Check::new("text-kcore-qc", Answer::No, error.to_string(), without).fix("load the module kcore_qc")
        }
        Err(error) => fixed(Check::new("text-kcore-qc", Answer::No, error.to_string(), without), Some(error)),
    };
    [plain, qc]
}

/// What the file shows of a function is what a program reads there, if one may.
fn same_as_in_memory(kcore: &mut Kcore, reader: &Result<Reader, CaptureError>) -> Result<(), CaptureError> {
    let fail = |cause: &dyn std::fmt::Display| CaptureError::new(CaptureErrorKind::System, "/proc/kcore", cause);
    let Ok(reader) = reader else { return Ok(()) };
    let addr = reader.symbol(KNOWN)?;
    let (mut shown, mut there) = ([0; 16], [0; 16]);
    reader.read(addr, &mut there).map_err(|error| fail(&error))?;
    kcore.read(addr, &mut shown).map_err(|error| fail(&error))?;
    if shown == there { Ok(()) } else { Err(fail(&"it shows something else than what is in memory")) }
}

fn entries() -> Check {
    let name = "text-fentry";
    let started = Freed::by_entry();
    let missing = started.as_ref().map(|started| started.missing.iter().map(|(part, _)| *part).collect::<Vec<_>>());
    let yes = match missing.unwrap_or_default().as_slice() {
        [] => "programs may be attached where programs, trampolines and modules are freed".to_owned(),
        missing => format!("programs may be attached where programs are freed, not for {}", missing.join(", ")),
    };
    let with = "text that goes is copied also where its workers cannot be watched";
    let without = "text that goes is copied by the tracepoint of its workers alone";
    match started {
        // No setting helps where all privileges do not.
        Err(error) if error.kind == CaptureErrorKind::NotPermitted && privileged() => {
            Check::new(name, Answer::No, error.to_string(), without)
        }
        started => judge(name, started.map(drop), &yes, with, without),
    }
}

fn by_id() -> Check {
    let name = "text-by-id";
    let (with, without) = (
        "programs have source lines and types",
        "BPF programs have no source lines, and copies of those alone that go",
    );
    // No program has this id.
    match bpf::program(u32::MAX) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            Check::new(name, Answer::Yes, "programs may be opened by their id", with)
        }
        Err(error) if error.raw_os_error() == Some(libc::EPERM) && !Caps::effective().allows(Cap::SysAdmin) => {
            Check::new(name, Answer::Unknown, "refused, without CAP_SYS_ADMIN", without).fix("run as root")
        }
        Err(error) => Check::new(name, Answer::No, format!("refused: {error}"), without),
        Ok(_) => Check::new(name, Answer::Yes, "programs may be opened by their id", with),
    }
}

fn privileged() -> bool {
    let caps = Caps::effective();
    caps.allows(Cap::Bpf) && caps.allows(Cap::Perfmon)
}

/// A refusal is a no when we have the privileges that the kernel documents, else it tells nothing.
fn judge(name: &'static str, tried: Result<(), CaptureError>, yes: &str, with: &str, without: &str) -> Check {
    match tried {
        Ok(()) => Check::new(name, Answer::Yes, yes, with),
        Err(error) if error.kind == CaptureErrorKind::NotPermitted && !privileged() => {
            Check::new(name, Answer::Unknown, error.to_string(), without).fix(PRIVILEGES)
        }
        Err(error) if error.kind == CaptureErrorKind::NotPermitted && Facts::system().kptr_restrict() == Some(2) => {
            Check::new(name, Answer::No, error.to_string(), without).fix("sysctl kernel.kptr_restrict=1")
        }
        Err(error) => Check::new(name, Answer::No, error.to_string(), without),
    }
}

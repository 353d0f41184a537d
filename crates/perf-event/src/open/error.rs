//! Why an event cannot be opened.

use std::io;

use crate::facts::Facts;
use crate::spec::EventSpec;

/// An event that could not be opened. Its text is one line for the user.
#[derive(Debug)]
pub struct OpenError {
    /// The event's name.
    pub event: String,
    /// What is the matter.
    pub kind: OpenErrorKind,
    /// What the kernel said.
    pub cause: Option<io::Error>,
}

/// What can be the matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// Sampling CPUs is not allowed: CAP_PERFMON, or a lower perf_event_paranoid.
    CpuWideDenied,
    /// Sampling the kernel, or a tracepoint, is not allowed: CAP_PERFMON.
    KernelDenied,
    /// The task belongs to another user: CAP_PERFMON or CAP_SYS_PTRACE.
    TaskDenied,
    /// All descriptors of this process are in use, and the limit cannot be raised.
    TooManyFiles,
    /// All descriptors of the system are in use.
    SystemFiles,
    /// All counters or debug registers of the CPU are in use.
    NoSpace,
    /// Another has claimed the event for itself.
    Busy,
    /// The attr has a field that this kernel does not know.
    TooNew,
    /// The machine has no such event.
    NoEvent,
    /// The event exists and cannot be sampled as asked.
    Unsupported,
    /// None of the tasks exists any more.
    NoTask,
    /// None of the CPUs is online.
    NoCpu,
    /// Not even a ring of one page may be mapped.
    NoRing,
    /// The kernel refused the filter.
    Filter,
    /// Anything else; the cause says it.
    Other,
}

impl OpenErrorKind {
    /// The capability that would help.
    pub fn capability(self) -> Option<&'static str> {
        match self {
            OpenErrorKind::CpuWideDenied | OpenErrorKind::KernelDenied | OpenErrorKind::TaskDenied => {
                Some("CAP_PERFMON")
            }
            OpenErrorKind::NoRing => Some("CAP_IPC_LOCK"),
            _ => None,
        }
    }
}

impl OpenError {
    /// From what the kernel said to one open.
    pub(super) fn classify(spec: &EventSpec, tid: i32, cpu: i32, cause: io::Error) -> OpenError {
        use OpenErrorKind as Kind;
        let kind = match cause.raw_os_error().unwrap_or(0) {
            libc::EACCES | libc::EPERM if tid == -1 => Kind::CpuWideDenied,
            libc::EACCES | libc::EPERM if super::wants_kernel(spec.attr.flags) => Kind::KernelDenied,
            libc::EACCES | libc::EPERM => Kind::TaskDenied,
            libc::EMFILE => Kind::TooManyFiles,
            libc::ENFILE => Kind::SystemFiles,
            libc::ENOSPC => Kind::NoSpace,
            libc::EBUSY => Kind::Busy,
            libc::E2BIG => Kind::TooNew,
            libc::ENODEV if cpu >= 0 => Kind::NoCpu,
            libc::ENOENT | libc::ENODEV => Kind::NoEvent,
            libc::EOPNOTSUPP | libc::EINVAL => Kind::Unsupported,
            libc::ESRCH => Kind::NoTask,
            _ => Kind::Other,
        };
        OpenError { event: spec.name.clone(), kind, cause: Some(cause) }
    }

    pub(super) fn other(spec: &EventSpec, cause: io::Error) -> OpenError {
        OpenError { event: spec.name.clone(), kind: OpenErrorKind::Other, cause: Some(cause) }
    }

    pub(super) fn filter(spec: &EventSpec, cause: io::Error) -> OpenError {
        OpenError { event: spec.name.clone(), kind: OpenErrorKind::Filter, cause: Some(cause) }
    }

    fn text(&self) -> String {
        let paranoid = || Facts::system().paranoid().map_or_else(|| "unknown".to_owned(), |n| n.to_string());
        match self.kind {
            OpenErrorKind::CpuWideDenied => {
                format!("sampling whole CPUs needs CAP_PERFMON (kernel.perf_event_paranoid is {})", paranoid())
            }
            OpenErrorKind::KernelDenied => {
                format!("sampling the kernel needs CAP_PERFMON (kernel.perf_event_paranoid is {})", paranoid())
            }
            OpenErrorKind::TaskDenied => {
                "the process is not ours: sampling it needs CAP_PERFMON or CAP_SYS_PTRACE".to_owned()
            }
            OpenErrorKind::TooManyFiles => {
                "the limit of open files is too low for one file per event, CPU and thread: raise it with ulimit -n".to_owned()
            }
            OpenErrorKind::SystemFiles => "the system has no file descriptors left (fs.file-max)".to_owned(),
            OpenErrorKind::NoSpace => "all of the CPU's counters or breakpoints are in use".to_owned(),
            OpenErrorKind::Busy => "another has claimed the event for itself".to_owned(),
            OpenErrorKind::TooNew => "the event has a field that this kernel does not know".to_owned(),
            OpenErrorKind::NoEvent => "this machine has no such event".to_owned(),
            OpenErrorKind::Unsupported => "the event cannot be sampled this way".to_owned(),
            OpenErrorKind::NoTask => "none of the threads exists any more".to_owned(),
            OpenErrorKind::NoCpu => "none of the CPUs is online".to_owned(),
            OpenErrorKind::NoRing => {
                "not even rings of one page fit: kernel.perf_event_mlock_kb and ulimit -l allow no more without CAP_IPC_LOCK".to_owned()
            }
            OpenErrorKind::Filter => "the kernel refused the filter".to_owned(),
            OpenErrorKind::Other => "cannot be opened".to_owned(),
        }
    }
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.event, self.text())?;
        // Elsewhere the text says all that the errno does.
        let adds = matches!(
            self.kind,
            OpenErrorKind::Other | OpenErrorKind::Unsupported | OpenErrorKind::Filter | OpenErrorKind::NoEvent
        );
        match &self.cause {
            Some(cause) if adds => write!(f, ": {cause}"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        None
    }
}

//! What can go wrong with reading kernel text.

use std::fmt;

/// Why a way of reading kernel text is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureErrorKind {
    /// The kernel wants CAP_BPF and CAP_PERFMON, or a policy refuses.
    NotPermitted,
    /// This kernel cannot do it.
    Unsupported,
    /// Any other answer of the operating system.
    System,
}

/// An error: what was tried and why it failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {cause}")]
pub struct CaptureError {
    /// What sort of failure it is.
    pub kind: CaptureErrorKind,
    what: String,
    cause: String,
}

impl CaptureError {
    pub(crate) fn new(kind: CaptureErrorKind, what: impl Into<String>, cause: impl fmt::Display) -> CaptureError {
        CaptureError { kind, what: what.into(), cause: cause.to_string() }
    }

    pub(crate) fn libbpf(what: impl Into<String>, error: &libbpf_rs::Error) -> CaptureError {
        let kind = match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => CaptureErrorKind::NotPermitted,
            libbpf_rs::ErrorKind::NotFound => CaptureErrorKind::Unsupported,
            _ => CaptureErrorKind::System,
        };
        CaptureError::new(kind, what, error)
    }
}

/// Why bytes of kernel memory could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Nothing is mapped there (EFAULT), at least not any more.
    #[error("nothing is mapped at {0:#x}")]
    NotMapped(u64),
    /// The program that reads could not run, or gave nothing; with its error number.
    #[error("the reading program failed with error {0}")]
    Failed(i32),
}

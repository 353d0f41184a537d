//! What can go wrong, as one line `what: cause`.

use std::io;

/// Which kind of failure, and with it the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This kernel, or this process on it, cannot do that at all: exit code 77.
    Unavailable,
    /// It should have worked: exit code 1.
    Failed,
}

/// A failure and what was being done.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {cause}")]
pub(crate) struct Error {
    /// Whether it could have worked here.
    pub(crate) kind: Kind,
    what: String,
    cause: io::Error,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// `what` went wrong for the reason that the system gave.
    pub(crate) fn failed(what: impl Into<String>, cause: io::Error) -> Error {
        Error { kind: Kind::Failed, what: what.into(), cause }
    }

    /// This kernel has no `what`; `why` says how we know.
    pub(crate) fn unavailable(what: impl Into<String>, why: impl Into<String>) -> Error {
        Error { kind: Kind::Unavailable, what: what.into(), cause: io::Error::other(why.into()) }
    }

    /// A failure that means "not on this kernel" when the system answered with one of `codes`.
    pub(crate) fn unavailable_if(codes: &[i32], what: impl Into<String>, cause: io::Error) -> Error {
        let known = cause.raw_os_error().is_some_and(|code| codes.contains(&code));
        Error { kind: if known { Kind::Unavailable } else { Kind::Failed }, what: what.into(), cause }
    }

    /// What the process exits with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Unavailable => 77,
            Kind::Failed => 1,
        }
    }
}

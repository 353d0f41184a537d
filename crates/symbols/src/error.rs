//! Why a file could not be turned into a symbol table.

use std::fmt;

/// The kind of an [`Error`], for callers that decide by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes are not an ELF object of a class and version that exist.
    NotElf,
    /// A header, section or table lies about its place or size.
    Damaged,
    /// A size passes a limit of this crate (a decompression bomb, names that repeat without end).
    Limit,
    /// The operating system refused to read.
    Io,
}

/// A failure with what was being done, as `what: cause`.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    kind: ErrorKind,
    what: &'static str,
    #[source]
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, what: &'static str) -> Error {
        Error { kind, what, cause: None }
    }

    pub(crate) fn with(
        kind: ErrorKind,
        what: &'static str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error { kind, what, cause: Some(cause.into()) }
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        match &self.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

/// For `map_err`: a damaged object, with what was being read.
pub(crate) fn damaged<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    what: &'static str,
) -> impl FnOnce(E) -> Error {
    move |cause| Error::with(ErrorKind::Damaged, what, cause)
}

/// For `map_err`: the operating system refused, with what was being read.
pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |cause| Error::with(ErrorKind::Io, what, cause)
}

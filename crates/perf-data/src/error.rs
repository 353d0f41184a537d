use std::borrow::Cow;
use std::{fmt, io};

/// What went wrong, as a value to branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes do not begin like a perf.data file.
    #[error("not a perf.data file")]
    NotPerfData,
    /// There are no bytes at all.
    #[error("the file is empty")]
    Empty,
    /// The bytes end before the thing does.
    #[error("cut short")]
    Truncated,
    /// A size that cannot be: too small for what it holds, or larger than what is there.
    #[error("impossible size")]
    BadSize,
    /// An offset that points outside the file.
    #[error("offset outside the file")]
    BadOffset,
    /// A value that has no meaning here.
    #[error("impossible value")]
    BadValue,
    /// A form of the format that this version does not read or write.
    #[error("not supported yet")]
    Unsupported,
    /// Bytes that differ from what their checksum says.
    #[error("checksum differs")]
    Checksum,
    /// Compressed or textual contents that do not decode.
    #[error("damaged contents")]
    Damaged,
    /// What was asked to be written is too long for its field.
    #[error("too long for its field")]
    TooLong,
    /// The operating system refused a read or a write.
    #[error("input or output failed")]
    Io,
}

/// An error with the thing that failed, its place in the bytes, and the cause. Displays as `what: cause`.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    what: Cow<'static, str>,
    offset: Option<u64>,
    source: Option<io::Error>,
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error about `what`, with no place.
    #[cold]
    pub fn new(kind: ErrorKind, what: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner { kind, what: what.into(), offset: None, source: None }))
    }

    /// An error about `what` at byte `offset` of the file (or ring, or section) that was read.
    #[cold]
    pub fn at(kind: ErrorKind, what: impl Into<Cow<'static, str>>, offset: u64) -> Self {
        Self(Box::new(Inner { kind, what: what.into(), offset: Some(offset), source: None }))
    }

    /// An error of the operating system while doing `what`.
    #[cold]
    pub fn io(what: impl Into<Cow<'static, str>>, source: io::Error) -> Self {
        Self(Box::new(Inner { kind: ErrorKind::Io, what: what.into(), offset: None, source: Some(source) }))
    }

    /// The kind, to branch on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Where in the bytes, where that is known.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// What failed, without the cause.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// The operating system's error, when [`ErrorKind::Io`].
    pub fn io_error(&self) -> Option<&io::Error> {
        self.0.source.as_ref()
    }

    /// The same error with `outer` put before what failed.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        self.0.what = Cow::Owned(format!("{outer}, {}", self.0.what));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.what)?;
        if let Some(offset) = self.0.offset {
            write!(f, " at byte {offset}")?;
        }
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => write!(f, ": {}", self.0.kind),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as _)
    }
}

//! What can go wrong with programs on events.

use std::fmt;
use std::io;

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something failed, for those who must tell causes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The kernel wants CAP_BPF and CAP_PERFMON, or a policy refuses.
    NotPermitted,
    /// The kernel, or this combination of event and handler, cannot do it.
    Unsupported,
    /// The options contradict each other or name what does not exist.
    Options,
    /// The event already carries a program.
    Busy,
    /// A file that is no object for BPF, or has no handler in it.
    Object,
    /// The program would damage samples or stall the machine, or cannot stand in a slot.
    Refused,
    /// The kernel's verifier refuses the program.
    Verifier,
    /// Any other answer of the operating system.
    System,
}

/// The lines of a log that usually tell what went wrong.
const LAST: usize = 12;

/// An error: what was tried, why it failed, and what libbpf and the kernel had to say about it.
///
/// `{}` prints `what: cause`; `{:#}` adds the last lines of the log.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    what: String,
    cause: String,
    log: Vec<String>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>, cause: impl Into<String>) -> Error {
        Error { kind, what: what.into(), cause: cause.into(), log: Vec::new() }
    }

    pub(crate) fn io(what: impl Into<String>, error: &io::Error) -> Error {
        let kind = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => ErrorKind::NotPermitted,
            Some(libc::EEXIST) => ErrorKind::Busy,
            _ => ErrorKind::System,
        };
        Error::new(kind, what, error.to_string())
    }

    pub(crate) fn libbpf(what: impl Into<String>, error: &libbpf_rs::Error, log: Vec<String>) -> Error {
        let kind = match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => ErrorKind::NotPermitted,
            libbpf_rs::ErrorKind::AlreadyExists => ErrorKind::Busy,
            _ => ErrorKind::System,
        };
        Error { kind, what: what.into(), cause: error.to_string(), log }
    }

    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Error {
        self.kind = kind;
        self
    }

    pub(crate) fn with_log(mut self, log: Vec<String>) -> Error {
        self.log = log;
        self
    }

    /// Takes the cause from the log: the verifier's last word, where it was asked, or libbpf's.
    pub(crate) fn of_the_verifier(mut self) -> Error {
        const LIBBPF: &str = "libbpf: ";
        let verifier = self.log.iter().rev().find(|line| !line.starts_with(LIBBPF));
        if let Some(line) = verifier {
            self.kind = ErrorKind::Verifier;
            self.cause = format!("the kernel's verifier refuses it: {}", line.trim());
        } else if let Some(line) = self.log.last() {
            self.cause = format!("{} ({})", line.trim_start_matches(LIBBPF), self.cause);
        }
        self
    }

    pub(crate) fn cause(&self) -> &str {
        &self.cause
    }

    /// Why it failed.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The last lines of libbpf and the verifier, oldest first.
    pub fn log(&self) -> &[String] {
        &self.log[self.log.len().saturating_sub(LAST)..]
    }

    /// All of their lines, oldest first.
    pub fn full_log(&self) -> &[String] {
        &self.log
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)?;
        if f.alternate() {
            for line in self.log() {
                write!(f, "\n  {line}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

//! What rows are told apart by.

use std::fmt;
use std::str::FromStr;

/// A column that tells rows apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SortKey {
    /// The thread's name when the sample was taken.
    Comm,
    /// The object that the code is from.
    Dso,
    /// The symbol.
    Sym,
    /// The line of source code.
    Srcline,
    /// The text of the kernel that came and went: one BPF program, told from another of the same name.
    Text,
    /// The process.
    Pid,
    /// The thread.
    Tid,
    /// The CPU.
    Cpu,
    /// The event.
    Event,
    /// The cgroup.
    Cgroup,
    /// A label that a handler put on the sample: the one of this number in
    /// [`AggregateOptions::labels`](super::AggregateOptions::labels).
    Label(u8),
}

impl SortKey {
    /// The key's name, as perf and the command line spell it.
    pub fn name(self) -> &'static str {
        match self {
            SortKey::Comm => "comm",
            SortKey::Dso => "dso",
            SortKey::Sym => "sym",
            SortKey::Srcline => "srcline",
            SortKey::Text => "text",
            SortKey::Pid => "pid",
            SortKey::Tid => "tid",
            SortKey::Cpu => "cpu",
            SortKey::Event => "event",
            SortKey::Cgroup => "cgroup",
            SortKey::Label(_) => "label",
        }
    }
}

impl fmt::Display for SortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is none of a [`SortKey`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown sort key {0:?} (known: comm, dso, sym, srcline, text, pid, tid, cpu, event, cgroup)")]
pub struct UnknownSortKey(pub String);

impl FromStr for SortKey {
    type Err = UnknownSortKey;

    fn from_str(name: &str) -> Result<SortKey, UnknownSortKey> {
        Ok(match name {
            "comm" => SortKey::Comm,
            "dso" => SortKey::Dso,
            "sym" | "symbol" => SortKey::Sym,
            "srcline" => SortKey::Srcline,
            "text" => SortKey::Text,
            "pid" => SortKey::Pid,
            "tid" => SortKey::Tid,
            "cpu" => SortKey::Cpu,
            "event" => SortKey::Event,
            "cgroup" => SortKey::Cgroup,
            other => return Err(UnknownSortKey(other.to_owned())),
        })
    }
}

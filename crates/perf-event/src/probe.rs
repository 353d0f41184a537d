//! What this kernel and these privileges allow, for `doctor`.
//!
//! An answer is yes, no, or unknown: a probe that was not allowed to look says unknown, never no.

mod kernel;
mod perf;
mod settings;

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is there and may be used.
    Yes,
    /// It is not there.
    No,
    /// It could not be told.
    Unknown,
}

impl Answer {
    /// `yes`, `no` or `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Answer::Yes => "yes",
            Answer::No => "no",
            Answer::Unknown => "unknown",
        }
    }
}

/// One thing that was looked into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// A short name, unique and stable.
    pub name: &'static str,
    /// Whether it is there.
    pub answer: Answer,
    /// What the answer rests on.
    pub why: String,
    /// What follows for a recording.
    pub consequence: String,
    /// What to do about a no.
    pub fix: Option<String>,
}

impl Check {
    /// A check without a fix.
    pub fn new(name: &'static str, answer: Answer, why: impl Into<String>, consequence: impl Into<String>) -> Check {
        Check { name, answer, why: why.into(), consequence: consequence.into(), fix: None }
    }

    /// The check with what to do about it.
    pub fn fix(self, fix: impl Into<String>) -> Check {
        Check { fix: Some(fix.into()), ..self }
    }
}

/// Everything about perf and kernel text on this machine; BPF's part is with the handlers.
pub fn all() -> Vec<Check> {
    let facts = crate::facts::Facts::system();
    let mut checks = settings::checks(&facts);
    checks.extend(perf::checks(&facts, &crate::sys::Real));
    checks.extend(kernel::checks(&facts));
    checks
}

#[cfg(test)]
mod tests;

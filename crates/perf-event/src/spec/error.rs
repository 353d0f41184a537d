//! What was not understood, and where.

/// An event list that was not understood. Its text is one line, without the hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The list as given.
    pub list: String,
    /// First byte of what was not understood.
    pub at: usize,
    /// Bytes of it.
    pub len: usize,
    /// What is wrong with it.
    pub what: String,
    /// What to try.
    pub hint: Option<String>,
    /// What is the matter.
    pub kind: SpecErrorKind,
}

/// What can be the matter with an event list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecErrorKind {
    /// It makes no sense, or names what this machine does not have.
    NotUnderstood,
    /// What it names may not be looked up: tracefs is root's.
    NotPermitted,
}

impl SpecError {
    /// The list, and below it marks under what was not understood.
    pub fn picture(&self) -> String {
        let before = self.list.get(..self.at).unwrap_or("").chars().count();
        let marks = self.list.get(self.at..self.at + self.len).unwrap_or("").chars().count().max(1);
        format!("{}\n{}{}", self.list, " ".repeat(before), "^".repeat(marks))
    }
}

impl std::fmt::Display for SpecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = self.list.get(self.at..self.at + self.len).unwrap_or("");
        if part.is_empty() || part == self.list {
            write!(f, "event '{}': {}", self.list, self.what)
        } else {
            write!(f, "event list '{}', at '{part}' (byte {}): {}", self.list, self.at, self.what)
        }
    }
}

impl std::error::Error for SpecError {}

//! What is wrong with an expression, and where.

use std::fmt;

/// A stretch of an expression, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte behind the last one.
    pub end: usize,
}

impl Span {
    /// From the start of this one to the end of another.
    pub(crate) fn to(self, last: Span) -> Span {
        Span { start: self.start, end: last.end }
    }
}

/// What can be the matter with an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GateErrorKind {
    /// It is not of the language.
    Syntax,
    /// What stands together does not go together.
    Type,
    /// It names what is not there.
    Name,
    /// It asks for what these events or this kernel do not have.
    Unsupported,
    /// It is longer, deeper or larger than a gate may be.
    TooLarge,
}

/// An expression that makes no gate. Its text is one line; [`GateError::picture`] shows the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateError {
    /// What is the matter.
    pub kind: GateErrorKind,
    /// What is wrong.
    pub what: String,
    /// What to try.
    pub hint: Option<String>,
    /// The part of the expression that is meant.
    pub span: Span,
    /// The expression as given.
    pub expression: String,
}

impl GateError {
    /// The expression in one line, and below it marks under what is meant.
    pub fn picture(&self) -> String {
        // Each character takes one column, so that the marks stand where they belong.
        let line: String = self.expression.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let before = self.expression.get(..self.span.start).map_or(0, |text| text.chars().count());
        let part = self.expression.get(self.span.start..self.span.end);
        let marks = part.map_or(1, |text| text.chars().count()).max(1);
        format!("{line}\n{}{}", " ".repeat(before), "^".repeat(marks))
    }
}

impl fmt::Display for GateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for GateError {}

/// An error before the expression is put to it.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) kind: GateErrorKind,
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
    pub(crate) span: Span,
}

impl Wrong {
    pub(crate) fn new(kind: GateErrorKind, span: Span, what: impl Into<String>) -> Wrong {
        Wrong { kind, what: what.into(), hint: None, span }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Wrong {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn within(self, expression: &str) -> GateError {
        let Wrong { kind, what, hint, span } = self;
        GateError { kind, what, hint, span, expression: expression.to_owned() }
    }
}

pub(crate) fn syntax(span: Span, what: impl Into<String>) -> Wrong {
    Wrong::new(GateErrorKind::Syntax, span, what)
}

pub(crate) fn mismatch(span: Span, what: impl Into<String>) -> Wrong {
    Wrong::new(GateErrorKind::Type, span, what)
}

pub(crate) fn too_large(span: Span, what: impl Into<String>) -> Wrong {
    Wrong::new(GateErrorKind::TooLarge, span, what)
}

//! Why a stack has no more frames.

use std::fmt;

/// Why a walk of a stack ended. A value, not a failure: the frames that were found are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackEnd {
    /// There are no more frames: the tables say that this is the outermost one, or nothing called it.
    Complete,
    /// The copy of the stack ends before the next frame.
    Truncated,
    /// No unwind table covers the code, and its frame pointer leads to no frame.
    NoTables,
    /// The file that holds the code, and its tables, was not found, is of another build, or cannot be read.
    NoFile,
    /// The process had nothing mapped at the address.
    NoMapping,
    /// The tables lead to no frame: a register that is not known any more, a place below the stack, no way on.
    BadFrame,
    /// There are more frames than a walk takes.
    TooDeep,
    /// The tables lead down the stack: to a caller whose frame is not above that of what it called.
    Downwards,
    /// No table covers the code, but the file has more tables than are read of one.
    LeftOut,
    /// The sample has no registers of a 64-bit task of a known CPU.
    NoRegisters,
}

impl StackEnd {
    /// All of them.
    pub const ALL: [StackEnd; 10] = [
        StackEnd::Complete,
        StackEnd::Truncated,
        StackEnd::NoTables,
        StackEnd::NoFile,
        StackEnd::NoMapping,
        StackEnd::BadFrame,
        StackEnd::TooDeep,
        StackEnd::Downwards,
        StackEnd::LeftOut,
        StackEnd::NoRegisters,
    ];

    /// A stable word for machine-readable output.
    pub fn key(self) -> &'static str {
        match self {
            StackEnd::Complete => "complete",
            StackEnd::Truncated => "truncated",
            StackEnd::NoTables => "no-tables",
            StackEnd::NoFile => "no-file",
            StackEnd::NoMapping => "no-mapping",
            StackEnd::BadFrame => "bad-frame",
            StackEnd::TooDeep => "too-deep",
            StackEnd::Downwards => "downwards",
            StackEnd::LeftOut => "tables-left-out",
            StackEnd::NoRegisters => "no-registers",
        }
    }
}

impl fmt::Display for StackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StackEnd::Complete => "complete",
            StackEnd::Truncated => "truncated: the copy of the stack is too short",
            StackEnd::NoTables => "no unwind table covers the code",
            StackEnd::NoFile => "the file with the unwind tables was not found",
            StackEnd::NoMapping => "nothing was mapped there",
            StackEnd::BadFrame => "the unwind tables lead to no frame",
            StackEnd::TooDeep => "more frames than are unwound",
            StackEnd::Downwards => "the unwind tables lead down the stack",
            StackEnd::LeftOut => "the file has more unwind tables than are read",
            StackEnd::NoRegisters => "no registers of a 64-bit task",
        })
    }
}

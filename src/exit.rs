//! How the command ends. Every exit code is decided here.
//!
//! 0 done · 1 failed, or done in part · 2 usage · the child's own status or signal for `record -- cmd`.
//! A reader that closes the pipe early has had what it wanted: that is 0.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::say::Say;

/// How a subcommand that got to its end wants to be seen by its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything asked for was done.
    Done,
    /// What could be had was printed, and what went wrong was said.
    Partly,
    /// The status of the child that was recorded.
    Status(u8),
    /// The signal that ended the child that was recorded.
    Signal(i32),
}

/// An error that we word ourselves: `what`, perhaps what to do about it, and the exit code it leads to.
#[derive(Debug)]
pub(crate) struct Problem {
    what: String,
    hint: Option<String>,
    picture: Option<String>,
    code: u8,
}

impl Problem {
    /// What the user asked for makes no sense, or is not built.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Problem { what: what.into(), hint: None, picture: None, code: 2 }
    }

    /// It could not be done.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Problem { what: what.into(), hint: None, picture: None, code: 1 }
    }

    /// Adds the line that says what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds lines that show the place, such as an expression with marks under it.
    pub(crate) fn picture(mut self, picture: impl Into<String>) -> Self {
        self.picture = Some(picture.into());
        self
    }

    /// Another exit code than the usual one, such as 127 for a command that was not found.
    pub(crate) fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// What to do about it, where we know.
    pub(crate) fn hint_line(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Problem {}

/// The answer to an option or subcommand that exists in perf, or will exist here, and is not built.
pub(crate) fn not_yet(what: &str) -> anyhow::Error {
    Problem::usage(format!("{what}: not supported yet")).into()
}

/// The end of a command line that could not be parsed, or that asked for help or the version.
pub(crate) fn of_usage(error: &clap::Error) -> ExitCode {
    // Help into a closed pipe is no failure, and there is nobody left to tell.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

/// Says what went wrong, if anything, and gives the exit code.
pub(crate) fn finish(outcome: anyhow::Result<Exit>, say: &Say) -> ExitCode {
    match outcome {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Partly) => ExitCode::from(1),
        Ok(Exit::Status(code)) => ExitCode::from(code),
        Ok(Exit::Signal(signal)) => end_by(signal),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let problem = error.downcast_ref::<Problem>();
            say.error(&error);
            if let Some(picture) = problem.and_then(|problem| problem.picture.as_deref()) {
                say.picture(picture);
            }
            if let Some(hint) = problem.and_then(Problem::hint_line) {
                say.hint(hint);
            }
            ExitCode::from(problem.map_or(1, |p| p.code))
        }
    }
}

/// Ends this process by the signal that ended the child; where that cannot be done, by the shell's number for it.
fn end_by(signal: i32) -> ExitCode {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(1))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_seen_through_context() {
        let closed = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("writing the report");
        assert!(is_broken_pipe(&closed));
        let full = anyhow::Error::new(io::Error::from(io::ErrorKind::StorageFull)).context("writing the report");
        assert!(!is_broken_pipe(&full));
    }

    #[test]
    fn a_problem_keeps_its_code_under_context() {
        let error = anyhow::Error::new(Problem::usage("-e: empty").hint("name an event")).context("record");
        let problem = error.downcast_ref::<Problem>().unwrap();
        assert_eq!((problem.code, problem.hint_line()), (2, Some("name an event")));
    }
}

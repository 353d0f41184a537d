//! What we say to people, on stderr: `afterimage: what: cause`, then perhaps a line with a hint.
//!
//! Results go to stdout and never through here. `-q` keeps errors and warnings only, `-v` adds details.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use crate::cli::Talk;
use crate::terminal::clean;

/// The voice of the command.
pub(crate) struct Say {
    quiet: bool,
    verbose: u8,
    colour: bool,
}

impl Say {
    /// A voice as loud as the command line asks for, coloured only on a terminal that allows it.
    pub(crate) fn new(talk: &Talk) -> Self {
        Say { quiet: talk.quiet, verbose: talk.verbose, colour: colour_allowed() }
    }

    /// Why the command failed, with its chain of causes.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        self.line("31", &format!("{error:#}"));
    }

    /// Something is not as it should be, and we go on.
    pub(crate) fn warn(&self, what: impl Display) {
        self.line("33", &what.to_string());
    }

    /// Something worth knowing.
    pub(crate) fn note(&self, what: impl Display) {
        if !self.quiet {
            self.line("", &what.to_string());
        }
    }

    /// Lines that show the place of what was said before.
    pub(crate) fn picture(&self, lines: &str) {
        lines.lines().for_each(|line| put(&format!("  {}\n", clean(line))));
    }

    /// What to do about the line before.
    pub(crate) fn hint(&self, what: impl Display) {
        put(&format!("  hint: {}\n", clean(&what.to_string())));
    }

    /// What may be done next, unless only problems are to be told.
    pub(crate) fn hint_unless_quiet(&self, what: impl Display) {
        if !self.quiet {
            self.hint(what);
        }
    }

    /// A detail for `-v`.
    pub(crate) fn detail(&self, what: impl Display) {
        if self.verbose > 0 {
            self.line("", &what.to_string());
        }
    }

    /// How often `-v` was given.
    pub(crate) fn verbosity(&self) -> u8 {
        self.verbose
    }

    /// Whether `-q` was given.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    fn line(&self, colour: &str, text: &str) {
        let text = clean(text);
        if self.colour && !colour.is_empty() {
            put(&format!("\x1b[1;{colour}mafterimage:\x1b[0m {text}\n"));
        } else {
            put(&format!("afterimage: {text}\n"));
        }
    }
}

/// One write, so that lines of several threads do not mix. A closed stderr is not our failure.
fn put(line: &str) {
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

fn colour_allowed() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    std::io::stderr().is_terminal() && !set("NO_COLOR") && std::env::var_os("TERM").is_some_and(|t| t != "dumb")
}

//! The command line. Each flag is defined once; its parser, `-h` and `--help` come from here.
//!
//! Options are perf's where perf has one, with perf's meaning. The last of a repeated single-valued option wins.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};

use crate::exit;
use crate::record::RecordArgs;

/// A sampling profiler for Linux with a program on every sample.
#[derive(Parser, Debug)]
#[command(name = "afterimage", version, about, args_override_self = true, max_term_width = 100)]
pub(crate) struct Line {
    #[command(flatten)]
    pub(crate) talk: Talk,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How much we say on stderr.
#[derive(Args, Debug, Default)]
pub(crate) struct Talk {
    /// Say only what went wrong
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Say more (may be given more than once)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Record samples into a file that perf reads too
    Record(RecordArgs),
    /// What is planned and not built
    #[command(hide = true, name = "top", aliases = ["annotate", "diff", "handler", "serve", "stat", "text"])]
    Later(LaterArgs),
}

/// A subcommand that is not built: whatever follows is accepted, so that the answer is always the same.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct LaterArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

impl LaterArgs {
    /// The answer to a subcommand that is not built.
    pub(crate) fn refuse(&self) -> anyhow::Error {
        exit::not_yet("this subcommand")
    }
}

/// Parses a command line; the first word is the name of the program.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Line, clap::Error> {
    Line::try_parse_from(words)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        super::Line::command().debug_assert();
    }
}

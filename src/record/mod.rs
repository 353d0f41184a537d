//! `afterimage record`: the live session as a subcommand.

mod args;

pub(crate) use args::RecordArgs;

use crate::exit::{Exit, not_yet};
use crate::say::Say;

/// Records until the command ends, the duration is over or a signal comes.
pub(crate) fn run(args: &RecordArgs, _say: &Say) -> anyhow::Result<Exit> {
    if let Some(option) = args.later.first() {
        return Err(not_yet(option));
    }
    Err(not_yet("record"))
}

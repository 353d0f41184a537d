//! `afterimage record`: the live session as a subcommand.

use crate::exit::{Exit, not_yet};
use crate::say::Say;

/// What `record` was asked to do.
#[derive(clap::Args, Debug)]
pub(crate) struct RecordArgs {}

/// Records until the command ends, the duration is over or a signal comes.
pub(crate) fn run(_args: &RecordArgs, _say: &Say) -> anyhow::Result<Exit> {
    Err(not_yet("record"))
}

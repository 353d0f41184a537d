//! The command line of `handler`.

use clap::{ArgAction, Args, Subcommand};

/// `afterimage handler`
#[derive(Args, Debug)]
pub(crate) struct HandlerArgs {
    #[command(subcommand)]
    pub(crate) what: What,
}

/// What to do with the handlers of recordings that run.
#[derive(Subcommand, Debug)]
pub(crate) enum What {
    /// Print the header afterimage.bpf.h, which a handler of your own includes: one file that needs nothing beside it
    Header,
    /// List the recordings that run, and the handler of each
    List(ListArgs),
    /// Put another handler in force while sampling goes on: no sample falls between
    Swap(SwapArgs),
    /// Take the handler away: every sample goes to the sampling ring
    Clear(ClearArgs),
    /// Keep only samples for which an expression holds, from now on; what it says is in docs/where.md
    Where(WhereArgs),
    /// Show what became of the samples so far
    Stats(StatsArgs),
}

/// `afterimage handler list`
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// What all changes have in common.
#[derive(Args, Debug)]
pub(crate) struct ChangeArgs {
    /// Keep the recording to yourself for so long after the change (or until ctrl-C): whoever else changes something is refused
    #[arg(long, value_name = "SECONDS")]
    pub(crate) hold: Option<f64>,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// `afterimage handler swap`
#[derive(Args, Debug)]
#[command(
    override_usage = "afterimage handler swap [OPTIONS] [SESSION] NAME",
    after_help = "SESSION is the first column of `afterimage handler list`. It may be left out while one recording runs."
)]
pub(crate) struct SwapArgs {
    /// The recording, and the handler: none, emit, count, or one of your own as FILE.o or FILE.o:PROGRAM
    #[arg(value_name = "[SESSION] NAME", required = true, num_args = 1..=2)]
    pub(crate) words: Vec<String>,
    /// Set a constant of your own handler; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", action = ArgAction::Append)]
    pub(crate) set: Vec<String>,
    /// Take a map of the handler in force over into the new one, which has one like it; may be repeated
    #[arg(long = "keep-map", value_name = "NAME", action = ArgAction::Append)]
    pub(crate) keep_maps: Vec<String>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// `afterimage handler clear`
#[derive(Args, Debug)]
pub(crate) struct ClearArgs {
    /// The recording; may be left out while one runs
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// `afterimage handler where`
#[derive(Args, Debug)]
#[command(
    override_usage = "afterimage handler where [OPTIONS] [SESSION] EXPR\n       afterimage handler where [SESSION] --all"
)]
pub(crate) struct WhereArgs {
    /// The recording, and the expression that samples have to fulfil
    #[arg(value_name = "[SESSION] EXPR", num_args = 0..=2)]
    pub(crate) words: Vec<String>,
    /// No expression any more: all samples get to the handler
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// `afterimage handler stats`
#[derive(Args, Debug)]
pub(crate) struct StatsArgs {
    /// The recording; may be left out while one runs
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Again each second, until the recording ends or ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
    /// One JSON object on standard output; with --watch one a line
    #[arg(long)]
    pub(crate) json: bool,
}

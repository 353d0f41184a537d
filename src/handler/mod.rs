//! `afterimage handler`: the handlers of recordings that run: list, swap, clear, where, stats; and the header for your own.

mod args;
mod change;
mod header;
mod list;
mod session;
mod stats;

pub(crate) use args::{HandlerArgs, What};

use crate::exit::Exit;
use crate::say::Say;

/// Does what `handler` is asked for.
pub(crate) fn run(args: &HandlerArgs, say: &Say) -> anyhow::Result<Exit> {
    match &args.what {
        What::Header => header::run(),
        What::List(args) => list::run(args, say),
        What::Swap(args) => change::swap(args, say),
        What::Clear(args) => change::clear(args, say),
        What::Where(args) => change::gate(args, say),
        What::Stats(args) => stats::run(args, say),
    }
}

//! `afterimage handler header`: what handlers of others include.

use std::io::Write as _;

use afterimage_handler::object;
use anyhow::Context as _;

use crate::exit::Exit;
use crate::out;

/// Prints the header.
pub(super) fn run() -> anyhow::Result<Exit> {
    let mut out = out::stdout()?;
    out.write_all(object::header().as_bytes()).context("standard output")?;
    out::flush(&mut out)?;
    Ok(Exit::Done)
}

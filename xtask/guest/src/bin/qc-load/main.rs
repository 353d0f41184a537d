//! `qc-load stress` and `qc-load cost`: what freed kernel text that is held goes through, and what that costs. For guests.
//!
//! Prints one JSON object as its last line. Exit codes: 0 all is well, 1 something is wrong, 2 wrong usage.

mod cost;
mod filters;
mod memory;
mod modules;
mod probe;
mod stress;
mod sys;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

type Result<T> = std::result::Result<T, String>;

#[derive(Parser)]
#[command(name = "qc-load", about = "Freed kernel text that is held")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Text is freed at full rate while readers come and go, and the module too
    Stress(stress::Options),
    /// What loading, closing, freeing and the calls take
    Cost(cost::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().what {
        What::Stress(options) => stress::run(&options),
        What::Cost(options) => cost::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("qc-load: {error}");
            ExitCode::FAILURE
        }
    }
}

//! A sampling profiler for Linux with a program on every sample.
//!
//! The command: parse the line, run the subcommand, decide the exit code. Each subcommand is one module; what they say
//! to people goes through [`say`], how they end through [`exit`].

mod annotate;
mod archive;
mod cache;
mod cli;
mod debuginfod;
mod disasm;
mod doctor;
mod events;
mod exit;
mod export;
mod filters;
mod handler;
mod header;
mod input;
mod out;
mod record;
mod refused;
mod report;
mod say;
mod script;
mod table;
mod terminal;
mod texts;

use std::process::ExitCode;

use cli::{Command, Refused};
use exit::Exit;
use say::Say;

fn main() -> ExitCode {
    let line = match cli::parse(std::env::args_os()) {
        Ok(line) => line,
        Err(Refused::Clap(error)) => return exit::of_usage(&error),
        Err(Refused::Later(error)) => return exit::finish(Err(error), &Say::new(&cli::Talk::default())),
    };
    let say = Say::new(&line.talk);
    let outcome = run(&line.command, &say);
    exit::finish(outcome, &say)
}

fn run(command: &Command, say: &Say) -> anyhow::Result<Exit> {
    match command {
        Command::Record(args) => record::run(args, say),
        Command::Report(args) => report::run(args, say),
        Command::Annotate(args) => annotate::run(args, say),
        Command::Archive(args) => archive::run(args, say),
        Command::Script(args) => script::run(args, say),
        Command::Export(args) => export::run(args, say),
        Command::Text(args) => texts::run(args, say),
        Command::Handler(args) => handler::run(args, say),
        Command::Cache(args) => cache::run(args, say),
        Command::Doctor(args) => doctor::run(args),
        // Refused when the line was parsed.
        Command::Later(_) => Err(exit::not_yet("this subcommand")),
    }
}

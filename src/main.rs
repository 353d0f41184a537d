//! A sampling profiler for Linux with a program on every sample.
//!
//! The command: parse the line, run the subcommand, decide the exit code. Each subcommand is one module; what they say
//! to people goes through [`say`], how they end through [`exit`].

mod cli;
mod exit;
mod record;
mod say;

use std::process::ExitCode;

fn main() -> ExitCode {
    let line = match cli::parse(std::env::args_os()) {
        Ok(line) => line,
        Err(error) => return exit::of_usage(&error),
    };
    let say = say::Say::new(&line.talk);
    let outcome = run(&line.command, &say);
    exit::finish(outcome, &say)
}

fn run(command: &cli::Command, say: &say::Say) -> anyhow::Result<exit::Exit> {
    match command {
        cli::Command::Record(args) => record::run(args, say),
        cli::Command::Later(args) => Err(args.refuse()),
    }
}

//! `load KIND [options]`: makes kernel text come and go, or a known split of CPU time, and says what it made.

#[path = "../load/mod.rs"]
mod load;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use serde_json::json;

use load::cli::{Cli, Kind};
use load::error::Result;
use load::log::Log;
use load::pace::now;
use load::{bpf, busy, cbpf, fentry, kprobe, module, static_key, struct_ops, sys, tail_call, xdp};

fn main() -> ExitCode {
    let cli = Cli::parse();
    sys::silence_libbpf();
    match run(&cli.kind) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(kind: &Kind) -> Result<()> {
    let mut log = Log::open(log_path(kind))?;
    let start = now();
    let name = match kind {
        Kind::Bpf { common, no_info } => bpf::run(common, *no_info, &mut log).map(|()| "bpf"),
        Kind::Cbpf { common } => cbpf::run(common, &mut log).map(|()| "cbpf"),
        Kind::Xdp { common, interface } => xdp::run(common, interface, &mut log).map(|()| "xdp"),
        Kind::Fentry { common } => fentry::run(common, &mut log).map(|()| "fentry"),
        Kind::StructOps { common } => struct_ops::run(common, &mut log).map(|()| "struct-ops"),
        Kind::Kprobe { common, place } => kprobe::run(common, *place, &mut log).map(|()| "kprobe"),
        Kind::TailCall { common } => tail_call::run(common, &mut log).map(|()| "tail-call"),
        Kind::StaticKey { common, key } => static_key::run(common, *key, &mut log).map(|()| "static-key"),
        Kind::Module { common, module: path, spin, init_spin } => {
            module::run(common, path, *spin, *init_spin, &mut log).map(|()| "module")
        }
        Kind::Busy { seconds, processes, .. } => busy::run(*seconds, *processes, &mut log).map(|()| "busy"),
    }?;
    let objects = log.objects();
    log.line(&json!({ "kind": "summary", "load": name, "objects": objects, "began_ns": start, "ended_ns": now() }))
}

fn log_path(kind: &Kind) -> Option<&Path> {
    match kind {
        Kind::Bpf { common, .. }
        | Kind::Cbpf { common }
        | Kind::Xdp { common, .. }
        | Kind::Fentry { common }
        | Kind::StructOps { common }
        | Kind::Kprobe { common, .. }
        | Kind::TailCall { common }
        | Kind::StaticKey { common, .. }
        | Kind::Module { common, .. } => common.log.as_deref(),
        Kind::Busy { log, .. } => log.as_deref(),
    }
}

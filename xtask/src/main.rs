//! Jobs for developers: `cargo xtask JOB`.

mod bench;
mod doctors;
mod fuzz;
mod guest;
mod kernel_core;
mod kernel_patch;
mod synth;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Jobs for developers")]
struct Arguments {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Run every fuzz target, from the committed corpora; prints how often each was executed
    Fuzz(fuzz::Options),
    /// Compare with stock perf: alternating pairs, median of the ratios
    Bench(bench::Options),
    /// Make the recordings of at least a million samples that the reading benches use
    BenchData(bench::data::Options),
    /// Write a recording of a made-up machine as a stream of any length to standard output
    Synth(synth::Options),
    /// Show what doctor says here and said in the guests, side by side
    Doctors,
    /// Run tests in guests with stock kernels, under emulation
    Guest(guest::Options),
    /// Compile the queue of the kernel module kcore_qc to the assembly that it ships
    KernelCore(kernel_core::Options),
    /// Try the series in kernel/patch with Debian's kernel source, or build a kernel with it
    KernelPatch(kernel_patch::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().job {
        Job::Fuzz(options) => fuzz::run(&options),
        Job::Bench(options) => bench::run(&options),
        Job::BenchData(options) => bench::data::run(&options),
        Job::Synth(options) => synth::run(&options),
        Job::Doctors => doctors::run(),
        Job::Guest(options) => guest::run(&options),
        Job::KernelCore(options) => kernel_core::run(&options),
        Job::KernelPatch(options) => kernel_patch::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_path_buf()
}

/// Where cargo builds, as far as this process can tell: the folder above the profile's.
fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

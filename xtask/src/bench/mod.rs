//! Comparisons with stock perf on the same machine, in the same minute, on the same input.
//!
//! Every number is a ratio of two runs side by side, so that a busy or slow machine does not decide; runs alternate and
//! who goes first alternates too. Printed are the median of the ratios and their least and greatest.

mod by;
pub(crate) mod data;
mod length;
mod off_cpu;
pub(crate) mod pairs;
mod process;
mod read;
mod record_cost;
mod record_start;
mod swaps;
mod text_soak;
mod text_storm;

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// record-start, record-cost, by, off-cpu, report, script, text-storm, text-lookup or swaps; all of them when none is named.
    /// length and text-soak run when they are named, and so does qc-cost, in guests
    names: Vec<String>,
    /// How many pairs of runs
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Of the recordings that report, script and length read, those with more samples are left out
    #[arg(long, default_value_t = 2_000_000)]
    samples: u64,
    /// How many programs text-soak loads and closes
    #[arg(long, default_value_t = 100_000)]
    cycles: u64,
    /// How often swaps exchanges handlers by the library
    #[arg(long, default_value_t = 1_000_000)]
    swaps: usize,
}

const NAMES: [&str; 12] = [
    "record-start",
    "record-cost",
    "by",
    "off-cpu",
    "report",
    "script",
    "text-storm",
    "text-lookup",
    "swaps",
    "text-soak",
    "qc-cost",
    "length",
];

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(unknown) = options.names.iter().find(|name| !NAMES.contains(&name.as_str())) {
        bail!("no bench is called {unknown}; there are {}", NAMES.join(", "));
    }
    ensure!(options.pairs > 0, "--pairs 0 measures nothing");
    let wanted = |name: &str| options.names.is_empty() || options.names.iter().any(|asked| asked == name);
    if wanted("text-lookup") {
        text_lookup()?;
    }
    if wanted("swaps") {
        swaps::run(options.swaps)?;
    }
    if options.names.iter().any(|name| name == "qc-cost") {
        ["6.1", "6.12"].iter().try_for_each(|kernel| crate::guest::cost::run(kernel, options.pairs))?;
    }
    let alone = ["text-lookup", "swaps", "qc-cost"];
    if options.names.iter().all(|name| alone.contains(&name.as_str())) && !options.names.is_empty() {
        return Ok(());
    }
    let tools = Tools::find()?;
    tools.describe()?;
    if wanted("record-start") {
        record_start::run(&tools, options.pairs)?;
    }
    if wanted("record-cost") {
        record_cost::run(&tools, options.pairs)?;
    }
    if wanted("by") {
        by::run(&tools, options.pairs)?;
    }
    if wanted("off-cpu") {
        off_cpu::run(&tools, options.pairs)?;
    }
    if wanted("report") || wanted("script") {
        read::run(&tools, options.pairs, options.samples, wanted("report"), wanted("script"))?;
    }
    if options.names.iter().any(|name| name == "length") {
        length::run(&tools, options.pairs, options.samples)?;
    }
    if wanted("text-storm") {
        text_storm::run(&tools, options.pairs)?;
    }
    if options.names.iter().any(|name| name == "text-soak") {
        text_soak::run(&tools, options.cycles)?;
    }
    Ok(())
}

/// Look-ups of kernel text by address and time, and bytes a text. perf has nothing to compare it with.
fn text_lookup() -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["run", "--release", "--quiet", "-p", "afterimage-kernel-text", "--example", "text_lookup"]);
    ensure!(command.current_dir(crate::root()).status()?.success(), "the example text_lookup failed");
    Ok(())
}

/// The two commands that are compared.
struct Tools {
    ours: PathBuf,
    perf: PathBuf,
}

impl Tools {
    /// Builds ours; finds stock perf.
    fn find() -> Result<Tools> {
        let built =
            Command::new("cargo").args(["build", "--release", "--quiet"]).current_dir(crate::root()).status()?;
        ensure!(built.success(), "cargo build --release failed");
        let perf = Path::new("/usr/bin/perf").to_path_buf();
        ensure!(perf.exists(), "stock perf is not installed: ./test --all installs it");
        Ok(Tools { ours: crate::target_dir().join("release/afterimage"), perf })
    }

    fn describe(&self) -> Result<()> {
        let version = Command::new(&self.perf).arg("--version").output().context("perf --version")?;
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let cpus = std::thread::available_parallelism()?;
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        println!("{}, Linux {}, {cpus} CPUs", version.trim(), kernel.trim());
        Ok(())
    }
}

/// Where recordings for benches lie.
fn folder() -> Result<PathBuf> {
    let folder = crate::target_dir().join("bench");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Tries again, at most twice more: perf 6.1 aborts now and then where BPF programs come and go.
fn retrying<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..2 {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) => eprintln!("once more: {error:#}"),
        }
    }
    attempt()
}

//! Runs the fuzz targets of all crates with cargo-fuzz and the nightly compiler.
//!
//! What a run finds goes to a scratch folder in the target directory, so that the committed corpora change only when
//! `--merge` asks for it: then inputs that reach something new are added to them.

use crate::{root, target_dir};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Committed inputs of all targets together stay below this.
const CORPUS_LIMIT: u64 = 5 << 20;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long each target runs
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Add what reaches new code to the committed corpora
    #[arg(long)]
    merge: bool,
    /// Only the targets with these names
    targets: Vec<String>,
}

/// One fuzz target: the folder of its fuzz crate, and its name.
struct Target {
    folder: PathBuf,
    name: String,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut targets = targets()?;
    if !options.targets.is_empty() {
        targets.retain(|target| options.targets.contains(&target.name));
    }
    ensure!(!targets.is_empty(), "no such fuzz target");
    let mut broken = Vec::new();
    let mut lines = Vec::new();
    for target in &targets {
        let (executions, clean) = fuzz(target, options)?;
        lines.push(format!("{:24} {executions:>12} executions in {} s", target.name, options.seconds));
        if !clean {
            broken.push(target.name.as_str());
        }
    }
    println!();
    lines.iter().for_each(|line| println!("{line}"));
    let bytes = targets.iter().map(|target| size_of_folder(&target.corpus())).sum::<u64>();
    ensure!(bytes < CORPUS_LIMIT, "the committed corpora hold {bytes} bytes, more than {CORPUS_LIMIT}");
    if !broken.is_empty() {
        bail!("found something in {}; the inputs are in the artifacts folders", broken.join(", "));
    }
    Ok(())
}

impl Target {
    fn corpus(&self) -> PathBuf {
        self.folder.join("corpus").join(&self.name)
    }
}

/// The binaries named in `crates/*/fuzz/Cargo.toml`, one `fuzz_targets/NAME.rs` each.
fn targets() -> Result<Vec<Target>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        let folder = entry?.path().join("fuzz");
        let Ok(files) = fs::read_dir(folder.join("fuzz_targets")) else { continue };
        for file in files {
            let path = file?.path();
            if let (Some(stem), true) = (path.file_stem(), path.extension().is_some_and(|e| e == "rs")) {
                found.push(Target { folder: folder.clone(), name: stem.to_string_lossy().into_owned() });
            }
        }
    }
    found.sort_by(|a, b| (&a.folder, &a.name).cmp(&(&b.folder, &b.name)));
    Ok(found)
}

/// Runs one target; gives the executions and whether nothing was found.
fn fuzz(target: &Target, options: &Options) -> Result<(u64, bool)> {
    let scratch = target_dir().join("fuzz-corpus").join(&target.name);
    fs::create_dir_all(&scratch)?;
    fs::create_dir_all(target.corpus())?;
    println!("== {}", target.name);
    // libFuzzer writes new inputs into the first folder only.
    let output = cargo_fuzz(target, &[&scratch, &target.corpus()])
        .arg(format!("-max_total_time={}", options.seconds))
        .args(["-print_final_stats=1", "-rss_limit_mb=2048", "-verbosity=0"])
        .stderr(Stdio::piped())
        .output()
        .context("cargo +nightly fuzz (install it with: cargo install cargo-fuzz)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let Some(executions) = executions(&said) else {
        bail!("{} did not run:\n{said}", target.name);
    };
    let clean = output.status.success();
    if !clean {
        eprintln!("{said}");
    }
    if clean && options.merge {
        let merged = cargo_fuzz(target, &[&target.corpus(), &scratch]).arg("-merge=1").output()?;
        ensure!(merged.status.success(), "{}", String::from_utf8_lossy(&merged.stderr));
    }
    Ok((executions, clean))
}

fn cargo_fuzz(target: &Target, folders: &[&Path]) -> Command {
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz", "run", "--fuzz-dir"]).arg(&target.folder).arg(&target.name).args(folders);
    command.arg("--").current_dir(&target.folder);
    command
}

fn executions(said: &str) -> Option<u64> {
    let line = said.lines().rev().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    line.trim().parse().ok()
}

fn size_of_folder(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::executions;

    #[test]
    fn executions_are_read_from_the_final_statistics() {
        let said = "#12 DONE\nstat::number_of_executed_units: 3400000\nstat::average_exec_per_sec:     1000\n";
        assert_eq!(executions(said), Some(3_400_000));
        assert_eq!(executions("error: no such target"), None);
    }
}

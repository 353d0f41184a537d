//! Handlers exchanged while samples arrive at 10 kHz on every CPU: what a swap of the library takes, a million times, with
//! what became of the samples; and what a whole `handler swap` takes, from its start to its end.

use super::folder;
use super::pairs::median;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// `swaps` of the library, and one command for some thousand of them.
pub(super) fn run(swaps: usize) -> Result<()> {
    let mut library = Command::new("cargo");
    library.args(["test", "--release", "--quiet", "-p", "afterimage-handler", "--test", "native", "--"]);
    library.args(["a_handler_and_an_object_take_turns", "--nocapture"]).env("AFTERIMAGE_SWAPS", swaps.to_string());
    ensure!(library.current_dir(crate::root()).status()?.success(), "the swaps of the library failed");
    let built = Command::new("cargo").args(["build", "--release", "--quiet"]).current_dir(crate::root()).status()?;
    ensure!(built.success(), "cargo build --release failed");
    commands(&crate::target_dir().join("release/afterimage"), (swaps / 3000).clamp(30, 300))
}

/// A recording that is killed when this goes.
struct Recorder(Child);

impl Drop for Recorder {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing else to do about either.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn commands(ours: &Path, times: usize) -> Result<()> {
    let data = folder()?.join("swaps.data");
    let mut record = Command::new(ours);
    record.args(["record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", "10000", "-o"]).arg(&data);
    let recorder = Recorder(record.stdout(Stdio::null()).spawn().context("afterimage record")?);
    let session = recorder.0.id().to_string();
    // The scan of what was there before comes first.
    sleep(Duration::from_secs(3));
    let mut took = Vec::new();
    for turn in 0..times {
        let name = if turn % 2 == 0 { "count" } else { "none" };
        let before = Instant::now();
        let status = Command::new(ours).args(["handler", "swap", &session, name]).stdout(Stdio::null()).status()?;
        took.push(before.elapsed().as_secs_f64() * 1000.0);
        ensure!(status.success(), "handler swap {name} ended with {status}");
    }
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!(
        "handler swap, the whole command, {times} times: {:.1} ms (median), {:.1} (99 %), {:.1} (most)",
        median(&took),
        at(0.99),
        at(1.0)
    );
    drop(recorder);
    std::fs::remove_file(&data)?;
    Ok(())
}

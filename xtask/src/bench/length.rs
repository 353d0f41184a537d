//! Reading recordings of one kind and several lengths: what ten times as many samples take. Ours alone, for stock perf needs
//! an hour for the longest; who wants both runs `report` and `script` with `--samples`.

use super::Tools;
use super::data::{Recording, recordings};
use super::pairs::{median, print_table};
use super::process::{self, Taken};
use super::read::{Bench, REPORTS, SCRIPT};
use anyhow::{Result, ensure};
use std::process::Command;

/// Reads all recordings of at most so many samples, in rounds, so that a busy minute falls on all of them.
pub(super) fn run(tools: &Tools, rounds: usize, most: u64) -> Result<()> {
    let recordings = recordings(most)?;
    ensure!(
        recordings.chunk_by(|a, b| a.name == b.name).any(|of_kind| of_kind.len() > 1),
        "no recordings of one kind and two lengths; first run: cargo xtask bench-data"
    );
    let header = ["", "file", "samples", "time", "memory", "samples, ratio", "time, ratio", "memory, ratio"];
    let mut rows = vec![header.map(String::from).to_vec()];
    for bench in REPORTS.iter().chain([&SCRIPT]) {
        for of_kind in recordings.chunk_by(|a, b| a.name == b.name) {
            let mut taken = vec![Vec::new(); of_kind.len()];
            for _ in 0..rounds {
                for (taken, recording) in taken.iter_mut().zip(of_kind) {
                    taken.push(read(tools, bench, recording)?);
                }
            }
            let mut first = None;
            for (recording, taken) in of_kind.iter().zip(&taken) {
                rows.push(row(bench, recording, taken, &mut first));
            }
        }
    }
    print_table("recordings of several lengths, ratios to the shortest of a kind", &rows);
    Ok(())
}

fn read(tools: &Tools, bench: &Bench, recording: &Recording) -> Result<Taken> {
    process::time(Command::new(&tools.ours).args(bench.arguments).arg("-i").arg(&recording.path))
}

/// What one length took: the middle one of the times, the most memory.
fn row(bench: &Bench, recording: &Recording, taken: &[Taken], first: &mut Option<[f64; 3]>) -> Vec<String> {
    let time = median(&taken.iter().map(|run| run.wall.as_secs_f64()).collect::<Vec<_>>());
    let memory = taken.iter().map(|run| run.peak_kib).max().unwrap_or(0);
    let these = [recording.samples as f64, time, memory as f64];
    let ratios = first.get_or_insert(these).map(|of_first| 1.0 / of_first);
    let ratio = |nth: usize| format!("{:.2}", these[nth] * ratios[nth]);
    vec![
        bench.name.to_owned(),
        recording.name.to_owned(),
        recording.samples.to_string(),
        format!("{time:.3} s"),
        format!("{} MiB", memory >> 10),
        ratio(0),
        ratio(1),
        ratio(2),
    ]
}

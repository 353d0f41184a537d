//! Reading a big recording: `report` and `script`, end to end.

use super::Tools;
use super::data::{Recording, recordings};
use super::pairs::{Ratios, median, print_table};
use super::process::{self, Taken};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// One comparison: what both sides are told beside `-i FILE`. perf is spared the lookup of inlined functions, which
/// ours does not do.
struct Bench {
    name: &'static str,
    arguments: &'static [&'static str],
}

const REPORTS: [Bench; 2] = [
    Bench { name: "report -g none", arguments: &["report", "--stdio", "--no-children", "--no-inline", "-g", "none"] },
    Bench {
        name: "report -g graph",
        arguments: &["report", "--stdio", "--no-children", "--no-inline", "-g", "graph,0.5,caller"],
    },
];

const SCRIPT: Bench = Bench { name: "script", arguments: &["script", "--no-inline"] };

pub(super) fn report(tools: &Tools, pairs: usize) -> Result<()> {
    let recordings = recordings()?;
    for recording in &recordings {
        let (ours, perf) = (samples_by_ours(tools, recording)?, samples_by_perf(tools, recording)?);
        agree(recording, ours, perf)?;
    }
    compare(tools, &REPORTS, &recordings, pairs)
}

pub(super) fn script(tools: &Tools, pairs: usize) -> Result<()> {
    let recordings = recordings()?;
    for recording in &recordings {
        agree(recording, samples_in_script(&tools.ours, recording)?, samples_in_script(&tools.perf, recording)?)?;
    }
    compare(tools, &[SCRIPT], &recordings, pairs)
}

fn agree(recording: &Recording, ours: u64, perf: u64) -> Result<()> {
    let samples = recording.samples;
    ensure!(
        ours == samples && perf == samples,
        "{} has {samples} samples, ours says {ours}, perf {perf}",
        recording.name
    );
    println!("{}: both read {samples} samples", recording.path.display());
    Ok(())
}

fn compare(tools: &Tools, benches: &[Bench], recordings: &[Recording], pairs: usize) -> Result<()> {
    let header = ["", "file", "ours", "perf", "perf over ours", "CPU, perf over ours", "memory, ours", "memory, perf"];
    let mut rows = vec![header.map(String::from).to_vec()];
    for bench in benches {
        for recording in recordings {
            rows.push(row(tools, bench, recording, pairs)?);
        }
    }
    print_table("reading a recording from start to end, wall time", &rows);
    Ok(())
}

fn row(tools: &Tools, bench: &Bench, recording: &Recording, pairs: usize) -> Result<Vec<String>> {
    let run = |tool: &Path| process::time(Command::new(tool).args(bench.arguments).arg("-i").arg(&recording.path));
    warm(&recording.path)?;
    let (mut ours, mut perf) = (Vec::new(), Vec::new());
    let (mut wall, mut cpu) = (Ratios::default(), Ratios::default());
    for turn in 0..pairs {
        let (mine, theirs) = if turn % 2 == 0 {
            let mine = run(&tools.ours)?;
            (mine, run(&tools.perf)?)
        } else {
            let theirs = run(&tools.perf)?;
            (run(&tools.ours)?, theirs)
        };
        wall.push(theirs.wall.as_secs_f64() / mine.wall.as_secs_f64());
        cpu.push(theirs.cpu.as_secs_f64() / mine.cpu.as_secs_f64());
        ours.push(mine);
        perf.push(theirs);
    }
    let seconds = |runs: &[Taken]| {
        let walls: Vec<f64> = runs.iter().map(|run| run.wall.as_secs_f64()).collect();
        format!("{:.2} s", median(&walls))
    };
    let memory = |runs: &[Taken]| format!("{} MiB", runs.iter().map(|run| run.peak_kib).max().unwrap_or(0) >> 10);
    Ok(vec![
        bench.name.to_owned(),
        recording.name.to_owned(),
        seconds(&ours),
        seconds(&perf),
        wall.to_string(),
        cpu.to_string(),
        memory(&ours),
        memory(&perf),
    ])
}

/// Reads the file once, so that neither side waits for the disk.
fn warm(path: &Path) -> Result<()> {
    std::io::copy(&mut File::open(path)?, &mut std::io::sink())?;
    Ok(())
}

fn samples_by_ours(tools: &Tools, recording: &Recording) -> Result<u64> {
    let output = Command::new(&tools.ours).args(["report", "--json", "-i"]).arg(&recording.path).output()?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).context("afterimage report --json")?;
    let events = report["events"].as_array().context("events")?;
    Ok(events.iter().filter_map(|event| event["samples"].as_u64()).sum())
}

fn samples_by_perf(tools: &Tools, recording: &Recording) -> Result<u64> {
    let arguments = ["report", "--stdio", "--no-children", "-g", "none", "-s", "comm", "-F", "sample", "-i"];
    let output = Command::new(&tools.perf).args(arguments).arg(&recording.path).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let first = |line: &str| line.split_whitespace().next()?.parse::<u64>().ok();
    Ok(text.lines().filter(|line| !line.starts_with('#')).filter_map(first).sum())
}

/// Every sample with a call chain ends in an empty line.
fn samples_in_script(tool: &Path, recording: &Recording) -> Result<u64> {
    let mut child = Command::new(tool)
        .args(SCRIPT.arguments)
        .arg("-i")
        .arg(&recording.path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let stdout = child.stdout.take().context("stdout")?;
    let (mut samples, mut fresh) = (0, true);
    for line in BufReader::with_capacity(1 << 20, stdout).split(b'\n') {
        let empty = line?.is_empty();
        samples += u64::from(fresh && !empty);
        fresh = empty;
    }
    let (status, ..) = process::reap(child)?;
    ensure!(status == 0, "{} script ended with status {status}", tool.display());
    Ok(samples)
}

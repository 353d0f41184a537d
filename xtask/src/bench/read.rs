//! Reading big recordings: `report` and `script`, end to end, against stock perf and against `cat`.
//!
//! Ours runs with its cache of symbols warm, as it is from the second command on; what it takes with an empty one stands
//! beside that. Of recordings of one kind and several lengths, the cost of a sample and what a command takes before the
//! first one are told apart.

use super::Tools;
use super::data::{Recording, recordings};
use super::pairs::{Ratios, median, print_table};
use super::process::{self, Taken};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One comparison: what both sides are told beside `-i FILE`. perf is spared the lookup of inlined functions, which
/// ours does not do.
pub(super) struct Bench {
    pub(super) name: &'static str,
    pub(super) arguments: &'static [&'static str],
}

pub(super) const REPORTS: [Bench; 3] = [
    Bench { name: "report -g none", arguments: &["report", "--stdio", "--no-children", "--no-inline", "-g", "none"] },
    Bench {
        name: "report -g graph",
        arguments: &["report", "--stdio", "--no-children", "--no-inline", "-g", "graph,0.5,caller"],
    },
    Bench {
        name: "report --children",
        arguments: &["report", "--stdio", "--children", "--no-inline", "-g", "graph,0.5,caller"],
    },
];

pub(super) const SCRIPT: Bench = Bench { name: "script", arguments: &["script", "--no-inline"] };

/// Compares the reports, the script, or both, on all recordings of at most so many samples.
pub(super) fn run(tools: &Tools, pairs: usize, most: u64, report: bool, script: bool) -> Result<()> {
    let recordings = recordings(most)?;
    let mut benches: Vec<&Bench> = Vec::new();
    if report {
        for recording in &recordings {
            agree(recording, samples_by_ours(tools, recording)?, samples_by_perf(tools, recording)?)?;
        }
        benches.extend(&REPORTS);
    }
    if script {
        for recording in &recordings {
            agree(recording, samples_in_script(&tools.ours, recording)?, samples_in_script(&tools.perf, recording)?)?;
        }
        benches.push(&SCRIPT);
    }
    let header = [
        "",
        "file",
        "samples",
        "ours",
        "perf",
        "perf over ours",
        "CPU, perf over ours",
        "ours over cat",
        "cold cache",
        "memory, ours",
        "memory, perf",
        "perf over ours",
    ];
    let mut rows = vec![header.map(String::from).to_vec()];
    let mut lengths = Vec::new();
    for bench in benches {
        for recording in &recordings {
            let row = Measured::of(tools, bench, recording, pairs)?;
            rows.push(row.cells());
            lengths.push(row);
        }
    }
    print_table("reading a recording from start to end, wall time", &rows);
    marginal(&lengths);
    Ok(())
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

/// One bench on one recording.
struct Measured {
    bench: &'static str,
    file: &'static str,
    samples: u64,
    ours: Vec<Taken>,
    perf: Vec<Taken>,
    wall: Ratios,
    cpu: Ratios,
    over_cat: Ratios,
    memory: Ratios,
    cold: Duration,
}

impl Measured {
    fn of(tools: &Tools, bench: &Bench, recording: &Recording, pairs: usize) -> Result<Measured> {
        let command = |tool: &Path| {
            let mut command = Command::new(tool);
            command.args(bench.arguments).arg("-i").arg(&recording.path);
            command
        };
        let run = |tool: &Path| process::time(&mut command(tool));
        let empty = tempfile::tempdir()?;
        let cold = process::time(command(&tools.ours).env("XDG_CACHE_HOME", empty.path()))?.wall;
        let mut all = Measured {
            bench: bench.name,
            file: recording.name,
            samples: recording.samples,
            ours: Vec::new(),
            perf: Vec::new(),
            wall: Ratios::default(),
            cpu: Ratios::default(),
            over_cat: Ratios::default(),
            memory: Ratios::default(),
            cold,
        };
        for turn in 0..pairs {
            let cat = cat(&recording.path)?;
            let (mine, theirs) = if turn % 2 == 0 {
                let mine = run(&tools.ours)?;
                (mine, run(&tools.perf)?)
            } else {
                let theirs = run(&tools.perf)?;
                (run(&tools.ours)?, theirs)
            };
            all.wall.push(theirs.wall.as_secs_f64() / mine.wall.as_secs_f64());
            all.cpu.push(theirs.cpu.as_secs_f64() / mine.cpu.as_secs_f64());
            all.over_cat.push(mine.wall.as_secs_f64() / cat.as_secs_f64());
            all.memory.push(theirs.peak_kib as f64 / mine.peak_kib as f64);
            all.ours.push(mine);
            all.perf.push(theirs);
        }
        Ok(all)
    }

    fn cells(&self) -> Vec<String> {
        let memory = |runs: &[Taken]| format!("{} MiB", runs.iter().map(|run| run.peak_kib).max().unwrap_or(0) >> 10);
        vec![
            self.bench.to_owned(),
            self.file.to_owned(),
            self.samples.to_string(),
            format!("{:.3} s", seconds(&self.ours)),
            format!("{:.3} s", seconds(&self.perf)),
            self.wall.to_string(),
            self.cpu.to_string(),
            self.over_cat.to_string(),
            format!("{:.3} s", self.cold.as_secs_f64()),
            memory(&self.ours),
            memory(&self.perf),
            self.memory.to_string(),
        ]
    }
}

/// The middle one of the wall times.
fn seconds(runs: &[Taken]) -> f64 {
    median(&runs.iter().map(|run| run.wall.as_secs_f64()).collect::<Vec<_>>())
}

/// What a sample costs and what a start does, of each bench and kind of recording that has two lengths.
fn marginal(all: &[Measured]) {
    let header = ["", "file", "a sample, ours", "perf", "perf over ours", "start, ours", "perf"];
    let mut rows = vec![header.map(String::from).to_vec()];
    for of_kind in all.chunk_by(|a, b| (a.bench, a.file) == (b.bench, b.file)) {
        let [first, .., last] = of_kind else { continue };
        let (few, many) = (first.samples as f64, last.samples as f64);
        let line = |first: f64, last: f64| {
            let each = (last - first) / (many - few);
            (each, first - each * few)
        };
        let (ours, start) = line(seconds(&first.ours), seconds(&last.ours));
        let (perf, perf_start) = line(seconds(&first.perf), seconds(&last.perf));
        rows.push(vec![
            first.bench.to_owned(),
            first.file.to_owned(),
            format!("{:.0} ns", ours * 1e9),
            format!("{:.0} ns", perf * 1e9),
            format!("{:.2}", perf / ours),
            format!("{:.0} ms", start * 1e3),
            format!("{:.0} ms", perf_start * 1e3),
        ]);
    }
    if rows.len() > 1 {
        print_table("from the shortest to the longest of each kind", &rows);
    }
}

/// What it takes to read the file and do nothing with it, as `cat` does. The first time it is also what brings the file into
/// memory, so that neither side waits for the disk.
fn cat(path: &Path) -> Result<Duration> {
    let mut buffer = vec![0; 256 << 10];
    let mut once = || -> Result<Duration> {
        let (mut file, start) = (File::open(path)?, Instant::now());
        while file.read(&mut buffer)? > 0 {}
        Ok(start.elapsed())
    };
    once()?;
    once()
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

//! What recording a command that does nothing takes: until the command runs, and in all.
//!
//! Everything but the command is the recorder's own, so this is how long a user waits before sampling begins and after it
//! has ended, and what both cost. The command tells when it ran: it is started when sampling is ready.

use super::pairs::{Ratios, median, print_table};
use super::{Tools, folder, process, retrying};
use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The recorders, with options of their own; the last one is stock perf.
const WAYS: [(&str, &[&str]); 4] = [
    ("afterimage record", &[]),
    ("afterimage record --no-text", &["--no-text"]),
    ("afterimage record -a", &["-a"]),
    // Without build IDs: perf 6.1 aborts while it gathers them where BPF programs come and go. It saves perf work.
    ("perf record", &["-N", "-B"]),
];
const PERF: usize = WAYS.len() - 1;

/// One run.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Until the command ran.
    start: Duration,
    wall: Duration,
    /// Of the recorder and the command.
    cpu: Duration,
}

pub(super) fn run(tools: &Tools, pairs: usize) -> Result<()> {
    let mut runs: [Vec<Run>; WAYS.len()] = Default::default();
    // What is kept on disk for the next recording is there in all runs, and so are the programs' files in memory.
    for way in 0..WAYS.len() {
        retrying(|| measure(tools, way))?;
    }
    for turn in 0..pairs {
        for step in 0..WAYS.len() {
            let way = (turn + step) % WAYS.len();
            runs[way].push(retrying(|| measure(tools, way))?);
        }
    }
    show(&runs);
    Ok(())
}

fn measure(tools: &Tools, way: usize) -> Result<Run> {
    let data = folder()?.join("record-start.data");
    let mut command = Command::new(if way == PERF { &tools.perf } else { &tools.ours });
    command.args(["record", "-q", "-e", "cpu-clock", "-o"]).arg(&data).args(WAYS[way].1);
    command.args(["--", "date", "+%s%N"]).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let (began, start) = (SystemTime::now().duration_since(UNIX_EPOCH)?, Instant::now());
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let mut told = String::new();
    let mut stdout = child.stdout.take().context("no output of the command")?;
    std::io::Read::read_to_string(&mut stdout, &mut told)?;
    let (status, cpu, _) = process::reap(child)?;
    let wall = start.elapsed();
    ensure!(status == 0, "{command:?} ended with status {status}");
    let ran = told.lines().next().and_then(|line| line.trim().parse().ok()).map(Duration::from_nanos);
    let start = ran.with_context(|| format!("the command told no time: {told:?}"))?.saturating_sub(began);
    std::fs::remove_file(&data)?;
    Ok(Run { start, wall, cpu })
}

fn show(runs: &[Vec<Run>; WAYS.len()]) {
    let of = |way: &[Run], part: fn(&Run) -> Duration| -> Vec<f64> {
        way.iter().map(|run| 1000.0 * part(run).as_secs_f64()).collect()
    };
    let parts: [fn(&Run) -> Duration; 3] = [|run| run.start, |run| run.wall, |run| run.cpu];
    let header = ["", "until it samples", "over perf's", "in all", "over perf's", "CPU", "over perf's"];
    let mut rows = vec![header.map(String::from).to_vec()];
    for ((name, _), way) in WAYS.iter().zip(runs) {
        let mut row = vec![(*name).to_owned()];
        for part in parts {
            let (ours, perf) = (of(way, part), of(&runs[PERF], part));
            let mut ratios = Ratios::default();
            ours.iter().zip(&perf).for_each(|(ours, perf)| ratios.push(ours / perf));
            row.extend([format!("{:.0} ms", median(&ours)), ratios.to_string()]);
        }
        rows.push(row);
    }
    print_table("record -e cpu-clock -- date", &rows);
}

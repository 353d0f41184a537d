//! Counting by keys in the kernel: `record --by kstack,comm` beside bpftrace's `profile` with the same keys, and beside a
//! recording by perf that could be counted afterwards.
//!
//! A busy process and a walk over files run meanwhile. Compared are how many samples each way counted, what share of them
//! the busy process has, and what the way itself costs: its CPU time while nothing but sampling happens, and from start to
//! end, with start-up, names and printing.

use super::pairs::{Ratios, median, print_table};
use super::{Tools, folder, process, retrying};
use afterimage_testkit::workload;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SECONDS: u64 = 8;
/// Start-up is over by then, with whatever a way compiles.
const SETTLED: Duration = Duration::from_millis(3000);
const STEADY: Duration = Duration::from_millis(4000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Ours,
    Bpftrace,
    Perf,
}

const WAYS: [(Way, &str); 3] = [
    (Way::Ours, "afterimage record --by kstack,comm"),
    (Way::Bpftrace, "bpftrace profile @[kstack, comm]"),
    (Way::Perf, "perf record -g"),
];

/// One run.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Share of one CPU while only sampling happens.
    steady: f64,
    /// CPU seconds from start to end.
    whole: f64,
    samples: u64,
    /// Of them, those of the busy process.
    busy: u64,
}

pub(super) fn run(tools: &Tools, pairs: usize) -> Result<()> {
    let found = Command::new("bpftrace").arg("--version").output();
    let Ok(version) = found else {
        println!("\nby: bpftrace is not installed, which this is compared with: skipped");
        return Ok(());
    };
    println!("\n{}", String::from_utf8_lossy(&version.stdout).trim());
    let mut ways = WAYS.to_vec();
    if let Err(error) = with_load(|| measure(tools, Way::Bpftrace)) {
        println!("bpftrace does not run on this kernel: {error:#}");
        ways.retain(|(way, _)| *way != Way::Bpftrace);
    }
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); ways.len()];
    for turn in 0..pairs {
        for step in 0..ways.len() {
            let at = (turn + step) % ways.len();
            runs[at].push(retrying(|| with_load(|| measure(tools, ways[at].0)))?);
        }
    }
    show(&ways, &runs);
    Ok(())
}

/// Ends with what it holds.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        // One that has ended already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn with_load<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let silent =
        |command: &mut Command| command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _busy = Load(silent(Command::new(workload::build().busy).arg("1000000000"))?);
    // Each walk is a process of its own, and all of them end soon after the shell.
    let _walk = Load(silent(Command::new("sh").args(["-c", "while :; do find /usr/share /usr/lib -name x; done"]))?);
    work()
}

fn measure(tools: &Tools, way: Way) -> Result<Run> {
    let (said, data) = (folder()?.join("by.out"), folder()?.join("by.data"));
    let mut command = match way {
        Way::Ours => {
            let mut command = Command::new(&tools.ours);
            command.args(["record", "-q", "-a", "--by", "kstack,comm", "--json", "-e", "cpu-clock", "-F", "999"]);
            command.args(["--duration", &SECONDS.to_string()]);
            command
        }
        Way::Bpftrace => {
            let mut command = Command::new("bpftrace");
            let program = format!("profile:hz:999 {{ @[kstack, comm] = count(); }} interval:s:{SECONDS} {{ exit(); }}");
            command.args(["-f", "json", "-e", &program]);
            command
        }
        Way::Perf => {
            let mut command = Command::new(&tools.perf);
            command.args(["record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", "999", "-B", "-N", "-o"]).arg(&data);
            command.args(["--", "sleep", &SECONDS.to_string()]);
            command
        }
    };
    let child = command.stdin(Stdio::null()).stdout(File::create(&said)?).stderr(Stdio::null()).spawn()?;
    sleep(SETTLED);
    let (start, before) = (Instant::now(), process::cpu_ns_of(child.id())?);
    sleep(STEADY);
    let steady = (process::cpu_ns_of(child.id())? - before) as f64 / start.elapsed().as_nanos() as f64;
    let (status, cpu, _) = process::reap(child)?;
    ensure!(status == 0, "{command:?} ended with status {status}");
    let text = std::fs::read_to_string(&said)?;
    let (samples, busy) = match way {
        Way::Ours => ours(&text)?,
        Way::Bpftrace => bpftrace(&text)?,
        Way::Perf => recorded(tools, &data)?,
    };
    Ok(Run { steady, whole: cpu.as_secs_f64(), samples, busy })
}

fn ours(text: &str) -> Result<(u64, u64)> {
    let said: Value = serde_json::from_str(text).context("the readout")?;
    let rows = said["events"][0]["rows"].as_array().context("rows")?;
    let of = |row: &Value| row["samples"].as_u64().unwrap_or(0);
    let busy = rows.iter().filter(|row| row["comm"] == "busy").map(of).sum();
    Ok((rows.iter().map(of).sum(), busy))
}

/// The keys of its map are a stack of many lines, a comma and a name.
fn bpftrace(text: &str) -> Result<(u64, u64)> {
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let said: Value = serde_json::from_str(line).context("what bpftrace prints")?;
        let Some(map) = said["data"]["@"].as_object() else { continue };
        let of = |value: &Value| value.as_u64().unwrap_or(0);
        let busy = map.iter().filter(|(key, _)| key.ends_with(",busy")).map(|(_, value)| of(value)).sum();
        return Ok((map.values().map(of).sum(), busy));
    }
    bail!("bpftrace printed no map")
}

fn recorded(tools: &Tools, data: &std::path::Path) -> Result<(u64, u64)> {
    let report = Command::new(&tools.ours).args(["report", "--json", "--sort", "comm", "-i"]).arg(data).output()?;
    let said: Value = serde_json::from_slice(&report.stdout).context("the report")?;
    std::fs::remove_file(data)?;
    let event = &said["events"][0];
    let rows = event["rows"].as_array().context("rows")?;
    let busy = rows.iter().filter(|row| row["comm"] == "busy").filter_map(|row| row["samples"].as_u64()).sum();
    Ok((event["samples"].as_u64().context("samples")?, busy))
}

fn show(ways: &[(Way, &str)], runs: &[Vec<Run>]) {
    let header = ["", "samples", "share of busy", "while sampling", "ours over it", "start to end", "ours over it"];
    let mut table = vec![header.map(String::from).to_vec()];
    let ours = &runs[0];
    for ((_, name), way) in ways.iter().zip(runs) {
        let (mut steady, mut whole) = (Ratios::default(), Ratios::default());
        for (own, other) in ours.iter().zip(way) {
            steady.push(own.steady / other.steady);
            whole.push(own.whole / other.whole);
        }
        let middle = |of: &dyn Fn(&Run) -> f64| median(&way.iter().map(of).collect::<Vec<_>>());
        table.push(vec![
            (*name).to_owned(),
            format!("{:.0}", middle(&|run| run.samples as f64)),
            format!("{:.2} %", 100.0 * middle(&|run| run.busy as f64 / run.samples as f64)),
            format!("{:.3} %", 100.0 * middle(&|run| run.steady)),
            steady.to_string(),
            format!("{:.2} s", middle(&|run| run.whole)),
            whole.to_string(),
        ]);
    }
    let expected = 999 * SECONDS * std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    print_table(&format!("by kstack, comm at 999 Hz for {SECONDS} s on all CPUs, {expected} samples expected"), &table);
}

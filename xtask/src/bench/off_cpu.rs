//! What it costs to measure time off CPU, at a hundred thousand switches a second.
//!
//! Two threads hand a byte to and fro on one CPU at that rate. Compared are the CPU time that they and the recorder use
//! while time off CPU is recorded too, and while the same is recorded without it; runs alternate. In runs of their own the
//! kernel counts the time that the programs themselves take, which makes them slower.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use afterimage_testkit::workload;
use anyhow::{Context, Result, ensure};

use super::pairs::{Ratios, median, print_table};
use super::{Tools, folder, process, retrying};

const RATE: u64 = 100_000;
const SECONDS: u64 = 5;

/// One run.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    switches: f64,
    wall_ns: f64,
    /// CPU time of the two threads.
    work_ns: f64,
    /// CPU time of the recorder from start to end, without theirs.
    recorder_ns: f64,
}

impl Run {
    /// Of one CPU.
    fn share(&self, ns: f64) -> f64 {
        100.0 * ns / self.wall_ns
    }
}

const MODES: [(&str, &[&str]); 3] =
    [("without", &[]), ("--off-cpu", &["--off-cpu"]), ("--off-cpu=1ms", &["--off-cpu=1ms"])];

pub(super) fn run(tools: &Tools, pairs: usize) -> Result<()> {
    let mut runs: [Vec<Run>; MODES.len()] = Default::default();
    for turn in 0..pairs {
        for step in 0..MODES.len() {
            let mode = (turn + step) % MODES.len();
            runs[mode].push(retrying(|| measure(tools, MODES[mode].1))?);
        }
    }
    show(&runs);
    for (name, words) in &MODES[1..] {
        let programs = with_stats(|| retrying(|| programs(tools, words)))?;
        println!("  {name}: {programs}");
    }
    Ok(())
}

fn recorder(tools: &Tools, words: &[&str]) -> Result<Command> {
    let data = folder()?.join("off-cpu.data");
    let mut command = Command::new(&tools.ours);
    command.args(["record", "-q", "-F", "99", "-g", "-o"]).arg(&data).args(words);
    command.arg("--").arg(workload::build().switches).args([RATE.to_string(), SECONDS.to_string()]);
    Ok(command)
}

fn measure(tools: &Tools, words: &[&str]) -> Result<Run> {
    let said = folder()?.join("off-cpu.out");
    let mut command = recorder(tools, words)?;
    let child = command.stdin(Stdio::null()).stdout(fs::File::create(&said)?).stderr(Stdio::null()).spawn()?;
    let (status, cpu, _) = process::reap(child)?;
    ensure!(status == 0, "{command:?} ended with status {status}");
    let mut run = read(&said)?;
    // The command is a child of the recorder, whose time has it too.
    run.recorder_ns = cpu.as_nanos() as f64 - run.work_ns;
    Ok(run)
}

fn read(said: &Path) -> Result<Run> {
    let said: serde_json::Value = serde_json::from_str(&fs::read_to_string(said)?).context("what switches prints")?;
    let of = |name: &str| said[name].as_f64().with_context(|| name.to_owned());
    Ok(Run { switches: of("switches")?, wall_ns: of("wall_ns")?, work_ns: of("cpu_ns")?, recorder_ns: 0.0 })
}

fn show(runs: &[Vec<Run>; MODES.len()]) {
    let [without, ..] = runs;
    let header = ["", "switches/s", "work, of one CPU", "over without", "added", "recorder, start to end"];
    let mut rows = vec![header.map(String::from).to_vec()];
    for ((name, _), mode) in MODES.iter().zip(runs) {
        let of = |f: &dyn Fn(&Run) -> f64| median(&mode.iter().map(f).collect::<Vec<_>>());
        let (mut ratios, mut added) = (Ratios::default(), Vec::new());
        for (run, base) in mode.iter().zip(without) {
            ratios.push(run.work_ns / base.work_ns);
            added.push(run.share(run.work_ns) - base.share(base.work_ns));
        }
        rows.push(vec![
            (*name).to_owned(),
            format!("{:.0}", of(&|run| run.switches / (run.wall_ns / 1e9))),
            format!("{:.2} %", of(&|run| run.share(run.work_ns))),
            ratios.to_string(),
            format!("{:.2} %", median(&added)),
            format!("{:.0} ms", of(&|run| run.recorder_ns / 1e6)),
        ]);
    }
    print_table("record -g -F 99 of two threads that switch a hundred thousand times a second", &rows);
}

/// Runs something while the kernel counts the time of programs.
fn with_stats<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";
    let before = fs::read_to_string(SWITCH)?;
    fs::write(SWITCH, "1")?;
    let done = work();
    fs::write(SWITCH, before.trim())?;
    done
}

/// Records once, and reads what the kernel says of the programs that the recorder holds, just before the end.
fn programs(tools: &Tools, words: &[&str]) -> Result<String> {
    let mut command = recorder(tools, words)?;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let (mut last, start) = (None, std::time::Instant::now());
    while child.try_wait()?.is_none() {
        if let Some(found) = ran(child.id()) {
            last = Some((found, start.elapsed()));
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let ((ns, runs), _) = last.context("the recorder holds no program that the kernel counted")?;
    // The runs are those of the whole machine; the work makes the most of them.
    let wall = SECONDS as f64 * 1e9;
    let cpus = std::thread::available_parallelism()?.get() as f64;
    let share = 100.0 * ns as f64 / wall;
    let each = ns as f64 / runs as f64;
    Ok(format!(
        "the program ran {runs} times, {each:.0} ns each: {share:.2} % of one CPU, {:.2} % of the machine",
        share / cpus
    ))
}

/// Time and runs of the busiest program that a process holds, by the kernel's own count.
fn ran(pid: u32) -> Option<(u64, u64)> {
    let infos = fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?;
    let of = |text: &str, name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
    };
    let program = |text: String| Some((of(&text, "run_time_ns")?, of(&text, "run_cnt")?));
    let all = infos.filter_map(|entry| program(fs::read_to_string(entry.ok()?.path()).ok()?));
    all.filter(|(_, runs)| *runs > 0).max_by_key(|(_, runs)| *runs)
}

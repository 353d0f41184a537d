//! What recording costs: the recorder's own CPU time, and how much slower a busy task gets.
//!
//! A fixed amount of work runs while the whole machine is recorded with call chains. Its CPU time under an event of the
//! same rate that is open but has no ring is the floor: that much the kernel takes for the timer and the stack walk,
//! whoever records. What a recorder adds is its own CPU time plus the work's time above the floor, both as a share of
//! one CPU while the work ran.

use super::pairs::{Ratios, median, print_table};
use super::{Tools, folder, process, retrying};
use afterimage_perf_data::{Attr, AttrFlags, SampleType};
use afterimage_perf_event::sys::{Kernel, Real};
use afterimage_testkit::workload;
use anyhow::{Context, Result, ensure};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Samples a second and CPU.
const RATES: [u32; 2] = [999, 9_999];

/// How the machine is recorded while the work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Floor,
    Ring,
    Count,
    Perf,
}

const WAYS: [(Way, &str); 4] = [
    (Way::Floor, "event without output"),
    (Way::Ring, "afterimage record"),
    (Way::Count, "afterimage record --handler count"),
    (Way::Perf, "perf record"),
];

/// One run: shares of one CPU.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// CPU time of the recorder while the work ran.
    recorder: f64,
    /// CPU seconds of the recorder from start to end.
    recorder_in_all: f64,
    /// CPU time of the work in nanoseconds.
    work_ns: f64,
}

pub(super) fn run(tools: &Tools, pairs: usize) -> Result<()> {
    let busy = workload::build().busy;
    let chunks = chunks_for(&busy, Duration::from_secs(4))?;
    for rate in RATES {
        let mut costs: [Vec<Cost>; 4] = Default::default();
        for turn in 0..pairs {
            for step in 0..WAYS.len() {
                let way = (turn + step) % WAYS.len();
                costs[way].push(retrying(|| measure(tools, WAYS[way].0, rate, &busy, chunks))?);
            }
        }
        show(rate, &costs);
    }
    Ok(())
}

/// How many chunks of work take about `time` on an idle CPU here.
fn chunks_for(busy: &Path, time: Duration) -> Result<u64> {
    let probe = 2000;
    let ns = work_ns(busy, probe)?;
    Ok((time.as_nanos() as f64 / ns * probe as f64) as u64)
}

fn work_ns(busy: &Path, chunks: u64) -> Result<f64> {
    let output = Command::new(busy).arg(chunks.to_string()).output()?;
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).context("what busy prints")?;
    said["cpu_ns"].as_f64().context("cpu_ns")
}

fn measure(tools: &Tools, way: Way, rate: u32, busy: &Path, chunks: u64) -> Result<Cost> {
    if way == Way::Floor {
        let events = without_output(rate)?;
        let work_ns = work_ns(busy, chunks)?;
        drop(events);
        return Ok(Cost { recorder: 0.0, recorder_in_all: 0.0, work_ns });
    }
    let data = folder()?.join("record-cost.data");
    let mut command = Command::new(if way == Way::Perf { &tools.perf } else { &tools.ours });
    command.args(["record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", &rate.to_string(), "-o"]).arg(&data);
    match way {
        Way::Count => command.args(["--handler", "count"]),
        // Without build IDs: perf 6.1 aborts while it gathers them where BPF programs come and go. It saves perf work.
        Way::Perf => command.args(["-B", "-N"]),
        _ => &mut command,
    };
    let recorder = command.args(["--", "sleep", "9"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // Starting up is over by then; what it cost is in recorder_in_all.
    sleep(Duration::from_millis(2000));
    let (start, before) = (Instant::now(), process::cpu_ns_of(recorder.id())?);
    let work_ns = work_ns(busy, chunks)?;
    let own = process::cpu_ns_of(recorder.id())? - before;
    let share = own as f64 / start.elapsed().as_nanos() as f64;
    let (status, cpu, _) = process::reap(recorder)?;
    ensure!(status == 0, "{command:?} ended with status {status}");
    std::fs::remove_file(&data)?;
    Ok(Cost { recorder: share, recorder_in_all: cpu.as_secs_f64(), work_ns })
}

/// An enabled cpu-clock event on every CPU that walks stacks and writes nowhere.
fn without_output(rate: u32) -> Result<Vec<OwnedFd>> {
    let attr = Attr {
        kind: 1, // PERF_TYPE_SOFTWARE, of which config 0 is the CPU clock
        config: 0,
        period_or_freq: rate.into(),
        sample_type: SampleType::IP
            | SampleType::TID
            | SampleType::TIME
            | SampleType::CPU
            | SampleType::PERIOD
            | SampleType::CALLCHAIN,
        flags: AttrFlags::FREQ,
        ..Attr::default()
    };
    let cpus = std::thread::available_parallelism()?.get();
    (0..i32::try_from(cpus)?)
        .map(|cpu| {
            let fd = Real.perf_event_open(&attr, -1, cpu, None)?;
            Real.enable(fd.as_fd(), false)?;
            Ok(fd)
        })
        .collect()
}

fn show(rate: u32, costs: &[Vec<Cost>; 4]) {
    let [floor, _, _, perf] = costs;
    let slow_down = |way: &[Cost]| -> Vec<f64> {
        way.iter().zip(floor).map(|(run, floor)| run.work_ns / floor.work_ns - 1.0).collect()
    };
    let added = |way: &[Cost]| -> Vec<f64> {
        slow_down(way).iter().zip(way).map(|(slower, run)| slower + run.recorder).collect()
    };
    let percent = |values: Vec<f64>| format!("{:.2} %", 100.0 * median(&values));
    let header = ["", "recorder", "over perf's", "start to end", "work slower", "both", "both, over perf's"];
    let mut rows = vec![header.map(String::from).to_vec()];
    for ((_, name), way) in WAYS.iter().zip(costs).skip(1) {
        let (mut own, mut ratios) = (Ratios::default(), Ratios::default());
        way.iter().zip(perf).for_each(|(ours, theirs)| own.push(ours.recorder / theirs.recorder));
        added(way).iter().zip(added(perf)).for_each(|(ours, theirs)| ratios.push(ours / theirs));
        rows.push(vec![
            (*name).to_owned(),
            percent(way.iter().map(|run| run.recorder).collect()),
            own.to_string(),
            format!("{:.2} s", median(&way.iter().map(|run| run.recorder_in_all).collect::<Vec<_>>())),
            percent(slow_down(way)),
            percent(added(way)),
            ratios.to_string(),
        ]);
    }
    let title = format!("record -a -g at {rate} Hz, one busy task; shares of one CPU above an event without output");
    print_table(&title, &rows);
}

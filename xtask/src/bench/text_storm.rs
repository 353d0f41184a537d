//! What keeping text costs while programs come and go all the time, and how much of it is kept.
//!
//! While the machine is recorded at a low rate, BPF programs of three functions are loaded and closed at once. Compared
//! are the recorder's own CPU time as a share of one CPU while that lasts, and of how many programs the recording has the
//! code.

use super::pairs::median;
use super::{Tools, folder, process};
use afterimage_perf_data::record::BpfEvent;
use afterimage_perf_data::{FileReader, Record};
use anyhow::{Context, Result, ensure};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Programs a second.
const RATES: [u32; 2] = [1_000, 5_000];
/// How long programs are loaded.
const SECONDS: u32 = 4;

/// One run.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Programs that were loaded in a second.
    rate: f64,
    /// CPU time of the recorder, as a share of one CPU.
    recorder: f64,
    /// Programs of which the recording has the code, as a share.
    kept: f64,
}

pub(super) fn run(tools: &Tools, pairs: usize) -> Result<()> {
    let load = built_load()?;
    for rate in RATES {
        let mut runs: [Vec<Run>; 2] = Default::default();
        for turn in 0..pairs {
            for step in 0..2 {
                let perf = (turn + step) % 2;
                match measure(tools, &load, perf == 1, rate) {
                    Ok(run) => runs[perf].push(run),
                    // perf 6.1 aborts now and then where BPF programs come and go.
                    Err(error) if perf == 1 => eprintln!("perf: {error:#}"),
                    Err(error) => return Err(error),
                }
            }
        }
        for (who, runs) in ["afterimage record", "perf record"].iter().zip(&runs) {
            let of = |field: fn(&Run) -> f64| median(&runs.iter().map(field).collect::<Vec<_>>());
            if runs.is_empty() {
                println!("{who:<18} no run went to its end");
                continue;
            }
            let (made, cpu, kept) = (of(|run| run.rate), of(|run| run.recorder), of(|run| run.kept));
            println!(
                "{who:<18} {made:>6.0} programs/s: recorder {:>5.1} % of a CPU, code of {:>5.1} %",
                100.0 * cpu,
                100.0 * kept
            );
        }
    }
    Ok(())
}

/// Builds the load generators.
pub(super) fn built_load() -> Result<PathBuf> {
    let words = ["build", "--release", "--quiet", "-p", "guest", "--bin", "load"];
    let built = Command::new("cargo").args(words).current_dir(crate::root()).status()?;
    ensure!(built.success(), "cargo build of the load generators failed");
    Ok(crate::target_dir().join("release/load"))
}

fn measure(tools: &Tools, load: &Path, perf: bool, rate: u32) -> Result<Run> {
    let data = folder()?.join("text-storm.data");
    let mut command = Command::new(if perf { &tools.perf } else { &tools.ours });
    command.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "99", "-o"]).arg(&data);
    if perf {
        command.args(["-B", "-N"]);
    }
    let wait = (SECONDS + 4).to_string();
    let recorder = command.args(["--", "sleep", &wait]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // Starting up is over by then.
    sleep(Duration::from_millis(1500));
    let (start, before) = (Instant::now(), process::cpu_ns_of(recorder.id())?);
    let output = Command::new(load)
        .args(["bpf", "--no-info", "--rate", &rate.to_string(), "--seconds", &SECONDS.to_string()])
        .output()?;
    let (took, after) = (start.elapsed(), process::cpu_ns_of(recorder.id())?);
    ensure!(output.status.success(), "the load failed: {}", output.status);
    let made = output.stdout.iter().filter(|byte| **byte == b'\n').count() - 1;
    let (status, _, _) = process::reap(recorder)?;
    ensure!(status == 0, "{command:?} ended with status {status}");
    let kept = kept(&data, perf)?;
    std::fs::remove_file(&data)?;
    Ok(Run {
        rate: made as f64 / took.as_secs_f64(),
        recorder: (after - before) as f64 / took.as_nanos() as f64,
        kept: kept as f64 / made as f64,
    })
}

/// Of how many programs of the load a recording has all code.
fn kept(data: &Path, perf: bool) -> Result<usize> {
    let bytes = std::fs::read(data)?;
    let reader = FileReader::open(&bytes).context("the recording")?;
    if perf {
        // A program's functions come before the record that has its id.
        let (mut ids, mut ours) = (HashSet::new(), false);
        for raw in reader.records().map_while(Result::ok) {
            match reader.decode(&raw) {
                Ok(Record::Ksymbol(symbol)) => ours |= String::from_utf8_lossy(symbol.name).contains("_load_bpf_"),
                Ok(Record::BpfEvent(event)) if event.kind == BpfEvent::LOAD && std::mem::take(&mut ours) => {
                    ids.insert(event.prog_id);
                }
                _ => (),
            }
        }
        let with_code = reader.features().bpf_progs.iter().filter(|info| !info.jited_insns().is_empty());
        return Ok(with_code.filter(|info| ids.contains(&info.id())).count());
    }
    let private = reader.private().context("a private section")?;
    let with_image = private.texts.iter().filter(|text| text.images.iter().any(|image| image.proven));
    let names: HashSet<&str> = with_image.filter_map(|text| text.name.as_deref()).collect();
    let of = |part: &str| names.iter().filter(|name| name.contains("_load_bpf_") && name.ends_with(part)).count();
    Ok(of("_main").min(of("_left")).min(of("_right")))
}

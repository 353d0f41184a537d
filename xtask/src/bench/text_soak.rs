//! Whether keeping text stays within its bounds for ever: programs come and go without end, each is seen once, and memory
//! does not grow.

use super::{Tools, folder, text_storm};
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often the state is printed.
const EVERY: Duration = Duration::from_secs(10);

/// Records while `cycles` programs are loaded and closed at once. The recorder is ended in good order; what the recording
/// then holds is counted in its journal's stead, text by text.
pub(super) fn run(tools: &Tools, cycles: u64) -> Result<()> {
    let load = text_storm::built_load()?;
    let data = folder()?.join("text-soak.data");
    let mut recorder = Command::new(&tools.ours)
        .args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "19", "-o"])
        .arg(&data)
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()?;
    std::thread::sleep(Duration::from_secs(2));
    let mut load =
        Command::new(load).args(["bpf", "--no-info", "--count", &cycles.to_string()]).stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(load.stdout.take().context("the load's output")?).lines();
    let (start, mut last, mut made) = (Instant::now(), Instant::now(), 0u64);
    let mut sizes = Vec::new();
    for line in lines {
        made += u64::from(line?.contains("\"kind\":\"bpf\""));
        if last.elapsed() >= EVERY {
            last = Instant::now();
            let kib = rss_kib(recorder.id())?;
            sizes.push(kib);
            println!("{made} cycles, {:.0} a second, {kib} KiB", made as f64 / start.elapsed().as_secs_f64());
        }
    }
    ensure!(load.wait()?.success(), "the load failed");
    println!("{made} cycles in {:.0} s; memory by {EVERY:?}: {sizes:?} KiB", start.elapsed().as_secs_f64());
    // SAFETY: a signal to a child of ours that was not waited for.
    unsafe { libc::kill(libc::pid_t::try_from(recorder.id())?, libc::SIGINT) };
    let status = recorder.wait()?;
    ensure!(status.success(), "the recorder ended with {status}");
    account(&data, made)
}

fn rss_kib(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    line.split_whitespace().next().context("VmRSS")?.parse().context("VmRSS")
}

/// Every function of every program is in the recording, with its code or with the reason why not.
fn account(data: &std::path::Path, made: u64) -> Result<()> {
    let bytes = std::fs::read(data)?;
    let reader = afterimage_perf_data::FileReader::open(&bytes).context("the recording")?;
    let private = reader.private().context("a private section")?;
    let ours =
        || private.texts.iter().filter(|text| text.name.as_deref().is_some_and(|name| name.contains("_load_bpf_")));
    let with_code = ours().filter(|text| text.images.iter().any(|image| image.proven)).count() as u64;
    let with_reason = ours().filter(|text| text.images.is_empty() && text.reason.is_some()).count() as u64;
    let all = 3 * made;
    println!(
        "{all} functions: {with_code} with proven code, {with_reason} without, with the reason, {} unaccounted; {} MiB",
        all as i64 - (with_code + with_reason) as i64,
        bytes.len() >> 20
    );
    Ok(())
}

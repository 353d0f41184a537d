//! Text is freed at full rate by all load generators, readers of /proc/kcore come and go, and kcore_qc is loaded and
//! removed throughout. Whatever was held has to be freed when the module has gone, and no text may be left over.

use crate::modules::{self, KernelLog};
use crate::{Result, filters, memory, sys};
use serde_json::json;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Threads that replace filters, and that read.
const STORMS: u32 = 2;
const READERS: u64 = 3;
/// What the module is loaded with, by turns: roomy, and with bounds that are met.
const OPTIONS: [&str; 5] = ["", "items=64", "age_ms=40", "bytes=32768", "items=2000 age_ms=500"];
/// The other load generators, slow beside the filters.
const LOADS: [&[&str]; 6] = [
    &["bpf", "--rate", "20", "--life", "1ms"],
    &["xdp", "--rate", "3"],
    &["fentry", "--rate", "2"],
    &["kprobe", "--rate", "2"],
    &["tail-call", "--rate", "3"],
    &["module", "--rate", "1"],
];
/// How long a load generator runs, and how long until it runs again: to start one takes more than what it does.
const LOAD_SECONDS: &str = "2";
const PAUSE: Duration = Duration::from_secs(10);
/// What a load generator exits with where the kernel has not what it takes.
const UNAVAILABLE: i32 = 77;
/// More text than before, by this much, is text that was never freed: two packs of programs.
const LEFT_OVER: u64 = 5 << 20;
/// How long frees that are under way may take at the end.
const PATIENCE: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_secs(3);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// End when so many texts were held and freed
    #[arg(long, default_value_t = u64::MAX)]
    frees: u64,
    /// End after so many seconds
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Another number, other times
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Default)]
struct Counts {
    passes: AtomicU64,
    broken: AtomicU64,
    missed: AtomicU64,
    loads: AtomicU64,
}

#[derive(Default)]
struct Sum {
    cycles: u64,
    held: u64,
    freed: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    // One life before the count, so that what is made once is there.
    modules::load("")?;
    modules::remove()?;
    let (before, start) = (memory::text()?, Instant::now());
    let (stop, counts) = (AtomicBool::new(false), Counts::default());
    let (sum, made, errors) = std::thread::scope(|scope| {
        let (stop, counts) = (&stop, &counts);
        let storms: Vec<_> = (0..STORMS).map(|n| scope.spawn(move || filters::storm(n << 30, stop))).collect();
        let mut others: Vec<_> = Vec::new();
        for n in 0..READERS {
            let mut random = Random(options.seed << 8 | n);
            others.push(scope.spawn(move || read(&mut random, stop, counts)));
        }
        for words in LOADS {
            others.push(scope.spawn(move || load(words, stop, counts)));
        }
        let sum = cycles(options, start, &others);
        stop.store(true, Ordering::Relaxed);
        let mut errors: Vec<String> = Vec::new();
        let made: Vec<_> = storms.into_iter().filter_map(|storm| joined(storm.join(), &mut errors)).collect();
        for other in others {
            let _said = joined(other.join(), &mut errors);
        }
        (sum, made, errors)
    });
    let sum = sum?;
    let after = settled(before)?;
    let number = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{}",
        json!({
            "kind": "stress", "seconds": start.elapsed().as_secs(), "cycles": sum.cycles, "held": sum.held,
            "freed": sum.freed, "filters": made.iter().map(|made| made.filters).sum::<u64>(),
            "waits": made.iter().map(|made| made.waits).sum::<u64>(), "loads": number(&counts.loads),
            "passes": number(&counts.passes), "broken": number(&counts.broken), "missed": number(&counts.missed),
            "text_bytes_before": before, "text_bytes_after": after, "errors": errors,
        })
    );
    if !errors.is_empty() {
        return Err(errors.join("; "));
    }
    if sum.held != sum.freed || sum.held == 0 || number(&counts.passes) == 0 {
        return Err(format!("{} texts were held and {} freed", sum.held, sum.freed));
    }
    if after > before + LEFT_OVER { Err(format!("{} bytes of text are left", after - before)) } else { Ok(()) }
}

fn joined<T>(result: std::thread::Result<Result<T>>, errors: &mut Vec<String>) -> Option<T> {
    match result {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(error)) => errors.push(error),
        Err(_) => errors.push("a thread panicked".into()),
    }
    None
}

/// Loads and removes the module until time or number is reached, or another thread has given up.
fn cycles<T>(options: &Options, start: Instant, others: &[std::thread::ScopedJoinHandle<'_, T>]) -> Result<Sum> {
    let (mut log, mut sum, mut random) = (KernelLog::open()?, Sum::default(), Random(options.seed));
    let end = start + Duration::from_secs(options.seconds);
    // It takes a second or two to load and remove it, in which nothing is held.
    let longest = (options.seconds * 100).clamp(500, 20_000);
    while sum.held < options.frees && Instant::now() < end && others.iter().all(|other| !other.is_finished()) {
        modules::load(OPTIONS[(sum.cycles % OPTIONS.len() as u64) as usize])?;
        sleep(Duration::from_millis(longest / 2 + random.below(longest / 2)));
        modules::remove()?;
        let lives = log.lives()?;
        let [life] = lives[..] else { return Err(format!("after a removal the log told of {lives:?}")) };
        if life.held != life.freed {
            return Err(format!("the module held {} texts and freed {}", life.held, life.freed));
        }
        (sum.cycles, sum.held, sum.freed) = (sum.cycles + 1, sum.held + life.held, sum.freed + life.freed);
    }
    Ok(sum)
}

/// Opens /proc/kcore, ends some passes, closes it; again and again.
fn read(random: &mut Random, stop: &AtomicBool, counts: &Counts) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let kcore = File::open("/proc/kcore").map_err(|error| format!("/proc/kcore: {error}"))?;
        // A copy of the descriptor, closed later, is the same open file.
        let copy = (random.below(4) == 0).then(|| kcore.try_clone());
        let (mut bytes, mut last) = ([0; 4096], sys::Query::default());
        for _ in 0..random.below(60) {
            match sys::qc(&kcore) {
                Ok(()) => counts.passes.fetch_add(1, Ordering::Relaxed),
                // The module has gone, or is not yet there.
                Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => break,
                Err(error) => return Err(format!("KCORE_QC: {error}")),
            };
            last = sys::query(&kcore).unwrap_or(last);
            kcore.read_at(&mut bytes, 0).map_err(|error| format!("read /proc/kcore: {error}"))?;
            sleep(Duration::from_millis(random.below(20)));
        }
        counts.broken.fetch_add(last.broken, Ordering::Relaxed);
        counts.missed.fetch_add(last.missed, Ordering::Relaxed);
        drop(kcore);
        sleep(Duration::from_millis(random.below(5)));
        drop(copy);
    }
    Ok(())
}

/// Runs a load generator again and again.
fn load(words: &[&str], stop: &AtomicBool, counts: &Counts) -> Result<()> {
    let module = modules::file("afterimage_load")?;
    while !stop.load(Ordering::Relaxed) {
        let mut command = Command::new("load");
        command.args(words).args(["--seconds", LOAD_SECONDS]).stdout(Stdio::null()).stderr(Stdio::piped());
        if words[0] == "module" {
            command.arg("--module").arg(&module);
        }
        let output = command.output().map_err(|error| format!("load {}: {error}", words[0]))?;
        match output.status.code() {
            Some(0) => counts.loads.fetch_add(1, Ordering::Relaxed),
            Some(UNAVAILABLE) => 0,
            _ => return Err(format!("load {}: {}", words[0], String::from_utf8_lossy(&output.stderr).trim())),
        };
        let again = Instant::now() + PAUSE;
        while Instant::now() < again && !stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

/// Bytes of text when there is no more than may be and none was freed for some time, or when patience has ended.
fn settled(before: u64) -> Result<u64> {
    let end = Instant::now() + PATIENCE;
    let (mut last, mut since) = (memory::text()?, Instant::now());
    while Instant::now() < end && (last > before + LEFT_OVER || since.elapsed() < QUIET) {
        sleep(Duration::from_millis(200));
        let now = memory::text()?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}

/// Numbers that look random, the same for the same seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ x >> 31) % bound
    }
}

//! What it costs that freed text can be held: loading and closing programs, freeing their text, and the calls.

use crate::probe::Probe;
use crate::{Result, modules, sys};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Programs that a round loads and closes in each state.
const PAIRS: u32 = 200;
/// Programs between two calls of an open reader.
const PASS: u32 = 50;
/// Texts that wait for the dear call.
const MANY: u64 = 1000;
/// How long frees that are under way are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often each state is measured, by turns
    #[arg(long, default_value_t = 9)]
    rounds: u32,
}

/// How far the module is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not loaded.
    Without,
    /// Loaded.
    Idle,
    /// And /proc/kcore is open.
    Open,
    /// And it has a guarantee: text is held.
    Held,
}

const STATES: [(State, &str); 4] =
    [(State::Without, "without"), (State::Idle, "idle"), (State::Open, "open"), (State::Held, "held")];

/// Nanoseconds: the median of each round, which a busy machine does not change much.
#[derive(Default)]
struct Numbers {
    pairs: Vec<u64>,
    frees: Vec<u64>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    // Text is freed on the CPU where it was closed, one after the other, so that the probe sees one free at a time.
    sys::stay_on_first_cpu().map_err(|error| format!("stay on a CPU: {error}"))?;
    let probe = Probe::attach("bpf_jit_binary_pack_free")?;
    let mut all: [Numbers; 4] = Default::default();
    for round in 0..options.rounds {
        // Who comes first changes, so that nobody always follows the same other one.
        for n in 0..STATES.len() {
            let n = (n + round as usize) % STATES.len();
            one(STATES[n].0, &probe, &mut all[n])?;
        }
    }
    let mut calls: [Vec<u64>; 3] = Default::default();
    for _ in 0..options.rounds {
        calls_once(&mut calls)?;
    }
    let mut said = Map::new();
    for ((_, name), numbers) in STATES.iter().zip(all) {
        said.insert((*name).to_owned(), json!({ "pair_ns": numbers.pairs, "free_ns": numbers.frees }));
    }
    let [empty, waiting, thousand] = calls;
    said.insert("calls".into(), json!({ "empty_ns": empty, "waiting_ns": waiting, "freeing_ns": thousand }));
    said.insert("kind".into(), "cost".into());
    println!("{}", Value::Object(said));
    Ok(())
}

/// One state for one round.
fn one(state: State, probe: &Probe, numbers: &mut Numbers) -> Result<()> {
    let loaded = if state == State::Without { None } else { Some(modules::load("")?) };
    let kcore = matches!(state, State::Open | State::Held).then(open).transpose()?;
    let reader = kcore.as_ref().filter(|_| state == State::Held);
    if let Some(kcore) = reader {
        qc(kcore)?;
    }
    probe.forget()?;
    let mut pairs = Vec::new();
    for n in 0..PAIRS {
        let start = Instant::now();
        load()?;
        pairs.push(start.elapsed().as_nanos() as u64);
        match reader {
            Some(kcore) if n % PASS == PASS - 1 => qc(kcore)?,
            _ => {}
        }
    }
    numbers.pairs.push(median(pairs));
    // Where two frees meet on two CPUs, the probe misses one.
    let frees = probe.times(PAIRS as usize * 9 / 10, PATIENCE)?;
    numbers.frees.push(median(frees));
    drop(kcore);
    if loaded.is_some() {
        modules::remove()?;
    }
    Ok(())
}

/// A call with nothing to do; one with many texts that wait and are not due; one that frees them.
fn calls_once([empty, waiting, freeing]: &mut [Vec<u64>; 3]) -> Result<()> {
    modules::load("")?;
    let kcore = open()?;
    qc(&kcore)?;
    let end = Instant::now() + PATIENCE;
    // What others freed meanwhile is not ours to measure.
    while sys::query(&kcore).map_err(|error| error.to_string())?.items > 0 && Instant::now() < end {
        qc(&kcore)?;
        sleep(Duration::from_millis(10));
    }
    empty.push(timed(&kcore)?);
    for _ in 0..MANY {
        load()?;
    }
    while sys::query(&kcore).map_err(|error| error.to_string())?.items < MANY {
        if Instant::now() > end {
            return Err("the texts to be freed do not arrive".into());
        }
        sleep(Duration::from_millis(10));
    }
    waiting.push(timed(&kcore)?);
    qc(&kcore)?;
    freeing.push(timed(&kcore)?);
    drop(kcore);
    modules::remove()
}

fn open() -> Result<File> {
    File::open("/proc/kcore").map_err(|error| format!("/proc/kcore: {error}"))
}

/// Loads a program, and closes it.
fn load() -> Result<()> {
    sys::load_program().map(drop).map_err(|error| format!("load a program: {error}"))
}

fn qc(kcore: &File) -> Result<()> {
    sys::qc(kcore).map_err(|error| format!("KCORE_QC: {error}"))
}

/// Nanoseconds that a call takes.
fn timed(kcore: &File) -> Result<u64> {
    let start = Instant::now();
    qc(kcore)?;
    Ok(start.elapsed().as_nanos() as u64)
}

fn median(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied().unwrap_or(0)
}

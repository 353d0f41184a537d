//! What the tests of `record` share: turns on the machine, recordings, and what is in them.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use afterimage_perf_data::{FileReader, RecordingTally};
use serde_json::Value;

use crate::common::{afterimage, run, stderr, stdout, word};

static MACHINE: RwLock<()> = RwLock::new(());

/// A turn for a test that others may run beside.
pub(crate) fn beside() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// A turn for a test that wants no other recording of ours at the same time.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// `afterimage record -o PATH` with some words; the caller adds what it wants.
pub(crate) fn recorder(path: &Path, words: &[&str]) -> Command {
    let mut command = afterimage();
    command.arg("record").arg("-o").arg(path).args(words);
    command
}

/// Records and expects exit 0; gives what was said.
pub(crate) fn record(path: &Path, words: &[&str]) -> Output {
    let output = recorder(path, words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "record {words:?}: {}", stderr(&output));
    output
}

/// Starts a recording whose words are kept.
pub(crate) fn start(path: &Path, words: &[&str]) -> Child {
    recorder(path, words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends a signal to a process that we started.
pub(crate) fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Waits until something is so; the limit is only there so that a fault does not hang.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(60), "still waiting: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The tally in a finished recording, after a check of every line of it.
pub(crate) fn tally(path: &Path) -> RecordingTally {
    let bytes = std::fs::read(path).unwrap();
    let reader = FileReader::open(&bytes).unwrap();
    assert!(reader.finished() && reader.problems().is_empty(), "{:?}", reader.problems());
    let tally = reader.private().unwrap().tally.clone().unwrap();
    assert!(tally.complete);
    assert_eq!(tally.check(), Ok(()));
    tally
}

/// The report as JSON, and how it ended.
pub(crate) fn report(path: &Path, words: &[&str]) -> (Value, Output) {
    let output = run(&[&["report", "--json", "-i", word(path)][..], words].concat());
    (serde_json::from_slice(&output.stdout).unwrap_or(Value::Null), output)
}

/// A number of an object.
pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The event of a report that has this name.
pub(crate) fn event<'v>(report: &'v Value, name: &str) -> &'v Value {
    let events = report["events"].as_array().unwrap();
    events.iter().find(|e| e["name"] == name).unwrap_or_else(|| panic!("{name} is not in the report"))
}

/// Samples whose leaf is this symbol, in a report sorted by `sym`.
pub(crate) fn samples_in(event: &Value, symbol: &str) -> u64 {
    let rows = event["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["sym"] == symbol).map(|row| number(&row["samples"])).sum()
}

/// How many lines of a listing are samples.
pub(crate) fn lines(output: &Output) -> u64 {
    stdout(output).lines().filter(|line| !line.trim().is_empty()).count() as u64
}

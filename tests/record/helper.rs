//! What the tests of `record` share: turns on the machine, recordings, and what is in them.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use afterimage_perf_data::record::kind;
use afterimage_perf_data::{FileReader, RecordingTally, journal};
use afterimage_testkit::workload;
use rustix::process::Signal;
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

/// A process that takes a whole CPU, but only between [`Busy::go`] and [`Busy::rest`]: while a recorder starts or ends, and
/// while a recording is read, it would only have them wait, which is long where CPUs are emulated.
pub(crate) struct Busy(Child);

impl Busy {
    pub(crate) fn new() -> Busy {
        let busy =
            Busy(Command::new(workload::build().busy).args(["1000000", "10"]).stdout(Stdio::null()).spawn().unwrap());
        busy.rest();
        busy
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Works from when the recording has begun.
    pub(crate) fn go(&self, path: &Path) {
        until("the recording has begun", || data_size(path).is_some_and(|size| size != [0; 8]));
        signal(&self.0, Signal::CONT);
    }

    pub(crate) fn rest(&self) {
        signal(&self.0, Signal::STOP);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal to a process that we started.
pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Waits until something is so; the limit is only there so that a fault does not hang. It rests for longer than it looks: to
/// read a journal again and again would take an emulated machine from the recorder that is waited for.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    loop {
        let looked = Instant::now();
        if so() {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "still waiting: {what}");
        std::thread::sleep(Duration::from_millis(20).max(looked.elapsed() * 3));
    }
}

/// The same of a recording under way, which says why where it ended.
pub(crate) fn until_of(recorder: &mut Child, what: &str, mut so: impl FnMut() -> bool) {
    until(what, || {
        let ended = recorder.try_wait().unwrap().is_some();
        if let (true, Some(said)) = (ended, recorder.stderr.take()) {
            panic!("{what}: the recording ended: {}", std::io::read_to_string(said).unwrap());
        }
        so()
    });
}

/// Waits until what the header of a recording covers is several passes that brought so many samples: whenever the
/// recorder is killed from then on, it leaves these. The journal, and the length of the file, may be ahead of them.
pub(crate) fn until_covered(path: &Path, samples: u64) {
    let mut seen = None;
    until("passes with samples that the header covers", || {
        let size = data_size(path);
        let news = std::mem::replace(&mut seen, size) != size;
        news && covered(path).is_some_and(|(passes, held)| passes >= 2 && held >= samples)
    });
}

/// How many bytes of records the header of a recording speaks of.
fn data_size(path: &Path) -> Option<[u8; 8]> {
    let mut size = [0; 8];
    std::fs::File::open(path).ok()?.read_exact_at(&mut size, 48).ok()?;
    Some(size)
}

/// How many passes with records of the rings a recording under way holds as far as its header says, and how many samples.
fn covered(path: &Path) -> Option<(usize, u64)> {
    let bytes = std::fs::read(path).ok()?;
    let mut reader = FileReader::open(&bytes).ok()?;
    let rounds = reader.records().map_while(Result::ok).filter(|raw| raw.header.kind == kind::FINISHED_ROUND).count();
    // Samples that only the journal tells of count as lost.
    reader.use_journal(&std::fs::read(journal::path_of(path)).ok()?).ok()?;
    let sum = reader.private()?.tally.as_ref()?.total();
    // The first round is what there was before.
    Some((rounds.saturating_sub(1), sum.ring.delivered + sum.handler_ring.delivered + sum.map.stored))
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

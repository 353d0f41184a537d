//! BPF programs that really ran: hot while they are recorded, alive or gone, and two that used the same place in turn.

use std::path::Path;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use afterimage_testkit::{Need, has};

use crate::common::{afterimage, file, folder, perf_record};
use crate::hot::{Hot, PARTS, line_of};
use crate::listing::{annotate, bytes, lines, only, percents, plain, samples, samples_of_line};

pub(crate) const NEEDS: [Need; 3] = [Need::Root, Need::Bpf, Need::Clang];

static MACHINE: Mutex<()> = Mutex::new(());

/// A turn for a test that wants its programs to be the only ones that come and go here.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recording of the whole machine that goes on until it is stopped.
pub(crate) struct Recording(Child);

impl Recording {
    pub(crate) fn start(path: &Path, words: &[&str]) -> Recording {
        let journal = path.with_extension("data.journal");
        let mut command = afterimage();
        command.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "2000", "-o"]).arg(path).args(words);
        let child = command.spawn().unwrap();
        until("the recording has begun", || journal.exists());
        std::thread::sleep(Duration::from_millis(300));
        Recording(child)
    }

    pub(crate) fn stop(mut self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A test that fails leaves no recorder behind: it would be in the way of every other one.
impl Drop for Recording {
    fn drop(&mut self) {
        // After a stop it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something is so; the limit is only there so that a fault does not hang.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(60), "still waiting: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Every function of a program is annotated with its own bytes, its own lines, and its share of the time.
pub(crate) fn check(path: &Path, hot: &Hot, variant: &str) {
    let mut counts = Vec::new();
    for (function, (part, _)) in hot.functions[1..].iter().zip(PARTS) {
        let shown = annotate(path, &["-s", &format!("{}@{}", function.name, hot.id)]);
        let symbol = only(&shown);
        assert_eq!(symbol["name"], function.name);
        assert_eq!(symbol["address"], format!("{:#x}", function.address));
        assert_eq!(bytes(symbol), function.code, "{part} of {variant}: {}", symbol["code"]);
        let total: u64 = samples(symbol).iter().sum();
        assert_eq!(symbol["events"][0]["samples"], total);
        assert!((percents(symbol) - 100.0).abs() < 0.01);
        let line = line_of(&format!("the loop of {part}"));
        let of_line = samples_of_line(symbol, line);
        println!("{}: {total} samples, {of_line} of them at line {line}, {}", function.name, symbol["code"]);
        assert!(of_line * 5 >= total * 4, "{of_line} of {total} at line {line}");
        let text = lines(symbol).iter().find_map(|row| {
            let origin = &row["source"][0];
            (origin["line"] == line).then(|| origin["text"].as_str().unwrap_or_default().to_owned())
        });
        assert!(text.is_some_and(|text| text.contains(&format!("the loop of {part}"))), "{part}");
        counts.push(total);
    }
    let all: u64 = counts.iter().sum();
    for (count, (part, percent)) in counts.iter().zip(PARTS) {
        let got = 100.0 * *count as f64 / all as f64;
        // Three standard deviations of a count of that size, and what the calls cost.
        let most = 300.0 * (percent / 100.0 * (1.0 - percent / 100.0) / all as f64).sqrt() + 2.0;
        assert!(
            (got - percent).abs() < most,
            "{part} of {variant}: {got:.1}% of {all}, expected {percent}% ± {most:.1}"
        );
    }
}

#[test]
fn a_program_that_is_there_is_annotated() {
    if !has("a_program_that_is_there_is_annotated", &NEEDS) {
        return;
    }
    let _turn = turn();
    let folder = folder();
    let path = file(&folder, "a.data");
    let mut hot = Hot::load(folder.path(), "there", 0x1234_0000);
    let recording = Recording::start(&path, &[]);
    hot.run(Duration::from_millis(400));
    recording.stop();
    check(&path, &hot, "there");
    let shown = plain(&path, &["-s", "there_sixty", "--insns"]);
    for expected in ["hot.bpf.c:", "the loop of sixty */", "(bpf) r0 *= 31", "(bpf) exit", "BPF program"] {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
}

#[test]
fn a_recording_of_perf_is_annotated_too() {
    if !has("a_recording_of_perf_is_annotated_too", &[&NEEDS[..], &[Need::Perf]].concat()) {
        return;
    }
    let _turn = turn();
    let folder = folder();
    let path = file(&folder, "a.data");
    let mut hot = Hot::load(folder.path(), "by_perf", 0x2345_0000);
    std::thread::scope(|scope| {
        let recording =
            scope.spawn(|| perf_record(&path, &["-B", "-a", "-e", "cpu-clock", "-F", "2000"], &["sleep", "2"]));
        while !recording.is_finished() {
            hot.run(Duration::from_millis(20));
        }
    });
    check(&path, &hot, "by_perf");
}

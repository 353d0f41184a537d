//! What the tests of the views share: running the command, recordings made by perf.
#![allow(dead_code, reason = "each test file uses its part")]

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The command under test.
pub(crate) fn afterimage() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_afterimage"));
    command.stdin(Stdio::null()).env("NO_COLOR", "1");
    command
}

/// Runs the command with some words.
pub(crate) fn run(words: &[&str]) -> Output {
    afterimage().args(words).output().unwrap()
}

/// What a run left on stdout.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What a run left on stderr.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs the command, which has to end with 0, and gives its stdout.
pub(crate) fn text(words: &[&str]) -> String {
    let output = run(words);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
    stdout(&output)
}

/// A folder for one test, gone at its end.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Records `command` by `perf record` with some options.
pub(crate) fn perf_record(file: &Path, options: &[&str], command: &[&str]) {
    let record = || {
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-N", "-o"]).arg(file).args(options).arg("--").args(command);
        perf.stdin(Stdio::null()).output().unwrap()
    };
    // perf 6.1 aborts at the end of a recording when BPF programs come and go meanwhile, and leaves half a file. Recorders of
    // other tests have theirs come and go.
    let done = (0..40).map(|_| record()).find(|output| output.status.signal().is_none());
    let done = done.unwrap_or_else(|| panic!("perf record {options:?} aborts each time"));
    assert!(file.exists(), "perf record {options:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Runs a reader of perf and gives its stdout.
pub(crate) fn perf(words: &[&str]) -> String {
    let output = Command::new("perf").args(words).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "perf {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A path as the command line takes it.
pub(crate) fn word(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A file of a folder.
pub(crate) fn file(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    folder.path().join(name)
}

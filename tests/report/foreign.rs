//! Recordings that others made: both answer alike.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use afterimage_testkit::corpus;

use crate::common::{run, stdout, word};
use crate::rows;

/// Those that perf 6.1 does not read, or not as a recording of samples alone.
const BEYOND: [&str; 5] = [
    "fibo.compressed2.pipe.data",
    "sleep.data",
    "sleep.compressed.data",
    "perf.data.piped.corrupted.zero_size_sample-3.2",
    "perf.data.intel_pt-4.14",
];

/// The files of the corpus that both read, by name.
pub(crate) fn files() -> BTreeMap<String, PathBuf> {
    let folders = std::fs::read_dir(corpus().unwrap()).unwrap().flatten().filter(|e| e.path().is_dir());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).unwrap().flatten());
    let all = files.map(|file| (file.file_name().into_string().unwrap(), file.path()));
    all.filter(|(name, _)| !BEYOND.contains(&name.as_str())).collect()
}

/// What perf reports with some options; `None` where it gives up.
pub(crate) fn perfs(path: &std::path::Path, options: &[&str]) -> Option<String> {
    let mut command = Command::new("perf");
    command.args(["report", "--stdio", "--no-children", "--no-inline", "-g", "none", "-i", word(path)]);
    let output = command.args(options).stdin(std::process::Stdio::null()).output().unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Compares the rows of both, and gives their number.
pub(crate) fn same(path: &std::path::Path, options: &[&str], told: &[&str]) -> Result<usize, String> {
    let ours = run(&[&["report", "-g", "none", "-i", word(path)], options].concat());
    if ours.status.code() != Some(0) {
        return Err(format!("{options:?}: {}", crate::common::stderr(&ours)));
    }
    let Some(theirs) = perfs(path, &[options, told].concat()) else { return Err(format!("perf {options:?} fails")) };
    let (ours, theirs) = (rows(&stdout(&ours)), rows(&theirs));
    let differ = |(our, their): (&String, &String)| (our != their).then(|| format!("ours   {our:?}\ntheirs {their:?}"));
    match ours.iter().zip(&theirs).find_map(differ) {
        Some(how) => Err(format!("{options:?}: {how}")),
        None if ours.len() != theirs.len() => {
            Err(format!("{options:?}: {} rows, perf has {}", ours.len(), theirs.len()))
        }
        None => Ok(ours.len()),
    }
}

//! Code of JIT compilers: names right through code that moves, after the process and its files are gone; what stands in dumps
//! of perf's recordings; compilers that are installed here.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod dump;
mod map;
mod others;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{afterimage, file, stderr, text, word};

/// One test at a time: each of them sees what the others run, and perf 6.1 aborts where programs of a recorder come and go.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static MACHINE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Compiles the compiler.
fn maker(folder: &tempfile::TempDir) -> PathBuf {
    let program = file(folder, "maker");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jit/maker.c");
    let built = Command::new("cc").args(["-O1", "-Wall", "-Werror", "-o"]).arg(&program).arg(source).output().unwrap();
    assert!(built.status.success(), "{}", stderr(&built));
    program
}

/// What the maker printed: the two places of its code, how long that is, and when it moved.
#[derive(Debug)]
struct Made {
    a: u64,
    b: u64,
    len: u64,
    change: u64,
}

impl Made {
    fn of(stdout: &str) -> Made {
        let words: Vec<&str> = stdout.split_whitespace().collect();
        let hex = |word: &str| u64::from_str_radix(word, 16).unwrap();
        Made { a: hex(words[0]), b: hex(words[1]), len: hex(words[2]), change: words[3].parse().unwrap() }
    }

    fn is_in(&self, place: u64, ip: u64) -> bool {
        (place..place + self.len).contains(&ip)
    }
}

/// Records a run of the maker by us.
fn record(recording: &Path, program: &Path, how: &str, folder: &Path, ms: u32) -> Made {
    let mut command = afterimage();
    command.args(["record", "-e", "cpu-clock:u", "-F", "2000", "-o"]).arg(recording).arg("--");
    let output = command.arg(program).arg(how).arg(folder).arg(ms.to_string()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    Made::of(&common::stdout(&output))
}

/// Time, address and name of each sample.
fn samples(recording: &Path) -> Vec<(u64, u64, String)> {
    let listed = text(&["script", "-i", word(recording), "--json"]);
    let one = |line: &str| {
        let sample: Value = serde_json::from_str(line).unwrap();
        let ip = sample["ip"].as_str()?.trim_start_matches("0x");
        let name = sample["symbol"].as_str().unwrap_or_default().to_owned();
        Some((sample["time_ns"].as_u64()?, u64::from_str_radix(ip, 16).ok()?, name))
    };
    listed.lines().filter_map(one).collect()
}

/// How many samples have which name at the first place before and after the change, and at the second. Those that are less
/// than `slack` ns behind the change are left out.
fn told(made: &Made, samples: &[(u64, u64, String)], slack: u64) -> [Vec<(String, usize)>; 3] {
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    for (time, ip, name) in samples {
        let at = match (made.is_in(made.a, *ip), made.is_in(made.b, *ip)) {
            (true, _) if *time < made.change => 0,
            (true, _) if *time >= made.change + slack => 1,
            (_, true) => 2,
            _ => continue,
        };
        let counts: &mut Vec<(String, usize)> = &mut all[at];
        match counts.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name.clone(), 1)),
        }
    }
    all
}

/// Each place has one name at a time, and many samples.
fn assert_told(made: &Made, samples: &[(u64, u64, String)], slack: u64) {
    let told = told(made, samples, slack);
    println!("{made:x?}: {told:?}");
    for (place, wanted) in told.iter().zip(["moving", "usurper", "moving"]) {
        let [(name, count)] = place.as_slice() else { panic!("{told:?} of {}", samples.len()) };
        assert!(name == wanted && *count > 50, "{told:?}");
    }
}

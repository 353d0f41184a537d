//! Faults on purpose in a guest: each has to be reported as what it is, and none may look like a success.
//!
//! Needs qemu, and kernels from apt. Boots a guest for each, which takes minutes:
//! `cargo test -p xtask --test guest_faults -- --ignored`, with `AFTERIMAGE_KERNEL` for another one than 6.12.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;
use std::sync::Mutex;

/// Runs a guest; gives whether it was a success, and what was printed.
fn guest(words: &[&str]) -> (bool, String) {
    // They write to the same folder, and one at a time leaves them the CPUs that their clocks are set for.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let kernel = std::env::var("AFTERIMAGE_KERNEL").unwrap_or("6.12".into());
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = command.args(["guest", "--kernel", &kernel]).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said)
}

/// Breaks something; the report has to say so in one sentence, which begins with its kind and holds `detail`.
fn is_reported(words: &[&str], kind: &str, detail: &str) {
    let (success, said) = guest(words);
    assert!(!success, "{words:?} looks like a success:\n{said}");
    let sentences: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("    ")).filter(is_fault).collect();
    println!("{words:?}: {sentences:?}");
    let [sentence] = sentences.as_slice() else { panic!("{words:?}: {sentences:?}\n{said}") };
    assert!(sentence.starts_with(&format!("{kind}: ")) && sentence.contains(detail), "{words:?}:\n{said}");
}

/// Lines of the report that are about a fault: others are times of executables, notes and paths.
fn is_fault(line: &&str) -> bool {
    let kind = line.split_once(": ").map_or("", |(kind, _)| kind);
    !kind.is_empty() && kind != "note" && kind != "the kernel's log"
}

#[test]
#[ignore = "boots a guest"]
fn a_panic() {
    is_reported(&["--fault", "panic"], "panic", "Kernel panic - not syncing: sysrq triggered crash");
}

#[test]
#[ignore = "boots a guest"]
fn a_soft_lockup() {
    is_reported(&["--fault", "lockup"], "soft lock-up", "BUG: soft lockup");
}

#[test]
#[ignore = "boots a guest"]
fn an_rcu_stall() {
    is_reported(&["--fault", "stall"], "RCU stall", "rcu_preempt");
}

#[test]
#[ignore = "boots a guest"]
fn a_guest_that_is_stuck() {
    is_reported(&["--fault", "stuck", "--timeout", "60"], "guest hang", "did not end in 60 s (during guest-planted)");
}

#[test]
#[ignore = "boots a guest"]
fn a_test_that_fails() {
    is_reported(&["--fault", "fail"], "failed", "1 tests of guest-planted (exit code 101)");
}

#[test]
#[ignore = "boots a guest"]
fn a_test_that_never_ends() {
    is_reported(&["--fault", "hang"], "hang", "guest-planted did not end in 5 s");
}

#[test]
#[ignore = "boots a guest"]
fn a_file_that_was_not_packed() {
    is_reported(&["--fault", "missing"], "missing", "/guest/this-was-not-packed is not in the guest");
}

#[test]
#[ignore = "boots a guest"]
fn a_name_that_no_test_has() {
    is_reported(&["no_test_has_this_name"], "nothing ran", "no test has such a name");
}

#[test]
#[ignore = "boots a guest"]
fn without_a_fault_it_is_a_success() {
    let (success, said) = guest(&["cli"]);
    assert!(success, "{said}");
}

//! Faults on purpose in guests: each has to be reported as what it is, and none may look like a success. And what there
//! is beside the tests: kernels in files, and what is kept.
//!
//! Needs qemu, and kernels from apt. Boots guests for each, both kernels side by side, which takes minutes:
//! `cargo test -p xtask --test guest_faults -- --ignored`, with `AFTERIMAGE_KERNEL` for another kernel than these.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The smallest of the executables that run in guests.
const SMALL: &str = "afterimage-cli";

/// What a run of guests printed, and how it ended.
struct Said {
    success: bool,
    text: String,
}

/// Runs the guests of both kernels, or of the one that is named.
fn guests(words: &[&str]) -> Said {
    match std::env::var("AFTERIMAGE_KERNEL") {
        Ok(kernel) => guest(&kernel, words),
        Err(_) => run(words),
    }
}

/// Runs one guest.
fn guest(kernel: &str, words: &[&str]) -> Said {
    run(&[&["--kernel", kernel], words].concat())
}

/// One at a time: they write to the same folders, and their clocks are set for the CPUs of a machine to themselves.
fn turn() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn xtask(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("guest").args(words);
    command
}

fn run(words: &[&str]) -> Said {
    let _turn = turn();
    let output = xtask(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    Said { success: output.status.success(), text }
}

impl Said {
    /// The summary of each guest: the kernel, and the sentences about faults.
    fn summaries(&self) -> Vec<(&str, Vec<&str>)> {
        let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
        for line in self.text.lines() {
            match (line.strip_prefix("    "), found.last_mut()) {
                (Some(line), Some((_, sentences))) if is_fault(line) => sentences.push(line),
                (None, _) if line.contains(" s in all; ") => {
                    found.push((line.split(':').next().unwrap(), Vec::new()));
                }
                _ => {}
            }
        }
        found
    }
}

/// Whether a line of a summary is about a fault: others are times of executables, notes and paths.
fn is_fault(line: &str) -> bool {
    let kind = line.split_once(": ").map_or("", |(kind, _)| kind);
    !kind.is_empty() && kind != "note" && kind != "the kernel's log"
}

/// Breaks something; the summary of each guest has to say so in one sentence, which begins with its kind and holds
/// `detail`.
fn is_reported(words: &[&str], kind: &str, detail: &str) {
    let said = guests(words);
    let summaries = said.summaries();
    println!("{words:?}: {summaries:#?}");
    assert!(!said.success, "{words:?} looks like a success:\n{}", said.text);
    assert_eq!(summaries.len(), if std::env::var_os("AFTERIMAGE_KERNEL").is_some() { 1 } else { 2 }, "{}", said.text);
    for (kernel, sentences) in summaries {
        let [sentence] = sentences.as_slice() else { panic!("{kernel}: {sentences:?}\n{}", said.text) };
        assert!(sentence.starts_with(&format!("{kind}: ")) && sentence.contains(detail), "{kernel}: {sentence}");
    }
}

#[test]
#[ignore = "boots guests"]
fn a_panic() {
    is_reported(&["--fault", "panic"], "panic", "Kernel panic - not syncing: sysrq triggered crash");
}

#[test]
#[ignore = "boots guests"]
fn an_oops() {
    is_reported(&["--fault", "oops"], "oops", "BUG: kernel NULL pointer dereference");
}

#[test]
#[ignore = "boots guests"]
fn a_soft_lockup() {
    is_reported(&["--fault", "lockup"], "soft lock-up", "BUG: soft lockup");
}

/// One CPU with interrupts off is a hard lock-up for kernels that have a counter unit to look for it. Under emulation
/// there is none, and what they tell is the stall that follows from it.
#[test]
#[ignore = "boots guests"]
fn an_rcu_stall() {
    is_reported(&["--fault", "stall"], "RCU stall", "rcu_preempt");
}

#[test]
#[ignore = "boots guests"]
fn a_hung_task() {
    is_reported(&["--fault", "hung"], "hung task", "INFO: task init:");
}

#[test]
#[ignore = "boots guests"]
fn a_guest_that_is_stuck() {
    is_reported(&["--fault", "stuck", "--timeout", "60"], "guest hang", "did not end in 60 s (during guest-planted)");
}

#[test]
#[ignore = "boots guests"]
fn a_test_that_fails() {
    is_reported(&["--fault", "fail"], "failed", "1 tests of guest-planted (exit code 101)");
}

#[test]
#[ignore = "boots guests"]
fn a_test_that_never_ends() {
    is_reported(&["--fault", "hang"], "hang", "guest-planted did not end in 5 s");
}

#[test]
#[ignore = "boots guests"]
fn a_file_that_was_not_packed() {
    is_reported(&["--fault", "missing"], "missing", "/guest/this-was-not-packed is not in the guest");
}

#[test]
#[ignore = "boots guests"]
fn a_name_that_no_test_has() {
    is_reported(&["no_test_has_this_name"], "nothing ran", "no test has such a name");
}

#[test]
#[ignore = "boots guests"]
fn without_a_fault_it_is_a_success() {
    let said = guests(&[SMALL]);
    assert!(said.success && !said.text.contains("kept: "), "{}", said.text);
    assert!(said.summaries().iter().all(|(_, sentences)| sentences.is_empty()), "{}", said.text);
}

/// A kernel 6.12 from the archive, unpacked: its release, its image, and its modules for the disk.
fn unpacked() -> (String, PathBuf, Vec<PathBuf>) {
    let said = guest("6.12", &[SMALL]);
    assert!(said.success, "{}", said.text);
    let release = said.summaries()[0].0.to_owned();
    let place = target().join("guest/kernels").join(&release);
    let mut modules = Vec::new();
    let mut folders = vec![place.join("lib/modules")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().unwrap().to_str().unwrap().starts_with("virtio") {
                modules.push(path);
            }
        }
    }
    (release.clone(), place.join("boot").join(format!("vmlinuz-{release}")), modules)
}

/// Where xtask has its files.
fn target() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

#[test]
#[ignore = "boots guests"]
fn a_kernel_in_a_file_brings_modules_beside_it_or_goes_without() {
    let (release, image, modules) = unpacked();
    // Where Debian has it, its modules are found too.
    let said = guest(image.to_str().unwrap(), &[SMALL]);
    assert!(said.success && said.text.contains(&format!("{release} is up")), "{}", said.text);

    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("of-my-own");
    fs::copy(&image, &copy).unwrap();
    let without = guest(copy.to_str().unwrap(), &[SMALL]);
    println!("{:?}", without.summaries());
    assert!(without.text.contains("note from the guest: /dev/vda"), "{}", without.text);
    let [("of-my-own", sentences)] = &without.summaries()[..] else { panic!("{}", without.text) };
    assert!(!without.success && sentences.len() == 1, "{}", without.text);
    assert!(sentences[0].starts_with("ended otherwise: the guest did not carry out its plan"), "{sentences:?}");

    let beside = folder.path().join("modules");
    fs::create_dir(&beside).unwrap();
    assert!(!modules.is_empty());
    for module in &modules {
        fs::copy(module, beside.join(module.file_name().unwrap())).unwrap();
    }
    let said = guest(copy.to_str().unwrap(), &[SMALL]);
    assert!(said.success && said.text.contains(&format!("{release} is up")), "{}", said.text);
    fs::remove_dir_all(target().join("guest/out/of-my-own")).unwrap();
}

#[test]
#[ignore = "boots guests"]
fn what_was_packed_and_what_came_back_are_kept_on_request() {
    let said = guest("6.12", &["--keep", "perf-event-sideband"]);
    assert!(said.success, "{}", said.text);
    let kept: Vec<&str> = said.text.lines().filter_map(|line| line.strip_prefix("kept: ")).collect();
    let [kept] = kept.as_slice() else { panic!("{}", said.text) };
    let files = |name: &str| {
        let mut found = Vec::new();
        let archive = BufReader::new(File::open(Path::new(kept).join(name)).unwrap());
        let each = |entry: &guest::cpio::Entry, _: &mut dyn Read| {
            found.push(entry.path.clone());
            Ok(())
        };
        guest::cpio::unpack(archive, each).unwrap();
        found
    };
    let (packed, back) = (files("initramfs.cpio"), files("out.raw"));
    println!("{kept}: {} packed, back came {back:?}", packed.len());
    for wanted in ["init", "guest/plan", "bin/busybox"] {
        assert!(packed.iter().any(|path| path == wanted), "{wanted}: {packed:?}");
    }
    assert!(packed.iter().any(|path| path.contains("/deps/sideband-")), "{packed:?}");
    assert!(back.iter().any(|path| path == "ran"), "{back:?}");
    fs::remove_dir_all(kept).unwrap();
}

#[test]
#[ignore = "boots guests"]
fn a_shell_takes_commands_and_its_end_is_the_guests() {
    let _turn = turn();
    let mut command = xtask(&["--kernel", "6.12", "--shell", SMALL]);
    let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(shell.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("the end of this shell ends the machine") {
        let mut line = Vec::new();
        assert!(said.read_until(b'\n', &mut line).unwrap() > 0, "{text}");
        text += &String::from_utf8_lossy(&line);
    }
    shell.stdin.take().unwrap().write_all(b"uname -r > /out/release; exit\n").unwrap();
    let mut rest = Vec::new();
    said.read_to_end(&mut rest).unwrap();
    text += &String::from_utf8_lossy(&rest);
    assert!(shell.wait().unwrap().success(), "{text}");
    let (_, out) = text.split_once("what was in /out: ").unwrap_or_else(|| panic!("{text}"));
    let release = fs::read_to_string(Path::new(out.trim()).join("release")).unwrap();
    println!("in the shell: {release}");
    assert!(release.starts_with("6.12.") && out.trim().ends_with(release.trim()), "{release} {out}");
}

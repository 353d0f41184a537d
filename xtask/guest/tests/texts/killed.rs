//! What the journal holds after the recorder was killed.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use afterimage_perf_data::{FileReader, journal};
use afterimage_recorder::record;
use afterimage_testkit::{Need, has};

use crate::support::{Said, Texts, plan, share, turn};

const FILE: &str = "AFTERIMAGE_TEXTS_FILE";

/// Run by the test below in a process of its own: a recorder that is to be killed.
#[test]
#[ignore = "a process for another test"]
fn a_recorder() {
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    record(&plan(&path, Vec::new(), None), &AtomicBool::new(false), &mut Said).unwrap();
}

#[test]
fn after_a_kill_the_journal_has_what_was_freed() {
    if !has("after_a_kill_the_journal_has_what_was_freed", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.data");
    let mut recorder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::a_recorder", "--ignored"])
        .env(FILE, &path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let in_journal = || {
        let bytes = std::fs::read(journal::path_of(&path)).unwrap_or_default();
        let private = journal::read(&bytes).map(|journal| journal.private).unwrap_or_default();
        Texts { texts: private.texts, images: private.images }
    };
    let start = Instant::now();
    while in_journal().texts.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "the recorder does not record");
        std::thread::sleep(Duration::from_millis(50));
    }
    let load = crate::support::load("bpf --count 100 --no-info");
    let output = Command::new(&load[0]).args(&load[1..]).output().unwrap();
    assert!(output.status.success());
    // The frees, and the pass after them.
    while share(&in_journal(), "load_bpf", 100).0 < 300 {
        assert!(
            start.elapsed() < Duration::from_secs(90),
            "{:?} in the journal",
            share(&in_journal(), "load_bpf", 100)
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let (bytes, beside) = (std::fs::read(&path).unwrap(), std::fs::read(journal::path_of(&path)).unwrap());
    assert!(!FileReader::open(&bytes).unwrap().finished());
    let private = journal::read(&beside).unwrap().private;
    let texts = Texts { texts: private.texts, images: private.images };
    println!("{:?} functions of 100 programs after the kill", share(&texts, "load_bpf", 100));
    assert_eq!(share(&texts, "load_bpf", 100), (300, 300, 300));
}

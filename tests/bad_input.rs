//! Recordings that are none, that are cut, that lie, and that were not finished: what could be read goes to stdout,
//! one line names the place on stderr, and nothing panics.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;
#[path = "common/made.rs"]
mod made;

use std::io::Cursor;
use std::path::Path;
use std::process::Output;

use afterimage_perf_data::tally::Flow;
use afterimage_perf_data::{EventTally, RecordingTally, Tally, journal};
use common::{file, folder, run, stderr, stdout, word};
use made::{CODE, Made, event};

/// Views of a recording; each has to stand any input.
const VIEWS: [&[&str]; 7] = [
    &["report"],
    &["report", "--json", "--children"],
    &["script"],
    &["annotate"],
    &["annotate", "--json", "--insns"],
    &["export"],
    &["export", "--format", "svg"],
];

fn views(path: &Path) -> Vec<Output> {
    VIEWS.iter().map(|view| run(&[view, &["-i", word(path)][..]].concat())).collect()
}

/// Ended by itself, with a code that says what happened and no word of a panic.
fn stood_it(output: &Output, what: &str) {
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{what}: {:?} {says}", output.status);
    assert!(!says.contains("panicked"), "{what}: {says}");
}

fn sample_recording(path: &Path) {
    let mut made = Made::at(path, vec![event("cpu-clock", 11, true), event("page-faults", 12, false)]);
    made.comm(42, b"worker");
    made.map(42, b"/nonexistent/worker");
    for i in 0..20 {
        made.sample(0, 42, 1000, &[CODE + 16 * (i % 3), CODE + 256, CODE + 512]);
        made.sample(1, 42, 1, &[CODE + 8]);
    }
    made.finish(None);
}

#[test]
fn what_is_no_recording_is_refused_in_one_line() {
    let folder = folder();
    for (name, bytes, cause) in [
        ("empty", &b""[..], "the file is empty"),
        (
            "text",
            b"hello, this is not a recording of anything at all, however long it may be ...............",
            "not a perf.data file",
        ),
        ("short", b"PERF", "not a perf.data file"),
    ] {
        let path = file(&folder, name);
        std::fs::write(&path, bytes).unwrap();
        for output in views(&path) {
            assert_eq!(output.status.code(), Some(1), "{name}");
            assert!(output.stdout.is_empty(), "{name}");
            let says = stderr(&output);
            let first = says.lines().next().unwrap();
            assert!(first.starts_with("afterimage: ") && first.contains(cause), "{name}: {says}");
        }
    }
    let output = run(&["report", "-i", word(folder.path())]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("afterimage: "), "{}", stderr(&output));
}

#[test]
fn a_recording_cut_at_any_byte_shows_what_is_left() {
    let folder = folder();
    let (whole, cut) = (file(&folder, "whole"), file(&folder, "cut"));
    sample_recording(&whole);
    let bytes = std::fs::read(&whole).unwrap();
    let all = stdout(&run(&["script", "-i", word(&whole)]));
    let mut shown = 0;
    for end in (0..bytes.len()).step_by(13) {
        std::fs::write(&cut, &bytes[..end]).unwrap();
        let output = run(&["script", "-i", word(&cut)]);
        stood_it(&output, &format!("cut at {end}"));
        assert_eq!(output.status.code(), Some(1), "cut at {end}: {}", stderr(&output));
        assert!(stderr(&output).starts_with("afterimage: "), "cut at {end}: {}", stderr(&output));
        // What is printed is what the whole recording begins with.
        let text = stdout(&output);
        assert!(all.starts_with(&text), "cut at {end}: {text}");
        shown = shown.max(text.lines().count());
        if end % 8 == 0 {
            views(&cut).iter().for_each(|output| stood_it(output, &format!("cut at {end}")));
        }
    }
    assert!(shown > all.lines().count() / 2, "{shown} lines at most");
}

#[test]
fn a_lie_in_any_word_is_no_panic() {
    let folder = folder();
    let (whole, lying) = (file(&folder, "whole"), file(&folder, "lying"));
    sample_recording(&whole);
    let bytes = std::fs::read(&whole).unwrap();
    for (nth, at) in (0..bytes.len() - 8).step_by(24).enumerate() {
        let mut bytes = bytes.clone();
        let lie: &[u8] = [&[0xff; 8][..], &[0; 8], &[0xff, 0xff, 0xff, 0x7f]][nth % 3];
        bytes[at..at + lie.len()].copy_from_slice(lie);
        std::fs::write(&lying, &bytes).unwrap();
        let output = run(&[VIEWS[nth % VIEWS.len()], &["-i", word(&lying)][..]].concat());
        stood_it(&output, &format!("a lie at {at}"));
    }
}

#[test]
fn a_recording_that_was_not_finished_is_shown_with_a_warning() {
    let folder = folder();
    let path = file(&folder, "killed");
    let mut made = Made::at(&path, vec![event("cpu-clock", 11, false)]);
    made.comm(42, b"worker");
    for _ in 0..3 {
        made.sample(0, 42, 1000, &[CODE]);
    }
    made.killed();
    let output = run(&["script", "-i", word(&path), "-F", "comm,period"]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "          worker       1000 \n".repeat(3).as_str())
    );
    assert!(stderr(&output).contains("was not finished"), "{}", stderr(&output));
    for output in views(&path) {
        assert_eq!(output.status.code(), Some(0));
        assert!(stderr(&output).contains("was not finished"), "{}", stderr(&output));
    }
}

#[test]
fn the_journal_of_an_unfinished_recording_holds_its_tally() {
    let folder = folder();
    let path = file(&folder, "killed");
    let mut made = Made::at(&path, vec![event("cpu-clock", 11, false)]);
    made.comm(42, b"worker");
    made.sample(0, 42, 1000, &[CODE]);
    made.killed();
    let sum = Tally { chained: 9, ring: Flow::new(1, 8), ..Tally::default() };
    let tally =
        RecordingTally { events: vec![EventTally::new("cpu-clock", vec![(1, sum)])], ..RecordingTally::default() };
    let mut journal = journal::Writer::create(Cursor::new(Vec::new())).unwrap();
    journal.tally(&tally).unwrap();
    let mut bytes = journal.into_inner().into_inner();
    // What a kill in the middle of an entry leaves.
    bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0]);
    std::fs::write(file(&folder, "killed.journal"), &bytes).unwrap();
    let output = run(&["report", "-i", word(&path)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let line = "9 samples: 1 kept, 8 lost (ring full)";
    assert!(stderr(&output).contains(&format!("was not finished; to the last pass: {line}")), "{}", stderr(&output));
    assert!(stdout(&output).contains(&format!("# Tally: {line} (to the last pass)\n")), "{}", stdout(&output));
    // A journal that is none takes nothing away.
    std::fs::write(file(&folder, "killed.journal"), b"not a journal").unwrap();
    let output = run(&["script", "-i", word(&path)]);
    assert_eq!((output.status.code(), stdout(&output).lines().count()), (Some(0), 1));
}

//! `export`: folded stacks against what a collapser makes of `perf script`, and the flame graph.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;
#[path = "common/made.rs"]
mod made;

use std::collections::BTreeMap;

use afterimage_testkit::{Need, has, workload};
use common::{file, folder, perf, perf_record, run, stderr, stdout, text, word};
use inferno::collapse::Collapse;
use made::{CODE, Made, event};

#[test]
fn events_are_never_added_together() {
    let folder = folder();
    let path = file(&folder, "data");
    let mut made = Made::at(&path, vec![event("cpu-clock", 11, true), event("page-faults", 12, false)]);
    made.comm(42, b"my worker");
    made.map(42, b"/nonexistent/worker");
    made.sample(0, 42, 1000, &[CODE, CODE + 16]);
    made.sample(0, 42, 500, &[CODE, CODE + 16]);
    made.sample(1, 42, 7, &[CODE]);
    made.finish(None);
    let first = run(&["export", "-i", word(&path)]);
    assert_eq!((first.status.code(), stdout(&first).as_str()), (Some(0), "my_worker;[worker];[worker] 1500\n"));
    assert_eq!(stderr(&first), "afterimage: drawn is cpu-clock; --event takes one of the others: page-faults\n");
    assert_eq!(text(&["export", "-i", word(&path), "--event", "page-faults"]), "my_worker;[worker] 7\n");
    let samples = text(&["export", "-i", word(&path), "--event", "cpu-clock", "--weight", "samples"]);
    assert_eq!(samples, "my_worker;[worker];[worker] 2\n");
    let other = run(&["export", "-i", word(&path), "--event", "cycles"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(stderr(&other).contains("it holds cpu-clock, page-faults"), "{}", stderr(&other));
}

#[test]
fn a_flame_graph_is_one_document_in_a_file() {
    let folder = folder();
    let (path, svg) = (file(&folder, "data"), file(&folder, "flame.svg"));
    let mut made = Made::at(&path, vec![event("cpu-clock", 11, true)]);
    made.comm(42, b"</title>");
    made.map(42, b"/nonexistent/<worker>");
    made.sample(0, 42, 1000, &[CODE, CODE + 16]);
    made.finish(None);
    let said = text(&["export", "--format", "svg", "-i", word(&path), "-o", word(&svg)]);
    let picture = std::fs::read_to_string(&svg).unwrap();
    assert!(said.is_empty() && picture.starts_with("<?xml") && picture.trim_end().ends_with("</svg>"));
    assert!(picture.contains("<title>[&lt;worker&gt;] (1,000 ns, 100.00%)</title>"), "{picture}");
    assert!(picture.contains("1 sample: 1 kept") && !picture.contains("</title></title>"));
}

#[test]
fn an_empty_recording_leaves_no_stacks() {
    let folder = folder();
    let path = file(&folder, "data");
    Made::at(&path, vec![event("cpu-clock", 11, true)]).finish(None);
    for format in ["folded", "svg"] {
        let output = run(&["export", "--format", format, "-i", word(&path)]);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""), "{format}");
    }
}

/// Stacks and how much each weighs. perf and we name entries of the PLT, memory, and the call out of the loader's first
/// function otherwise; stacks with such frames are one, which has to weigh the same.
fn comparable(folded: &str) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for (stack, weight) in folded.lines().map(|line| line.rsplit_once(' ').unwrap()) {
        let otherwise = ["plt", "[", ";_dl_start"].iter().any(|part| stack.contains(part));
        *stacks.entry(if otherwise { "named otherwise".into() } else { stack.to_owned() }).or_default() +=
            weight.parse::<u64>().unwrap();
    }
    stacks
}

#[test]
fn folded_stacks_are_those_of_a_collapser() {
    if !has("folded_stacks_are_those_of_a_collapser", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let busy = workload::build().busy;
    perf_record(&path, &["-g", "-e", "cpu-clock:u", "-F", "499"], &[word(&busy), "150", "12"]);
    let collapsed = |script: &str| {
        let mut out = Vec::new();
        let mut collapser = inferno::collapse::perf::Folder::from(inferno::collapse::perf::Options::default());
        collapser.collapse(script.as_bytes(), &mut out).unwrap();
        comparable(&String::from_utf8(out).unwrap())
    };
    let theirs = collapsed(&perf(&["script", "--no-inline", "-i", word(&path)]));
    let ours = comparable(&text(&["export", "-i", word(&path)]));
    assert!(theirs.keys().any(|stack| stack.contains("busy_level;busy_level;busy_leaf")), "{theirs:?}");
    assert_eq!(ours, theirs);
    // What reads the lines of `perf script` reads ours.
    assert_eq!(collapsed(&text(&["script", "-i", word(&path)])), theirs);
}

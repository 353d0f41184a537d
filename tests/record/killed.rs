//! A recorder that is killed leaves a file that is good to its last pass.

use std::path::Path;

use afterimage_testkit::{Need, has};

use crate::common::{file, folder, perf, run, stderr, stdout, word};
use crate::helper::{Busy, beside, event, number, report, start, until_covered};

/// How many samples each killed recording holds at least.
const AT_LEAST: u64 = 150;

/// Records the machine until several passes have brought something, and kills the recorder.
fn killed(path: &Path, words: &[&str], busy: &Busy) {
    kill_in_the_middle(path, &[&["-a", "-g", "-F", "999"][..], words].concat(), busy);
}

fn kill_in_the_middle(path: &Path, words: &[&str], busy: &Busy) {
    let mut recorder = start(path, words);
    busy.go(path);
    until_covered(path, AT_LEAST);
    recorder.kill().unwrap();
    busy.rest();
    recorder.wait().unwrap();
    assert!(path.with_extension("data.journal").exists());
}

#[test]
fn a_killed_recording_is_read_to_its_last_pass() {
    if !has("a_killed_recording_is_read_to_its_last_pass", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let busy = Busy::new();
    let handlers = ["none", "emit", "count"];
    let paths = handlers.map(|handler| file(&folder, &format!("{handler}.data")));
    paths.iter().zip(handlers).for_each(|(path, handler)| killed(path, &["--handler", handler], &busy));
    for (path, handler) in paths.iter().zip(handlers) {
        let (report, output) = report(path, &[]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("not finished"), "{}", stderr(&output));
        assert_eq!((&report["complete"], &report["tally_source"]), (&false.into(), &"journal".into()));
        let shown = event(&report, "cpu-clock");
        let kept = match handler {
            "none" => &shown["tally"]["ring"]["delivered"],
            "emit" => &shown["tally"]["handler_ring"]["delivered"],
            _ => &shown["tally"]["map"]["stored"],
        };
        println!("{handler}: {} samples, tally {}", shown["samples"], shown["tally"]);
        assert!(number(kept) >= AT_LEAST, "{kept}");
        assert_eq!(&shown["samples"], kept, "{handler}");

        let script = run(&["script", "-i", word(path)]);
        assert_eq!(script.status.code(), Some(0), "{}", stderr(&script));
        assert!(stderr(&script).contains("not finished"), "{}", stderr(&script));
    }
}

#[test]
fn stock_perf_reads_a_killed_recording() {
    if !has("stock_perf_reads_a_killed_recording", &[Need::Root, Need::Bpf, Need::Perf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    for handler in ["none", "emit", "count"] {
        let path = file(&folder, &format!("{handler}.data"));
        killed(&path, &["--handler", handler], &Busy::new());
        let by_perf = perf(&["report", "--stdio", "--no-inline", "-g", "none", "-i", word(&path)]);
        assert!(by_perf.contains('%'), "{by_perf}");
        assert!(!perf(&["script", "--no-inline", "-G", "-F", "comm,tid,time", "-i", word(&path)]).is_empty());
    }
}

#[test]
fn without_its_journal_a_killed_recording_is_still_read() {
    if !has("without_its_journal_a_killed_recording_is_still_read", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "a.data");
    killed(&path, &[], &Busy::new());
    std::fs::remove_file(path.with_extension("data.journal")).unwrap();
    let (report, output) = report(&path, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(number(&event(&report, "cpu-clock")["samples"]) >= AT_LEAST);
}

/// Stock perf wants the formats of tracepoints before the first record, also of a recording that nobody finished.
#[test]
fn perf_reads_a_killed_recording_of_tracepoints() {
    let name = "perf_reads_a_killed_recording_of_tracepoints";
    if !has(name, &[Need::Root, Need::Tracefs, Need::Perf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "a.data");
    kill_in_the_middle(&path, &["-a", "-e", "sched:sched_switch"], &Busy::new());
    let fields = ["script", "--no-inline", "-F", "comm,tid,time,event,trace", "-i", word(&path)];
    let (by_perf, ours) = (perf(&fields), run(&["script", "-F", "comm,tid,time,event,trace", "-i", word(&path)]));
    assert_eq!(ours.status.code(), Some(0), "{}", stderr(&ours));
    let (report, _) = report(&path, &[]);
    let count = number(&event(&report, "sched:sched_switch")["samples"]);
    println!("{count} samples: {}", by_perf.lines().next().unwrap_or_default());
    assert!(count >= AT_LEAST);
    for text in [&by_perf, &stdout(&ours)] {
        assert_eq!(text.lines().filter(|line| line.contains("prev_pid=")).count() as u64, count, "{text}");
    }
    assert!(perf(&["report", "--stdio", "-i", word(&path)]).contains('%'));
}

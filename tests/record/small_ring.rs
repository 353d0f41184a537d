//! Rings that overflow: what is lost is counted to the last sample, and shown.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use afterimage_perf_data::Tally;
use afterimage_testkit::{Need, guest, has};
use rustix::process::Signal;

use crate::common::{file, folder, stderr, text, word};
use crate::helper::{Busy, alone, event, number, report, signal, start, tally, until_covered};

/// Records while the recorder is stopped for half a second, so that a ring of one page has to overflow.
fn stopped_meanwhile(path: &Path, words: &[&str], busy: &Busy) -> Tally {
    let recorder = start(path, words);
    busy.go(path);
    until_covered(path, 1);
    signal(&recorder, Signal::STOP);
    std::thread::sleep(Duration::from_millis(500));
    signal(&recorder, Signal::CONT);
    std::thread::sleep(Duration::from_millis(300));
    signal(&recorder, Signal::INT);
    busy.rest();
    let output = recorder.wait_with_output().unwrap();
    println!("{words:?}: {}", stderr(&output));
    assert!(!stderr(&output).contains("does not add up"), "{}", stderr(&output));
    let sum = tally(path).total();
    println!("{sum:?}");
    sum
}

#[test]
fn a_ring_of_one_page_counts_what_it_loses() {
    if !has("a_ring_of_one_page_counts_what_it_loses", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = alone();
    let folder = folder();
    let busy = Busy::new();
    let pid = busy.pid().to_string();
    // A page holds some thirty samples: the fewer also overflow it in half a second, and do not take an emulated CPU whole.
    let rate = if guest().is_some() { "999" } else { "9999" };
    let targets: [&[&str]; 2] = [&["-a"], &["-p", &pid]];
    let mut recorded = Vec::new();
    for (turn, target) in targets.into_iter().enumerate() {
        let path = file(&folder, &format!("none{turn}.data"));
        let sum = stopped_meanwhile(&path, &[&["-m", "1", "-F", rate, "-g"][..], target].concat(), &busy);
        assert!(sum.ring.lost > 0 && sum.ring.delivered > 0, "{sum:?}");
        assert_eq!(sum.handled, Some(sum.ring.delivered + sum.ring.lost));
        recorded.push((path, sum));

        let path = file(&folder, &format!("emit{turn}.data"));
        let words = [&["-m", "1", "-F", rate, "-g", "--handler", "emit", "--chain"][..], target].concat();
        let sum = stopped_meanwhile(&path, &words, &busy);
        assert!(sum.ring.lost > 0 && sum.handler_ring.lost > 0 && sum.handler_ring.delivered > 0, "{sum:?}");
        assert_eq!((Some(sum.chained), Some(sum.emitted)), (sum.handled, sum.handled));
    }
    for (path, sum) in recorded {
        let (report, _) = report(&path, &[]);
        assert_eq!(number(&event(&report, "cpu-clock")["samples"]), sum.ring.delivered);
        assert_eq!(number(&report["tally"]["ring"]["lost"]), sum.ring.lost);
        let shown = text(&["report", "-i", word(&path), "-g", "none"]);
        let tally = shown.lines().find(|line| line.starts_with("# Tally:")).unwrap();
        assert!(tally.contains("lost (ring full)"), "{tally}");
    }
}

#[test]
fn without_a_program_losses_are_the_kernel_s_own_count() {
    if !has("without_a_program_losses_are_the_kernel_s_own_count", &[Need::Root, Need::Tracefs]) {
        return;
    }
    let _turn = alone();
    let folder = folder();
    let path = file(&folder, "a.data");
    let recorder = start(&path, &["-a", "-m", "1", "-e", "sched:sched_switch", "-c", "1"]);
    until_covered(&path, 1);
    signal(&recorder, Signal::STOP);
    for _ in 0..200 {
        assert!(Command::new("true").status().unwrap().success());
    }
    signal(&recorder, Signal::CONT);
    signal(&recorder, Signal::INT);
    let output = recorder.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let sum = tally(&path).total();
    println!("{sum:?}");
    assert!(sum.handled.is_none() && sum.ring.lost > 0 && sum.ring.delivered > 0, "{sum:?}");
    let (report, _) = report(&path, &[]);
    assert_eq!(number(&event(&report, "sched:sched_switch")["samples"]), sum.ring.delivered);
}

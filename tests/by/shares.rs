//! Counts in the kernel against recordings of the same load, and against what the load says of itself.

use afterimage_testkit::{Need, has, turns, workload};
use serde_json::Value;

use crate::common::{file, folder, run, stderr, word};
use crate::helper::{names, number, readout, readouts, rows, samples_where, turn};

const NEEDS: [Need; 3] = [Need::Root, Need::Bpf, Need::Cc];

/// Of the samples of a key, how many a share may differ by: five standard deviations of two samplings, and one in a hundred
/// for what the two runs do differently.
fn near(one: u64, of_one: u64, other: u64, of_other: u64) -> bool {
    let (a, b) = (one as f64 / of_one as f64, other as f64 / of_other as f64);
    let error = |share: f64, of: u64| share * (1.0 - share) / of as f64;
    (a - b).abs() <= 5.0 * (error(a, of_one) + error(b, of_other)).sqrt() + 0.01
}

/// A known split of CPU time over functions, a library, a thread and a child: its shares by innermost function.
#[test]
fn shares_are_those_of_a_recording() {
    // Timers of emulated machines drift.
    if !has("shares_are_those_of_a_recording", &[&NEEDS[..], &[Need::NoGuest]].concat()) {
        return;
    }
    let _turn = turn();
    let (folder, split) = (folder(), workload::build().split);
    let path = file(&folder, "data");
    let load = ["-e", "cpu-clock:u", "-F", "2000", "--", word(&split), "1"];
    let seen = readout("comm,ustack", &load);
    let recorded = run(&[&["record", "-g", "-o", word(&path)][..], &load].concat());
    assert_eq!(recorded.status.code(), Some(0), "{}", stderr(&recorded));
    let report = run(&["report", "--json", "-i", word(&path), "--sort", "comm,sym"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let (ours, theirs) = (rows(&seen["events"][0]), rows(&report["events"][0]));
    let (all, all_recorded) = (number(&seen["events"][0]["samples"]), number(&report["events"][0]["samples"]));
    assert!(all > 1000 && all_recorded > 1000, "{all} {all_recorded}");
    let mut compared = 0;
    for row in theirs.iter().filter(|row| number(&row["samples"]) * 50 > all_recorded) {
        let Some(sym) = row["sym"].as_str() else { continue };
        let same = |one: &Value| one["comm"] == row["comm"] && names(&one["ustack"]).first() == Some(&sym);
        let (here, there) = (samples_where(ours, same), number(&row["samples"]));
        println!("{} {sym}: {here} of {all}, recorded {there} of {all_recorded}", row["comm"]);
        assert!(near(here, all, there, all_recorded), "{sym}");
        compared += 1;
    }
    assert!(compared >= 3, "{report}");
}

#[test]
fn readings_of_intervals_add_up() {
    if !has("readings_of_intervals_add_up", &NEEDS) {
        return;
    }
    let _turn = turn();
    let faults = workload::build().faults;
    let script = format!("for i in 1 2 3 4 5 6 7 8; do {} 300; sleep 0.1; done", word(&faults));
    let words = ["-e", "page-faults", "-c", "1", "--interval", "100ms", "--", "sh", "-c", &script];
    let each = |keys: &str, holds: &dyn Fn(&Value) -> bool| -> Vec<u64> {
        let (seen, _) = readouts(keys, &words);
        let each: Vec<u64> = seen.iter().map(|one| samples_where(rows(&one["events"][0]), holds)).collect();
        println!("{keys}: {each:?}");
        each
    };
    // Which stacks and files have names is found out while the first of these is read out, which takes its time.
    let touched = each("comm,ip", &|row| row["ip"]["sym"] == "touch_pages" && row["comm"] == "faults");
    assert_eq!(touched.iter().sum::<u64>(), 8 * 300);
    let named = each("comm", &|row| row["comm"] == "faults");
    assert!(named.iter().sum::<u64>() >= 8 * 300);
    assert!(named.iter().filter(|samples| **samples > 0).count() >= 2, "{named:?}");
}

/// Two events are counted apart, each under the keys of all.
#[test]
fn events_are_counted_apart() {
    if !has("events_are_counted_apart", &NEEDS) {
        return;
    }
    let _turn = turn();
    let faults = workload::build().faults;
    let script = format!("{} 1500; i=0; while [ $i -lt {} ]; do i=$((i + 1)); done", word(&faults), turns(200_000));
    let words = ["-e", "page-faults/period=1/,cpu-clock", "-F", "1000", "--", "sh", "-c", &script];
    let seen = readout("comm,ip", &words);
    let [first, second] = seen["events"].as_array().unwrap().as_slice() else { panic!("two events: {seen}") };
    assert_eq!((&first["name"], &second["name"]), (&"page-faults/period=1/".into(), &"cpu-clock".into()));
    assert_eq!(samples_where(rows(first), |row: &Value| row["ip"]["sym"] == "touch_pages"), 1500);
    assert!(number(&second["samples"]) > 20, "{second}");
    assert!(samples_where(rows(second), |row: &Value| row["comm"] == "sh") > 20, "{second}");
}

/// The whole machine by CPU, cgroup and kernel stack: everything is in some row, and stacks have names.
#[test]
fn the_whole_machine() {
    if !has("the_whole_machine", &NEEDS) {
        return;
    }
    let _turn = turn();
    let busy = workload::build().busy;
    let words = ["-a", "-e", "cpu-clock", "-F", "1000", "--", word(&busy), "800"];
    let seen = readout("cpu,cgroup,kstack", &words);
    let rows = rows(&seen["events"][0]);
    assert!(number(&seen["events"][0]["samples"]) > 100);
    let frames = |row: &Value| row["kstack"].as_array().unwrap().clone();
    let all: Vec<Value> = rows.iter().flat_map(frames).collect();
    let named = all.iter().filter(|frame| frame["sym"].is_string()).count();
    assert!(named * 10 >= all.len() * 9, "{named} of {} kernel frames have a name", all.len());
    assert!(all.iter().all(|frame| frame["addr"].as_str().unwrap().starts_with("0xffff")), "only the kernel's");
    assert!(rows.iter().all(|row| row["cgroup"]["id"].is_u64() && row["cpu"].is_u64()));
}

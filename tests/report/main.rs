//! `report`: to the letter on a recording made by hand, and against `perf report` on recordings that perf made.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod branches;
#[path = "../common/mod.rs"]
mod common;
mod filters;
mod foreign;
mod graph;
#[path = "../script_lines/hand.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod hand;
mod keys;
#[path = "../common/made.rs"]
mod made;
mod several;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use afterimage_perf_data::tally::Flow;
use afterimage_perf_data::{EventTally, Private, RecordingTally, Tally};
use afterimage_testkit::{Need, has, workload};
use common::{file, folder, perf, perf_record, run, stderr, text, word};
use made::{CODE, Made, event};

/// Two events, two processes, a name that would steer a terminal, and a tally with a loss.
fn two_events(path: &Path) {
    let mut made = Made::at(path, vec![event("cpu-clock", 11, true), event("page-faults", 12, false)]);
    made.comm(42, b"worker");
    made.map(42, b"/nonexistent/worker");
    made.comm(43, b"bad\x1b[2J\xff");
    let chains = [(5, &[CODE, CODE + 0x101, CODE + 0x201][..]), (3, &[CODE, CODE + 0x201]), (2, &[CODE + 0x10])];
    for (count, chain) in chains {
        for _ in 0..count {
            made.sample(0, 42, 1000, chain);
        }
    }
    made.sample(1, 42, 3, &[CODE + 8]);
    made.sample(1, 43, 1, &[CODE]);
    let sum = Tally {
        handled: Some(14),
        filtered: Some(1),
        dropped: Some(0),
        passed: Some(13),
        chained: 13,
        ring: Flow::new(10, 3),
        ..Tally::default()
    };
    let tally =
        RecordingTally { events: vec![EventTally::new("cpu-clock", vec![(1, sum)])], complete: true, off_cpu: None };
    made.finish(Some(&Private { tally: Some(tally), ..Private::default() }));
}

#[test]
fn a_report_to_the_letter() {
    let folder = folder();
    let path = file(&folder, "data");
    two_events(&path);
    let expected = "\
# Samples: 10  of event 'cpu-clock'
# Event count (approx.): 10000
# Tally: 14 samples: 10 kept, 1 filtered, 3 lost (ring full)
# User stacks ending early: 5 of 10 (50.0%)
#   hint: such code keeps no frame pointers (record it with --call-graph dwarf)
#
# Overhead  Command  Shared Object  Symbol
# ........  .......  .............  ......................
#
    80.00%  worker   worker         [.] 0x0000000000000000
            |
            ---0x0000000000000000
               |          
               |--50.00%--0x0000000000000100
               |          0x0000000000000200
               |          
                --30.00%--0x0000000000000200

    20.00%  worker   worker         [.] 0x0000000000000010
            |
            ---0x0000000000000010



# Samples: 2  of event 'page-faults'
# Event count (approx.): 4
#
# Overhead  Command      Shared Object  Symbol
# ........  ...........  .............  ......................
#
    75.00%  worker       worker         [.] 0x0000000000000008
    25.00%  bad\\x1b[2J\u{fffd}  [unknown]      [.] 0x0000000000400000

#
# Samples at addresses without a name:
#         11  no such file
#          1  no mapping
";
    let got = text(&["report", "-i", word(&path)]);
    let tail = |text: &str| text.split("# Samples at addresses").next().unwrap().to_owned();
    assert_eq!(tail(&got), tail(expected));
    assert!(got.contains("\n#         11  ") && got.contains("\n#          1  "), "{got}");
}

#[test]
fn options_change_what_is_shown() {
    let folder = folder();
    let path = file(&folder, "data");
    two_events(&path);
    let rows = |options: &[&str]| -> Vec<String> {
        let all = text(&[&["report", "-i", word(&path), "-g", "none", "--event", "cpu-clock"][..], options].concat());
        all.lines().filter(|l| !l.starts_with('#') && !l.is_empty()).map(|l| l.trim().to_owned()).collect()
    };
    assert_eq!(rows(&["--sort", "comm", "-n"]), ["100.00%            10  worker"]);
    assert_eq!(rows(&["--sort", "cpu,pid", "--show-total-period"]), ["100.00%         10000  001       42:worker"]);
    assert_eq!(rows(&["--percent-limit", "50"]).len(), 1);
    assert_eq!(rows(&["--percent-limit", "50%", "--percent-limit", "0"]).len(), 2);
    assert_eq!(rows(&["--sort", "event"]), ["100.00%  cpu-clock"]);
    let children = rows(&["--children", "--sort", "sym"]);
    assert_eq!(children[0], "80.00%    80.00%  [.] 0x0000000000000000");
    assert_eq!(children[1], "80.00%     0.00%  [.] 0x0000000000000200");
    let quiet = text(&["report", "-q", "-i", word(&path), "-g", "none", "--event", "page-faults", "--sort", "comm"]);
    assert_eq!(quiet, "    75.00%  worker\n    25.00%  bad\\x1b[2J\u{fffd}\n");
}

#[test]
fn json_has_the_agreed_keys() {
    let folder = folder();
    let path = file(&folder, "data");
    two_events(&path);
    let json: serde_json::Value = serde_json::from_str(&text(&["report", "--json", "-i", word(&path)])).unwrap();
    assert_eq!(json["schema"], "afterimage/report/1");
    assert_eq!(json["tally"]["handled"], 14);
    assert_eq!(json["tally"]["ring"], serde_json::json!({"delivered": 10, "lost": 3}));
    let clock = &json["events"][0];
    assert_eq!((&clock["name"], &clock["samples"], &clock["period"]), (&"cpu-clock".into(), &10.into(), &10000.into()));
    assert_eq!(clock["tally"]["passed"], 13);
    let row = &clock["rows"][0];
    let wanted = serde_json::json!({
        "percent": 80.0, "samples": 8, "period": 8000, "comm": "worker", "dso": "worker", "sym": null, "address": "0x0",
    });
    for (key, value) in wanted.as_object().unwrap() {
        assert_eq!(&row[key], value, "{key}");
    }
    assert!(row["reason"].is_string());
    // An event without a tally of its own says why.
    assert_eq!(
        (&json["events"][1]["tally"], json["events"][1]["reason"].is_string()),
        (&serde_json::Value::Null, true)
    );
    let unresolved = json["unresolved"].as_array().unwrap();
    assert_eq!(unresolved.iter().map(|u| u["samples"].as_u64().unwrap()).sum::<u64>(), 12);
    // Names are data: escapes are JSON's business.
    assert_eq!(json["events"][1]["rows"][1]["comm"], "bad\u{1b}[2J\u{fffd}");
}

#[test]
fn an_event_that_is_not_there_is_2() {
    let folder = folder();
    let path = file(&folder, "data");
    two_events(&path);
    let output = run(&["report", "-i", word(&path), "--event", "cycles"]);
    assert_eq!(output.status.code(), Some(2));
    let says = "afterimage: --event cycles: not in the recording\n  hint: it holds cpu-clock, page-faults\n";
    assert_eq!(stderr(&output), says);
}

/// The rows of a report without chains.
fn rows(report: &str) -> Vec<String> {
    body(report).iter().map(|line| line.trim().to_owned()).collect()
}

/// The rows and chains of a report, without its head.
fn body(report: &str) -> Vec<String> {
    let lines = report.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn tables_and_call_graphs_are_perfs() {
    if !has("tables_and_call_graphs_are_perfs", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let busy = workload::build().busy;
    perf_record(&path, &["-g", "-e", "cpu-clock:u", "-F", "499"], &[word(&busy), "150", "12"]);
    for options in [
        &["-g", "none"][..],
        &["-g", "none", "-n"],
        &["-g", "graph,3"],
        &["-g", "fractal,3"],
        &["-g", "caller,3"],
        &["-g", "graph,3,callee,function,period"],
        &["-g", "fractal,3,count"],
        &["-g", "none", "--sort", "sym"],
        &["-g", "none", "--sort", "dso,comm"],
        &["-g", "none", "--percent-limit", "2"],
    ] {
        let ours = text(&[&["report", "-i", word(&path)], options].concat());
        let theirs = [&["report", "--stdio", "--no-children", "--no-inline", "-i", word(&path)], options].concat();
        let (ours, theirs) = (body(&ours), body(&perf(&theirs)));
        println!("{options:?}: {} lines", ours.len());
        // perf names the entries of linkage tables by counting, which goes wrong.
        let named =
            |lines: &[String]| -> Vec<String> { lines.iter().filter(|line| !line.ends_with("plt")).cloned().collect() };
        assert_eq!(ours.len(), theirs.len(), "{options:?}: {ours:#?} {theirs:#?}");
        assert_eq!(named(&ours), named(&theirs), "{options:?}");
    }
}

#[test]
fn callers_get_their_callees_time_as_in_perf() {
    if !has("callers_get_their_callees_time_as_in_perf", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let busy = workload::build().busy;
    perf_record(&path, &["-g", "-e", "cpu-clock:u", "-F", "499"], &[word(&busy), "150", "12"]);
    let options = ["--children", "-g", "none", "--percent-limit", "5", "-i", word(&path)];
    let ours = body(&text(&[&["report"], &options[..]].concat()));
    let theirs = body(&perf(&[&["report", "--stdio", "--no-inline"], &options[..]].concat()));
    // Rows of equal weight may stand in another order.
    let rows = |lines: &[String]| -> BTreeSet<String> { lines.iter().cloned().collect() };
    assert!(rows(&theirs).iter().any(|row| row.contains("0.00%") && row.ends_with("busy_level")), "{theirs:?}");
    assert_eq!(rows(&ours), rows(&theirs));
    // Under a caller stands what it called.
    let drawn = text(&["report", "--children", "-i", word(&path), "-G"]);
    assert!(drawn.contains("---busy_level\n               busy_level\n"), "{drawn}");
}

#[test]
fn the_top_ten_are_perfs() {
    if !has("the_top_ten_are_perfs", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let split = workload::build().split;
    perf_record(&path, &["-a", "-g", "-e", "cpu-clock", "-F", "999"], &[word(&split), "2"]);
    let ours = body(&text(&["report", "-i", word(&path), "-g", "none", "--sort", "sym"]));
    let theirs = body(&perf(&[
        "report",
        "--stdio",
        "--no-children",
        "--no-inline",
        "-g",
        "none",
        "-i",
        word(&path),
        "--sort",
        "sym",
    ]));
    // perf takes a file that was mapped before the recording and one that was mapped in it for two.
    let rows = |lines: &[String]| -> Vec<(f64, String)> {
        let parts = lines.iter().filter_map(|line| line.trim().split_once("%  "));
        let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
        parts.for_each(|(share, name)| *sums.entry(name).or_default() += share.parse::<f64>().unwrap());
        let mut rows: Vec<_> = sums.into_iter().map(|(name, share)| (share, name.to_owned())).collect();
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        rows
    };
    let (ours, theirs) = (rows(&ours), rows(&theirs));
    assert!(theirs.len() >= 10, "{theirs:?}");
    // Symbols within one point of the tenth may be in or out.
    let tenth = theirs[9].0;
    let sure = |rows: &[(f64, String)]| -> BTreeSet<String> {
        rows.iter().filter(|(share, _)| *share > tenth + 1.0).map(|(_, name)| name.clone()).collect()
    };
    assert_eq!(sure(&ours), sure(&theirs));
    assert!(sure(&ours).iter().any(|name| name.contains("spin_seventy")), "{ours:?}");
    for (share, name) in theirs.iter().take(5) {
        let our = ours.iter().find(|(_, n)| n == name).map(|(share, _)| *share);
        assert!(our.is_some_and(|our| (our - share).abs() < 0.02), "{name}: {share} and {our:?}");
    }
}

/// Two lines that take time, in a file of their own.
const LINES: &str = "volatile int sum;
static __attribute__((noinline)) void hot(int n) {
    for (int i = 0; i < n; i++)
        sum += i;
}
int main(void) {
    for (int i = 0; i < 40; i++)
        hot(1000000);
    return 0;
}
";

#[test]
fn lines_of_user_code_are_perfs() {
    if !has("lines_of_user_code_are_perfs", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let (path, source, program) = (file(&folder, "data"), file(&folder, "lines.c"), file(&folder, "lines"));
    std::fs::write(&source, LINES).unwrap();
    let mut cc = std::process::Command::new("cc");
    assert!(cc.args(["-g", "-O1", "-o"]).arg(&program).arg(&source).status().unwrap().success());
    // Programs of others that come and go meanwhile make perf abort.
    perf_record(&path, &["--no-bpf-event", "-e", "cpu-clock:u", "-F", "499"], &[word(&program)]);
    let own = |lines: Vec<String>| -> Vec<String> {
        let words = |line: String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut own: Vec<String> = lines.into_iter().map(words).filter(|line| line.contains("lines.c:")).collect();
        own.sort();
        own
    };
    let options = ["-i", word(&path), "--sort", "srcline,sym"];
    let ours = own(body(&text(&[&["report"], &options[..]].concat())));
    let theirs = own(body(&perf(&[&["report", "--stdio", "--no-children", "--no-inline"], &options[..]].concat())));
    assert!(ours.iter().any(|row| row.ends_with("lines.c:4 [.] hot")), "{ours:?}");
    assert_eq!(ours, theirs);
    let options = ["-i", word(&path), "-F", "ip,sym,srcline"];
    let lines = |script: String| script.lines().filter(|line| line.contains("lines.c:")).map(str::to_owned).collect();
    let ours: Vec<String> = lines(text(&[&["script"], &options[..]].concat()));
    let theirs: Vec<String> = lines(perf(&[&["script", "--no-inline"], &options[..]].concat()));
    assert_eq!(ours, theirs);
}

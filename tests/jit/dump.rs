//! Dumps: `jit-PID.dump`, and what `perf inject --jit` makes of them.

use std::process::Command;

use afterimage_testkit::{Need, has};
use serde_json::Value;

use crate::common::{file, folder, perf, perf_record, stderr, text, word};
use crate::{Made, assert_told, maker, record, samples, told};

fn annotated(path: &std::path::Path, name: &str) -> Value {
    let shown = text(&["annotate", "-i", word(path), "--json", "-s", name]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let symbols = shown["symbols"].as_array().unwrap();
    assert_eq!(symbols.len(), 1, "{shown}");
    symbols[0].clone()
}

/// Code, lines and samples of the function that moved.
fn assert_annotated(path: &std::path::Path, dump: bool) {
    let symbol = annotated(path, "moving");
    assert_eq!(symbol["kind"], "jit", "{symbol}");
    let lines = symbol["lines"].as_array().unwrap();
    if !dump {
        return;
    }
    assert_eq!(symbol["code"]["way"], "jitdump", "{symbol}");
    let with_samples: Vec<&Value> =
        lines.iter().filter(|line| line["events"][0]["samples"].as_u64().unwrap() > 10).collect();
    assert!(!with_samples.is_empty(), "{symbol}");
    for line in with_samples {
        assert!(line["text"].is_string(), "{line}");
        assert_eq!(line["source"][0]["file"], "made.js", "{line}");
        assert!(line["source"][0]["line"] == 7 || line["source"][0]["line"] == 8, "{line}");
    }
    let report = text(&["report", "-i", word(path), "--sort", "sym,srcline"]);
    assert!(report.contains("made.js:8"), "{report}");
}

#[test]
fn times_and_code_of_a_dump() {
    if !has("times_and_code_of_a_dump", &[Need::Root, Need::Cc]) {
        return;
    }
    let _turn = crate::turn();
    let folder = folder();
    let path = file(&folder, "data");
    let made = record(&path, &maker(&folder), "dump", folder.path(), 300);
    // The dump is gone; its times are exact.
    assert_told(&made, &samples(&path), 0);
    assert_annotated(&path, true);
    let archive = file(&folder, "archive");
    text(&["archive", "-i", word(&path), "-o", word(&archive)]);
    assert_told(&made, &samples(&archive), 0);
    assert_annotated(&archive, true);
}

#[test]
fn a_dump_beside_a_recording_of_perf() {
    let needs = [Need::Root, Need::Cc, Need::Perf];
    if !has("a_dump_beside_a_recording_of_perf", &needs) {
        return;
    }
    let _turn = crate::turn();
    let folder = folder();
    let path = file(&folder, "data");
    let program = maker(&folder);
    let out = file(&folder, "out");
    let script = format!("MAKER_KEEPS=1 {} dump {} 300 > {}", word(&program), word(folder.path()), word(&out));
    perf_record(&path, &["-k", "mono", "-e", "cpu-clock:u", "-F", "2000"], &["sh", "-c", &script]);
    let made = Made::of(&std::fs::read_to_string(&out).unwrap());
    assert_told(&made, &samples(&path), 0);
    assert_annotated(&path, true);
    // An archive takes the dump in.
    let archive = file(&folder, "archive");
    text(&["archive", "-i", word(&path), "-o", word(&archive)]);
    // What perf makes of it: a file for each function.
    let injected = file(&folder, "injected");
    perf(&["inject", "--jit", "-i", word(&path), "-o", word(&injected)]);
    let all = samples(&injected);
    let listed = perf(&["script", "-i", word(&injected), "-F", "ip,sym"]);
    let theirs = |name: &str| listed.lines().filter(|line| line.trim_end().ends_with(name)).count();
    let ours = |name: &str| all.iter().filter(|(_, _, sym)| sym == name).count();
    println!("{:?}; perf has {} and {}", told(&made, &all, 0), theirs(" moving"), theirs(" usurper"));
    assert_eq!((ours("moving"), ours("usurper")), (theirs(" moving"), theirs(" usurper")));
    assert!(ours("moving") > 50 && ours("usurper") > 50);
    let report = text(&["report", "-i", word(&injected), "--sort", "dso,sym"]);
    assert!(report.contains("jitted-") && report.contains("[.] usurper"), "{report}");
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap().path();
        if entry.extension().is_some_and(|ext| ext == "dump") {
            std::fs::remove_file(entry).unwrap();
        }
    }
    assert_told(&made, &samples(&archive), 0);
    assert_annotated(&archive, true);
    assert!(samples(&path).iter().all(|(_, ip, name)| !made.is_in(made.a, *ip) || name.is_empty()), "nothing is left");
}

/// A dump whose times are of no clock names its code all the same.
#[test]
fn without_a_common_clock_the_last_name_counts() {
    let needs = [Need::Root, Need::Cc, Need::Perf];
    if !has("without_a_common_clock_the_last_name_counts", &needs) {
        return;
    }
    let _turn = crate::turn();
    let folder = folder();
    let path = file(&folder, "data");
    let (program, out) = (maker(&folder), file(&folder, "out"));
    let script = format!("MAKER_KEEPS=1 {} dump {} 200 > {}", word(&program), word(folder.path()), word(&out));
    perf_record(&path, &["-e", "cpu-clock:u", "-F", "2000"], &["sh", "-c", &script]);
    let made = Made::of(&std::fs::read_to_string(&out).unwrap());
    let all = samples(&path);
    let names = |place| all.iter().filter(|s| made.is_in(place, s.1)).map(|s| s.2.as_str()).collect::<Vec<_>>();
    assert!(names(made.a).len() > 50 && names(made.a).iter().all(|name| *name == "usurper"), "{:?}", names(made.a));
    assert!(names(made.b).len() > 20 && names(made.b).iter().all(|name| *name == "moving"));
}

#[test]
fn a_killed_recorder_leaves_the_names() {
    if !has("a_killed_recorder_leaves_the_names", &[Need::Root, Need::Cc]) {
        return;
    }
    let _turn = crate::turn();
    let folder = folder();
    let path = file(&folder, "data");
    let program = maker(&folder);
    let mut command = crate::afterimage();
    command.args(["record", "-a", "-e", "cpu-clock:u", "-F", "1000", "-o"]).arg(&path);
    let mut recorder = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let begun = std::time::Instant::now();
    while !std::fs::read(&path).is_ok_and(|bytes| bytes.get(48..56).is_some_and(|size| size != [0; 8])) {
        assert!(begun.elapsed().as_secs() < 60);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let output = Command::new(&program).arg("dump").arg(folder.path()).arg("300").output().unwrap();
    let made = Made::of(&crate::common::stdout(&output));
    // Passes come at least each two seconds: the second from now holds all of it.
    std::thread::sleep(std::time::Duration::from_millis(4500));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let shown = crate::common::run(&["script", "-i", word(&path), "--json"]);
    assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    assert_told(&made, &samples(&path), 0);
}

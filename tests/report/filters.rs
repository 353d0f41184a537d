//! Filters: what is left, what is said of the rest, and perf as the judge of both.

use std::path::Path;

use afterimage_testkit::{Need, has, workload};

use crate::common::{file, folder, perf, perf_record, run, stderr, text, word};
use crate::foreign::{files, perfs};
use crate::keys::alike;
use crate::made::{CODE, Made, event};
use crate::{rows, two_events};

/// The head of a report: its `#` lines up to the table.
fn head(report: &str) -> Vec<&str> {
    report.lines().take_while(|line| !line.contains("Overhead")).filter(|line| *line != "#").collect()
}

fn report(path: &Path, options: &[&str]) -> String {
    text(&[&["report", "-g", "none", "-i", word(path), "--event", "cpu-clock"], options].concat())
}

/// Samples of three threads, a millisecond after the other: 6 of `a`, 3 of `b`, 1 of `c`.
fn three(path: &Path) -> u64 {
    let mut made = Made::at(path, vec![event("cpu-clock", 11, true)]);
    for (pid, name) in [(41, "a"), (42, "b"), (43, "c")] {
        made.comm(pid, name.as_bytes());
        made.map(pid, b"/nonexistent/program");
    }
    let start = made.now();
    for (pid, count) in [(41, 6), (42, 3), (43, 1)] {
        for _ in 0..count {
            made.sample(0, pid, 1000, &[CODE + u64::from(pid), CODE + 0x101]);
        }
    }
    made.finish(None);
    start
}

#[test]
fn what_is_left_out_is_told_and_adds_up() {
    let folder = folder();
    let path = file(&folder, "data");
    three(&path);
    let shown = report(&path, &["--sort", "comm", "--comms", "a,c", "--tid", "42-43"]);
    assert_eq!(
        head(&shown)[1..4],
        [
            "# Samples: 10  of event 'cpu-clock'",
            "# Event count (approx.): 10000",
            "# Left out: 9 of 10 samples: 6 by --tid, 3 by --comms"
        ]
    );
    assert_eq!(rows(&shown), ["10.00%  c"]);
    let relative = report(&path, &["--sort", "comm", "--comm", "/^[bc]$/", "--percentage", "relative"]);
    assert_eq!(rows(&relative), ["75.00%  b", "25.00%  c"]);
    assert_eq!(head(&relative)[1], "# Samples: 4  of event 'cpu-clock'");
    // Other times and CPUs never count, as in perf.
    let none = report(&path, &["--sort", "comm", "--cpu", "0,2-7"]);
    assert_eq!((head(&none)[1], rows(&none).len()), ("# Samples: 0  of event 'cpu-clock'", 0));
    assert_eq!(head(&none)[3], "# Left out: 10 of 10 samples: 10 by --cpu");
    let nothing = report(&path, &["--sort", "comm", "--pid", "0-100"]);
    assert!(nothing.contains("\n# Left out: nothing\n"), "{nothing}");
    let json: serde_json::Value =
        serde_json::from_str(&text(&["report", "--json", "-i", word(&path), "--comms", "a", "--dsos", "program"]))
            .unwrap();
    let event = &json["events"][0];
    assert_eq!((&event["samples"], &event["period"]), (&6.into(), &6000.into()));
    assert_eq!(event["percent_of"], serde_json::json!({"samples": 10, "period": 10000}));
    assert_eq!(event["left_out"], serde_json::json!([{"filter": "comms", "samples": 4, "period": 4000}]));
    assert_eq!(event["tally"]["ring"]["delivered"], 10, "the recording has them all");
}

#[test]
fn places_choose_by_name_and_path() {
    let folder = folder();
    let path = file(&folder, "data");
    two_events(&path);
    let count = |options: &[&str]| -> u64 {
        let json = text(&[&["report", "--json", "--event", "cpu-clock", "-i", word(&path)], options].concat());
        serde_json::from_str::<serde_json::Value>(&json).unwrap()["events"][0]["samples"].as_u64().unwrap()
    };
    assert_eq!(count(&["-d", "worker"]), 10);
    assert_eq!(count(&["-d", "/nonexistent/worker"]), 10);
    assert_eq!(count(&["-d", "/^work/"]), 10);
    assert_eq!(count(&["-d", "work"]), 0);
    // An address without a name goes by its digits.
    assert_eq!(count(&["-S", "0x0000000000000010"]), 2);
    assert_eq!(count(&["-S", "/10$/,main"]), 2);
    assert_eq!(count(&["--symbol-filter", "10"]), 0);
    assert_eq!(count(&["-U"]), 0);
}

#[test]
fn times_are_seconds_or_parts() {
    let folder = folder();
    let path = file(&folder, "data");
    let start = three(&path);
    let at = |nth: u64| {
        let time = start + nth * 1_000_000;
        format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000)
    };
    let count = |time: &str| -> usize {
        text(&["script", "-G", "-F", "comm,time", "-i", word(&path), "--time", time]).lines().count()
    };
    assert_eq!(count(&format!("{},{}", at(2), at(4))), 3);
    assert_eq!(count(&format!("{},", at(8))), 3);
    assert_eq!(count(&format!(",{} {},", at(1), at(10))), 2);
    let parts: Vec<usize> = ["0%-50%", "50%/2"].map(&count).into();
    assert_eq!(parts.iter().sum::<usize>(), 10, "{parts:?}");
    assert_eq!(count("50%-100%"), parts[1]);
    // In a stream the end is not known at the beginning.
    let stream = std::process::Stdio::from(std::fs::File::open(&path).unwrap());
    let piped =
        crate::common::afterimage().args(["report", "-i", "-", "--time", "10%"]).stdin(stream).output().unwrap();
    assert_eq!(piped.status.code(), Some(0), "a file is no stream: {}", stderr(&piped));
}

#[test]
fn what_makes_no_sense_is_2() {
    let folder = folder();
    let path = file(&folder, "data");
    three(&path);
    for (options, says) in [
        (["--cpu", "x"], "--cpu x: \"x\" is no number and no range FIRST-LAST"),
        (["--time", "2,1"], "--time 2,1: \"2,1\" is neither FROM,TO in seconds nor a share like 10%/2 or 0%-30%"),
        (["--symbols", "/+/"], "--symbols /+/: /+/: repetition operator missing expression"),
    ] {
        for view in ["report", "script"] {
            let output = run(&[&[view, "-i", word(&path)], &options[..]].concat());
            assert_eq!((output.status.code(), stderr(&output)), (Some(2), format!("afterimage: {says}\n")));
        }
    }
}

/// Filters of both, on one recording of threads, children and an exec.
#[test]
fn filters_are_perfs() {
    if !has("filters_are_perfs", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let split = workload::build().split;
    // Programs of others that come and go meanwhile make perf abort.
    let options = ["--no-bpf-event", "-e", "cpu-clock", "-F", "1999", "-g", "--sample-cpu"];
    perf_record(&path, &options, &[word(&split), "1"]);
    let lines = perf(&["script", "-F", "comm,pid,tid,cpu,time", "-G", "-i", word(&path)]);
    let words: Vec<Vec<&str>> = lines.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(words.len() > 500, "{}", words.len());
    let (first, middle) = (&words[0], &words[words.len() / 2]);
    let (pid, tid) = words[words.len() - 1][1].split_once('/').unwrap();
    let cpu = first[2].trim_matches(['[', ']']).trim_start_matches('0');
    let cpu = if cpu.is_empty() { "0" } else { cpu };
    let (start, end) = (first[3].trim_end_matches(':'), middle[3].trim_end_matches(':'));
    let (between, from, to) = (format!("{start},{end}"), format!("{end},"), format!(",{end}"));
    for filter in [
        // Of one name alone perf leaves the column out.
        &["--comms", "split,other"][..],
        &["--comms", "split-child,split-thread"],
        &["--dsos", "split,other"],
        &["--dsos", "[kernel.kallsyms],libc.so.6"],
        &["--symbols", "spin_seventy,work_for"],
        &["--pid", pid],
        &["--tid", tid],
        &["-C", cpu],
        &["-C", "0-1"],
        &["--time", &between],
        &["--time", &from],
        &["--time", &to],
        &["--time", "10%/2"],
        &["--time", "0%-30%,60%-75%"],
        &["--comms", "split,other", "--dsos", "split,other", "--time", "50%-100%"],
    ] {
        let script = ["-G", "-F", "comm,pid,tid,cpu,time,event,ip", "-i", word(&path)];
        let ours = text(&[&["script"], filter, &script].concat());
        let theirs = perf(&[&["script", "--no-inline"], filter, &script].concat());
        assert_eq!(ours.lines().count(), theirs.lines().count(), "{filter:?}");
        assert_eq!(ours, theirs, "{filter:?}");
        // In rows that its keys do not keep apart perf counts what it left out, too; it has no key for processes.
        if filter.iter().any(|word| matches!(*word, "--pid" | "--tid")) {
            continue;
        }
        for percentage in ["relative", "absolute"] {
            let options = [filter, &["--sort", "comm,dso,sym", "--percentage", percentage]].concat();
            let rows = alike(&path, &options);
            println!("{options:?}: {} samples, {rows} rows", ours.lines().count());
        }
    }
    // The base of percentages, and the number of samples above the table.
    for percentage in ["relative", "absolute"] {
        let options = ["--sort", "comm", "--comms", "split,other", "--percentage", percentage];
        let ours = text(&[&["report", "-g", "none", "-i", word(&path)], &options[..]].concat());
        let theirs = perfs(&path, &options).unwrap();
        let count = |report: &str| report.lines().find(|line| line.starts_with("# Event count")).unwrap().to_owned();
        assert_eq!(count(&ours), count(&theirs), "{percentage}");
    }
}

#[test]
fn filters_of_foreign_recordings_are_perfs() {
    if !has("filters_of_foreign_recordings_are_perfs", &[Need::Corpus, Need::Perf]) {
        return;
    }
    let mut compared = 0;
    for (name, path) in files() {
        let all = perf(&["script", "-G", "--ns", "-F", "comm,pid,time", "-i", word(&path)]);
        let words: Vec<Vec<&str>> = all.lines().map(|line| line.split_whitespace().collect()).collect();
        let Some([.., pid, time]) = words.get(words.len() / 2).map(Vec::as_slice) else { continue };
        let until = format!(",{}", time.trim_end_matches(':'));
        for filter in [["--pid", pid], ["--time", &until]] {
            let options = [&filter[..], &["-G", "-F", "comm,tid,time,event,ip", "-i", word(&path)]].concat();
            let ours = run(&[&["script"], &options[..]].concat());
            let theirs = perf(&[&["script", "--no-inline"], &options[..]].concat());
            assert_eq!(crate::common::stdout(&ours), theirs, "{name} {filter:?}");
            assert!(!theirs.is_empty(), "{name} {filter:?}");
            compared += 1;
        }
    }
    assert!(compared > 30, "{compared}");
}

/// A program that was deleted: the process that a first sample is of is gone, the second one's lives, and has the file.
#[test]
fn a_later_process_names_what_a_gone_one_took_with_it() {
    if !has("a_later_process_names_what_a_gone_one_took_with_it", &[Need::Root, Need::Cc]) {
        return;
    }
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    let folder = folder();
    let (path, source, program) = (file(&folder, "data"), file(&folder, "waits.c"), file(&folder, "waits"));
    std::fs::write(&source, "int hot(int n) { return n; } int main(void) { return hot(getchar()); } ").unwrap();
    let mut cc = Command::new("cc");
    let cc = cc.args(["-include", "stdio.h", "-O0", "-no-pie", "-Wl,--build-id=none", "-o"]).arg(&program).arg(&source);
    assert!(cc.status().unwrap().success());
    let symbols = Command::new("nm").arg(&program).output().unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let hot = u64::from_str_radix(symbols.lines().find_map(|line| line.strip_suffix(" T hot")).unwrap(), 16).unwrap();
    let meta = std::fs::metadata(&program).unwrap();
    let mut alive = Command::new(&program).stdin(Stdio::piped()).spawn().unwrap();
    let maps = loop {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", alive.id())).unwrap();
        if maps.contains("/waits") && maps.contains("r-xp") {
            break maps;
        }
    };
    std::fs::remove_file(&program).unwrap();
    let code = maps.lines().find(|line| line.contains("/waits") && line.contains("r-xp")).unwrap();
    let words: Vec<&str> = code.split_whitespace().collect();
    let number = |word: &str| u64::from_str_radix(word, 16).unwrap();
    let (start, end) = words[0].split_once('-').unwrap();
    let mapping = (number(start), number(end) - number(start), number(words[2]));
    crate::hand::write_two(&path, word(&program), (meta.dev(), meta.ino()), mapping, [4_100_000, alive.id()], hot);
    let samples = |options: &[&str]| {
        let json = text(&[&["report", "--json", "--sort", "sym", "-i", word(&path)], options].concat());
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        (json["events"][0]["rows"][0]["sym"].clone(), json["events"][0]["samples"].clone())
    };
    let found = [&[][..], &["--symbols", "hot"], &["-U"]].map(samples);
    drop(alive.stdin.take());
    alive.wait().unwrap();
    assert_eq!(found, [(); 3].map(|()| ("hot".into(), 2.into())));
}

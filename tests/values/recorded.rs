//! Real recordings: a handler that clang compiled says of each sample what can be checked against the sample itself.

use std::path::Path;

use afterimage_perf_data::{FileReader, RecordingTally};
use afterimage_testkit::{Need, has, objects, workload};
use serde_json::Value;

use crate::common::{afterimage, file, folder, run, stderr, text, word};

const PAGES: u64 = 500;

fn ready(test: &str) -> bool {
    has(test, &[Need::Root, Need::Bpf, Need::Clang, Need::Cc])
}

/// Records by a program of `hits.bpf.c`, whose tally has to hold.
fn record(path: &Path, program: &str, options: &[&str], command: &[&str]) -> RecordingTally {
    let handler = format!("{}:{program}", word(&objects::build().join("hits.bpf.o")));
    let mut record = afterimage();
    record.args(["record", "-o", word(path), "--handler", &handler]).args(options).arg("--").args(command);
    let output = record.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let bytes = std::fs::read(path).unwrap();
    let tally = FileReader::open(&bytes).unwrap().private().unwrap().tally.clone().unwrap();
    tally.events.iter().for_each(|event| assert_eq!(event.check(), Ok(()), "{event:?}"));
    tally
}

/// Page faults of a program that touches pages, one sample each.
fn faults(path: &Path, set: &[&str]) -> RecordingTally {
    let program = workload::build().faults;
    let pages = PAGES.to_string();
    let mut options = vec!["-e", "page-faults", "-c", "1", "-m", "1024"];
    set.iter().for_each(|set| options.extend(["--set", set]));
    record(path, "hits", &options, &[word(&program), &pages])
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&text(words)).unwrap()
}

/// What stands in a line behind a name and an equals sign.
fn of<'l>(line: &'l str, name: &str) -> &'l str {
    let (_, rest) = line.split_once(&format!("{name}=")).unwrap_or_else(|| panic!("no {name} in {line:?}"));
    rest.split([' ', ',', '}']).next().unwrap()
}

/// The time of a sample in ns, which is the word with a point and nine digits in it.
fn time(line: &str) -> Option<u64> {
    let word = line.split_whitespace().find(|word| word.len() > 10 && word.ends_with(':') && word.contains('.'))?;
    word.trim_end_matches(':').replace('.', "").parse().ok()
}

fn is_odd(tier: &str) -> bool {
    match tier {
        "ODD" => true,
        "EVEN" => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_of_a_handler_that_drops_are_the_event() {
    if !ready("values_of_a_handler_that_drops_are_the_event") {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let tally = faults(&path, &["chain=0", "values=2", "labels=0"]);
    let sum = &tally.events[0].sum;
    let handled = sum.handled.unwrap();
    assert!(handled >= PAGES);
    assert_eq!((sum.chained, sum.emitted, sum.passed), (0, 2 * handled, Some(handled)));
    assert_eq!(sum.handler_ring.lost, 0);

    let report = json(&["report", "-i", word(&path), "--json", "--sort", "sym"]);
    let [event] = report["events"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!((event["name"].as_str(), event["samples"].as_u64()), (Some("page-faults"), Some(handled)));
    assert_eq!(event["period"].as_u64(), Some(handled));
    assert_eq!(event["tally"]["handled"].as_u64(), Some(handled));
    let mut types: Vec<_> = event["values"].as_array().unwrap().iter().map(|v| v["type"].as_str().unwrap()).collect();
    types.sort_unstable();
    assert_eq!(types, ["__u64", "struct hit"]);
    assert!(event["values"].as_array().unwrap().iter().all(|v| v["records"] == handled && v["unreadable"] == 0));
    let leaf = |row: &Value| row["sym"].as_str() == Some("touch_pages");
    let row = event["rows"].as_array().unwrap().iter().find(|row| leaf(row)).unwrap();
    assert!(row["samples"].as_u64().unwrap() >= PAGES, "{row}");

    let script = text(&["script", "-i", word(&path), "-F", "pid,time,event,value", "--ns"]);
    let mut lines = script.lines();
    let mut seen = 0;
    while let Some(head) = lines.next() {
        let (hit, stamp) = (lines.next().unwrap(), lines.next().unwrap());
        let number: u64 = of(hit, "stamp").parse().unwrap();
        assert_eq!(Some(number), time(head), "{head}");
        assert!(hit.starts_with("       BPF value: struct hit {stamp="), "{hit}");
        assert_eq!(stamp, format!("       BPF value: __u64 {number}"));
        assert_eq!(head.split_whitespace().next(), Some(of(hit, "pid")));
        assert_eq!(
            (is_odd(of(hit, "tier")), of(hit, "odd")),
            (number % 2 == 1, if number % 2 == 1 { "true" } else { "false" })
        );
        assert_eq!((of(hit, "low").parse(), of(hit, "sign")), (Ok(number % 8), "1"));
        assert!(hit.ends_with(", both=[-2, 3]}"), "{hit}");
        seen += 1;
    }
    assert_eq!(seen, handled);
    assert!(script.matches("comm=\"faults\"").count() as u64 >= PAGES, "the command's name before its exec is another");
}

#[test]
fn labels_stand_beside_their_samples() {
    if !ready("labels_stand_beside_their_samples") {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let tally = faults(&path, &["values=0"]);
    let sum = &tally.events[0].sum;
    let handled = sum.handled.unwrap();
    assert_eq!((sum.chained, sum.emitted), (handled, 3 * handled));
    assert_eq!((sum.ring.lost, sum.handler_ring.lost), (0, 0));

    // No record of a label is left without its sample, and each label says what its own sample says.
    let script = text(&["script", "-i", word(&path), "-F", "comm,time,event,label", "--ns"]);
    assert_eq!(script.lines().count() as u64, handled);
    for line in script.lines() {
        let stamp: u64 = of(line, "stamp").parse().unwrap();
        assert_eq!(time(line), Some(stamp), "{line}");
        assert_eq!(is_odd(of(line, "tier")), stamp % 2 == 1, "{line}");
        assert_eq!(of(line, "who").trim_matches('"'), line.split_whitespace().next().unwrap(), "{line}");
    }

    let report = json(&["report", "-i", word(&path), "--json", "--sort", "label:tier,label:nothing,comm"]);
    let [event] = report["events"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!(event["samples"], handled);
    let names: Vec<_> =
        event["labels"].as_array().unwrap().iter().map(|l| (l["name"].clone(), l["type"].clone())).collect();
    let name = |name: &str, of: &str| (Value::from(name), Value::from(of));
    let expected = [name("stamp", "__u64"), name("tier", "enum tier"), name("who", "char[16]")];
    assert_eq!(names, expected);
    let mut by_tier = [0, 0];
    for row in event["rows"].as_array().unwrap() {
        assert_eq!(row["labels"]["nothing"], Value::Null);
        by_tier[usize::from(is_odd(row["labels"]["tier"].as_str().unwrap()))] += row["samples"].as_u64().unwrap();
    }
    assert_eq!(by_tier[0] + by_tier[1], handled);
    assert!(by_tier.iter().all(|samples| *samples >= PAGES / 4), "{by_tier:?}");
    let folded = text(&["export", "-i", word(&path), "--label", "tier", "--weight", "samples"]);
    assert!(folded.contains("faults;tier=ODD;") && folded.contains("faults;tier=EVEN;"), "{folded}");
}

/// Half of the samples chain: those have their labels, the others stand in the second event with theirs.
#[test]
fn what_was_not_chained_stands_apart() {
    if !ready("what_was_not_chained_stands_apart") {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let tally = faults(&path, &["chain=2", "values=0"]);
    let sum = &tally.events[0].sum;
    let (handled, chained) = (sum.handled.unwrap(), sum.chained);
    assert!(chained >= PAGES / 4 && handled - chained >= PAGES / 4, "{chained} of {handled}");
    assert_eq!((sum.ring.lost, sum.handler_ring.lost), (0, 0));
    let report = json(&["report", "-i", word(&path), "--json", "--sort", "label:tier"]);
    let [first, second] = report["events"].as_array().unwrap().as_slice() else { panic!("{report}") };
    let told = |event: &Value| {
        let rows = event["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{event}");
        (event["name"].clone(), event["samples"].as_u64().unwrap(), rows[0]["labels"]["tier"].clone())
    };
    assert_eq!(told(first), ("page-faults".into(), chained, "ODD".into()));
    assert_eq!(told(second), ("page-faults/hits".into(), handled - chained, "EVEN".into()));
    assert_eq!(second["reason"], "part of the tally of page-faults");
}

/// All CPUs at once: every label is that of its own sample.
#[test]
fn labels_find_their_samples_on_all_cpus() {
    if !ready("labels_find_their_samples_on_all_cpus") {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let busy = workload::build().busy;
    let work = format!("{0} 30 & {0} 30 & {0} 30; wait", word(&busy));
    let tally = record(&path, "places", &["-a", "-e", "cpu-clock", "-F", "9999", "-m", "1024"], &["sh", "-c", &work]);
    let sum = &tally.events[0].sum;
    let (handled, lost) = (sum.handled.unwrap(), sum.handler_ring.lost);
    assert_eq!((sum.chained, sum.emitted), (handled, handled));
    let script = text(&["script", "-i", word(&path), "-F", "event,ip,label"]);
    let (mut labelled, mut other) = (0, 0);
    for line in script.lines() {
        // One whose sample was lost stands alone.
        if !line.trim_start().starts_with("cpu-clock: ") {
            other += 1;
            continue;
        }
        let Some((_, rest)) = line.split_once("place=") else { continue };
        let mut words = rest.split_whitespace();
        let (label, ip) = (words.next().unwrap(), words.next().unwrap());
        assert_eq!(label.parse(), u64::from_str_radix(ip, 16), "{line}");
        labelled += 1;
    }
    assert_eq!(labelled + other + lost, handled, "{labelled} with a label, {other} alone, {lost} lost");
    assert!(labelled >= 500 && other <= sum.ring.lost, "{labelled} of {handled}, {other}");
}

/// A recorder that is killed leaves the types in the journal.
#[test]
fn killed() {
    if !ready("killed") {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let handler = format!("{}:hits", word(&objects::build().join("hits.bpf.o")));
    let busy = workload::build().busy;
    // A child of ours, so that it ends with the test.
    let quiet = || std::process::Stdio::null();
    let mut target = std::process::Command::new(busy).arg("100000").stdout(quiet()).spawn().unwrap();
    let target_pid = target.id().to_string();
    let mut record = afterimage();
    record.args(["record", "-o", word(&path), "--handler", &handler, "-e", "cpu-clock", "-F", "999"]);
    record.args(["-p", &target_pid]);
    let mut child = record.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let start = std::time::Instant::now();
    // What the header covers can be read; the limit is only there so that a fault does not hang.
    let covered = || run(&["script", "-i", word(&path), "-F", "event,label,value"]);
    while !String::from_utf8_lossy(&covered().stdout).contains("BPF value: struct hit {stamp=") {
        assert!(start.elapsed().as_secs() < 60, "{}", stderr(&covered()));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    child.wait().unwrap();
    target.kill().unwrap();
    target.wait().unwrap();
    let script = text(&["script", "-i", word(&path), "-F", "event,label,value"]);
    assert!(script.contains("tier=ODD stamp=") && script.contains("who=\"busy\""), "{script}");
}

//! The workloads do what they say. Stock perf is the witness where it is installed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use afterimage_testkit::workload::{self, Split};
use afterimage_testkit::{Need, has};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

fn json(stdout: &[u8]) -> Value {
    serde_json::from_slice(stdout).expect("JSON on stdout")
}

#[test]
fn the_split_is_seventy_to_thirty_across_an_exec() {
    if !has("the_split_is_seventy_to_thirty_across_an_exec", &[Need::Cc]) {
        return;
    }
    let output = Command::new(workload::build().split).arg("2").output().unwrap();
    assert!(output.status.success());
    let split = Split::parse(&output.stdout).unwrap();
    let [seventy, thirty] = Split::PAIR.map(|name| split.ns(name) as f64);
    assert!((seventy / (seventy + thirty) - 0.70).abs() < 0.01, "{split:?}");
    for (name, percent) in [(Split::RECURSION, 10.0), (Split::LIBRARY, 15.0), (Split::CHILD, 15.0)] {
        // The pair ends on a whole turn, 100 ms, in each half.
        assert!((split.percent(name) - percent).abs() < 3.0, "{name}: {split:?}");
    }
    assert_eq!(split.functions().count(), 5);
    assert!((1.9e9..2.6e9).contains(&(split.total_ns() as f64)), "{split:?}");
}

#[test]
fn perf_sees_the_split() {
    if !has("perf_sees_the_split", &[Need::Cc, Need::Root, Need::Perf]) {
        return;
    }
    let paths = workload::build();
    let data = paths.split.with_file_name(format!("split-{}.data", std::process::id()));
    let output = Command::new("perf")
        .args(["record", "-q", "-B", "-N", "-e", "cpu-clock:u", "-F", "2500", "-g", "-o"])
        .arg(&data)
        .arg("--")
        .arg(&paths.split)
        .arg("2")
        .output()
        .unwrap();
    let split = Split::parse(&output.stdout).expect("what split prints");
    let script = perf(&["script", "--no-inline", "-F", "comm,ip,sym", "-i"], &data);
    std::fs::remove_file(&data).unwrap();

    let stacks: Vec<&str> = script.split("\n\n").filter(|stack| !stack.trim().is_empty()).collect();
    assert!(stacks.len() > 1000, "{} samples", stacks.len());
    for name in split.functions() {
        let seen = 100.0 * stacks.iter().filter(|stack| stack.contains(name)).count() as f64 / stacks.len() as f64;
        assert!((seen - split.percent(name)).abs() < 3.0, "{name}: {seen} % of samples, {split:?}");
    }
    let deep = stacks.iter().filter(|stack| stack.matches("recursion_level").count() == Split::DEPTH).count();
    let leaf = stacks.iter().filter(|stack| stack.contains(Split::RECURSION)).count();
    assert!(deep * 100 >= leaf * 98 && leaf > 0, "{deep} of {leaf} stacks are 25 deep");
    assert!(stacks.iter().any(|stack| stack.trim_start().starts_with("split-child")));
    assert!(stacks.iter().any(|stack| stack.trim_start().starts_with("split-thread")));
}

#[test]
fn as_many_faults_as_pages() {
    if !has("as_many_faults_as_pages", &[Need::Cc]) {
        return;
    }
    let output = Command::new(workload::build().faults).arg("3000").output().unwrap();
    assert_eq!(json(&output.stdout)["pages"], 3000);
    assert_eq!(json(&output.stdout)["faults"], 3000);
}

#[test]
fn perf_counts_the_faults_in_touch_pages() {
    if !has("perf_counts_the_faults_in_touch_pages", &[Need::Cc, Need::Root, Need::Perf]) {
        return;
    }
    let paths = workload::build();
    let data = paths.faults.with_file_name(format!("faults-{}.data", std::process::id()));
    let status = Command::new("perf")
        .args(["record", "-q", "-B", "-N", "-e", "page-faults", "-c", "1", "-m", "1024", "-o"])
        .arg(&data)
        .arg("--")
        .arg(&paths.faults)
        .arg("3000")
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let script = perf(&["script", "--no-inline", "-F", "ip,sym", "-i"], &data);
    std::fs::remove_file(&data).unwrap();
    assert_eq!(script.lines().filter(|line| line.ends_with(" touch_pages")).count(), 3000);
}

#[test]
fn perf_counts_the_writes_by_a_breakpoint() {
    if !has("perf_counts_the_writes_by_a_breakpoint", &[Need::Cc, Need::Root, Need::Perf]) {
        return;
    }
    let paths = workload::build();
    let mut writer =
        Command::new(&paths.writes).arg("1234").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(writer.stdout.take().unwrap());
    let mut address = String::new();
    stdout.read_line(&mut address).unwrap();

    let event = format!("mem:{}/8:w", address.trim());
    let mut perf = Command::new("perf")
        .args(["stat", "-x,", "-e", &event, "-p", &writer.id().to_string()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // perf stat says nothing when it is ready, so wait until it holds the event that it counts with.
    let fds = format!("/proc/{}/fd", perf.id());
    while perf.try_wait().unwrap().is_none() && !holds_an_event(Path::new(&fds)) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    writer.stdin.take().unwrap().write_all(b"g").unwrap();
    let mut said = String::new();
    stdout.read_line(&mut said).unwrap();
    assert_eq!(json(said.as_bytes())["writes"], 1234);
    assert!(writer.wait().unwrap().success());
    let counted = String::from_utf8(perf.wait_with_output().unwrap().stderr).unwrap();
    assert!(counted.starts_with("1234,"), "{counted}");
}

fn holds_an_event(fds: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(fds) else { return false };
    entries
        .flatten()
        .any(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().contains("perf_event")))
}

fn perf(args: &[&str], data: &Path) -> String {
    let output = Command::new("perf").args(args).arg(data).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn perf_sees_many_deep_stacks_in_the_forest() {
    if !has("perf_sees_many_deep_stacks_in_the_forest", &[Need::Cc, Need::Root, Need::Perf]) {
        return;
    }
    let paths = workload::build();
    let data = paths.forest.with_file_name(format!("forest-{}.data", std::process::id()));
    let status = Command::new("perf")
        .args(["record", "-q", "-B", "-N", "-e", "cpu-clock:u", "-F", "2000", "-g", "-o"])
        .arg(&data)
        .arg("--")
        .arg(&paths.forest)
        .args(["1", "1000"])
        .status()
        .unwrap();
    assert!(status.success());
    let script = perf(&["script", "--no-inline", "-F", "ip,sym", "-i"], &data);
    std::fs::remove_file(&data).unwrap();
    // Names only: the innermost address is somewhere in its function.
    let names = |stack: &str| stack.lines().filter_map(|l| l.split_whitespace().nth(1).map(str::to_owned)).collect();
    let stacks: Vec<Vec<String>> = script.split("\n\n").map(names).filter(|s: &Vec<_>| s.len() > 35).collect();
    let different: std::collections::BTreeSet<&Vec<String>> = stacks.iter().collect();
    assert!(stacks.len() > 1000, "{} deep stacks", stacks.len());
    assert!(different.len() > 400, "{} different deep stacks", different.len());
}

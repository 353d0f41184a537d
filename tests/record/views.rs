//! `--view`: each records what it speaks of, and the report that it names shows it.

use std::collections::HashSet;
use std::path::Path;

use afterimage_testkit::{Need, has, workload};
use serde_json::Value;

use crate::common::{file, folder, stderr, text, word};
use crate::helper::{beside, event, number, record, report, tally};

const NEEDS: &[Need] = &[Need::Root, Need::Tracefs, Need::Cc];

/// Whether the kernel has a tracepoint: some are left out of some kernels.
fn is_there(tracepoint: &str) -> bool {
    let path = tracepoint.replace(':', "/");
    let there = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    there.iter().any(|tracefs| Path::new(tracefs).join("events").join(&path).exists())
}

/// Records a view, and reports by what it says is next.
fn view(name: &str, path: &Path, words: &[&str]) -> Value {
    let output = record(path, &[&["--view", name][..], words].concat());
    let said = stderr(&output);
    let sort = said.lines().find_map(|line| line.split_once("--sort ")).unwrap_or_else(|| panic!("{said}")).1;
    tally(path);
    let shown = text(&["report", "-i", word(path), "--sort", sort, "-g", "none"]);
    assert!(shown.contains("Overhead"), "{shown}");
    report(path, &["--sort", sort]).0
}

#[test]
fn faults_are_those_of_the_program() {
    if !has("faults_are_those_of_the_program", NEEDS) || !is_there("exceptions:page_fault_user") {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let program = workload::build().faults;
    let json = view("faults", &file(&folder, "data"), &["--", word(&program), "800"]);
    let rows = event(&json, "page-faults")["rows"].as_array().unwrap().iter();
    assert_eq!(rows.filter(|row| row["sym"] == "touch_pages").map(|row| number(&row["samples"])).sum::<u64>(), 800);
    let rows = event(&json, "exceptions:page_fault_user")["rows"].as_array().unwrap().iter();
    // Each page has an address of its own.
    let addresses: HashSet<String> = rows.map(|row| row["trace"]["address"].to_string()).collect();
    assert!(addresses.len() >= 800, "{}", addresses.len());
}

#[test]
fn threads_of_a_process_fight_for_its_memory() {
    if !has("threads_of_a_process_fight_for_its_memory", NEEDS) || !is_there("lock:contention_begin") {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let program = workload::build().waits;
    let json = view("locks", &file(&folder, "data"), &["--", word(&program), "shared", "4", "400"]);
    let begun = number(&event(&json, "lock:contention_begin")["samples"]);
    let ended = number(&event(&json, "lock:contention_end")["samples"]);
    println!("{begun} begun, {ended} ended");
    assert!(begun > 0 && begun.abs_diff(ended) <= begun / 2 + 4, "{begun} {ended}");
}

#[test]
fn requests_go_to_a_device() {
    if !has("requests_go_to_a_device", NEEDS) || !is_there("block:block_rq_issue") {
        return;
    }
    std::fs::create_dir_all(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("written");
    if !on_a_disk(folder.path()) {
        println!("{}: no file here is on a block device", folder.path().display());
        return;
    }
    let _turn = beside();
    let of = format!("of={}", word(&path));
    let write = ["dd", "if=/dev/zero", &of, "bs=64k", "count=8", "oflag=direct,sync"];
    let json = view("io", &folder.path().join("data"), &[&["-a", "--"][..], &write].concat());
    let issued = event(&json, "block:block_rq_issue");
    let done = number(&event(&json, "block:block_rq_complete")["samples"]);
    println!("{} issued, {done} completed", issued["samples"]);
    // Linux 6.18 has no samples of completions that interrupt an idle CPU, for perf neither.
    assert!(number(&issued["samples"]) >= 8 && done > 0, "{issued}");
    let of_dd = issued["rows"].as_array().unwrap().iter().filter(|row| row["comm"] == "dd");
    assert!(of_dd.map(|row| number(&row["samples"])).sum::<u64>() > 0, "{issued}");
}

/// Whether a folder is on a file system that a block device carries.
fn on_a_disk(folder: &Path) -> bool {
    use std::os::linux::fs::MetadataExt;
    let device = std::fs::metadata(folder).unwrap().st_dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    Path::new(&format!("/sys/dev/block/{major}:{minor}")).exists()
}

#[test]
fn a_writer_wakes_who_reads() {
    if !has("a_writer_wakes_who_reads", NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let program = workload::build().waits;
    let json = view("wakeups", &file(&folder, "data"), &["--", word(&program), "30", "5"]);
    let rows = event(&json, "sched:sched_waking")["rows"].as_array().unwrap();
    for thread in ["locked", "reading"] {
        let of = rows.iter().filter(|row| row["comm"] == "waits" && row["trace"]["sched_waking.comm"] == thread);
        let woken: u64 = of.map(|row| number(&row["samples"])).sum();
        assert!(woken >= 25, "{thread} was woken {woken} times: {rows:?}");
    }
}

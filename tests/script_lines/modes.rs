//! Recordings that perf makes here, in each of its modes.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use afterimage_testkit::{Need, has, workload};

use crate::common::{file, folder, perf_record, word};
use crate::compare::{By, LINES, counts, lines, ours, perfs};

const NEEDS: [Need; 3] = [Need::Root, Need::Perf, Need::Cc];

/// Enough work for some hundred samples, under frames of its own.
fn busy() -> [String; 3] {
    [word(&workload::build().busy).to_owned(), "150".into(), "12".into()]
}

fn record(name: &str, options: &[&str], command: &[String]) -> (tempfile::TempDir, PathBuf) {
    let folder = folder();
    let path = file(&folder, name);
    perf_record(&path, options, &command.iter().map(String::as_str).collect::<Vec<_>>());
    (folder, path)
}

/// Counts and lines have to be those of perf; gives how many lines.
fn alike(by: By, path: &Path) -> usize {
    alike_in(by, path, LINES, &[])
}

/// The same with other fields, and with events that perf gives other names when it counts.
fn alike_in(by: By, path: &Path, fields: &[&str], renamed: &[(&str, &str)]) -> usize {
    if let Err(differ) = counts(by, path, renamed) {
        panic!("counts: {differ}");
    }
    lines(by, path, fields, &[]).unwrap_or_else(|differ| panic!("{differ}"))
}

/// The same of a recording made with these options.
fn recorded_alike(name: &str, options: &[&str]) -> usize {
    let (_folder, path) = record(name, options, &busy());
    alike(By::Name, &path)
}

/// perf writes to its standard output.
fn piped(name: &str, options: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let folder = folder();
    let path = file(&folder, name);
    for _ in 0..5 {
        // What the program prints would be part of the stream.
        let script = "exec \"$@\" >/dev/null";
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-N", "-o", "-"]).args(options);
        perf.args(["--", "sh", "-c", script, "sh"]).args(busy());
        let status = perf.stdin(Stdio::null()).stdout(File::create(&path).unwrap()).stderr(Stdio::null()).status();
        // perf 6.1 aborts at the end of a recording when BPF programs come and go meanwhile.
        if status.unwrap().signal().is_none() {
            return (folder, path);
        }
    }
    panic!("perf record -o - {options:?} aborts each time");
}

#[test]
fn packed() {
    if !has("packed", &NEEDS) {
        return;
    }
    // Some megabytes, so that perf has to empty its rings more than once.
    assert!(recorded_alike("packed", &["-z", "-e", "cpu-clock", "-F", "5000", "-g", "-m", "8"]) > 100);
    assert!(recorded_alike("hard", &["-z=22", "-a", "-e", "cpu-clock", "-F", "999"]) > 20);
}

#[test]
fn pipes() {
    if !has("pipes", &NEEDS) {
        return;
    }
    for options in [&["-e", "cpu-clock:u", "-g"][..], &["-e", "cpu-clock,page-faults", "-a", "-d"]] {
        let (_folder, path) = piped("pipe", options);
        for by in [By::Name, By::Stdin] {
            let lines = alike_in(by, &path, LINES, &[("cpu-clock:uH", "cpu-clock:u")]);
            assert!(lines > 20, "{options:?} {by:?}");
        }
    }
}

#[test]
fn packed_pipes() {
    if !has("packed_pipes", &NEEDS) {
        return;
    }
    // Of longer ones perf 6.1 writes over its own stack ("stack smashing detected").
    for options in [&["-z", "-e", "cpu-clock"][..], &["-z", "-e", "cpu-clock", "-g", "-F", "499"]] {
        let (_folder, path) = piped("pipe", options);
        for by in [By::Name, By::Stdin] {
            assert!(lines(by, &path, LINES, &[]).unwrap() > 20, "{options:?}");
            // It sets up no decompressor before `report` reads a stream: "Couldn't decompress data".
            assert_eq!(perfs(by, &path, &["report", "--stats", "--stdio"]).as_deref(), Some(""));
            let counted = ours(by, &path, &["report", "--stats"]);
            assert!(counted.contains("COMPRESSED events:") && counted.contains("SAMPLE events:"), "{counted}");
        }
    }
}

#[test]
fn threads() {
    if !has("threads", &NEEDS) {
        return;
    }
    for options in [&["--threads", "-a"][..], &["--threads=core", "-g"]] {
        let (_folder, path) = record("threads", &[options, &["-e", "cpu-clock", "-F", "999"]].concat(), &busy());
        assert!(path.join("data.0").is_file(), "{options:?}");
        assert!(alike(By::Name, &path) > 50, "{options:?}");
    }
}

#[test]
fn threads_of_their_own() {
    if !has("threads_of_their_own", &NEEDS) {
        return;
    }
    // Threads that are recorded one by one have no times.
    let (_folder, path) = record("per", &["--per-thread", "-e", "cpu-clock:u", "-g"], &busy());
    assert!(alike_in(By::Name, &path, &["-F", "comm,tid,event,ip"], &[]) > 20);
    assert!(recorded_alike("alone", &["-i", "-s", "-e", "task-clock"]) > 20);
}

#[test]
fn switched_output() {
    if !has("switched_output", &NEEDS) {
        return;
    }
    // perf 6.1 aborts at the end of a recording when BPF programs come and go meanwhile.
    let folder = (0..5).map(|_| folder()).find(|folder| {
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-N", "--switch-output=30K", "-e", "cpu-clock", "-F", "5000", "-g", "-m", "8"]);
        perf.arg("-o").arg(folder.path().join("perf.data")).arg("--").args(busy()).stdin(Stdio::null());
        perf.output().unwrap().status.signal().is_none()
    });
    let folder = folder.expect("perf aborts each time");
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(files.len() > 1, "{files:?}");
    let total: usize = files.iter().map(|path| alike(By::Name, path)).sum();
    assert!(total > 100, "{total}");
}

#[test]
fn data_addresses() {
    if !has("data_addresses", &NEEDS) {
        return;
    }
    let command = [word(&workload::build().faults).to_owned(), "200".into()];
    let options = ["--data", "--phys-data", "-e", "page-faults,cpu-clock", "-c", "1"];
    let (_folder, path) = record("data", &options[..4], &command);
    assert!(alike(By::Name, &path) > 0);
    let (_folder, path) = record("data", &options, &command);
    assert!(alike(By::Name, &path) > 100);
    assert!(lines(By::Name, &path, &["-F", "comm,tid,event,addr,phys_addr"], &[]).unwrap() > 100);
}

#[test]
fn groups() {
    if !has("groups", &NEEDS) {
        return;
    }
    // The leader's samples carry the counts of all, and stand for all that went on.
    for options in [&["-e", "{cpu-clock,page-faults}:S"][..], &["-e", "{cpu-clock,task-clock}:S", "-g"]] {
        let (_folder, path) = record("group", options, &busy());
        assert!(alike(By::Name, &path) > 20, "{options:?}");
        assert!(lines(By::Name, &path, &["-F", "comm,time,period,event", "-G"], &[]).unwrap() > 20);
    }
    assert!(recorded_alike("group", &["-e", "{cpu-clock,page-faults}", "-g"]) > 20);
}

#[test]
fn tracepoints() {
    if !has("tracepoints", &[Need::Root, Need::Perf, Need::Cc, Need::Tracefs]) {
        return;
    }
    let command = ["sh", "-c", "true; sleep 0.05; true"].map(str::to_owned);
    for (options, fields) in [
        (&["-a", "-e", "sched:sched_switch,sched:sched_process_exec"][..], "comm,tid,cpu,time,event,trace"),
        (&["-g", "-e", "sched:sched_wakeup,raw_syscalls:sys_exit"], "comm,tid,time,event,trace"),
        (&["-e", "cpu-clock,syscalls:sys_enter_write,signal:signal_generate"], "comm,tid,time,event,trace"),
    ] {
        let (_folder, path) = record("points", options, &command);
        assert!(alike(By::Name, &path) > 1, "{options:?}");
        assert!(lines(By::Name, &path, &["-F", fields], &[]).unwrap() > 1, "{options:?}");
    }
}

#[test]
fn breakpoints() {
    if !has("breakpoints", &NEEDS) {
        return;
    }
    // Without address randomization the variable lies at the same place in the next run.
    let program = workload::build().writes;
    let said = Command::new("sh").args(["-c", &format!("echo | setarch -R {} 1", program.display())]).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let address = said.lines().next().unwrap();
    let command = ["sh".into(), "-c".into(), format!("echo | setarch -R {} 50", program.display())];
    for (event, chains) in [(format!("mem:{address}:w"), false), (format!("mem:{address}/8:rw:u"), true)] {
        let options = ["-e", &event, "-c", "1", "-d", "-g"];
        let (_folder, path) = record("writes", &options[..if chains { 6 } else { 5 }], &command);
        assert!(alike(By::Name, &path) >= 50, "{event}");
        assert!(lines(By::Name, &path, &["-F", "event,addr,ip"], &[]).unwrap() >= 50, "{event}");
    }
}

/// Rings that are written backwards, over what they held, and read at the end.
#[test]
fn overwritten_rings() {
    if !has("overwritten_rings", &NEEDS) {
        return;
    }
    assert!(recorded_alike("last", &["--overwrite", "-a", "-e", "cpu-clock", "-F", "999", "-m", "8"]) > 20);
    assert!(recorded_alike("tail", &["--overwrite", "--tail-synthesize", "-e", "cpu-clock", "-g"]) > 20);
}

#[test]
fn all_else_that_perf_records() {
    if !has("all_else_that_perf_records", &NEEDS) {
        return;
    }
    for options in [
        &["--namespaces", "--all-cgroups", "-a"][..],
        &["--switch-events", "-a"],
        &["-s", "-T", "-P", "--sample-cpu", "--sample-identifier"],
        &["-I", "--user-regs=ax,bx,ip"],
        &["--code-page-size", "--data-page-size", "-d", "-W"],
        &["-k", "CLOCK_MONOTONIC", "--timestamp-boundary"],
        &["-R", "--no-buffering", "-c", "100000"],
        &["--aio", "-g"],
    ] {
        let options = [options, &["-e", "cpu-clock", "-F", "499"]].concat();
        // A period and a frequency exclude each other.
        let options = if options.contains(&"-c") { &options[..options.len() - 2] } else { &options[..] };
        assert!(recorded_alike("else", options) > 20, "{options:?}");
    }
}

//! `script` against `perf script`, line for line, on recordings that perf made.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::path::Path;
use std::process::Command;

use afterimage_testkit::{Need, has, workload};
use common::{file, folder, perf, perf_record, text, word};

/// Compares what both print, and gives the number of lines. A line may differ where `may` says so, one in twenty at most.
fn compare(recording: &Path, options: &[&str], may: fn(&str, &str) -> bool) -> usize {
    let input = ["-i", word(recording)];
    let ours = text(&[&["script"], &input[..], options].concat());
    let theirs = perf(&[&["script", "--no-inline"], &input[..], options].concat());
    let (ours, theirs): (Vec<&str>, Vec<&str>) = (ours.lines().collect(), theirs.lines().collect());
    assert!(!theirs.is_empty(), "perf script {options:?} printed nothing");
    let mut excused = 0;
    for (nth, (our, their)) in ours.iter().zip(&theirs).enumerate() {
        assert!(our == their || may(our, their), "{options:?}, line {}:\nours   {our:?}\ntheirs {their:?}", nth + 1);
        excused += usize::from(our != their);
    }
    assert!(excused <= ours.len() / 20 + 2, "{options:?}: {excused} of {} lines differ", ours.len());
    assert_eq!(ours.len(), theirs.len(), "{options:?}: lines");
    ours.len()
}

fn never(_: &str, _: &str) -> bool {
    false
}

/// The same address in the same object may have another name, for four reasons: perf names a return address by what
/// follows the call, also where that is the next function, whose first byte it is then; it names entries of the PLT
/// otherwise; and what lies in memory not at all. The vDSO has no name of ours where perf did not write down which kernel
/// ran (`-N`): it is the kernel's.
fn naming(our: &str, their: &str) -> bool {
    let (Some(ours), Some(theirs)) = (frame(our), frame(their)) else { return false };
    let same_place = (ours.0, ours.2) == (theirs.0, theirs.2);
    // Where no offset is printed, this cannot be told.
    let next_function = theirs.1.rsplit_once("+0x").is_none_or(|(_, offset)| offset == "0");
    let linkage = ours.1.contains("@plt") || theirs.1.contains("@plt");
    let kernels_own = ours.1 == "[unknown]" && ours.2 == " ([vdso])";
    same_place && (next_function || linkage || kernels_own || theirs.1 == "[unknown]")
}

/// Address, name and object of a line of a call chain.
fn frame(line: &str) -> Option<(&str, &str, &str)> {
    let line = line.strip_prefix('\t')?.trim_start();
    let (address, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (name, object) = rest.rfind(" (").map_or((rest, ""), |at| rest.split_at(at));
    Some((address, name, object))
}

const LISTS: [&[&str]; 7] = [
    &[],
    &["-F", "comm,tid,time,event,ip"],
    &["-F", "comm,tid,time,event,ip,sym,dso"],
    &["-F", "comm,pid,tid,time,period,event,ip,sym,symoff"],
    &["-F", "-period,-symoff"],
    &["-F", "pid,misc,event", "--ns"],
    &["-G"],
];

/// Enough work for a few hundred samples.
fn busy() -> Vec<String> {
    vec![workload::build().busy.to_str().unwrap().to_owned(), "150".into(), "12".into()]
}

fn record(path: &Path, options: &[&str], command: &[String]) {
    perf_record(path, options, &command.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn samples_of_a_clock_with_and_without_chains() {
    if !has("samples_of_a_clock_with_and_without_chains", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    for (name, options) in [("flat", &["-e", "cpu-clock:u"][..]), ("deep", &["-e", "cpu-clock", "-g", "-F", "499"])] {
        let path = file(&folder, name);
        record(&path, options, &busy());
        for list in LISTS {
            assert!(compare(&path, list, naming) > 20, "{name} {list:?}");
        }
    }
}

#[test]
fn a_whole_machine_with_cpus() {
    if !has("a_whole_machine_with_cpus", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "all");
    record(&path, &["-a", "-e", "cpu-clock", "-F", "499"], &busy());
    // What else runs on the machine may have any names, but its addresses and all else have to agree.
    compare(&path, &["-F", "comm,pid,tid,cpu,time,period,event,ip"], never);
}

#[test]
fn page_faults_with_addresses() {
    if !has("page_faults_with_addresses", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "faults");
    let command = [workload::build().faults.to_str().unwrap().to_owned(), "200".into()];
    record(&path, &["-e", "page-faults:u", "-c", "1", "-d"], &command);
    compare(&path, &["-F", "comm,tid,time,event,addr"], never);
    compare(&path, &["-F", "event,addr,ip"], never);
    compare(&path, &[], |our, their| our.len() > 40 && our[..40] == their[..40.min(their.len())]);
}

#[test]
fn hits_of_a_breakpoint() {
    if !has("hits_of_a_breakpoint", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "writes");
    // Without address randomization the variable lies at the same place in the next run.
    let program = workload::build().writes;
    let said = Command::new("sh").args(["-c", &format!("echo | setarch -R {} 1", program.display())]).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let event = format!("mem:{}:w", said.lines().next().unwrap());
    let command = ["sh".into(), "-c".into(), format!("echo | setarch -R {} 50", program.display())];
    record(&path, &["-e", &event, "-c", "1"], &command);
    compare(&path, &[], naming);
    let hits = text(&["script", "-i", word(&path), "-F", "ip,sym"]);
    assert_eq!(hits.lines().filter(|line| line.ends_with(" write_watched")).count(), 50);
}

#[test]
fn tracepoints_print_their_fields() {
    if !has("tracepoints_print_their_fields", &[Need::Root, Need::Perf, Need::Cc, Need::Tracefs]) {
        return;
    }
    let folder = folder();
    for event in
        ["sched:sched_switch", "sched:sched_wakeup", "task:task_newtask", "irq:softirq_entry", "raw_syscalls:sys_enter"]
    {
        let path = file(&folder, &event.replace(':', "-"));
        record(&path, &["-a", "-e", event], &["sh".into(), "-c".into(), "true; sleep 0.05; true".into()]);
        assert!(compare(&path, &[], never) > 0, "{event}");
    }
    let path = file(&folder, "chains");
    record(&path, &["-a", "-g", "-e", "sched:sched_switch"], &["sleep".into(), "0.05".into()]);
    compare(&path, &["-F", "comm,tid,time,event,trace"], never);
}

#[test]
fn several_events_in_one_recording() {
    if !has("several_events_in_one_recording", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "several");
    record(&path, &["-e", "cpu-clock:u,page-faults:u", "-g"], &busy());
    for list in LISTS {
        compare(&path, list, naming);
    }
}

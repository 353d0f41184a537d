//! `script` against `perf script`, line for line, on recordings that perf made.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;
#[path = "common/places.rs"]
mod places;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use afterimage_testkit::{Need, has, workload};
use common::{file, folder, perf, perf_record, text, word};
use places::Places;

/// Two lines that ought to be the same and are not.
struct Differ<'l> {
    ours: &'l str,
    theirs: &'l str,
    /// Whether it is the sample's own place, not one that it was called from.
    own: bool,
}

/// Compares what both print, and gives the number of lines. A line may differ where `may` says so.
fn compare(recording: &Path, options: &[&str], may: impl Fn(&Differ<'_>) -> bool) -> usize {
    let input = ["-i", word(recording)];
    let ours = text(&[&["script"], &input[..], options].concat());
    let theirs = perf(&[&["script", "--no-inline"], &input[..], options].concat());
    let (ours, theirs): (Vec<&str>, Vec<&str>) = (ours.lines().collect(), theirs.lines().collect());
    assert!(!theirs.is_empty(), "perf script {options:?} printed nothing");
    for (nth, (our, their)) in ours.iter().zip(&theirs).enumerate() {
        let own = nth == 0 || !ours[nth - 1].starts_with('\t');
        let excused = our == their || may(&Differ { ours: our, theirs: their, own });
        assert!(excused, "{options:?}, line {}:\nours   {our:?}\ntheirs {their:?}", nth + 1);
    }
    assert_eq!(ours.len(), theirs.len(), "{options:?}: lines");
    ours.len()
}

fn never(_: &Differ<'_>) -> bool {
    false
}

/// The same address may have another name: perf names a return address by what follows the call, also where that is the
/// next function; it names entries of the linkage table by counting, and what it finds no name for not at all. Then
/// ours has to be what binutils and the kernel call that place. The vDSO has no name of ours where perf did not write
/// down which kernel ran (`-N`): it is the kernel's.
fn naming(places: &Places) -> impl Fn(&Differ<'_>) -> bool {
    |lines| {
        let (Some(ours), Some(theirs)) = (frame(lines.ours), frame(lines.theirs)) else { return false };
        if (ours.before, ours.address, ours.object) != (theirs.before, theirs.address, theirs.object) {
            return false;
        }
        // A caller is where its call was, before the address to return to.
        let place = if lines.own { ours.address } else { ours.address - 1 };
        let object = ours.object.strip_prefix(" (").and_then(|object| object.strip_suffix(')'));
        let right = match object {
            Some("[vdso]") => BTreeSet::new(),
            // In call chains user code has its place in the file.
            _ if lines.ours.starts_with('\t') && place >> 63 == 0 => places.names_at(object.map(Path::new), place),
            _ => places.names(place),
        };
        println!("{} and not {}: {right:?}", ours.name, theirs.name);
        if ours.name == "[unknown]" { right.is_empty() } else { right.contains(ours.name) }
    }
}

/// A line that ends in a place: `… ADDRESS NAME+0xOFFSET (OBJECT)`, the last parts as far as they were asked for.
struct Frame<'l> {
    before: &'l str,
    address: u64,
    name: &'l str,
    object: &'l str,
}

fn frame(line: &str) -> Option<Frame<'_>> {
    let (rest, object) = line.rfind(" (").map_or((line, ""), |at| line.split_at(at));
    let (rest, name) = rest.rsplit_once(' ')?;
    let (before, address) = rest.rsplit_once([' ', '\t'])?;
    let name = name.split_once("+0x").map_or(name, |(name, _)| name);
    Some(Frame { before, address: u64::from_str_radix(address, 16).ok()?, name, object })
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
        let places = Places::of(&path);
        for list in LISTS {
            assert!(compare(&path, list, naming(&places)) > 20, "{name} {list:?}");
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
    compare(&path, &[], naming(&Places::of(&path)));
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
    compare(&path, &[], naming(&Places::of(&path)));
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
    let places = Places::of(&path);
    for list in LISTS {
        compare(&path, list, naming(&places));
    }
}

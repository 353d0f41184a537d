//! Time off CPU: what threads with known waits say of themselves, sums for each thread, and what is in no sample.

use std::path::Path;
use std::process::{Command, Stdio};

use afterimage_perf_data::{OffCpuTally, TrueCounts};
use afterimage_testkit::{Need, has, workload};
use serde_json::Value;

use crate::common::{file, folder, perf, run, stderr, text, word};
use crate::helper::{alone, beside, event, number, record, recorder, report, tally};

const NEEDS: &[Need] = &[Need::Root, Need::Bpf, Need::Cc];

/// What a thread of the workload says of itself.
#[derive(Debug)]
struct Told {
    name: String,
    tid: u64,
    wall_ns: u64,
    cpu_ns: u64,
    off_ns: u64,
}

/// Records `waits ROUNDS MS` with some words; what it printed.
fn waits(path: &Path, words: &[&str], rounds: &str, ms: &str) -> Vec<Told> {
    let program = workload::build().waits;
    let mut command = recorder(path, words);
    let output = command.arg("--").args([word(&program), rounds, ms]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
    print!("{}", stderr(&output));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |(name, one): (&String, &Value)| Told {
        name: name.clone(),
        tid: number(&one["tid"]),
        wall_ns: number(&one["wall_ns"]),
        cpu_ns: number(&one["cpu_ns"]),
        off_ns: number(&one["off_ns"]),
    };
    told["threads"].as_object().unwrap().iter().map(of).collect()
}

/// The samples of time off CPU.
fn samples(path: &Path) -> Vec<Value> {
    let lines = text(&["script", "--json", "-i", word(path)]);
    let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|sample| sample["event"] == "off-cpu").collect()
}

fn state(sample: &Value) -> &str {
    label(sample, "state").unwrap()
}

fn label<'v>(sample: &'v Value, name: &str) -> Option<&'v str> {
    let label = sample["labels"].as_array()?.iter().find(|label| label["name"] == name)?;
    Some(label["value"].as_str().unwrap().trim_matches('"'))
}

/// Whether a function is on the stack.
fn passes(sample: &Value, function: &str) -> bool {
    sample["callchain"].as_array().unwrap().iter().any(|frame| frame["symbol"] == function)
}

fn sum<'v>(samples: impl Iterator<Item = &'v Value>) -> u64 {
    samples.map(|sample| number(&sample["period"])).sum()
}

/// Whether a time is that of a thread's own clocks, within one percent of what passed meanwhile. What interrupts and hypervisors
/// take from a thread that works is in its clock as little as it is time off CPU, so that one may be farther apart.
fn agrees(what: &str, recorded: u64, known: u64, wall: u64) {
    let most = if what.starts_with("yielding") { 4.0 } else { 1.0 };
    let percent = 100.0 * recorded.abs_diff(known) as f64 / wall as f64;
    println!("{what}: {recorded} recorded, {known} known, {wall} passed: {percent:.3} % apart");
    assert!(percent < most, "{what}: {recorded} recorded, {known} known, {wall} passed");
}

fn off_cpu(path: &Path) -> OffCpuTally {
    let tally = tally(path).off_cpu.unwrap();
    println!("{}", tally.human());
    tally
}

/// What the threads know of their waits is what their stacks show, and with the time on CPUs it comes to what has passed.
fn holds(path: &Path, told: &[Told]) {
    let all = samples(path);
    for thread in told {
        let of = || all.iter().filter(|sample| number(&sample["tid"]) == thread.tid);
        // The C library, which reads clocks for it, keeps no frame pointer: then the frame of its caller is missing.
        let function = if thread.name == "yielding" { "run" } else { &thread.name };
        let within = sum(of().filter(|sample| passes(sample, function)));
        agrees(&format!("{} in its function", thread.name), within, thread.off_ns, thread.wall_ns);
        // Until it ran for the first time it had no clock of its own.
        let off = sum(of().filter(|sample| state(sample) != "starting"));
        agrees(&format!("{} off and on", thread.name), off + thread.cpu_ns, thread.wall_ns, thread.wall_ns);
        assert!(of().all(|sample| sample["comm"] == *thread.name || !passes(sample, &thread.name)));
        assert!(of().all(|sample| sample["unit"] == "ns"));
    }
    let of = |name: &'static str| {
        let tid = told.iter().find(|thread| thread.name == name).unwrap().tid;
        all.iter().filter(move |sample| number(&sample["tid"]) == tid && passes(sample, name))
    };
    for (name, kernel) in [("sleeping", "nanosleep"), ("locked", "futex"), ("reading", "pipe_read")] {
        let waited = || of(name).filter(|sample| state(sample) == "interruptible");
        let share = sum(waited()) as f64 / sum(of(name)) as f64;
        assert!(share > 0.9, "{name}: {share}");
        // Where it waits in the kernel is what the rows of reports go by.
        assert!(waited().all(|s| s["symbol"].as_str().is_some_and(|symbol| symbol.contains(kernel))), "{name}");
    }
    assert!(of("yielding").all(|sample| state(sample) == "runnable"));
}

#[test]
fn known_waits_are_recorded() {
    if !has("known_waits_are_recorded", NEEDS) {
        return;
    }
    let _turn = alone();
    let (folder, path) = (folder(), "data");
    let path = file(&folder, path);
    let told = waits(&path, &["--off-cpu", "-g", "-F", "999"], "60", "20");
    let tally = off_cpu(&path);
    assert_eq!((tally.lost.full.waits, tally.lost.threads), (0, 0));
    assert!(tally.delivered.waits > 180, "{tally:?}");
    holds(&path, &told);
    // One event beside the other, never added up.
    let (json, _) = report(&path, &["--sort", "comm,sym,label:state"]);
    let shown = event(&json, "off-cpu");
    assert_eq!((number(&shown["period"]), &shown["unit"]), (tally.delivered.ns, &Value::from("ns")));
    assert_eq!(number(&shown["samples"]), tally.delivered.waits);
    assert_eq!(shown["waits"]["delivered"]["ns"], tally.delivered.ns);
    let sampled = json["events"].as_array().unwrap().iter().find(|event| event["name"] != "off-cpu").unwrap();
    assert_eq!(number(&json["tally"]["chained"]), number(&sampled["tally"]["chained"]));
    let rows = shown["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| number(&row["period"])).sum::<u64>(), tally.delivered.ns);
    assert!(rows.iter().any(|row| row["labels"]["state"] == "interruptible"), "{rows:?}");
    let shown = text(&["report", "-i", word(&path), "--event", "off-cpu", "-g", "none"]);
    assert!(shown.contains("# Time off CPU: ") && shown.contains("Off CPU") && shown.contains(" s  "), "{shown}");
    let lines = text(&["export", "--format", "folded", "--event", "off-cpu", "-i", word(&path), "-o", "-"]);
    let weights = lines.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(weights.sum::<u64>(), tally.delivered.ns);
}

#[test]
fn the_whole_machine_waits_too() {
    if !has("the_whole_machine_waits_too", NEEDS) {
        return;
    }
    let _turn = alone();
    let folder = folder();
    let path = file(&folder, "data");
    let mut sleeper = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap();
    let told = waits(&path, &["--off-cpu", "-a", "-F", "99"], "40", "20");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let tally = off_cpu(&path);
    holds(&path, &told);
    // One that waits all the time is there with all of it.
    let all = samples(&path);
    let of: Vec<_> = all.iter().filter(|sample| number(&sample["pid"]) == u64::from(sleeper.id())).collect();
    let longest = told.iter().map(|thread| thread.wall_ns).max().unwrap();
    assert!(sum(of.iter().copied()) > longest, "{of:?}");
    assert!(of.iter().any(|sample| state(sample) == "interruptible" && number(&sample["count"]) == 1), "{of:?}");
    assert!(tally.cut_at_end.waits > 1 && tally.cut_at_end.ns > longest, "{tally:?}");
    // Nobody waits for longer than the recording lasts.
    let span = |sample: &Value| number(&sample["period"]) / number(&sample["count"]).max(1);
    let whole = of.iter().map(|sample| span(sample)).max().unwrap();
    assert!(all.iter().all(|sample| span(sample) <= whole + whole / 10), "{whole}");
    assert!(!all.iter().any(|sample| number(&sample["pid"]) == 0));
}

#[test]
fn a_process_that_runs_is_recorded() {
    if !has("a_process_that_runs_is_recorded", NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "data");
    let program = workload::build().waits;
    let mut child = Command::new(program).args(["100000", "10"]).stdout(Stdio::null()).spawn().unwrap();
    record(&path, &["--off-cpu", "-p", &child.id().to_string(), "--duration", "1"]);
    child.kill().unwrap();
    child.wait().unwrap();
    let tally = off_cpu(&path);
    assert!(tally.cut_at_start.waits > 0 && tally.cut_at_end.waits > 0, "{tally:?}");
    let all = samples(&path);
    assert!(all.iter().all(|sample| number(&sample["pid"]) == u64::from(child.id())));
    for name in ["sleeping", "locked", "reading"] {
        let seconds = sum(all.iter().filter(|sample| sample["comm"] == name)) as f64 / 1e9;
        assert!(seconds > 0.8, "{name}: {seconds} s of one");
    }
}

#[test]
fn a_command_that_is_ended_still_waits() {
    if !has("a_command_that_is_ended_still_waits", NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "data");
    record(&path, &["--off-cpu", "--duration", "1", "--", "sleep", "600"]);
    let tally = off_cpu(&path);
    assert_eq!(tally.cut_at_end.waits, 1, "{tally:?}");
    let waited = sum(samples(&path).iter().filter(|sample| sample["comm"] == "sleep")) as f64 / 1e9;
    assert!((0.5..60.0).contains(&waited), "{waited} s");
    assert!(tally.cut_at_end.ns > 500_000_000, "{tally:?}");
}

#[test]
fn short_waits_are_counted_alone() {
    if !has("short_waits_are_counted_alone", NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let (all, long) = (file(&folder, "all"), file(&folder, "long"));
    waits(&all, &["--off-cpu"], "50", "4");
    waits(&long, &["--off-cpu=100ms"], "50", "4");
    let (all, tally) = (off_cpu(&all), off_cpu(&long));
    assert_eq!((all.below_min.waits, all.min_ns, tally.min_ns), (0, 0, 100_000_000));
    assert!(tally.below_min.waits > 140 && tally.delivered.waits < all.delivered.waits / 4, "{tally:?}");
    assert!(samples(&long).iter().all(|s| number(&s["period"]) >= 100_000_000 * number(&s["count"])));
}

#[test]
fn what_finds_no_room_is_told() {
    if !has("what_finds_no_room_is_told", NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let program = workload::build().waits;
    let crowd = |name: &str, words: &[&str]| {
        let path = file(&folder, name);
        let command = ["--", word(&program), "crowd", "400", "300"];
        let output = record(&path, &[&["--off-cpu"][..], words, &command].concat());
        let tally = off_cpu(&path);
        let delivered: u64 = true_counts(&path, tally.event).counts.iter().sum();
        assert_eq!(delivered, tally.delivered.waits);
        (tally, stderr(&output))
    };
    let (tally, _) = crowd("room", &[]);
    assert!(tally.delivered.waits >= 400 && tally.lost.full.waits == 0, "{tally:?}");
    let (tally, said) = crowd("stacks", &["--off-cpu-entries", "64"]);
    assert!(tally.lost.full.waits > 0 && tally.lost.full.ns > 0 && tally.lost.threads == 0, "{tally:?}");
    assert!(said.contains("lost: table full") && said.contains("--off-cpu-entries"), "{said}");
    let (tally, said) = crowd("threads", &["--off-cpu-threads", "16"]);
    // Each of four hundred threads starts, sleeps, and is counted once for each.
    assert!((300..2000).contains(&tally.lost.threads), "{tally:?}");
    assert!(said.contains("no room for the thread") && said.contains("--off-cpu-threads"), "{said}");
}

/// For how many waits each sample stands.
fn true_counts(path: &Path, event: usize) -> TrueCounts {
    let bytes = std::fs::read(path).unwrap();
    let reader = afterimage_perf_data::FileReader::open(&bytes).unwrap();
    let counts = &reader.private().unwrap().true_counts;
    counts.iter().find(|of| of.event == event).unwrap().clone()
}

#[test]
fn who_ends_waits_is_known() {
    if !has("who_ends_waits_is_known", NEEDS) {
        return;
    }
    let _turn = alone();
    let folder = folder();
    let path = file(&folder, "data");
    let told = waits(&path, &["--off-cpu", "--wakers", "-F", "99"], "40", "20");
    let tally = off_cpu(&path);
    holds(&path, &told);
    let wakers = tally.wakers.unwrap();
    println!("{}", wakers.human());
    let lines = text(&["script", "--json", "-i", word(&path)]);
    let all: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let by: Vec<&Value> = all.iter().filter(|sample| sample["event"] == "off-cpu-wakers").collect();
    assert_eq!(sum(by.iter().copied()), wakers.delivered.ns);
    for name in ["locked", "reading"] {
        let thread = told.iter().find(|thread| thread.name == name).unwrap();
        // The main thread hands over the lock and writes to the pipe.
        let woken = by.iter().filter(|sample| label(sample, "woken") == Some(name) && sample["comm"] == "waits");
        agrees(&format!("{name} by its waker"), sum(woken.copied()), thread.off_ns, thread.wall_ns);
        let of = samples(&path);
        let waited =
            of.iter().filter(|sample| number(&sample["tid"]) == thread.tid && state(sample) == "interruptible");
        assert!(waited.map(|sample| label(sample, "waker")).all(|waker| waker == Some("waits")), "{name}");
    }
    let (json, _) = report(&path, &["--sort", "comm,label:woken"]);
    assert_eq!(number(&event(&json, "off-cpu-wakers")["period"]), wakers.delivered.ns);
}

#[test]
fn perf_reads_waits() {
    if !has("perf_reads_waits", &[Need::Root, Need::Bpf, Need::Cc, Need::Perf]) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "data");
    waits(&path, &["--off-cpu", "-F", "99"], "20", "10");
    let lines = perf(&["script", "-i", word(&path), "-F", "tid,period,event"]);
    let of = lines.lines().filter(|line| line.contains("off-cpu:"));
    let periods = of.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap());
    assert_eq!(periods.sum::<u64>(), off_cpu(&path).delivered.ns);
    let shown = perf(&["report", "-i", word(&path), "--stdio", "-g", "none"]);
    assert!(shown.contains("of event 'off-cpu'"), "{shown}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    if !has("what_makes_no_sense_is_refused", NEEDS) {
        return;
    }
    for words in [&["-o", "-"][..], &["-C", "0"], &["--by", "comm"], &["--where", "cpu == 0"]] {
        let output = run(&[&["record", "--off-cpu"], words, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("--off-cpu"), "{}", stderr(&output));
    }
    let output = run(&["record", "--off-cpu=5", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

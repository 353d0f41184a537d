//! The handlers of `examples/handlers`, each at work.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use afterimage_perf_data::{Tally, journal};
use afterimage_testkit::{Need, guest, has, objects, workload};
use rustix::time::{ClockId, clock_gettime};

use crate::common::{file, folder, stderr, word};
use crate::helper::{Busy, beside, event, report, samples_in, signal, start, tally, until_of};
use crate::objects::{ARCH, NEEDS, address_in, held, object, with_object, word_at};

fn half_at(value: &[u8], at: usize) -> u64 {
    u32::from_le_bytes(value[at..at + 4].try_into().unwrap()).into()
}

/// A cgroup (v2) of its own, in a mount of its own.
struct Cgroup {
    mount: PathBuf,
    dir: PathBuf,
}

impl Cgroup {
    fn new(mount: PathBuf) -> Cgroup {
        std::fs::create_dir(&mount).unwrap();
        let mounted = Command::new("mount").args(["-t", "cgroup2", "none", word(&mount)]).output().unwrap();
        assert!(mounted.status.success(), "{}", stderr(&mounted));
        let dir = mount.join(format!("afterimage-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        Cgroup { mount, dir }
    }

    fn id(&self) -> u64 {
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&self.dir).unwrap())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its last process may not be quite gone yet.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.dir).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = Command::new("umount").arg(&self.mount).status();
    }
}

#[test]
fn cgroup_time_adds_up_to_all_samples() {
    let test = "cgroup_time_adds_up_to_all_samples";
    if !has(test, &NEEDS) || !has(test, &[Need::Cgroup2]) {
        return;
    }
    let _turn = beside();
    let (folder, split) = (folder(), workload::build().split);
    let path = file(&folder, "data");
    let cgroup = Cgroup::new(file(&folder, "cgroup"));
    let command = format!("echo $$ > {}/cgroup.procs; exec {} 0.4 > /dev/null", word(&cgroup.dir), word(&split));
    let handler = ["--handler", &object("cgroup_time"), "--set", "batch=25"];
    with_object(&path, "cpu-clock", &handler, &["sh", "-c", &command]);
    let (sum, held) = (tally(&path).total(), held(&path));
    let samples = |of: &dyn Fn(u64) -> bool| -> u64 {
        held.values.iter().filter(|value| of(word_at(value, 0))).map(|value| half_at(value, 16)).sum()
    };
    let (all, ours) = (samples(&|_| true), samples(&|id| id == cgroup.id()));
    println!("{} samples, {all} in {} records, {ours} of them of our cgroup", sum.handled.unwrap(), held.values.len());
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    assert!(all + 25 * cpus >= sum.handled.unwrap() && all <= sum.handled.unwrap(), "{sum:?}");
    assert!(ours > all / 2 && sum.chained == 0);
    assert!(held.values.iter().all(|value| word_at(value, 8) > 0 && half_at(value, 16) <= 25));
}

#[test]
fn fault_map_counts_every_fault() {
    if !has("fault_map_counts_every_fault", &NEEDS) {
        return;
    }
    let _turn = beside();
    let (folder, faults) = (folder(), workload::build().faults);
    let path = file(&folder, "data");
    // Of 48-bit addresses the upper half of the lower half, where maps are: the last of 32 ranges of 4 TiB.
    with_object(
        &path,
        "page-faults",
        &["--handler", &object("fault_map"), "--set", "every=1"],
        &[word(&faults), "400"],
    );
    let (sum, held) = (tally(&path).total(), held(&path));
    // from, width, cpu, faults, below, above, then the ranges: the last table of each CPU has its sums.
    let mut last = std::collections::BTreeMap::new();
    for table in &held.values {
        let of_cpu: &mut &Vec<u8> = last.entry(half_at(table, 16)).or_insert(table);
        if half_at(table, 20) >= half_at(of_cpu, 20) {
            *of_cpu = table;
        }
    }
    let total = |at: usize| -> u64 { last.values().map(|table| half_at(table, at)).sum() };
    let ranges: Vec<u64> = (0..32).map(|range| total(32 + 4 * range)).collect();
    println!("{} faults, {} below, {} above, ranges {ranges:?}", total(20), total(24), total(28));
    assert_eq!(Some(total(20)), sum.handled);
    assert_eq!(total(20), total(24) + total(28) + ranges.iter().sum::<u64>());
    assert!(ranges[31] >= 400, "the pages that were touched are in the last range");
    assert_eq!((sum.chained, sum.emitted), (0, total(20)));
}

#[test]
fn writers_tells_each_value() {
    if !has("writers_tells_each_value", &NEEDS) {
        return;
    }
    let _turn = beside();
    let (folder, writes) = (folder(), workload::build().writes);
    let path = file(&folder, "data");
    let breakpoint = format!("mem:{}/8:w", address_in(&writes));
    let command = format!("echo | setarch {ARCH} -R {} 300 > /dev/null", word(&writes));
    let handler = ["--handler", &object("writers"), "--set", "changes=true", "-g"];
    with_object(&path, &breakpoint, &handler, &["sh", "-c", &command]);
    let (sum, held) = (tally(&path).total(), held(&path));
    let of = |key: &str| held.labels.iter().filter(|(name, _)| name == key).map(|(_, bytes)| bytes).collect::<Vec<_>>();
    let values: Vec<u64> = of("value").iter().map(|bytes| word_at(bytes, 0)).collect();
    println!("{} writes, {} labels", sum.handled.unwrap(), held.labels.len());
    // Other programs of the shell write there too, and before it the value is 0, which the first write leaves as it is.
    let counted: Vec<u64> = values.windows(2).filter(|pair| pair[1] == pair[0] + 1).map(|pair| pair[1]).collect();
    assert!(counted.len() >= 298 && counted.windows(2).all(|pair| pair[1] > pair[0]), "{values:?}");
    assert_eq!(counted.last(), Some(&299));
    let ours = of("thread").iter().filter(|bytes| bytes.starts_with(b"writes\0")).count();
    assert!(ours >= 299, "{ours}");
    assert_eq!(sum.chained, values.len() as u64);
}

/// The tally of a recording under way, up to its last pass.
fn so_far(path: &Path) -> Option<Tally> {
    let journal = journal::read(&std::fs::read(journal::path_of(path)).ok()?).ok()?;
    Some(journal.private.tally?.total())
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn flight_recorder_keeps_only_what_follows_its_trigger() {
    if !has("flight_recorder_keeps_only_what_follows_its_trigger", &NEEDS) {
        return;
    }
    const WINDOW: u64 = 300_000_000;
    let _turn = beside();
    let folder = folder();
    let (path, trigger) = (file(&folder, "a.data"), file(&folder, "launch-it"));
    std::fs::copy(workload::build().faults, &trigger).unwrap();
    let busy = Busy::new();
    let window = format!("window_ns={WINDOW}");
    let words = ["--handler", &object("flight_recorder"), "--set", "trigger=launch-it", "--set", &window];
    let mut recorder = start(&path, &[&["-a", "-e", "cpu-clock", "-F", "999"][..], &words].concat());
    // From its first moment on it would have the recorder wait for its beginning, a minute in an emulated machine.
    busy.go(&path);
    until_of(&mut recorder, "samples have been dropped", || so_far(&path).is_some_and(|sum| sum.dropped > Some(200)));
    let before = now_ns();
    assert!(Command::new(&trigger).arg("1").stdout(Stdio::null()).status().unwrap().success());
    let after = now_ns();
    until_of(&mut recorder, "samples are dropped again", || {
        let sum = so_far(&path).unwrap_or_default();
        now_ns() > after + 2 * WINDOW && sum.ring.delivered > 20 && sum.dropped > Some(300)
    });
    signal(&recorder, rustix::process::Signal::INT);
    let output = recorder.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    drop(busy);
    let (sum, held) = (tally(&path).total(), held(&path));
    println!("{} samples, {} kept", sum.handled.unwrap(), held.of_event.len());
    assert!(held.of_event.len() > 20 && sum.dropped.unwrap() > 100, "{sum:?}");
    let kept_between = before..=after + WINDOW + 1_000_000;
    assert!(held.of_event.iter().all(|key| kept_between.contains(&key.time)), "{kept_between:?}");
}

/// Compiles the example for a function of the workload.
fn slow_requests_of(program: &Path, folder: &Path) -> PathBuf {
    let define = format!("-DPROGRAM=\"{}\"", word(program));
    let header = format!("-I{}", word(&objects::build()));
    objects::compile_with(&objects::build().join("slow_requests.bpf.c"), folder, &[&define, &header]).unwrap();
    folder.join("slow_requests.bpf.o")
}

#[test]
fn slow_requests_are_all_that_is_kept() {
    // A guest has no compiler for the path of the program.
    if !has("slow_requests_are_all_that_is_kept", &NEEDS) || guest().is_some() {
        return;
    }
    let _turn = beside();
    let (folder, requests) = (folder(), workload::build().requests);
    let path = file(&folder, "data");
    let object = slow_requests_of(&requests, folder.path());
    let handler = ["--handler", word(&object), "--set", "least_ns=20000000"];
    with_object(&path, "cpu-clock", &handler, &[word(&requests), "40"]);
    let (sum, held) = (tally(&path).total(), held(&path));
    let (report, _) = report(&path, &["--sort", "sym"]);
    let shown = event(&report, "cpu-clock");
    let [fast, slow] = ["request_fast", "request_slow"].map(|name| samples_in(shown, name));
    println!("{} samples, {} kept: {slow} in request_slow, {fast} in request_fast", sum.handled.unwrap(), sum.chained);
    // A fast request is slow when its thread has to wait long enough for a CPU.
    assert!(slow > 100 && fast < slow / 2 && sum.dropped.unwrap() > 100, "{sum:?}");
    assert_eq!(held.labels.len() as u64, sum.chained);
    assert!(held.labels.iter().all(|(name, bytes)| name == "so_far_us" && word_at(bytes, 0) >= 20_000));
}

#[test]
fn user_label_reads_what_the_program_says() {
    if !has("user_label_reads_what_the_program_says", &NEEDS) {
        return;
    }
    let _turn = beside();
    let (folder, requests) = (folder(), workload::build().requests);
    let path = file(&folder, "data");
    let at = format!("at={}", address_in(&requests));
    let handler = ["--handler", &object("user_label"), "--set", &at];
    with_object(&path, "cpu-clock", &handler, &["setarch", ARCH, "-R", word(&requests), "24"]);
    let (sum, held) = (tally(&path).total(), held(&path));
    let named = |phase: &str| {
        held.labels.iter().filter(|(_, bytes)| bytes.split(|&b| b == 0).next() == Some(phase.as_bytes())).count() as u64
    };
    let (report, _) = report(&path, &["--sort", "sym"]);
    let shown = event(&report, "cpu-clock");
    let [in_fast, in_slow] = ["request_fast", "request_slow"].map(|name| samples_in(shown, name));
    println!(
        "{} samples: {} slow ({in_slow}), {} fast ({in_fast})",
        sum.handled.unwrap(),
        named("slow"),
        named("fast")
    );
    assert_eq!(sum.chained, sum.handled.unwrap());
    // A sample in the kernel, or just beside the work, has the label and not the function.
    assert!(named("slow") >= in_slow && in_slow > 100, "{sum:?}");
    assert!(named("fast") >= in_fast && in_fast > 10);
    // In emulation what is between the two takes longer than either.
    assert!(guest().is_some() || named("slow") > named("fast"));
    assert!(held.labels.iter().all(|(name, bytes)| name == "phase" && bytes.len() == 32));
}

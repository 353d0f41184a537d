//! What the kernel skipped: nothing when we are alone, whoever else works with BPF maps when not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use afterimage_perf_data::RecordingTally;
use afterimage_testkit::{Need, has};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::common::{file, folder, text, word};
use crate::helper::{alone, event, number, record, report, tally};

const NEEDS: [Need; 3] = [Need::Root, Need::Bpf, Need::NoGuest];

/// Threads that update a hash map over and over, one on each CPU, until this is dropped.
struct Hammer {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Hammer {
    fn new() -> Hammer {
        let stop = Arc::new(AtomicBool::new(false));
        let cpus = std::thread::available_parallelism().unwrap().get();
        let hammer = |cpu: usize| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut set = rustix::thread::CpuSet::new();
                set.set(cpu);
                rustix::thread::sched_setaffinity(None, &set).unwrap();
                let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
                    sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
                    ..Default::default()
                };
                let map = MapHandle::create(MapType::Hash, Some("hammered"), 4, 8, 1024, &options).unwrap();
                let mut key = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    key = (key + 1) % 1000;
                    map.update(&key.to_ne_bytes(), &[0; 8], MapFlags::ANY).unwrap();
                }
            })
        };
        let threads = (0..cpus).map(hammer).collect();
        Hammer { stop, threads }
    }
}

impl Drop for Hammer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn busy_by_cpu(tally: &RecordingTally) -> Vec<u64> {
    tally.events[0].per_cpu.iter().map(|(_, tally)| tally.busy.unwrap()).collect()
}

#[test]
fn what_others_keep_from_us_is_told() {
    if !has("what_others_keep_from_us_is_told", &NEEDS) {
        return;
    }
    let _turn = alone();
    let folder = folder();
    let (whole, first) = (file(&folder, "whole"), file(&folder, "first"));
    let hammer = Hammer::new();
    record(&whole, &["-a", "-e", "cpu-clock", "-F", "4000", "--audit", "--duration", "3"]);
    record(&first, &["-a", "-e", "cpu-clock", "-F", "4000", "--duration", "4"]);
    drop(hammer);
    let sum = tally(&whole).total();
    println!("{}", sum.human());
    let (overflows, busy, handled) = (sum.overflows.unwrap(), sum.busy.unwrap(), sum.handled.unwrap());
    assert_eq!(overflows, handled + busy);
    assert!(busy > overflows / 200, "{busy} of {overflows}");
    assert!(text(&["report", "-i", word(&whole)]).contains("skipped by the kernel (BPF busy)"));
    let (shown, _) = report(&whole, &[]);
    assert_eq!(number(&event(&shown, "cpu-clock")["tally"]["busy"]), busy);
    assert!(event(&shown, "cpu-clock")["audit"].is_null());

    // Without the option only the first seconds are known.
    let of_first = tally(&first);
    let audit = of_first.events[0].audit.unwrap();
    println!("{audit:?}");
    assert_eq!(of_first.total().busy, None);
    assert!((1_900_000_000..4_000_000_000).contains(&audit.ns));
    assert!(audit.control > audit.handled + audit.control / 200, "{audit:?}");
    assert!(audit.handled < of_first.total().handled.unwrap());
    let (shown, _) = report(&first, &[]);
    assert_eq!(number(&event(&shown, "cpu-clock")["audit"]["control"]), audit.control);
    let listed = text(&["report", "-i", word(&first)]);
    assert!(listed.contains("# Audit: in the first 2."), "{listed}");
}

/// A CPU that the hypervisor takes away for longer than a period costs either timer a tick at random, and others work on
/// this machine, so one quiet run of several is enough.
#[test]
fn we_keep_nothing_from_ourselves() {
    if !has("we_keep_nothing_from_ourselves", &NEEDS) {
        return;
    }
    let _turn = alone();
    let folder = folder();
    for handler in ["none", "emit", "count"] {
        let path = file(&folder, handler);
        let quiet = |_| {
            record(
                &path,
                &["-a", "-g", "-e", "cpu-clock", "-F", "997", "--handler", handler, "--audit", "--duration", "1"],
            );
            let busy = busy_by_cpu(&tally(&path));
            println!("{handler}: {busy:?}");
            busy.iter().all(|busy| *busy <= 2)
        };
        assert!((0..8).any(quiet), "{handler}: no run without skipped samples");
    }
}

/// Each event has a control event of its own, which disturbs none of its records, whatever kinds they are of.
#[test]
fn control_events_disturb_nothing() {
    if !has("control_events_disturb_nothing", &[&NEEDS[..], &[Need::Cc]].concat()) {
        return;
    }
    let _turn = alone();
    let folder = folder();
    let path = file(&folder, "a");
    let faults = afterimage_testkit::workload::build().faults;
    for subject in [&["-a"][..], &[]] {
        let words = ["-g", "-e", "page-faults/period=1/,cpu-clock/freq=997/", "--audit", "--", word(&faults), "1500"];
        record(&path, &[subject, &words].concat());
        let tally = tally(&path);
        for event in &tally.events {
            println!("{}: {} {:?}", event.name, event.sum.human(), event.sum.overflows);
            assert!(event.sum.busy.is_some());
        }
        let (shown, output) = report(&path, &["--sort", "sym,comm"]);
        assert!(!crate::common::stderr(&output).contains("ids of no event"));
        let of = |name: &str| {
            let events = shown["events"].as_array().unwrap();
            events.iter().find(|event| event["name"].as_str().unwrap().starts_with(name)).unwrap().clone()
        };
        let faults = of("page-faults");
        assert_eq!(crate::helper::samples_in(&faults, "touch_pages"), 1500);
        assert_eq!(number(&faults["samples"]), number(&faults["tally"]["ring"]["delivered"]));
        assert_eq!(number(&of("cpu-clock")["samples"]), number(&of("cpu-clock")["tally"]["ring"]["delivered"]));
    }
}

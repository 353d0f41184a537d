//! Events of the running kernel, opened and read.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use afterimage_perf_data::Record;
use afterimage_perf_event::child::{Ended, spawn_stopped};
use afterimage_perf_event::config::Rate;
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{Target, threads_of};
use afterimage_testkit::{Need, has};
use common::{Pages, drain, gettid, online, open_events, spin};

#[test]
fn cpu_clock_on_every_cpu_gives_samples_of_that_cpu() {
    if !has("cpu_clock_on_every_cpu_gives_samples_of_that_cpu", &[Need::Root]) {
        return;
    }
    let mut opened = open_events("cpu-clock,task-clock:u", Some(Rate::Freq(999)), &Target::Cpus(online()), 64);
    assert_eq!((opened.rings.len(), opened.events.len()), (online().len(), 2 * online().len()));
    let by_id: HashMap<u64, (usize, i32, usize)> =
        opened.events.iter().map(|e| (e.id, (e.ring, e.cpu, e.spec))).collect();
    opened.enable().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = online()
        .iter()
        .map(|_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    spin(10_000);
                }
            })
        })
        .collect();
    let (mut seen, mut own) = (HashMap::<usize, u64>::new(), 0);
    while seen.len() < online().len() || seen.values().any(|n| *n < 100) {
        drain(&mut opened, &mut |ring, record| {
            let Record::Sample(s) = record else { return };
            let (of_ring, cpu, spec) = by_id[&s.identifier.unwrap()];
            assert_eq!((of_ring, cpu), (ring, s.cpu.unwrap() as i32));
            assert!(s.ip.unwrap() != 0 && s.time.unwrap() > 0 && s.period.unwrap() > 0);
            assert!(spec == 0 || s.misc & 7 == 2, "task-clock:u samples user code");
            own += u64::from(s.pid == Some(std::process::id()));
            *seen.entry(ring).or_default() += 1;
        });
    }
    stop.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|thread| thread.join().unwrap());
    opened.disable().unwrap();
    assert!(own > 0);
    for event in &opened.events {
        let count = event.read().unwrap();
        assert_eq!((count.id, count.lost), (event.id, Some(0)));
        assert!(count.running > 0 && count.enabled >= count.running);
    }
}

#[test]
fn every_page_fault_is_a_sample() {
    if !has("every_page_fault_is_a_sample", &[Need::Root]) {
        return;
    }
    const PAGES: usize = 1000;
    let target = Target::Tasks { tids: vec![gettid()], cpus: Vec::new(), inherit: false };
    let mut opened = open_events("page-faults", Some(Rate::Period(1)), &target, 256);
    let pages = Pages::new(PAGES);
    opened.enable().unwrap();
    pages.touch();
    opened.disable().unwrap();
    let (mut inside, mut all) = (0, 0);
    drain(&mut opened, &mut |_, record| {
        let Record::Sample(s) = record else { panic!("{record:?}") };
        assert_eq!((s.tid, s.period), (Some(gettid()), Some(1)));
        inside += usize::from(pages.contains(s.addr.unwrap()));
        all += 1;
    });
    assert_eq!(inside, PAGES);
    let count = opened.events[0].read().unwrap();
    assert_eq!((count.value, count.lost), (all, Some(0)));
}

static WATCHED: AtomicU64 = AtomicU64::new(0);
static OVERFLOWED: AtomicU64 = AtomicU64::new(0);

#[test]
fn every_write_to_a_watched_variable_is_a_sample() {
    if !has("every_write_to_a_watched_variable_is_a_sample", &[Need::Root]) {
        return;
    }
    let list = format!("mem:{:p}/8:w:u", &WATCHED);
    let target = Target::Tasks { tids: vec![gettid()], cpus: Vec::new(), inherit: false };
    let mut opened = open_events(&list, None, &target, 256);
    assert_eq!(opened.specs[0].name, list);
    opened.enable().unwrap();
    for i in 0..777 {
        WATCHED.store(i, Ordering::Relaxed);
    }
    opened.disable().unwrap();
    let mut samples = 0;
    drain(&mut opened, &mut |_, record| {
        let Record::Sample(s) = record else { panic!("{record:?}") };
        assert_eq!(s.addr, Some(&raw const WATCHED as u64));
        samples += 1;
    });
    assert_eq!((samples, opened.events[0].read().unwrap().value), (777, 777));
}

#[test]
fn what_finds_no_room_in_a_ring_of_one_page_is_counted() {
    if !has("what_finds_no_room_in_a_ring_of_one_page_is_counted", &[Need::Root]) {
        return;
    }
    const WRITES: u64 = 10_000;
    let list = format!("mem:{:p}/8:w:u", &OVERFLOWED);
    let target = Target::Tasks { tids: vec![gettid()], cpus: Vec::new(), inherit: false };
    let mut opened = open_events(&list, None, &target, 1);
    opened.enable().unwrap();
    for i in 0..WRITES {
        OVERFLOWED.store(i, Ordering::Relaxed);
    }
    let mut delivered = 0;
    drain(&mut opened, &mut |_, record| {
        assert!(matches!(record, Record::Sample(_)), "{record:?}");
        delivered += 1;
    });
    assert!(delivered > 10 && delivered < 4096 / 8, "{delivered}");
    // The loss is told before the next record that fits.
    OVERFLOWED.store(0, Ordering::Relaxed);
    opened.disable().unwrap();
    let (mut told, mut after) = (0, 0);
    drain(&mut opened, &mut |_, record| match record {
        Record::Lost(lost) => told += lost.lost,
        Record::Sample(_) => after += 1,
        other => panic!("{other:?}"),
    });
    assert_eq!((told, after), (WRITES - delivered, 1));
    let count = opened.events[0].read().unwrap();
    assert_eq!((count.value, count.lost), (WRITES + 1, Some(WRITES - delivered)));
}

/// A thread that touches fresh pages when told, as often as told; both ways by channel.
struct Toucher {
    tid: u32,
    order: mpsc::Sender<usize>,
    done: mpsc::Receiver<()>,
}

fn toucher() -> Toucher {
    let (order, orders) = mpsc::channel::<usize>();
    let (tell, done) = mpsc::channel();
    let (tell_tid, tid) = mpsc::channel();
    std::thread::spawn(move || {
        tell_tid.send(gettid()).unwrap();
        for count in orders {
            let pages = Pages::new(count);
            pages.touch();
            tell.send(()).unwrap();
        }
    });
    Toucher { tid: tid.recv().unwrap(), order, done }
}

#[test]
fn threads_are_followed_each_and_with_those_they_start() {
    if !has("threads_are_followed_each_and_with_those_they_start", &[Need::Root]) {
        return;
    }
    let touchers = [toucher(), toucher(), toucher()];
    let threads = threads_of(&Facts::system(), &[std::process::id()]).unwrap();
    assert!(touchers.iter().all(|t| threads.contains(&t.tid)));
    // The third is left out, and this thread is there for what it starts.
    let tids = vec![touchers[0].tid, touchers[1].tid, gettid()];
    let target = Target::Tasks { tids, cpus: online(), inherit: true };
    let mut opened = open_events("minor-faults", Some(Rate::Period(1)), &target, 256);
    assert_eq!(opened.rings.len(), online().len(), "threads share the ring of a CPU");
    opened.enable().unwrap();
    let counts = [100, 200, 400];
    for (toucher, count) in touchers.iter().zip(counts) {
        toucher.order.send(count).unwrap();
        toucher.done.recv().unwrap();
    }
    let late = toucher();
    late.order.send(300).unwrap();
    late.done.recv().unwrap();
    opened.disable().unwrap();
    let mut seen = HashMap::<u32, usize>::new();
    drain(&mut opened, &mut |_, record| {
        let Record::Sample(s) = record else { panic!("{record:?}") };
        *seen.entry(s.tid.unwrap()).or_default() += 1;
    });
    // Making the mapping and telling of its end may fault once or twice besides.
    let near = |tid: u32, count: usize| (count..count + 20).contains(seen.get(&tid).unwrap_or(&0));
    assert!(near(touchers[0].tid, 100) && near(touchers[1].tid, 200), "{seen:?}");
    assert!((300..400).contains(seen.get(&late.tid).unwrap_or(&0)), "{seen:?}");
    assert!(!seen.contains_key(&touchers[2].tid), "{seen:?}");
    let lost: u64 = opened.events.iter().map(|e| e.read().unwrap().lost.unwrap()).sum();
    assert_eq!(lost, 0);
}

#[test]
fn a_command_is_sampled_from_its_exec_on() {
    if !has("a_command_is_sampled_from_its_exec_on", &[Need::Root]) {
        return;
    }
    let mut child = spawn_stopped(&["sh", "-c", "(exit 3)"]).unwrap();
    let target = Target::Command { pid: child.pid(), cpus: online(), inherit: true };
    let mut opened = open_events("{cpu-clock,page-faults/period=1/}:u", None, &target, 256);
    opened.enable().unwrap();
    assert!(opened.events.iter().all(|e| e.read().unwrap().enabled == 0), "nothing runs before the exec");
    child.start().unwrap();
    assert_eq!(child.wait().unwrap(), Ended::Code(3));
    let (mut of_child, mut of_others) = (0, 0);
    let faults = opened.events.iter().filter(|e| e.spec == 1).map(|e| e.ring).collect::<Vec<_>>();
    drain(&mut opened, &mut |ring, record| {
        let (true, Record::Sample(s)) = (faults.contains(&ring), record) else { return };
        if s.pid == Some(child.pid()) { of_child += 1 } else { of_others += 1 }
    });
    assert!(of_child > 10 && of_others > 0, "{of_child} of the shell, {of_others} of its child");
}

#[test]
fn groups_and_tracepoints_open_here() {
    if !has("groups_and_tracepoints_open_here", &[Need::Root]) {
        return;
    }
    let opened = open_events("{cpu-clock,cs}:k,sched:sched_switch", None, &Target::Cpus(online()), 64);
    assert_eq!(opened.events.len(), 3 * online().len());
    opened.enable().unwrap();
    let switches: u64 = loop {
        std::thread::yield_now();
        spin(10_000);
        let sum = opened.events.iter().filter(|e| e.spec == 2).map(|e| e.read().unwrap().value).sum();
        if sum > 10 {
            break sum;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    opened.disable().unwrap();
    assert!(switches > 10);
}

#[test]
fn a_filter_is_set_or_refused() {
    if !has("a_filter_is_set_or_refused", &[Need::Root]) {
        return;
    }
    let open_with = |filter: &str| {
        let mut specs = common::specs("sched:sched_switch", None);
        specs[0].filter = Some(filter.to_owned());
        let options = afterimage_perf_event::open::Options { pages: 1 };
        let target = Target::Cpus(online());
        afterimage_perf_event::open::open(&common::kernel(), &Facts::system(), specs, &target, options)
    };
    assert!(open_with("prev_pid == 1").is_ok());
    let e = open_with("no_such_field == 1").unwrap_err();
    assert_eq!(e.kind, afterimage_perf_event::open::OpenErrorKind::Filter);
}

#[test]
fn hardware_becomes_cpu_clock_where_there_is_none() {
    if !has("hardware_becomes_cpu_clock_where_there_is_none", &[Need::Root]) {
        return;
    }
    let opened = open_events("cycles:u", None, &Target::Cpus(online()), 1);
    if Need::Pmu.missing().is_some() {
        assert_eq!(opened.specs[0].name, "cpu-clock:u");
        assert_eq!(opened.notes.len(), 1, "{:?}", opened.notes);
    } else {
        assert_eq!(opened.specs[0].name, "cycles:u");
    }
}

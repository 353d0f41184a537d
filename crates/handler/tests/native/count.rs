//! The count table: keys, halves, what it has no room for.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use afterimage_handler::{Builtin, EventConfig, Handlers, Options};

use crate::support::*;

/// Drained without a pause while it fills, the table loses nothing and counts nothing twice.
#[test]
fn draining_while_counting_loses_nothing() {
    let Some(_one) = alone("draining_while_counting_loses_nothing") else { return };
    for mechanism in mechanisms() {
        let busy: Vec<Busy> = (0..2).map(|_| Busy::deep()).collect();
        let events: Vec<Event> = busy.iter().map(|b| Event::open(&clock(100_000), b.tid, -1, 1)).collect();
        let mut handlers = load(Builtin::Count, false, mechanism);
        for event in &events {
            handlers.attach(0, event.fd.as_fd()).unwrap();
        }
        events.iter().for_each(Event::enable);
        let begun = Instant::now();
        let (mut sum, mut drains, mut stacks) = (0, 0u64, HashMap::new());
        // A machine that has much else to do needs longer.
        let enough = |handlers: &Handlers| begun.elapsed() > Duration::from_secs(2) && total(handlers).handled > 1000;
        while !enough(&handlers) && begun.elapsed() < Duration::from_secs(60) {
            for entry in counts(&mut handlers) {
                assert!(entry.count > 0 && entry.period >= entry.count, "{entry:?}");
                assert!(busy.iter().any(|b| b.tid as u32 == entry.tid), "{entry:?}");
                sum += entry.count;
                *stacks.entry(entry.chain).or_insert(0) += entry.count;
            }
            drains += 1;
        }
        events.iter().for_each(Event::disable);
        sum += counts(&mut handlers).iter().map(|e| e.count).sum::<u64>();
        let seen = total(&handlers);
        assert!(seen.handled > 1000, "{seen:?}");
        assert_eq!(seen.handled, seen.stored + seen.lost_full + seen.lost_collision);
        assert_eq!(seen.stored, sum, "{drains} drains");
        assert_eq!((seen.passed, seen.dropped), (seen.handled, 0));
        println!("{mechanism:?}: {sum} samples, {drains} drains, {} stacks", stacks.len());
    }
}

/// The same with a program that runs as often as a thread can fault.
#[test]
fn draining_while_faults_are_counted_loses_nothing() {
    let Some(_one) = alone("draining_while_faults_are_counted_loses_nothing") else { return };
    let busy: Vec<Busy> = (0..2).map(|_| Busy::new(|| Pages::new(64).touch())).collect();
    let events: Vec<Event> = busy.iter().map(|b| Event::open(&page_faults(), b.tid, -1, 1)).collect();
    let mut handlers = load(Builtin::Count, false, best());
    for event in &events {
        handlers.attach(0, event.fd.as_fd()).unwrap();
    }
    events.iter().for_each(Event::enable);
    let end = Instant::now() + Duration::from_secs(2);
    let (mut sum, mut drains) = (0, 0u64);
    while Instant::now() < end {
        sum += counts(&mut handlers).iter().map(|e| e.count).sum::<u64>();
        drains += 1;
    }
    events.iter().for_each(Event::disable);
    sum += counts(&mut handlers).iter().map(|e| e.count).sum::<u64>();
    let seen = total(&handlers);
    println!("{sum} samples, {drains} drains");
    assert!(seen.handled > 1000, "{seen:?}");
    assert_eq!((seen.stored, seen.stored), (sum, seen.handled), "{seen:?}");
}

/// Two drains meet the same stacks: a half that was emptied is as good as new.
#[test]
fn a_half_is_used_again() {
    let Some(_one) = alone("a_half_is_used_again") else { return };
    let event = Event::open(&page_faults(), gettid(), -1, 1);
    let mut handlers = load(Builtin::Count, false, best());
    handlers.attach(0, event.fd.as_fd()).unwrap();
    let mut before = 0;
    for round in 0..10 {
        let pages = Pages::new(100);
        event.enable();
        pages.touch();
        event.disable();
        let table = counts(&mut handlers);
        let stored = total(&handlers).stored;
        assert_eq!(table.iter().map(|e| e.count).sum::<u64>(), stored - before, "round {round}");
        // The thread may move between CPUs, each of which has a table of its own.
        let of_stack = |chain: &[u64]| table.iter().filter(|e| e.chain == chain).map(|e| e.count).sum::<u64>();
        // Compilers may touch several pages in one turn of the loop.
        let often: u64 = table.iter().filter(|e| of_stack(&e.chain) >= 20).map(|e| e.count).sum();
        assert!(often >= 99, "round {round}: {table:?}");
        before = stored;
    }
    assert!(counts(&mut handlers).is_empty());
}

/// A table with fewer entries than there are stacks says how many samples it had no room for.
#[test]
fn a_full_table_is_counted() {
    let Some(_one) = alone("a_full_table_is_counted") else { return };
    let event = Event::open(&page_faults(), gettid(), -1, 1);
    let options = Options {
        builtin: Builtin::Count,
        events: vec![EventConfig { callchain: true, ..EventConfig::default() }],
        count_slots: Some(64),
        ..Options::default()
    };
    let mut handlers = Handlers::load(&options).unwrap();
    handlers.attach(0, event.fd.as_fd()).unwrap();
    let pages = Pages::new(1000);
    event.enable();
    pages.touch_each(|page| name_thread(&format!("page {}", page / 2)));
    event.disable();
    let seen = total(&handlers);
    assert!(seen.lost_full >= 1000 - 2 * 64 * cpus().len() as u64, "{seen:?}");
    // A fault that is none of ours may have taken the place of two that are.
    let others = seen.handled - 1000;
    assert!(seen.stored + others >= 2 * 64, "{seen:?}");
    let sum: u64 = counts(&mut handlers).iter().map(|e| e.count).sum();
    assert_eq!(seen.stored, sum);
    assert_eq!(seen.handled, seen.stored + seen.lost_full + seen.lost_collision);
}

/// A CPU that no table was made for is not a hole: its samples are counted as lost.
#[test]
fn a_cpu_without_a_table_is_counted() {
    let Some(_one) = alone("a_cpu_without_a_table_is_counted") else { return };
    let (&with, cpus_now) = (cpus().first().unwrap(), cpus());
    let options = Options {
        builtin: Builtin::Count,
        events: vec![EventConfig::default()],
        cpus: vec![with],
        ..Options::default()
    };
    let mut handlers = Handlers::load(&options).unwrap();
    let busy: Vec<Busy> = cpus_now.iter().map(|_| Busy::deep()).collect();
    let events: Vec<Event> = cpus_now.iter().map(|&cpu| Event::open(&clock(1_000_000), -1, cpu as i32, 1)).collect();
    for event in &events {
        handlers.attach(0, event.fd.as_fd()).unwrap();
    }
    events.iter().for_each(Event::enable);
    std::thread::sleep(Duration::from_millis(300));
    events.iter().for_each(Event::disable);
    drop(busy);
    for &cpu in &cpus_now {
        let one = handlers.counters(0, cpu);
        assert!(one.handled > 0);
        if cpu == with {
            assert_eq!((one.stored, one.lost_full), (one.handled, 0), "CPU {cpu}");
        } else {
            assert_eq!((one.stored, one.lost_full), (0, one.handled), "CPU {cpu}");
        }
    }
    let sum: u64 = counts(&mut handlers).iter().map(|e| e.count).sum();
    assert_eq!(sum, handlers.counters(0, with).stored);
}

/// An event that asks for no stacks is counted by address.
#[test]
fn without_stacks_the_address_is_the_key() {
    let Some(_one) = alone("without_stacks_the_address_is_the_key") else { return };
    for mechanism in mechanisms() {
        let mut attr = page_faults();
        attr.sample_type.remove(afterimage_perf_data::SampleType::CALLCHAIN);
        let mut event = Event::open(&attr, gettid(), -1, 256);
        let options = Options {
            builtin: Builtin::Count,
            chain: true,
            events: vec![EventConfig::from_attr(&attr).unwrap()],
            mechanism: Some(mechanism),
            ..Options::default()
        };
        let mut handlers = Handlers::load(&options).unwrap();
        handlers.attach(0, event.fd.as_fd()).unwrap();
        event.enable();
        Pages::new(300).touch();
        event.disable();
        let mut by_ip: HashMap<u64, u64> = HashMap::new();
        for sample in event.drained().samples {
            *by_ip.entry(sample.ip).or_default() += 1;
        }
        for entry in counts(&mut handlers) {
            assert!(entry.chain.is_empty());
            assert_eq!(by_ip.remove(&entry.ip), Some(entry.count));
        }
        assert!(by_ip.is_empty(), "{by_ip:x?}");
        assert_eq!(total(&handlers).stack_failed, 0);
    }
}

/// A new name and a new image begin new entries, though the thread is the same.
#[test]
fn names_and_execs_split_entries() {
    let Some(_one) = alone("names_and_execs_split_entries") else { return };
    for mechanism in mechanisms() {
        // The shell takes a new name, works, and becomes another shell that works. By its
        // path: a busybox would not exec itself by a bare name.
        let work = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let script = format!(
            "read x; printf before > /proc/$$/comm; {work}; printf after > /proc/$$/comm; {work}; exec /bin/sh -c '{work}'"
        );
        let mut child =
            Command::new("sh").arg("-c").arg(script).stdin(std::process::Stdio::piped()).spawn().expect("a shell");
        let event = Event::open(&clock(100_000), child.id() as i32, -1, 1);
        let mut handlers = load(Builtin::Count, false, mechanism);
        handlers.attach(0, event.fd.as_fd()).unwrap();
        event.enable();
        drop(child.stdin.take());
        child.wait().unwrap();
        event.disable();
        let table = counts(&mut handlers);
        let mut lives: HashMap<(String, u64), u64> = HashMap::new();
        for entry in &table {
            assert_eq!(entry.tid, child.id());
            *lives.entry((entry.comm.clone(), entry.exec_id)).or_default() += entry.count;
        }
        let of = |name: &str| {
            lives.iter().filter(|((comm, _), _)| comm == name).map(|((_, id), n)| (*id, *n)).collect::<Vec<_>>()
        };
        let (before, after, exec) = (of("before"), of("after"), of("sh"));
        assert!(before.len() == 1 && after.len() == 1, "{lives:?}");
        assert_eq!(before[0].0, after[0].0, "no exec between the names");
        assert!(exec.iter().any(|(id, count)| *id > after[0].0 && *count > 5), "{lives:?}");
        assert_eq!(lives.values().sum::<u64>(), total(&handlers).stored);
    }
}

/// Both mechanisms see the same stacks, user and kernel.
#[test]
fn the_plain_mechanism_sees_the_same_stacks() {
    let Some(_one) = alone("the_plain_mechanism_sees_the_same_stacks") else { return };
    let run = |mechanism| {
        let event = Event::open(&page_faults(), gettid(), -1, 1);
        let mut handlers = load(Builtin::Count, false, mechanism);
        handlers.attach(0, event.fd.as_fd()).unwrap();
        let (user, kernel) = (Pages::new(1000), Pages::new(1000));
        event.enable();
        user.touch();
        kernel.touch_by_kernel();
        event.disable();
        let mut frequent: Vec<(Vec<u64>, Vec<u64>, u64)> =
            counts(&mut handlers).into_iter().filter(|e| e.count >= 500).map(|e| (e.kernel, e.user, e.ip)).collect();
        frequent.sort();
        frequent
    };
    let runs: Vec<_> = mechanisms().into_iter().map(run).collect();
    assert_eq!(runs[0].len(), 2, "one stack in user mode, one in the kernel: {runs:x?}");
    assert!(runs.iter().all(|other| *other == runs[0]), "{runs:x?}");
    assert!(runs[0].iter().any(|(kernel, ..)| kernel.len() > 3));
}

/// Faults a page in with frame pointers that lead through `frames`: the address of the next one, and a return address.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn fault_through(frames: &[[u64; 2]], page: *mut u8) {
    // SAFETY: the page is mapped and no reference to it exists. The frame pointer is what it was at the end; meanwhile
    // only the unwinder of the kernel follows it, through memory that `frames` borrows.
    unsafe {
        std::arch::asm!(
            "xchg rbp, {frames}",
            "mov byte ptr [{page}], 1",
            "xchg rbp, {frames}",
            frames = inout(reg) frames.as_ptr() => _,
            page = in(reg) page,
        );
    }
}

/// Stacks that differ in little: by a word more, a bit, the order, a zero at the end.
#[cfg(target_arch = "x86_64")]
fn stacks_alike() -> HashSet<Vec<u64>> {
    let base = 0x5555_5555_4000u64;
    let mut stacks: HashSet<Vec<u64>> = (0..60).map(|n| vec![0; n]).collect();
    let mut seed = 1u64;
    let long: Vec<u64> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        base + (seed >> 40)
    })
    .take(100)
    .collect();
    for n in 0..100 {
        for zeros in 0..5 {
            stacks.insert([&long[..n], &vec![0; zeros]].concat());
            stacks.insert([&vec![0; zeros], &long[..n]].concat());
            stacks.insert([vec![long[0]; n], vec![0; zeros]].concat());
        }
    }
    for one in 0..47 {
        for other in 0..47 {
            stacks.insert(vec![1 << one, 1 << other]);
            stacks.insert(vec![1 << one, base, 1 << other]);
            stacks.insert(vec![base + 8 * one, base + 8 * other, base]);
        }
    }
    for code in 0..7u64.pow(5) {
        let words = (0..5).map(|place| long[(code / 7u64.pow(place) % 7) as usize]);
        stacks.insert(words.collect());
    }
    stacks
}

/// Different stacks are never taken for each other, however alike they are.
#[cfg(target_arch = "x86_64")]
#[test]
fn stacks_that_are_alike_are_kept_apart() {
    const BATCH: usize = 4096;
    let Some(_one) = alone("stacks_that_are_alike_are_kept_apart") else { return };
    let stacks: Vec<Vec<u64>> = stacks_alike().into_iter().collect();
    for mechanism in mechanisms() {
        let event = Event::open(&page_faults(), gettid(), -1, 1);
        let options = Options {
            builtin: Builtin::Count,
            events: vec![EventConfig { callchain: true, ..EventConfig::default() }],
            count_slots: Some(1 << 15),
            mechanism: Some(mechanism),
            ..Options::default()
        };
        let mut handlers = Handlers::load(&options).unwrap();
        handlers.attach(0, event.fd.as_fd()).unwrap();
        let mut seen: HashMap<Vec<u64>, u64> = HashMap::new();
        for batch in stacks.chunks(BATCH) {
            let pages = Pages::new(batch.len());
            let mut frames = vec![[0; 2]; 128];
            event.enable();
            for (number, stack) in batch.iter().enumerate() {
                for (at, word) in stack.iter().enumerate() {
                    let next = frames.as_ptr().wrapping_add(at + 1) as u64;
                    frames[at] = [if at + 1 < stack.len() { next } else { 0 }, *word];
                }
                let none = &[][..];
                fault_through(if stack.is_empty() { none } else { &frames }, pages.page(number));
            }
            event.disable();
            for entry in counts(&mut handlers) {
                *seen.entry(entry.user.get(1..).unwrap_or_default().to_vec()).or_default() += entry.count;
            }
        }
        let all = total(&handlers);
        println!("{mechanism:?}: {} stacks, {} collisions, {all:?}", stacks.len(), all.lost_collision);
        assert_eq!((all.lost_collision, all.lost_full), (0, 0));
        let wrong: Vec<_> = stacks.iter().filter(|stack| seen.get(*stack) != Some(&1)).take(3).collect();
        assert!(stacks.len() > 20_000 && wrong.is_empty(), "{wrong:x?}");
    }
}

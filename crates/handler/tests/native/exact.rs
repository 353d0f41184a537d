//! Counts that must come out exactly.

use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::Duration;

use afterimage_handler::Builtin;

use crate::support::*;

/// The program sees what an event without one delivers. Two timers drift apart where the machine is not quiet, so one
/// round of some must come out even; a program that loses samples never would.
#[test]
fn clock_samples_equal_a_control_event() {
    let Some(_one) = alone("clock_samples_equal_a_control_event") else { return };
    for builtin in [Builtin::None, Builtin::Emit, Builtin::Count] {
        let mut rounds = Vec::new();
        let even = (0..30).any(|_| {
            let (handled, control) = clock_round(builtin);
            rounds.push((handled, control));
            handled > 50 && handled.abs_diff(control) <= 2 * cpus().len() as u64
        });
        println!("{builtin}: handled and control {rounds:?}");
        assert!(even, "{builtin}: {rounds:?}");
    }
}

/// The same of the whole machine, by CPU, with an event at 1 kHz on each. Ten quiet seconds with each built-in when
/// AFTERIMAGE_LONG is set, and then every round has to come out even; else one even round of some.
#[test]
fn the_whole_machine_equals_a_control_event_on_each_cpu() {
    let Some(_one) = alone("the_whole_machine_equals_a_control_event_on_each_cpu") else { return };
    let long = std::env::var_os("AFTERIMAGE_LONG").is_some();
    let (rounds, ms) = if long { (5, 2000) } else { (10, 300) };
    for builtin in [Builtin::None, Builtin::Emit, Builtin::Count] {
        let even = |_: &usize| {
            let pairs = machine_round(builtin, Duration::from_millis(ms));
            println!("{builtin}: handled and control by CPU {pairs:?}");
            assert!(pairs.iter().all(|&(handled, _)| handled > ms / 10), "{builtin}: a CPU without samples");
            pairs.iter().all(|&(handled, control)| handled.abs_diff(control) <= 2)
        };
        let good = (0..rounds).filter(even).take(if long { rounds } else { 1 }).count();
        assert_eq!(good, if long { rounds } else { 1 }, "{builtin}: rounds that came out even");
    }
}

/// By CPU, what the stub handled and what the same event without a stub delivered or lost.
fn machine_round(builtin: Builtin, time: Duration) -> Vec<(u64, u64)> {
    let open = || cpus().into_iter().map(|cpu| Event::open(&clock(1_000_000), -1, cpu as i32, 512)).collect::<Vec<_>>();
    let (mut events, mut controls) = (open(), open());
    let mut handlers = load(builtin, false, best());
    let outputs = outputs(512);
    give_outputs(&mut handlers, &outputs);
    for event in &events {
        handlers.attach(0, event.fd.as_fd()).unwrap();
    }
    // The tick stops on an idle CPU, and events that are throttled there stay so until it comes again.
    let _busy: Vec<Busy> = cpus().into_iter().map(|_| Busy::deep()).collect();
    let both = || events.iter().zip(&controls);
    both().for_each(|(event, control)| (event.enable(), control.enable()).1);
    sleep(time);
    both().for_each(|(event, control)| (event.disable(), control.disable()).1);
    let mut seen = Vec::new();
    for (cpu, control) in cpus().into_iter().zip(&mut controls) {
        seen.push((handlers.counters(0, cpu).handled, control.drained().samples.len() as u64 + control.read().1));
    }
    let ring: u64 = events.iter_mut().map(|event| event.drained().samples.len() as u64 + event.read().1).sum();
    assert_eq!(total(&handlers).chained, ring);
    seen
}

/// What the stub of one event handled, and what the same event without a stub delivered or lost.
fn clock_round(builtin: Builtin) -> (u64, u64) {
    let busy = Busy::deep();
    let mut event = Event::open(&clock(1_000_000), busy.tid, -1, 64);
    let mut control = Event::open(&clock(1_000_000), busy.tid, -1, 64);
    let mut handlers = load(builtin, false, best());
    let mut outputs = outputs(64);
    give_outputs(&mut handlers, &outputs);
    handlers.attach(0, event.fd.as_fd()).unwrap();
    event.enable();
    control.enable();
    sleep(Duration::from_millis(300));
    event.disable();
    control.disable();
    let seen = total(&handlers);
    assert_eq!(seen.handled, seen.filtered + seen.dropped + seen.passed);
    let ring = event.drained().samples.len() as u64 + event.read().1;
    assert_eq!(seen.chained, ring, "{builtin}: {seen:?}");
    let emitted: u64 = outputs.iter_mut().map(|o| o.drained().samples.len() as u64).sum();
    assert_eq!(seen.emitted, emitted + seen.emit_lost);
    let stored: u64 = counts(&mut handlers).iter().map(|e| e.count).sum();
    assert_eq!(seen.stored, stored);
    (seen.handled, control.drained().samples.len() as u64 + control.read().1)
}

/// Every page fault is in the count, in the ring, in the handler ring or in the table.
#[test]
fn page_faults_are_exact_with_every_builtin() {
    let Some(_one) = alone("page_faults_are_exact_with_every_builtin") else { return };
    for mechanism in mechanisms() {
        for builtin in [Builtin::None, Builtin::Emit, Builtin::Count] {
            let mut event = Event::open(&page_faults(), gettid(), -1, 1024);
            let mut handlers = load(builtin, false, mechanism);
            let mut outputs = outputs(1024);
            give_outputs(&mut handlers, &outputs);
            handlers.attach(0, event.fd.as_fd()).unwrap();
            let (user, kernel) = (Pages::new(3000), Pages::new(200));
            event.enable();
            user.touch();
            kernel.touch_by_kernel();
            event.disable();
            let (count, lost) = event.read();
            let seen = total(&handlers);
            assert!(count >= 3200, "{count}");
            assert_eq!(seen.handled, count, "{builtin} {mechanism:?}: {seen:?}");
            assert_eq!((seen.passed, seen.dropped, seen.filtered), (count, 0, 0));
            let ring = event.drained();
            let records: Vec<Seen> = outputs.iter_mut().flat_map(|o| o.drained().samples).collect();
            let table = counts(&mut handlers);
            match builtin {
                Builtin::None => {
                    assert_eq!(ring.samples.len() as u64 + lost, count);
                    assert_eq!((seen.chained, records.len(), table.len()), (count, 0, 0));
                }
                Builtin::Emit => {
                    assert_eq!((seen.chained, ring.samples.len(), table.len()), (0, 0, 0));
                    assert_eq!(records.len() as u64 + seen.emit_lost, count);
                    assert_eq!(seen.emitted, count);
                    let mut numbers: Vec<(u32, u64)> = records.iter().map(|r| (r.cpu, r.emit().hdr.seq)).collect();
                    numbers.dedup();
                    assert_eq!(numbers.len(), records.len(), "every record has its own number");
                }
                Builtin::Count => {
                    assert_eq!((seen.chained, ring.samples.len(), records.len()), (0, 0, 0));
                    assert_eq!(table.iter().map(|e| e.count).sum::<u64>(), seen.stored);
                    assert_eq!(table.iter().map(|e| e.period).sum::<u64>(), seen.stored);
                    assert_eq!(seen.stored + seen.lost_full + seen.lost_collision, count);
                    assert_eq!((seen.lost_full, seen.lost_collision, seen.stack_failed), (0, 0, 0), "{seen:?}");
                    assert!(table.iter().any(|e| e.count >= 100 && !e.kernel.is_empty()), "faults in the kernel");
                    assert!(table.iter().all(|e| e.tid == gettid() as u32 && !e.user.is_empty()));
                }
            }
        }
    }
}

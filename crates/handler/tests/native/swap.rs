//! Swapping the handler while samples arrive.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use afterimage_handler::object::{LoadedObject, Object};
use afterimage_handler::{Builtin, ErrorKind, EventConfig, HandlerId, Handlers, Options};
use afterimage_testkit::{Need, has, objects, turns};

use crate::support::*;

/// Twenty thousand swaps, two thousand in a guest: each sample is in exactly one of the outputs, none is lost between.
#[test]
fn swaps_lose_nothing() {
    let Some(_one) = alone("swaps_lose_nothing") else { return };
    let busy: Vec<Busy> = (0..2).map(|_| Busy::deep()).collect();
    let mut events: Vec<Event> = busy.iter().map(|b| Event::open(&clock(dense()), b.tid, -1, 1024)).collect();
    let mut handlers = load_with(Builtin::None, &ALL, false, best());
    let mut outputs = outputs(1024);
    give_outputs(&mut handlers, &outputs);
    for event in &events {
        handlers.attach(0, event.fd.as_fd()).unwrap();
    }
    events.iter().for_each(Event::enable);
    let (mut ring, mut records, mut stored) = (Drained::default(), Drained::default(), 0);
    let builtins = [Builtin::Emit, Builtin::Count, Builtin::None];
    for n in 0..turns(20_000) as usize {
        let generation = handlers.swap(builtins[n % 3]).unwrap();
        assert_eq!(generation, n as u32 + 2);
        if n % 10 == 0 {
            std::thread::sleep(std::time::Duration::from_micros(500));
        }
        if n % 200 == 0 {
            events.iter_mut().for_each(|e| e.drain(&mut ring));
            outputs.iter_mut().for_each(|o| o.drain(&mut records));
            stored += counts(&mut handlers).iter().map(|e| e.count).sum::<u64>();
        }
    }
    events.iter().for_each(Event::disable);
    events.iter_mut().for_each(|e| e.drain(&mut ring));
    outputs.iter_mut().for_each(|o| o.drain(&mut records));
    stored += counts(&mut handlers).iter().map(|e| e.count).sum::<u64>();
    let lost: u64 = events.iter().map(|e| e.read().1).sum();
    let seen = total(&handlers);
    println!("{seen:?}, ring {}, records {}, lost {lost}", ring.samples.len(), records.samples.len());
    assert_eq!(lost, 0);
    assert_eq!(seen.chained, ring.samples.len() as u64);
    assert_eq!(seen.emitted, records.samples.len() as u64 + seen.emit_lost);
    assert_eq!(seen.stored, stored);
    assert_eq!(seen.handled, seen.chained + seen.emitted + seen.stored + seen.lost_full + seen.lost_collision);
    assert_eq!((seen.passed, seen.dropped, seen.filtered), (seen.handled, 0, 0));
    assert!(seen.chained > 0 && seen.emitted > 0 && seen.stored > 0);
}

/// How often handlers are exchanged; `AFTERIMAGE_SWAPS` says another number.
fn swaps() -> usize {
    std::env::var("AFTERIMAGE_SWAPS").ok().and_then(|text| text.parse().ok()).unwrap_or(turns(20_000) as usize)
}

/// A program that drops every sample, from an object.
pub(crate) fn dropping(handlers: &mut Handlers) -> (HandlerId, LoadedObject) {
    let object = objects::build().join("bare.bpf.o");
    let object = Object::open(std::fs::read(object).unwrap(), Some("none"), &[]).unwrap();
    let events = [EventConfig { callchain: true, max_stack: 119, ..EventConfig::default() }];
    let loaded = object.load(&handlers.shared(), &events, handlers.next_id(), &[]).unwrap_or_else(|e| panic!("{e:#}"));
    (handlers.add(loaded.name.clone(), loaded.program().unwrap()), loaded)
}

/// What the handler ring of a CPU brought so far, and the number of its last record: each is in it once.
#[derive(Default)]
struct Records {
    count: u64,
    last: u64,
}

impl Records {
    fn drain(&mut self, output: &mut Event) {
        for record in output.drained().samples {
            let seq = record.emit().hdr.seq;
            assert!(seq > self.last, "{seq} after {}", self.last);
            (self.count, self.last) = (self.count + 1, seq);
        }
    }
}

/// Two handlers in turn, one of which keeps every sample and one none: what either took is nowhere else.
#[test]
fn a_handler_and_an_object_take_turns() {
    let test = "a_handler_and_an_object_take_turns";
    let Some(_one) = alone(test).filter(|_| has(test, &[Need::Clang])) else { return };
    let busy: Vec<Busy> = (0..cpus().len()).map(|_| Busy::deep()).collect();
    let mut events: Vec<Event> = busy.iter().map(|b| Event::open(&clock(dense()), b.tid, -1, 1024)).collect();
    let mut handlers = load(Builtin::Emit, false, best());
    let mut outputs = outputs(4096);
    give_outputs(&mut handlers, &outputs);
    let (dropping, _object) = dropping(&mut handlers);
    for event in &events {
        handlers.attach(0, event.fd.as_fd()).unwrap();
    }
    events.iter().for_each(Event::enable);
    let mut records: Vec<Records> = outputs.iter().map(|_| Records::default()).collect();
    let mut took: Vec<u32> = Vec::with_capacity(swaps());
    for n in 0..swaps() {
        let next = if n % 2 == 0 { dropping } else { Builtin::Emit.into() };
        let before = Instant::now();
        let generation = handlers.swap(next).unwrap();
        took.push(before.elapsed().as_nanos().try_into().unwrap());
        assert_eq!(generation, n as u32 + 2);
        if n % 7 == 0 {
            std::thread::sleep(Duration::from_micros(500));
        }
        if n % 200 == 0 {
            records.iter_mut().zip(&mut outputs).for_each(|(records, output)| records.drain(output));
        }
    }
    events.iter().for_each(Event::disable);
    records.iter_mut().zip(&mut outputs).for_each(|(records, output)| records.drain(output));
    let (seen, arrived) = (total(&handlers), records.iter().map(|of| of.count).sum::<u64>());
    let past: usize = events.iter_mut().map(|event| event.drained().samples.len()).sum();
    let doubled = (arrived + seen.dropped).saturating_sub(seen.handled);
    took.sort_unstable();
    let at = |share: f64| f64::from(took[((took.len() - 1) as f64 * share) as usize]) / 1000.0;
    println!(
        "{} swaps, {} samples: {} records, {} dropped, {} lost, {doubled} doubled; a swap takes {:.1} µs (median), {:.1} (99 %), {:.1} (most)",
        took.len(),
        seen.handled,
        arrived,
        seen.dropped,
        seen.handled - arrived - seen.dropped + past as u64,
        at(0.5),
        at(0.99),
        at(1.0)
    );
    assert_eq!((past, seen.chained, seen.filtered, seen.emit_lost), (0, 0, 0, 0));
    assert_eq!(seen.emitted, arrived);
    assert_eq!(seen.handled, arrived + seen.dropped);
    assert!(arrived > 0 && seen.dropped > 0);
}

/// Why there is a stub: where the program itself is exchanged, by closing its link and making another, samples that neither
/// of the two lets through stand in the ring.
#[test]
fn closing_and_reopening_the_link_lets_samples_through() {
    let test = "closing_and_reopening_the_link_lets_samples_through";
    let Some(_one) = alone(test).filter(|_| has(test, &[Need::Clang])) else { return };
    let busy = Busy::deep();
    let mut event = Event::open(&clock(dense()), busy.tid, -1, 1024);
    let loaded = || {
        let mut handlers = load(Builtin::None, false, best());
        let (dropping, object) = dropping(&mut handlers);
        handlers.swap(dropping).unwrap();
        (handlers, object)
    };
    let (mut handlers, mut object) = loaded();
    handlers.attach(0, event.fd.as_fd()).unwrap();
    event.enable();
    let (mut let_through, mut reopened) = (0, 0);
    while reopened < turns(10) || (let_through == 0 && reopened < 500) {
        let (mut next, next_object) = loaded();
        // As short as can be: what is next has been loaded.
        drop((handlers, object));
        next.attach(0, event.fd.as_fd()).unwrap();
        (handlers, object) = (next, next_object);
        reopened += 1;
        let_through += event.drained().samples.len();
    }
    event.disable();
    // One that another CPU was just taking as the last link was made.
    let_through += event.drained().samples.len();
    println!("{let_through} samples came through while the link was closed and reopened {reopened} times");
    assert!(let_through > 0);
    // The same with a swap.
    event.enable();
    for n in 0..1000_u32 {
        assert_eq!(handlers.swap(handlers.current()).unwrap(), n + 3);
    }
    event.disable();
    assert_eq!(event.drained().samples.len(), 0);
    drop(object);
}

/// The time of a generation's first sample tells which samples of the ring are its.
#[test]
fn generations_are_known_by_time() {
    let Some(_one) = alone("generations_are_known_by_time") else { return };
    let mut event = Event::open(&page_faults(), gettid(), -1, 1024);
    let mut handlers = load(Builtin::Emit, true, best());
    let mut outputs = outputs(1024);
    give_outputs(&mut handlers, &outputs);
    handlers.attach(0, event.fd.as_fd()).unwrap();
    for _ in 0..20 {
        let pages = Pages::new(20);
        event.enable();
        pages.touch();
        event.disable();
        handlers.swap(Builtin::Emit).unwrap();
    }
    let ring = event.drained().samples;
    let mut records: Vec<Seen> = outputs.iter_mut().flat_map(|o| o.drained().samples).collect();
    records.sort_by_key(|r| r.time);
    assert_eq!(ring.len(), records.len());
    for (sample, record) in ring.iter().zip(&records) {
        let seen = handlers.generations(sample.cpu);
        assert!(seen.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1), "{seen:?}");
        let of_time = seen.iter().rev().find(|(_, first)| *first <= sample.time).map(|(generation, _)| *generation);
        assert_eq!(of_time, Some(record.emit().hdr.generation));
    }
    let known: usize = cpus().into_iter().map(|cpu| handlers.generations(cpu).len()).sum();
    assert!(known >= 20, "{known}");
}

/// Clearing lets samples through to the ring, and nothing else.
#[test]
fn clear_chains_everything() {
    let Some(_one) = alone("clear_chains_everything") else { return };
    let mut event = Event::open(&page_faults(), gettid(), -1, 1024);
    let mut handlers = load(Builtin::Count, false, best());
    handlers.attach(0, event.fd.as_fd()).unwrap();
    event.enable();
    Pages::new(100).touch();
    event.disable();
    let stored = total(&handlers).stored;
    assert!(stored >= 100);
    assert_eq!(event.drained().samples.len(), 0);
    handlers.clear().unwrap();
    assert_eq!(handlers.current(), Builtin::None.into());
    event.enable();
    Pages::new(100).touch();
    event.disable();
    let seen = total(&handlers);
    assert_eq!(seen.stored, stored);
    assert_eq!(seen.chained, event.drained().samples.len() as u64);
    assert!(seen.chained >= 100);
}

#[test]
fn only_what_was_loaded_can_be_swapped_in() {
    let Some(_one) = alone("only_what_was_loaded_can_be_swapped_in") else { return };
    let mut handlers = Handlers::load(&Options { events: vec![Default::default()], ..Options::default() }).unwrap();
    let refused = handlers.swap(Builtin::Count).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Options);
    assert_eq!(refused.to_string(), "swapping the handler: count was not loaded");
    assert_eq!((handlers.current(), handlers.generation()), (Builtin::None.into(), 1));
}

//! Swapping the handler while samples arrive.

use std::os::fd::AsFd;

use afterimage_handler::{Builtin, ErrorKind, Handlers, Options};

use crate::support::*;

/// Twenty thousand swaps: each sample is in exactly one of the outputs, none is lost between.
#[test]
fn swaps_lose_nothing() {
    let Some(_one) = alone("swaps_lose_nothing") else { return };
    let busy: Vec<Busy> = (0..2).map(|_| Busy::deep()).collect();
    let mut events: Vec<Event> = busy.iter().map(|b| Event::open(&clock(100_000), b.tid, -1, 1024)).collect();
    let mut handlers = load(Builtin::None, false, best());
    let mut outputs = outputs(1024);
    give_outputs(&mut handlers, &outputs);
    for event in &events {
        handlers.attach(0, event.fd.as_fd()).unwrap();
    }
    events.iter().for_each(Event::enable);
    let (mut ring, mut records, mut stored) = (Drained::default(), Drained::default(), 0);
    let builtins = [Builtin::Emit, Builtin::Count, Builtin::None];
    for n in 0..20_000 {
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

//! Where samples go: the sampling ring, the handler ring, both, or neither because one is full.

use std::os::fd::AsFd;

use afterimage_handler::{Builtin, Mechanism};
use afterimage_perf_data::context;

use crate::support::*;

fn chain_of(record: &Seen) -> Vec<u64> {
    record.emit().callchain.iter().collect()
}

/// A chain without its markers and without the marker that stands twice in the plain mechanism.
fn frames(chain: &[u64]) -> Vec<u64> {
    chain.iter().copied().filter(|&word| !context::is_marker(word)).collect()
}

/// With `chain`, each sample is in both rings and says the same in both.
#[test]
fn emitted_records_equal_the_rings_samples() {
    let Some(_one) = alone("emitted_records_equal_the_rings_samples") else { return };
    for mechanism in mechanisms() {
        let mut event = Event::open(&page_faults(), gettid(), -1, 1024);
        let mut handlers = load(Builtin::Emit, true, mechanism);
        let mut outputs = outputs(1024);
        give_outputs(&mut handlers, &outputs);
        handlers.attach(0, event.fd.as_fd()).unwrap();
        let (user, kernel) = (Pages::new(500), Pages::new(100));
        event.enable();
        user.touch();
        kernel.touch_by_kernel();
        event.disable();
        let ring = event.drained().samples;
        let mut records: Vec<Seen> = outputs.iter_mut().flat_map(|o| o.drained().samples).collect();
        records.sort_by_key(|record| record.time);
        assert_eq!(ring.len(), records.len());
        assert!(ring.len() >= 600);
        for (sample, record) in ring.iter().zip(&records) {
            let emit = record.emit();
            assert_eq!((emit.pid, emit.tid, emit.period), (sample.pid, sample.tid, sample.period));
            assert_eq!((emit.hdr.ip, emit.hdr.cpu), (sample.ip, sample.cpu));
            assert_eq!(emit.hdr.generation, handlers.generation());
            match mechanism {
                Mechanism::Kfuncs => {
                    assert_eq!(emit.hdr.time, sample.time);
                    assert_eq!(chain_of(record), sample.chain);
                }
                Mechanism::Plain => {
                    assert_eq!(emit.hdr.time, 0);
                    assert_eq!(frames(&chain_of(record)), frames(&sample.chain));
                }
            }
        }
        let seen = total(&handlers);
        assert_eq!((seen.handled, seen.passed, seen.chained), (seen.emitted, seen.emitted, seen.emitted));
    }
}

/// Counting does not disturb what chains: the table and the ring hold the same samples.
#[test]
fn counted_entries_equal_the_rings_samples() {
    let Some(_one) = alone("counted_entries_equal_the_rings_samples") else { return };
    for mechanism in mechanisms() {
        let mut event = Event::open(&page_faults(), gettid(), -1, 1024);
        let mut handlers = load(Builtin::Count, true, mechanism);
        handlers.attach(0, event.fd.as_fd()).unwrap();
        let (user, kernel) = (Pages::new(500), Pages::new(100));
        event.enable();
        user.touch();
        kernel.touch_by_kernel();
        event.disable();
        let ring = event.drained().samples;
        let table = counts(&mut handlers);
        assert_eq!(total(&handlers).stored, ring.len() as u64);
        let mut left: Vec<(Counted, u64)> = table.into_iter().map(|entry| (entry.clone(), entry.count)).collect();
        for sample in &ring {
            let found = left.iter_mut().find(|(entry, count)| {
                *count > 0
                    && (entry.ip, entry.pid, entry.tid) == (sample.ip, sample.pid, sample.tid)
                    && frames(&entry.chain) == frames(&sample.chain)
                    && (mechanism == Mechanism::Plain || entry.chain == sample.chain)
            });
            let (entry, count) = found.unwrap_or_else(|| panic!("{mechanism:?}: {sample:x?} is in no entry"));
            if *count == entry.count && mechanism == Mechanism::Kfuncs {
                assert_eq!(entry.first_time, sample.time);
            }
            *count -= 1;
        }
        assert!(left.iter().all(|(_, count)| *count == 0));
    }
}

/// A handler ring of one page overflows, and every record that found no room is counted.
#[test]
fn a_full_handler_ring_is_counted() {
    let Some(_one) = alone("a_full_handler_ring_is_counted") else { return };
    for chain in [false, true] {
        let mut event = Event::open(&page_faults(), gettid(), -1, 1);
        let mut handlers = load(Builtin::Emit, chain, best());
        let mut outputs = outputs(1);
        give_outputs(&mut handlers, &outputs);
        handlers.attach(0, event.fd.as_fd()).unwrap();
        let pages = Pages::new(2000);
        event.enable();
        pages.touch();
        event.disable();
        let (count, lost) = event.read();
        let seen = total(&handlers);
        let delivered: u64 = outputs.iter_mut().map(|o| o.drained().samples.len() as u64).sum();
        assert!(seen.emit_lost > 0 && delivered > 0);
        assert_eq!(seen.emitted, delivered + seen.emit_lost);
        assert_eq!((seen.handled, seen.emitted), (count, count));
        assert_eq!(seen.passed, count, "lost by all that were meant to take it is passed too");
        let ring = event.drained().samples.len() as u64;
        assert_eq!(seen.chained, if chain { count } else { 0 });
        assert_eq!(seen.chained, ring + lost);
    }
}

/// Without a handler ring every record is lost, and the sample is not.
#[test]
fn a_missing_handler_ring_is_counted() {
    let Some(_one) = alone("a_missing_handler_ring_is_counted") else { return };
    let event = Event::open(&page_faults(), gettid(), -1, 1);
    let mut handlers = load(Builtin::Emit, false, best());
    handlers.attach(0, event.fd.as_fd()).unwrap();
    event.enable();
    Pages::new(100).touch();
    event.disable();
    let seen = total(&handlers);
    assert_eq!((seen.emitted, seen.emit_lost), (event.read().0, seen.handled));
}

/// A sampling ring of one page: what it has no room for, the kernel counts, and both make up what was chained.
#[test]
fn a_full_sampling_ring_adds_up() {
    let Some(_one) = alone("a_full_sampling_ring_adds_up") else { return };
    let mut event = Event::open(&page_faults(), gettid(), -1, 1);
    let mut handlers = load(Builtin::None, false, best());
    handlers.attach(0, event.fd.as_fd()).unwrap();
    let pages = Pages::new(2000);
    event.enable();
    pages.touch();
    event.disable();
    let (seen, (count, lost)) = (total(&handlers), event.read());
    assert!(lost > 0);
    assert_eq!((seen.handled, seen.chained), (count, count));
    assert_eq!(event.drained().samples.len() as u64 + lost, count);
}

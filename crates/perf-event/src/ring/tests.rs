#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;

use proptest::prelude::*;

use super::{DrainStats, Ring, RingErrorKind};
use crate::sys::fake::Memory;

fn ring(memory: &Arc<Memory>) -> Ring {
    let fd = std::fs::File::open("/dev/null").unwrap();
    Ring { fd: Arc::new(fd.into()), map: memory.mapping().unwrap(), scratch: Vec::new() }
}

/// A record of `len` bytes whose body tells records apart.
fn record(seed: u8, len: u16) -> Vec<u8> {
    let mut bytes = vec![9, 0, 0, 0, seed, 0];
    bytes.extend_from_slice(&len.to_ne_bytes());
    bytes.extend((8..len).map(|i| seed.wrapping_add(i as u8)));
    bytes
}

fn drain_all(ring: &mut Ring) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    ring.drain(ring.head(), &mut |r| out.push(r.to_vec())).unwrap();
    out
}

#[test]
fn every_record_comes_out_whole_at_every_offset_of_the_wrap() {
    const SIZE: usize = 256;
    for start in (0..SIZE as u64).step_by(8) {
        for len in (8..=SIZE as u16).step_by(8) {
            let memory = Memory::new(SIZE, start);
            let mut ring = ring(&memory);
            let sent = record(start as u8, len);
            assert!(memory.push(&sent));
            assert_eq!(drain_all(&mut ring), [sent], "start {start}, length {len}");
            assert!(ring.is_empty());
            assert_eq!(memory.word(1032).load(std::sync::atomic::Ordering::Relaxed), start + u64::from(len));
        }
    }
}

#[test]
fn positions_may_pass_the_end_of_u64() {
    let memory = Memory::new(128, u64::MAX - 31);
    let mut ring = ring(&memory);
    let sent = [record(1, 24), record(2, 24), record(3, 48)];
    assert!(sent.iter().all(|r| memory.push(r)));
    assert_eq!(drain_all(&mut ring), sent);
}

#[test]
fn a_drain_stops_at_the_snapshot() {
    let memory = Memory::new(128, 0);
    let mut ring = ring(&memory);
    assert!(memory.push(&record(1, 16)));
    let snapshot = ring.head();
    assert!(memory.push(&record(2, 16)));
    let mut seen = Vec::new();
    let stats = ring.drain(snapshot, &mut |r| seen.push(r[4])).unwrap();
    assert_eq!((seen.as_slice(), stats), (&[1][..], DrainStats { records: 1, bytes: 16 }));
    // An older snapshot asks for nothing, one beyond the head for what is there.
    assert_eq!(ring.drain(0, &mut |_| panic!("nothing was asked for")).unwrap().records, 0);
    assert_eq!(ring.drain(snapshot + 4096, &mut |r| seen.push(r[4])).unwrap().records, 1);
    assert_eq!(seen, [1, 2]);
}

#[test]
fn a_bad_size_is_told_and_the_ring_goes_on() {
    for size in [0u16, 4, 7, 12, 64, u16::MAX] {
        let memory = Memory::new(128, 0);
        let mut ring = ring(&memory);
        assert!(memory.push(&record(1, 16)));
        let mut bad = vec![9, 0, 0, 0, 0, 0];
        bad.extend_from_slice(&size.to_ne_bytes());
        bad.extend_from_slice(&[0; 16]);
        assert!(memory.push(&bad));
        let mut seen = 0;
        let error = ring.drain(ring.head(), &mut |_| seen += 1).unwrap_err();
        assert_eq!(error.kind, RingErrorKind::BadSize { size, left: 24 });
        assert_eq!((error.at, error.skipped, error.before.records, seen), (16, 24, 1, 1));
        assert!(memory.push(&record(5, 24)));
        assert_eq!(drain_all(&mut ring), [record(5, 24)]);
    }
}

#[test]
fn an_overrun_is_told_and_the_ring_goes_on() {
    let memory = Memory::new(64, 0);
    let mut ring = ring(&memory);
    memory.word(1024).store(72, std::sync::atomic::Ordering::Release);
    let error = ring.drain(72, &mut |_| panic!("nothing is sure")).unwrap_err();
    assert_eq!(error.kind, RingErrorKind::Overrun { filled: 72, size: 64 });
    assert!(memory.push(&record(5, 24)));
    assert_eq!(drain_all(&mut ring), [record(5, 24)]);
}

#[test]
fn a_control_page_that_lies_is_refused() {
    for (offset, size) in [(4096, 48), (4096, 8192), (u64::MAX, 64), (0, 64), (4100, 64), (4096, 0)] {
        let memory = Memory::new(4096, 0);
        memory.word(1040).store(offset, std::sync::atomic::Ordering::Relaxed);
        memory.word(1048).store(size, std::sync::atomic::Ordering::Relaxed);
        assert!(memory.mapping().is_none(), "offset {offset}, size {size}");
    }
    let memory = Memory::new(4096, 0);
    memory.word(1040).store(0, std::sync::atomic::Ordering::Relaxed);
    memory.word(1048).store(0, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(memory.mapping().expect("kernels before 4.1 told neither").data_size(), 4096);
}

#[test]
fn a_writer_beside_the_reader_loses_and_changes_nothing() {
    let memory = Memory::new(512, 0);
    let mut ring = ring(&memory);
    let writer = Arc::clone(&memory);
    let thread = std::thread::spawn(move || {
        for i in 0..20_000u32 {
            let len = 16 + (i % 12) as u16 * 8;
            let mut bytes = record(i as u8, len);
            bytes[8..12].copy_from_slice(&i.to_ne_bytes());
            while !writer.push(&bytes) {
                std::thread::yield_now();
            }
        }
    });
    let mut next = 0u32;
    while next < 20_000 {
        ring.drain(ring.head(), &mut |r| {
            assert_eq!(u32::from_ne_bytes(r[8..12].try_into().unwrap()), next);
            assert_eq!(r.len(), 16 + (next % 12) as usize * 8);
            assert_eq!(r[12..], record(next as u8, r.len() as u16)[12..]);
            next += 1;
        })
        .unwrap();
        std::thread::yield_now();
    }
    thread.join().unwrap();
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(
        start in 0u64..64,
        steps in prop::collection::vec((1u16..40, any::<u8>(), any::<bool>()), 1..200),
    ) {
        let memory = Memory::new(512, start * 8);
        let mut ring = ring(&memory);
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        for (words, seed, drain) in steps {
            let bytes = record(seed, words * 8);
            if memory.push(&bytes) {
                sent.push(bytes);
            }
            if drain {
                got.extend(drain_all(&mut ring));
            }
        }
        got.extend(drain_all(&mut ring));
        prop_assert_eq!(sent, got);
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..512), start in 0u64..64) {
        let memory = Memory::new(512, start * 8);
        let mut ring = ring(&memory);
        memory.push(&bytes);
        let head = ring.head();
        let mut total = 0;
        let result = ring.drain(head, &mut |r| total += r.len() as u64);
        let skipped = result.map_or_else(|e| e.skipped, |_| 0);
        prop_assert_eq!(total + skipped, bytes.len() as u64);
        prop_assert!(ring.is_empty());
    }
}

//! Nothing is allocated for a sample: of the same stacks, thousands of samples more cost no allocation each.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "common/forms.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod forms;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use afterimage_perf_data::{AnySource, FileReader, RecordStream};
use afterimage_profile::{AggregateOptions, Filters, Names, Numbers, Resolver, SortKey, Times, aggregate_from};
use common::{Recording, attr, event};
use forms::streamed;

/// Counts allocations.
struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
/// Tests count one after the other.
static ALONE: Mutex<()> = Mutex::new(());

// SAFETY: every call goes to the system's allocator unchanged, which keeps the contract; the counter allocates nothing.
// Memory belongs to whoever asked for it; nothing here keeps a pointer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on as they are.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(size as u64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const KERNEL: u64 = -128_i64 as u64;
const USER: u64 = -512_i64 as u64;

/// A recording of a process with 500 stacks, in rounds of a thousand samples.
fn recording(samples: u64) -> Vec<u8> {
    let mut r = Recording::new();
    r.comm(1, 7, "worker", true);
    r.mmap(2, 7, 0x40_0000, 0x10_0000, 0, "/nonexistent/worker");
    r.mmap(3, 7, 0x80_0000, 0x10_0000, 0, "/nonexistent/library");
    for i in 0..samples {
        let stack = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let (kernel, user) = (stack % 20, stack / 20 % 25);
        let ip = if kernel < 10 { u64::MAX - 0x10_0000 + kernel * 64 } else { 0x40_0000 + user * 16 };
        let inner = [KERNEL, ip, u64::MAX - 0x20_0000];
        let outer = [USER, 0x40_0000 + user * 16, 0x80_0000 + user * 16, 0x40_8000];
        let chain: Vec<u64> = if kernel < 10 { inner.into_iter().chain(outer).collect() } else { outer.into() };
        // Two CPUs, the one a little behind.
        r.chain(10 + i * 10 - i % 2 * 7, 7, ip, &chain);
        if i % 1000 == 999 {
            r.round();
        }
    }
    r.finish()
}

/// How many allocations a report of it takes, the opening left out, and how many samples are in it.
fn allocations(bytes: &[u8], keys: &[SortKey], chains: bool, filters: &Filters) -> (u64, u64) {
    let reader = FileReader::open_packed(bytes).unwrap();
    let mut source = match reader.is_pipe() {
        true => {
            let stream = RecordStream::new(&bytes[..4096], &bytes[4096..], reader.table().clone(), false);
            AnySource::Stream(Box::new(stream))
        }
        false => AnySource::File(reader.source()),
    };
    let filters = filters.clone();
    let options = AggregateOptions { sort: keys.into(), chains, filters, ..AggregateOptions::default() };
    let mut resolver = Resolver::new(&reader, Default::default());
    let before = COUNT.load(Ordering::Relaxed);
    let profile = aggregate_from(&reader, &mut source, &options, &mut resolver);
    (COUNT.load(Ordering::Relaxed) - before, profile.stats.samples)
}

/// What the rows of all events have in common is made once.
#[test]
fn rows_of_an_event_do_not_grow_with_those_of_others() {
    let _alone = ALONE.lock().unwrap();
    let events = (1..=200).map(|id| event(attr(), id, "cpu-clock")).collect();
    let mut r = Recording::of(events);
    r.mmap(1, 7, 0x40_0000, 0x10_0000, 0, "/nonexistent/worker");
    for i in 0..20_000 {
        r.chain_of(0, 10 + i, 7, 0x40_0000 + i, &[]);
    }
    (1..200).for_each(|event| r.chain_of(event, 30_000, 7, 0x40_0000, &[]));
    let bytes = r.finish();
    let reader = FileReader::open(&bytes).unwrap();
    let options = AggregateOptions { sort: vec![SortKey::Dso, SortKey::Addr], ..AggregateOptions::default() };
    let mut resolver = Resolver::new(&reader, Default::default());
    let profile = aggregate_from(&reader, &mut AnySource::File(reader.source()), &options, &mut resolver);
    assert_eq!((profile.events.len(), profile.rows(0).len()), (200, 20_000));
    let before = BYTES.load(Ordering::Relaxed);
    let rows: usize = (1..200).map(|event| profile.rows(event).len()).sum();
    let taken = BYTES.load(Ordering::Relaxed) - before;
    println!("{taken} bytes for {rows} rows of 199 events");
    // Numbers for 20,000 places alone are 80,000 bytes.
    assert!(rows == 199 && taken < 199 * 8_000, "{taken}");
}

#[test]
fn they_do_not_grow_with_the_samples() {
    let _alone = ALONE.lock().unwrap();
    let (few, many) = (recording(20_000), recording(200_000));
    let (few_streamed, many_streamed) = (streamed(&few), streamed(&many));
    let keys = [SortKey::Comm, SortKey::Dso, SortKey::Sym];
    let by_task = [SortKey::Pid, SortKey::Tid, SortKey::Cpu, SortKey::Sym];
    let more = [SortKey::Time, SortKey::LocalWeight, SortKey::Addr, SortKey::Sym];
    let none = Filters::default();
    let some = Filters {
        times: Some(Times::parse(",100").unwrap()),
        cpus: Some(Numbers::parse("0-3").unwrap()),
        pids: Some(Numbers::parse("7").unwrap()),
        comms: Some(Names::parse("/^work/").unwrap()),
        ..Filters::default()
    };
    // The first report finds the kernel's symbols.
    allocations(&few, &keys, true, &none);
    for (what, few, many) in [("file", &few, &many), ("stream", &few_streamed, &many_streamed)] {
        for (keys, chains, filters) in [
            (&keys[..], false, &none),
            (&keys, true, &none),
            (&by_task, true, &none),
            (&by_task, true, &some),
            (&more, false, &some),
        ] {
            let (first, samples) = allocations(few, keys, chains, filters);
            let (second, more) = allocations(many, keys, chains, filters);
            assert_eq!((samples, more), (20_000, 200_000));
            println!("{what}, stacks {chains}: {first} allocations for {samples} samples, {second} for {more}");
            // What is allocated is for rounds and for megabytes, not for samples.
            assert!(
                second <= first + (more - samples) / 1000,
                "{what}, stacks {chains}: {first} allocations, then {second}"
            );
        }
    }
}

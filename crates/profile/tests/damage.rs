//! Recordings cut, flipped and lied to: no panic, nothing that takes for ever, no memory beyond what the input is worth,
//! and a word or a count for what is wrong.
//!
//! A tenth of the cases by default, all with `AFTERIMAGE_LONG=1`. The seed is fixed, so that each case comes again.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;
#[path = "common/forms.rs"]
mod forms;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use afterimage_perf_data::record::kind;
use afterimage_perf_data::{AnySource, FileReader, RecordStream, stream};
use afterimage_profile::{
    AggregateOptions, Profile, ReplayOptions, Resolver, Sink, SortKey, State, TimedSample, aggregate_from, replay_from,
};
use afterimage_testkit::{Need, corpus, has};
use forms::{compressed, mixture, streamed};

/// Counts what is allocated and not given back, in bytes.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn taken(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator unchanged, which keeps the contract; the counters allocate nothing.
// Memory belongs to whoever asked for it; nothing here keeps a pointer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller's promises are passed on as they are.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        taken(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The counters are of the process: one test at a time.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// The most bytes that were allocated at once meanwhile.
fn most_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = work();
    (result, MOST.load(Ordering::Relaxed).saturating_sub(before))
}

/// splitmix64: the same numbers each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn source_of<'a>(bytes: &'a [u8], reader: &FileReader<'a>) -> AnySource<'a> {
    match (reader.is_compressed(), reader.is_pipe()) {
        (false, _) => AnySource::File(reader.source()),
        (true, false) => AnySource::Stream(Box::new(reader.unpacked())),
        (true, true) => {
            AnySource::Stream(Box::new(RecordStream::new(bytes, std::io::empty(), reader.table().clone(), true)))
        }
    }
}

/// What a report says, as numbers: samples, and whether it said that something was wrong.
fn report(bytes: &[u8]) -> (u64, bool) {
    let reader = match FileReader::open_packed(bytes) {
        Ok(reader) => reader,
        Err(_) => return (0, true),
    };
    let keys = [SortKey::Comm, SortKey::Dso, SortKey::Tid, SortKey::Cpu];
    let options = AggregateOptions { sort: keys.into(), chains: true, children: true, ..AggregateOptions::default() };
    let mut resolver = Resolver::new(&reader, Default::default());
    let profile: Profile = aggregate_from(&reader, &mut source_of(bytes, &reader), &options, &mut resolver);
    let rows: u64 =
        (0..profile.events.len()).map(|e| profile.rows(e).iter().map(|row| row.own.samples).sum::<u64>()).sum();
    let stats = &profile.stats;
    assert!(rows <= stats.samples.saturating_mul(2), "{rows} rows of {} samples", stats.samples);
    let told = !reader.problems().is_empty()
        || stats.error.is_some()
        || !stats.finished
        || stats.damaged + stats.undecodable + stats.unknown_event + stats.unknown_type + stats.kinds.private() > 0;
    (stats.samples, told)
}

/// Reads the bytes within the bounds that any input has.
fn bounded(bytes: &[u8], what: &str) -> (u64, bool) {
    let begun = Instant::now();
    let (result, most) = most_of(|| report(bytes));
    let limit = (16 * bytes.len()).max(64 << 20);
    assert!(most <= limit, "{what}: {most} bytes of memory for an input of {}", bytes.len());
    assert!(begun.elapsed() < Duration::from_secs(10), "{what}: took {:?}", begun.elapsed());
    result
}

/// How many cases of each kind.
fn cases() -> usize {
    if std::env::var_os("AFTERIMAGE_LONG").is_some_and(|value| value == "1") { 200 } else { 20 }
}

/// Where the records stand.
fn records(bytes: &[u8]) -> Vec<usize> {
    let Ok(reader) = FileReader::open_packed(bytes) else { return Vec::new() };
    reader.records().filter_map(|raw| Some(raw.ok()?.offset as usize)).collect()
}

/// All the damage for one recording. Gives how many cases there were.
fn damage(name: &str, good: &[u8], numbers: &mut Numbers) -> usize {
    let (whole, _) = bounded(good, name);
    let places = records(good);
    let mut done = 0;
    for _ in 0..cases() {
        let end = numbers.below(good.len());
        let (samples, told) = bounded(&good[..end], &format!("{name} cut at {end}"));
        assert!(samples <= whole, "{name} cut at {end}: {samples} samples");
        // A stream that was cut between two records is a shorter stream.
        assert!(told || places.contains(&end) || places.last().is_some_and(|last| end > *last), "{name} cut at {end}");

        let mut flipped = good.to_vec();
        let at = numbers.below(good.len());
        flipped[at] ^= 1 << numbers.below(8);
        bounded(&flipped, &format!("{name} flipped at {at}"));
        done += 2;
    }
    for size in [0_u16, 0xfff8, 13] {
        for _ in 0..cases() / 3 {
            let Some(at) = places.get(numbers.below(places.len())).copied() else { break };
            let mut lying = good.to_vec();
            let reader = FileReader::open_packed(good).unwrap();
            lying[at + 6..at + 8].copy_from_slice(&reader.endian().put_u16(size));
            let what = format!("{name}: size {size} at {at}");
            let (samples, told) = bounded(&lying, &what);
            assert!(told, "{what}: nothing is said");
            // One record is damaged: those far from it are read. A size that reaches further takes those with it.
            let compressed = reader.is_compressed();
            assert!(compressed || size > 13 || samples + 200 >= whole, "{what}: {samples} of {whole} samples");
            done += 1;
        }
    }
    done
}

#[test]
fn our_own_forms_in_pieces() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let file = mixture(600);
    let mut numbers = Numbers(7);
    for (name, bytes) in [
        ("file", file.clone()),
        ("stream", streamed(&file)),
        ("compressed", compressed(&file)),
        ("big", forms::swapped(&file)),
    ] {
        let done = damage(name, &bytes, &mut numbers);
        println!("{name}: {done} cases");
    }
}

#[test]
fn what_others_recorded_in_pieces() {
    if !has("what_others_recorded_in_pieces", &[Need::Corpus]) {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let mut numbers = Numbers(11);
    let (mut files, mut done) = (0, 0);
    for folder in std::fs::read_dir(corpus().unwrap()).unwrap().flatten().filter(|e| e.path().is_dir()) {
        for path in std::fs::read_dir(folder.path()).unwrap().flatten().map(|e| e.path()) {
            let bytes = std::fs::read(&path).unwrap();
            done += damage(&path.file_name().unwrap().to_string_lossy(), &bytes, &mut numbers);
            files += 1;
        }
    }
    println!("{files} files, {done} cases");
    assert!(files >= 27, "{files}");
}

/// A stream of any length: its records come again and again, later each time.
struct Endless {
    piece: Vec<u8>,
    at: usize,
    left: u64,
}

impl Read for Endless {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let from = &self.piece[self.at..];
        let n = from.len().min(to.len());
        to[..n].copy_from_slice(&from[..n]);
        self.at = (self.at + n) % self.piece.len();
        self.left = self.left.saturating_sub(n as u64);
        Ok(n)
    }
}

struct Count(u64);

impl Sink for Count {
    fn sample(&mut self, _: &State, _: &TimedSample<'_>) {
        self.0 += 1;
    }
}

/// Memory is that of what waits for its turn, not of what came.
#[test]
fn a_long_stream_needs_no_more_memory_than_a_short_one() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let stream_bytes = streamed(&mixture(3000));
    let reader = FileReader::open(&stream_bytes).unwrap();
    let first = reader.records().map(Result::unwrap).find(|raw| raw.header.kind < 64).unwrap().offset as usize;
    let head = &stream_bytes[..first];
    // Processes that come and go would be remembered; samples and rounds are not.
    let again = |kind: u32| matches!(kind, kind::SAMPLE | kind::FINISHED_ROUND);
    let records = reader.records().map(Result::unwrap).filter(|raw| again(raw.header.kind));
    let piece: Vec<u8> = records.flat_map(|raw| raw.bytes.to_vec()).collect();
    let read = |megabytes: u64| {
        most_of(|| {
            let from = Endless { piece: piece.clone(), at: 0, left: megabytes << 20 };
            let mut from = head.chain(from);
            let head = stream::read_head(&mut from, 1 << 30).unwrap();
            let reader = FileReader::open_packed(&head).unwrap();
            let stream = RecordStream::new(&head, from, reader.table().clone(), false);
            let mut count = Count(0);
            let mut source = AnySource::Stream(Box::new(stream));
            let stats = replay_from(&reader, &mut source, &ReplayOptions::default(), &mut count).stats;
            assert_eq!(stats.samples, count.0);
            count.0
        })
    };
    let ((few, short), (many, long)) = (read(4), read(40));
    println!("{few} samples: {short} bytes at most; {many} samples: {long} bytes");
    assert!(many > 9 * few, "{few} and {many} samples");
    assert!(long * 2 <= short * 3, "{long} bytes for ten times the stream that needs {short}");
}

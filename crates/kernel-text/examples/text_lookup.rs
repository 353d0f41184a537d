//! How many look-ups by address and time a second, and how many bytes a text:
//! `cargo run --release -p afterimage-kernel-text --example text_lookup`. `cargo xtask bench text-lookup` runs it.

use std::hint::black_box;
use std::time::Duration;

use afterimage_kernel_text::{Image, KSYMBOL_BPF, KsymChange, Loader, Timeline, Way};
use afterimage_perf_data::ImageId;

const TEXTS: u64 = 100_000;
const LOOKUPS: usize = 500_000;
/// Rounds, of which the best counts: short ones, so that one of them meets a quiet moment of the machine.
const ROUNDS: usize = 30;
const BASE: u64 = 0xffff_ffff_c000_0000;

/// The CPU time of this thread, which other load on the machine does not change much.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

/// xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// One text's place and life.
struct Known {
    start: u64,
    len: u64,
    born: u64,
    gone: u64,
}

/// Texts as a recording has them: each with a name, a program, a loader and an image. `starts` places, each used again
/// and again by texts of other lengths.
fn texts(starts: u64) -> (Timeline, Vec<Known>) {
    let mut timeline = Timeline::new();
    let mut known = Vec::new();
    let mut random = Random(88_172_645_463_325_252);
    let rounds = TEXTS / starts;
    for i in 0..TEXTS {
        let (start, round) = (BASE + i % starts * 512, i / starts);
        let len = 64 + random.below(400);
        let born = 1000 + round * 1_000_000 + i % starts;
        let gone = born + 900_000;
        let tag = random.below(u64::MAX);
        let name = format!("bpf_prog_{tag:016x}_measured");
        let change = |unregister| KsymChange {
            addr: start,
            len: len as u32,
            name: name.as_bytes(),
            ksym_type: KSYMBOL_BPF,
            unregister,
            origin: 7,
            loader: Some(Loader { pid: 4242, comm: "loader" }),
        };
        if let Some(text) = timeline.apply(born, &change(false)) {
            timeline.image(text, Image { id: ImageId([7; 16]), at: gone, way: Way::FreeTime, proven: true });
        }
        let program = afterimage_kernel_text::BpfProgram { id: i as u32 + 1, tag: tag.to_be_bytes() };
        timeline.program_loaded(born, 7, program);
        // The last ones live on.
        if round + 1 < rounds || rounds == 1 && i % 2 == 0 {
            timeline.apply(gone, &change(true));
        }
        known.push(Known { start, len, born, gone });
    }
    (timeline, known)
}

/// Asks for random texts at random places and times of their lives; answers how many were found.
fn measure(timeline: &Timeline, known: &[Known]) -> (f64, usize) {
    let mut random = Random(3_141_592_653_589_793_239);
    let questions: Vec<(u64, u64)> = (0..LOOKUPS)
        .map(|_| {
            let text = &known[random.below(known.len() as u64) as usize];
            (text.start + random.below(text.len), text.born + random.below(text.gone - text.born))
        })
        .collect();
    let mut best = f64::MAX;
    let mut found = 0;
    for _ in 0..ROUNDS {
        let start = cpu_time();
        found = questions.iter().filter(|(addr, time)| black_box(timeline.lookup(*addr, *time)).is_some()).count();
        best = best.min(cpu_time().saturating_sub(start).as_secs_f64());
    }
    (LOOKUPS as f64 / best / 1e6, found)
}

fn main() {
    println!("texts   starts  bytes/text  million look-ups/s  found");
    for starts in [100_000, 10_000, 1_000, 100] {
        let (timeline, known) = texts(starts);
        let bytes = timeline.heap_bytes() as f64 / timeline.len() as f64;
        let (rate, found) = measure(&timeline, &known);
        println!(
            "{:<7} {starts:<7} {bytes:<11.1} {rate:<19.1} {:.1}%",
            timeline.len(),
            100.0 * found as f64 / LOOKUPS as f64
        );
    }
    event_rate();
    baseline();
}

/// What the machine gives at this moment: a search by halves in a plain array of as many addresses.
fn baseline() {
    let array: Vec<u64> = (0..TEXTS).map(|i| BASE + i * 512).collect();
    let mut random = Random(3_141_592_653_589_793_239);
    let questions: Vec<u64> = (0..LOOKUPS).map(|_| BASE + random.below(TEXTS * 512)).collect();
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = cpu_time();
        black_box(questions.iter().map(|addr| array.partition_point(|start| start <= addr)).sum::<usize>());
        best = best.min(cpu_time().saturating_sub(start).as_secs_f64());
    }
    println!("{:.1} million searches/s in a plain sorted array of {TEXTS} addresses", LOOKUPS as f64 / best / 1e6);
}

/// What one change costs while all texts stay.
fn event_rate() {
    let start = cpu_time();
    let (timeline, _) = texts(10_000);
    let took = cpu_time().saturating_sub(start);
    println!(
        "{:.2} µs to take in one text (two records, a load and an image)",
        took.as_secs_f64() * 1e6 / timeline.len() as f64
    );
}

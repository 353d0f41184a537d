//! How much CPU time the tables take to build and to ask: `cargo run --release -p afterimage-symbols --example speed [OBJECT…]`.

use std::hint::black_box;
use std::time::Duration;

use afterimage_symbols::source::RealFiles;
use afterimage_symbols::{Finder, KernelTable, Request, SymbolTable};

/// The CPU time of this thread, which other load on the machine does not change much.
struct Instant(Duration);

impl Instant {
    fn now() -> Instant {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let nanos = stat.split(' ').next().and_then(|n| n.parse().ok());
        Instant(Duration::from_nanos(nanos.unwrap_or(0)))
    }

    fn elapsed(&self) -> Duration {
        Instant::now().0.saturating_sub(self.0)
    }
}

fn main() {
    let text = std::fs::read("/proc/kallsyms").unwrap_or_default();
    let start = Instant::now();
    let kernel = KernelTable::parse(&text);
    println!("kallsyms: {} symbols from {} KB parsed in {:.2?}", kernel.len(), text.len() / 1024, start.elapsed());
    let start = Instant::now();
    let bytes = kernel.encode();
    println!("kallsyms: encoded to {} KB in {:.2?}", bytes.len() / 1024, start.elapsed());
    let start = Instant::now();
    let back = KernelTable::decode(&bytes);
    println!("kallsyms: decoded in {:.2?}: {}", start.elapsed(), back.is_some());
    for turn in ["first", "second"] {
        let start = Instant::now();
        let running = KernelTable::running();
        println!("running kernel, {turn} time: {:.2?}: {}", start.elapsed(), running.is_ok());
    }
    rate("kernel, names", kernel.start(), kernel.end(), |addr| kernel.lookup(addr).is_some());
    rate("kernel, numbers", kernel.start(), kernel.end(), |addr| kernel.id_at(addr).is_some());
    for path in std::env::args().skip(1) {
        object(&path);
    }
}

fn object(path: &str) {
    let start = Instant::now();
    let mut finder = Finder::with(Box::new(RealFiles), None);
    let request = Request { path: path.as_bytes(), build_id: None, live: None };
    let table = match finder.find(&request) {
        Ok(table) => table,
        Err(reason) => return println!("{path}: {reason}"),
    };
    println!("{path}: {} symbols ({:?}) in {:.2?}", table.len(), table.origin(), start.elapsed());
    let bytes = table.encode();
    let start = Instant::now();
    let back = SymbolTable::decode(&bytes);
    println!("{path}: {} KB decoded in {:.2?}: {}", bytes.len() / 1024, start.elapsed(), back.is_some());
    let code = table.segments().iter().find(|s| s.executable);
    let (from, to) = code.map_or((0, 1), |s| (s.vaddr, s.vaddr + s.file_size.max(1)));
    rate(&format!("{path}, names"), from, to, |addr| table.lookup_vaddr(addr).is_some());
    rate(&format!("{path}, numbers"), from, to, |addr| table.id_of_vaddr(addr).is_some());
}

/// Look-ups a second at addresses in random order.
fn rate(what: &str, from: u64, to: u64, lookup: impl Fn(u64) -> bool) {
    const COUNT: u64 = 20_000_000;
    let span = (to - from).max(1);
    let mut state = 1u64;
    let start = Instant::now();
    let mut hits = 0u64;
    for _ in 0..COUNT {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        hits += u64::from(lookup(black_box(from + (state >> 16) % span)));
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{what}: {:.1} M look-ups/s, {:.1} % named",
        COUNT as f64 / seconds / 1e6,
        hits as f64 * 100.0 / COUNT as f64
    );
}

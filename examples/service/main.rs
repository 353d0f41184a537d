//! A service that samples its own threads while it works: which of them use the CPU, and whether in the kernel.
//!
//! ```sh
//! cargo run --example service                   # with the built-in handler `emit`
//! cargo run --example service -- seen.bpf.o     # with a handler of its own: see seen.bpf.c
//! ```
//!
//! It needs CAP_BPF and CAP_PERFMON. Nothing else of this machine is sampled, and no file is written.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use afterimage_handler::object::Object;
use afterimage_handler::{Builtin, Counters, Item, Sampler};

fn main() -> Result<(), Box<dyn Error>> {
    let object = match std::env::args_os().nth(1) {
        Some(path) => Some(Object::open(std::fs::read(path)?, None, &[])?),
        None => None,
    };
    let seen = watch(&Service::start(2), object, Duration::from_secs(1), &mut std::io::stdout().lock())?;
    println!("{} samples: {:?}, then {:?}", seen.counters.handled, seen.threads, seen.after);
    Ok(())
}

/// What was seen of the service.
pub(crate) struct Seen {
    /// How many items named each thread; of `emit` by number, of our own handler by name.
    pub(crate) threads: BTreeMap<String, u64>,
    /// Of the items, those after only one worker was asked for.
    pub(crate) after: BTreeMap<String, u64>,
    /// What became of all samples.
    pub(crate) counters: Counters,
}

/// Samples a service for some time and prints what the handler says; in the second half only of its first worker.
pub(crate) fn watch(
    service: &Service,
    object: Option<Object>,
    time: Duration,
    out: &mut dyn Write,
) -> Result<Seen, Box<dyn Error>> {
    let builder = Sampler::builder().event("cpu-clock").frequency(999).threads(&service.tids);
    let mut sampler = match object {
        Some(object) => builder.object(object).start()?,
        None => builder.handler(Builtin::Emit).start()?,
    };
    for note in sampler.notes() {
        writeln!(out, "note: {note}")?;
    }
    let threads = gather(&mut sampler, time / 2, out)?;
    // Which samples are wanted may change while sampling goes on.
    sampler.only(Some(&format!("tid == {}", service.tids[0])))?;
    gather(&mut sampler, Duration::ZERO, out)?;
    let after = gather(&mut sampler, time / 2, out)?;
    sampler.pause()?;
    Ok(Seen { threads, after, counters: sampler.counters() })
}

/// Empties the rings a few times a second, as a service would do it in its own loop.
fn gather(sampler: &mut Sampler, time: Duration, out: &mut dyn Write) -> Result<BTreeMap<String, u64>, Box<dyn Error>> {
    const TURNS: u32 = 5;
    let mut threads: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..TURNS {
        std::thread::sleep(time / TURNS);
        let mut written = Ok(());
        sampler.drain(|item| {
            *threads.entry(thread_of(item)).or_default() += 1;
            if written.is_ok() {
                written = writeln!(out, "{item}");
            }
        })?;
        written?;
    }
    Ok(threads)
}

fn thread_of(item: &Item<'_>) -> String {
    match item {
        Item::Value { value: Ok(value), .. } => value.field("thread").map_or_else(String::new, |name| name.bare()),
        item => item.tid().map_or_else(String::new, |tid| tid.to_string()),
    }
}

/// Some workers, until it is dropped.
pub(crate) struct Service {
    /// Their thread ids, in the order of their names.
    pub(crate) tids: Vec<u32>,
    stop: Arc<AtomicBool>,
    workers: Vec<JoinHandle<u64>>,
}

impl Service {
    /// Starts `workers` threads, each with a name of its own.
    pub(crate) fn start(workers: usize) -> Service {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, hear) = std::sync::mpsc::channel();
        let spawn = |number: usize| {
            let (stop, tell) = (Arc::clone(&stop), tell.clone());
            let work = move || {
                // The receiver lives until all have said who they are.
                let _ = tell.send((number, rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()));
                answer(&stop)
            };
            std::thread::Builder::new().name(format!("worker-{number}")).spawn(work)
        };
        let workers: Vec<_> = (0..workers).filter_map(|number| spawn(number).ok()).collect();
        // They may say so in any order.
        let tids: BTreeMap<usize, u32> = hear.into_iter().take(workers.len()).collect();
        let tids = tids.into_values().collect();
        Service { tids, stop, workers }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            // One that panicked has said so already.
            let _ = worker.join();
        }
    }
}

/// What a worker does all day.
fn answer(stop: &AtomicBool) -> u64 {
    static ANSWERED: AtomicU64 = AtomicU64::new(0);
    let mut sum = 0u64;
    while !stop.load(Ordering::Relaxed) {
        sum = (0..1000).fold(sum, |sum, n| std::hint::black_box(sum.rotate_left(7) ^ n));
        ANSWERED.fetch_add(1, Ordering::Relaxed);
    }
    sum
}

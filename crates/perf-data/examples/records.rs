//! Reads a recording, decodes every record, and prints how many of each type there are and how long one took.
//!
//! `cargo run --release -p afterimage-perf-data --example records -- perf.data`

use std::collections::BTreeMap;
use std::time::Instant;

use afterimage_perf_data::{FileReader, Record};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: records FILE")?;
    let bytes = std::fs::read(path)?;
    let file = FileReader::open(&bytes)?;
    for problem in file.problems() {
        eprintln!("{problem}");
    }
    let mut kinds = BTreeMap::<u32, u64>::new();
    let (mut records, mut addresses) = (0_u64, 0_u64);
    let start = Instant::now();
    for raw in file.records() {
        let raw = raw?;
        records += 1;
        *kinds.entry(raw.header.kind).or_default() += 1;
        if let Record::Sample(sample) = file.decode(&raw)? {
            addresses += sample.callchain.map_or(0, |c| c.len() as u64);
            std::hint::black_box((sample.time, sample.tid));
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / records.max(1) as f64;
    for (kind, count) in kinds {
        println!("type {kind:3}: {count}");
    }
    println!("{records} records, {addresses} addresses in callchains, {ns:.1} ns a record");
    Ok(())
}

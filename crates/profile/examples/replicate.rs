//! Makes a long recording out of a short one: `replicate IN OUT TIMES`. The samples are repeated, each time later by the
//! length of the recording; everything else stands once, as it was.

use std::fs::File;
use std::io::BufWriter;

use afterimage_perf_data::record::kind;
use afterimage_perf_data::{Endian, FileReader, FileWriter, SampleType};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (input, output) = (args.next().ok_or("no input")?, args.next().ok_or("no output")?);
    let times: u64 = args.next().ok_or("how many times?")?.parse()?;
    let bytes = std::fs::read(input)?;
    let reader = FileReader::open(&bytes)?;
    let place = |event: usize| {
        let bits = reader.events().get(event)?.attr.sample_type;
        let before = SampleType::IDENTIFIER | SampleType::IP | SampleType::TID;
        bits.contains(SampleType::TIME).then(|| 8 + 8 * bits.intersection(before).bits().count_ones() as usize)
    };
    let time_of = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, |b| Endian::Little.u64(b))
    };
    let (mut first, mut last) = (u64::MAX, 0);
    for raw in reader.records().filter_map(Result::ok).filter(|raw| raw.header.kind == kind::SAMPLE) {
        if let Some(at) = reader.event_for(&raw).and_then(place) {
            let time = time_of(raw.bytes, at);
            (first, last) = (first.min(time), last.max(time));
        }
    }
    let span = last.saturating_sub(first) + 1;
    let mut writer = FileWriter::create(BufWriter::new(File::create(output)?), reader.events())?;
    let mut samples = 0_u64;
    for round in 0..times {
        for raw in reader.records() {
            let raw = raw?;
            match raw.header.kind {
                kind::SAMPLE => {
                    let Some(at) = reader.event_for(&raw).and_then(place) else { continue };
                    let mut record = raw.bytes.to_vec();
                    let time = time_of(raw.bytes, at) + round * span;
                    record.splice(at..at + 8, time.to_le_bytes());
                    writer.write(&record)?;
                    samples += 1;
                }
                kind::FINISHED_ROUND => writer.finished_round()?,
                _ if round == 0 => writer.write(raw.bytes)?,
                _ => {}
            }
        }
    }
    let features = afterimage_perf_data::Features { private: None, ..reader.features().clone() };
    writer.finish(&features, None)?;
    println!("{samples} samples");
    Ok(())
}

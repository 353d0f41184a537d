//! With `--chain` a sample goes both ways, and can be matched with itself.

use std::collections::BTreeMap;

use afterimage_perf_data::{EmitPayload, FileReader, Record};
use afterimage_testkit::{Need, has, workload};

use crate::common::{file, folder, word};
use crate::helper::{beside, event, number, record, report, tally};

/// CPU, time and ip of a sample, which together are its own.
type Key = (u32, u64, u64);

#[test]
fn every_sample_is_in_both_outputs() {
    if !has("every_sample_is_in_both_outputs", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let (folder, split) = (folder(), workload::build().split);
    let path = file(&folder, "data");
    record(&path, &["-g", "-F", "4000", "-m", "512", "--handler", "emit", "--chain", "--", word(&split), "0.5"]);
    let sum = tally(&path).total();
    assert_eq!((sum.ring.lost, sum.handler_ring.lost), (0, 0), "{sum:?}");

    let bytes = std::fs::read(&path).unwrap();
    let reader = FileReader::open(&bytes).unwrap();
    let names: Vec<&str> = reader.events().iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names[..2], ["cpu-clock", "cpu-clock/emit"]);
    let (mut of_event, mut of_program) = (BTreeMap::<Key, u64>::new(), BTreeMap::<Key, u64>::new());
    for raw in reader.records() {
        let raw = raw.unwrap();
        let Record::Sample(sample) = reader.decode(&raw).unwrap() else { continue };
        match reader.event_for(&raw) {
            Some(0) => {
                let key = (sample.cpu.unwrap(), sample.time.unwrap(), sample.ip.unwrap());
                *of_event.entry(key).or_default() += 1;
            }
            Some(1) => {
                let emitted = EmitPayload::decode(sample.raw.unwrap()).unwrap();
                assert_eq!(Some(emitted.pid), sample.pid);
                *of_program.entry((emitted.hdr.cpu, emitted.hdr.time, emitted.hdr.ip)).or_default() += 1;
            }
            _ => (),
        }
    }
    let unmatched = of_event.iter().filter(|(key, n)| of_program.get(key) != Some(n)).count()
        + of_program.keys().filter(|key| !of_event.contains_key(key)).count();
    let samples: u64 = of_event.values().sum();
    println!("{samples} samples in both outputs, {unmatched} unmatched");
    assert_eq!(unmatched, 0);
    assert!(samples > 1000 && Some(samples) == sum.handled, "{samples}: {sum:?}");
}

#[test]
fn chained_counts_are_an_event_of_their_own() {
    if !has("chained_counts_are_an_event_of_their_own", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let (folder, split) = (folder(), workload::build().split);
    let path = file(&folder, "data");
    record(&path, &["-g", "-F", "4000", "-m", "512", "--handler", "count", "--chain", "--", word(&split), "0.5"]);
    let sum = tally(&path).total();
    let (report, _) = report(&path, &[]);
    let shown = |name: &str| number(&event(&report, name)["samples"]);
    println!("{sum:?}");
    assert_eq!((shown("cpu-clock"), shown("cpu-clock/count")), (sum.ring.delivered, sum.map.stored));
    assert_eq!((sum.chained, sum.counted), (sum.handled.unwrap(), sum.handled.unwrap()));
}

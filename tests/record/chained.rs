//! With `--chain` a sample goes both ways, and can be matched with itself.

use std::collections::{BTreeMap, BTreeSet};

use afterimage_perf_data::{EmitPayload, FileReader, Record};
use afterimage_testkit::{Need, guest, has, workload};

use crate::common::{file, folder, word};
use crate::helper::{beside, event, number, record, report, tally};

/// Time and ip of the samples of each CPU, in their order.
type ByCpu = BTreeMap<u32, Vec<(u64, u64)>>;

/// How many samples of one output are missing from the other. They are the same by CPU, time and ip; where the kernel
/// tells a program no time (6.1), by CPU, ip and order.
fn unmatched(of_event: &ByCpu, of_program: &ByCpu) -> usize {
    let timeless = of_program.values().flatten().all(|(time, _)| *time == 0);
    let keys = |side: &ByCpu, cpu: u32| -> Vec<(u64, u64)> {
        let mut keys = side.get(&cpu).cloned().unwrap_or_default();
        keys.sort_unstable_by_key(|(time, _)| *time);
        keys.iter().map(|(time, ip)| (if timeless { 0 } else { *time }, *ip)).collect()
    };
    let cpus: BTreeSet<u32> = of_event.keys().chain(of_program.keys()).copied().collect();
    let differ = |cpu: u32| {
        let (a, b) = (keys(of_event, cpu), keys(of_program, cpu));
        a.len().abs_diff(b.len()) + a.iter().zip(&b).filter(|(a, b)| a != b).count()
    };
    cpus.into_iter().map(differ).sum()
}

/// Samples a second of CPU time.
fn rate() -> &'static str {
    if guest().is_some() { "1000" } else { "4000" }
}

#[test]
fn every_sample_is_in_both_outputs() {
    if !has("every_sample_is_in_both_outputs", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let (folder, split) = (folder(), workload::build().split);
    let path = file(&folder, "data");
    record(&path, &["-g", "-F", rate(), "-m", "512", "--handler", "emit", "--chain", "--", word(&split), "0.5"]);
    let sum = tally(&path).total();
    assert_eq!((sum.ring.lost, sum.handler_ring.lost), (0, 0), "{sum:?}");

    let bytes = std::fs::read(&path).unwrap();
    let reader = FileReader::open(&bytes).unwrap();
    let names: Vec<&str> = reader.events().iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names[..2], ["cpu-clock", "cpu-clock/emit"]);
    let (mut of_event, mut of_program) = (ByCpu::new(), ByCpu::new());
    for raw in reader.records() {
        let raw = raw.unwrap();
        let Record::Sample(sample) = reader.decode(&raw).unwrap() else { continue };
        match reader.event_for(&raw) {
            Some(0) => {
                let of_cpu = of_event.entry(sample.cpu.unwrap()).or_default();
                of_cpu.push((sample.time.unwrap(), sample.ip.unwrap()));
            }
            Some(1) => {
                let emitted = EmitPayload::decode(sample.raw.unwrap()).unwrap();
                assert_eq!(Some(emitted.pid), sample.pid);
                of_program.entry(emitted.hdr.cpu).or_default().push((emitted.hdr.time, emitted.hdr.ip));
            }
            _ => (),
        }
    }
    let times = of_program.values().flatten().map(|(time, _)| *time);
    assert!(times.clone().all(|time| time == 0) || times.clone().all(|time| time != 0), "all have a time, or none has");
    assert_eq!(times.clone().all(|time| time == 0), guest().as_deref() == Some("6.1"));
    let unmatched = unmatched(&of_event, &of_program);
    let samples = of_event.values().flatten().count() as u64;
    println!("{samples} samples in both outputs, {unmatched} unmatched");
    assert_eq!(unmatched, 0);
    assert!(samples > 200 && Some(samples) == sum.handled, "{samples}: {sum:?}");
}

#[test]
fn chained_counts_are_an_event_of_their_own() {
    if !has("chained_counts_are_an_event_of_their_own", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let (folder, split) = (folder(), workload::build().split);
    let path = file(&folder, "data");
    record(&path, &["-g", "-F", rate(), "-m", "512", "--handler", "count", "--chain", "--", word(&split), "0.5"]);
    let sum = tally(&path).total();
    let (report, _) = report(&path, &[]);
    let shown = |name: &str| number(&event(&report, name)["samples"]);
    println!("{sum:?}");
    assert_eq!((shown("cpu-clock"), shown("cpu-clock/count")), (sum.ring.delivered, sum.map.stored));
    assert_eq!((sum.chained, sum.counted), (sum.handled.unwrap(), sum.handled.unwrap()));
}

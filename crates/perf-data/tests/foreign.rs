//! Recordings that others made, from many versions of perf and several machines. They are not part of the project: the
//! folder that `AFTERIMAGE_CORPUS` names holds them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use afterimage_perf_data::record::kind;
use afterimage_perf_data::{ErrorKind, FileReader, Record, RecordStream, Source};
use afterimage_testkit::{Need, corpus, has};

/// Name in the corpus, SAMPLE records in it.
const SEEKABLE: [(&str, usize); 19] = [
    ("autofdo/ro_sample.perf", 13),
    ("linux-perf-data/sleep.data", 7),
    ("perf_data_converter/perf.data.armv7-3.4", 3893),
    ("perf_data_converter/perf.data.branch-4.14", 13),
    ("perf_data_converter/perf.data.branch_stack_hw_index", 5),
    ("perf_data_converter/perf.data.busy.0-3.8", 4),
    ("perf_data_converter/perf.data.callgraph-3.8", 1768),
    ("perf_data_converter/perf.data.callgraph_and_branch-3.4", 923),
    ("perf_data_converter/perf.data.ctx_switch_namespaces-4.14", 2),
    ("perf_data_converter/perf.data.forkexit-3.8", 10335),
    ("perf_data_converter/perf.data.group_desc-4.14", 13),
    ("perf_data_converter/perf.data.hybrid_topology", 7),
    ("perf_data_converter/perf.data.i686-3.4", 703),
    ("perf_data_converter/perf.data.intel_pt-4.14", 15),
    ("perf_data_converter/perf.data.lost_samples-4.4", 191),
    ("perf_data_converter/perf.data.raw-3.4", 441),
    ("perf_data_converter/perf.data.remmap-3.2", 198),
    ("perf_data_converter/perf.data.throttle-3.8", 14980),
    ("perf_data_converter/perf.data.weight_struct", 14),
];

const PIPES: [(&str, usize); 4] = [
    ("perf_data_converter/perf.data.piped.ctx_switch_namespaces-4.14", 7),
    ("perf_data_converter/perf.data.piped.header_features_aligned-6.12", 9),
    ("perf_data_converter/perf.data.piped.hw_and_sw-3.4", 4275),
    ("perf_data_converter/perf.data.piped.lost_samples-4.4", 191),
];

/// The first has records of type 83, which perf 6.12 does not read: its count is what was found here.
const COMPRESSED: [(&str, usize); 3] = [
    ("linux-perf-data/fibo.compressed2.pipe.data", 547),
    ("linux-perf-data/sleep.compressed.data", 8),
    ("linux-perf-data/sleep.compressed.pipe.data", 8),
];

fn load(name: &str) -> Option<Vec<u8>> {
    std::fs::read(corpus()?.join(PathBuf::from(name))).ok()
}

/// Decodes every record; each must fit its event, and each SAMPLE must have an event.
fn read(name: &str, bytes: &[u8]) -> BTreeMap<u32, usize> {
    let file = FileReader::open(bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(file.finished(), "{name}");
    let problems: Vec<_> = file.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems, Vec::<String>::new(), "{name}");
    let mut kinds = BTreeMap::new();
    for raw in file.records() {
        let raw = raw.unwrap_or_else(|e| panic!("{name}: {e}"));
        *kinds.entry(raw.header.kind).or_insert(0) += 1;
        if raw.header.kind == kind::SAMPLE {
            assert!(file.event_for(&raw).is_some(), "{name}: a sample of no event at {}", raw.offset);
        }
        match file.decode(&raw) {
            Ok(Record::Unknown(unknown)) => panic!("{name}: record type {}", unknown.kind),
            Ok(_) => {}
            Err(e) => panic!("{name}: {e}"),
        }
    }
    kinds
}

#[test]
fn seekable() {
    if !has("seekable", &[Need::Corpus]) {
        return;
    }
    for (name, samples) in SEEKABLE {
        let bytes = load(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(read(name, &bytes).get(&kind::SAMPLE).copied().unwrap_or(0), samples, "{name}");
    }
}

/// Names from EVENT_DESC, from EVENT_UPDATE, or made from the attr where a stream has neither.
#[test]
fn event_names() {
    if !has("event_names", &[Need::Corpus]) {
        return;
    }
    let names = |name: &str| -> Vec<String> {
        let bytes = load(name).unwrap_or_else(|| panic!("{name} is missing"));
        FileReader::open(&bytes).unwrap().events().iter().map(|e| e.name.clone()).collect()
    };
    let of = |name: &str| names(&format!("perf_data_converter/perf.data.{name}"));
    assert_eq!(of("hybrid_topology"), ["cpu_core/cycles:ppp/", "cpu_atom/cycles:ppp/", "dummy:HG"]);
    assert_eq!(of("intel_pt-4.14"), ["intel_pt//", "cycles", "dummy:u", "dummy:u"]);
    assert_eq!(of("lost_samples-4.4"), ["cycles:pp", "instructions:pp", "branch-instructions:pp"]);
    assert_eq!(of("piped.hw_and_sw-3.4"), ["cycles", "branch-misses", "cpu-clock"]);
    assert_eq!(of("piped.ctx_switch_namespaces-4.14"), ["cycles"]);
}

#[test]
fn pipes() {
    if !has("pipes", &[Need::Corpus]) {
        return;
    }
    for (name, samples) in PIPES {
        let bytes = load(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(read(name, &bytes).get(&kind::SAMPLE).copied().unwrap_or(0), samples, "{name}");
    }
}

/// A record of size 0 in the middle: an error that names the place, between what stands before it and behind it.
#[test]
fn zero_size_record() {
    let name = "perf_data_converter/perf.data.piped.corrupted.zero_size_sample-3.2";
    if !has("zero_size_record", &[Need::Corpus]) {
        return;
    }
    let bytes = load(name).unwrap_or_else(|| panic!("{name} is missing"));
    let file = FileReader::open(&bytes).unwrap();
    let mut records = file.records();
    let all: Vec<_> = records.by_ref().collect();
    assert_eq!(records.skipped(), 48);
    let damage = all.iter().position(Result::is_err).unwrap();
    assert!(damage >= 569);
    let error = all[damage].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::BadSize, Some(49_104)));
    // The record itself was a sample of 48 bytes; the others are there.
    let behind: Vec<_> = all[damage + 1..].iter().map(|raw| raw.as_ref().unwrap()).collect();
    assert_eq!(behind[0].offset, 49_152);
    assert_eq!(behind.iter().filter(|raw| raw.header.kind == kind::SAMPLE).count(), 227);
    assert!(behind.iter().all(|raw| file.decode(raw).is_ok()));
}

#[test]
fn compressed() {
    if !has("compressed", &[Need::Corpus]) {
        return;
    }
    for (name, samples) in COMPRESSED {
        let bytes = load(name).unwrap_or_else(|| panic!("{name} is missing"));
        let error = FileReader::open(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}");
        let (counts, damaged) = unpacked(&bytes);
        assert_eq!((counts.get(&kind::SAMPLE).copied().unwrap_or(0), damaged), (samples, 0), "{name}");
        // A stream that is cut: what came before is kept, and the cause told where it is damage.
        let whole: usize = counts.values().sum();
        for end in (bytes.len() / 2..bytes.len()).step_by(1999) {
            if FileReader::open_packed(&bytes[..end]).is_ok_and(|file| file.is_compressed()) {
                let (cut, _) = unpacked(&bytes[..end]);
                assert!(cut.values().sum::<usize>() <= whole, "{name} up to {end}");
            }
        }
    }
}

/// The types of all records, those in compressed ones in place of these, and how many places were damaged.
fn unpacked(bytes: &[u8]) -> (BTreeMap<u32, usize>, usize) {
    let file = FileReader::open_packed(bytes).unwrap();
    let mut stream = match file.is_pipe() {
        true => RecordStream::new(bytes, std::io::empty(), file.table().clone(), true),
        false => file.unpacked(),
    };
    let (mut kinds, mut damaged) = (BTreeMap::new(), 0);
    while let Some(next) = stream.next_record() {
        let Ok(raw) = next else {
            damaged += 1;
            continue;
        };
        *kinds.entry(raw.header.kind).or_insert(0) += 1;
        let known = !matches!(file.decode(&raw), Ok(Record::Unknown(_)));
        assert!(known && !matches!(raw.header.kind, kind::COMPRESSED | kind::COMPRESSED2));
    }
    (kinds, damaged)
}

//! Kernel texts that a recording brings along: samples find them by address and time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use afterimage_kernel_text::Images;
use afterimage_perf_data::record::{Record, TextPoke};
use afterimage_perf_data::{Features, FileReader, ImageId, ImageUse, Private, TextDesc};
use afterimage_profile::{
    AggregateOptions, Key, Place, ReplayOptions, ResolveOptions, Resolver, Sink, SortKey, State, TimedSample,
    aggregate, replay,
};
use common::{Recording, id};

const ADDR: u64 = 0xffff_ffff_c000_0000;

fn text(number: u64, kind: &str, name: Option<&str>, born: Option<u64>, gone: Option<u64>) -> TextDesc {
    TextDesc {
        number,
        kind: kind.into(),
        name: name.map(Into::into),
        address: ADDR,
        length: Some(64),
        length_reported: (kind == "program").then_some(64),
        born_ns: born,
        gone_ns: gone,
        images: vec![ImageUse { image: ImageId::of(kind.as_bytes()), at_ns: 1, way: "free-time".into(), proven: true }],
        ..TextDesc::default()
    }
}

/// A program, then a classic one of which no record tells, then another program, all at one address; each is sampled.
fn recording() -> Vec<u8> {
    let mut r = Recording::new();
    r.ksymbol(10, ADDR, 64, "bpf_prog_1_a", false);
    r.sample(15, 7, ADDR + 8);
    r.ksymbol(20, ADDR, 64, "bpf_prog_1_a", true);
    r.sample(25, 7, ADDR + 8);
    r.sample(35, 7, ADDR + 8);
    r.sample(36, 7, ADDR + 8);
    r.ksymbol(40, ADDR, 64, "bpf_prog_2_b", false);
    r.sample(45, 7, ADDR + 8);
    r.record(0, &Record::TextPoke(TextPoke { addr: ADDR, old: b"p", new: b"P", misc: 1, id: id(7, 50) }));
    let private = Private {
        texts: vec![
            text(0, "program", Some("bpf_prog_1_a"), Some(10), Some(20)),
            text(1, "cbpf", None, Some(30), Some(38)),
            text(2, "program", Some("bpf_prog_2_b"), Some(40), None),
        ],
        images: [b"program".as_slice(), b"cbpf"].map(|bytes| (ImageId::of(bytes), bytes.to_vec())).into(),
        ..Private::default()
    };
    r.finish_with(&Features::default(), Some(&private))
}

/// Where each sample lies: by its time, and for one who ignores times.
#[derive(Default)]
struct Places(Vec<(u64, Option<u64>, Option<u64>)>);

impl Sink for Places {
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>) {
        let loc = state.locate(sample.process, sample.mode(), sample.ip);
        let by_time = state.text_of(loc).filter(|_| matches!(loc.place, Place::Text(_)));
        let offset = by_time.map(|(_, offset)| offset);
        assert!(offset.is_none_or(|offset| offset == 8), "{offset:?}");
        let number = |id: afterimage_kernel_text::TextId| id.index() as u64;
        let last = state.kernel().lookup_now(sample.ip).map(|hit| number(hit.text));
        self.0.push((sample.time.unwrap(), by_time.map(|(id, _)| number(id)), last));
    }
}

#[test]
fn each_sample_finds_the_text_of_its_time() {
    let bytes = recording();
    let reader = FileReader::open(&bytes).unwrap();
    let mut places = Places::default();
    let replayed = replay(&reader, &ReplayOptions::default(), &mut places);
    let by_time: Vec<_> = places.0.iter().map(|(time, text, _)| (*time, *text)).collect();
    assert_eq!(by_time, [(15, Some(0)), (25, None), (35, Some(1)), (36, Some(1)), (45, Some(2))]);
    // A look-up that ignores time names the last one for all of them.
    assert!(places.0.iter().all(|(_, _, last)| *last == Some(2)), "{:?}", places.0);
    assert_eq!(places.0.iter().filter(|(_, by_time, last)| by_time == last).count(), 1);

    // The records told of nothing that the texts had not told of.
    let kernel = replayed.state.kernel();
    assert_eq!(kernel.describe(), reader.private().unwrap().texts);
    let images = Images::from(&reader.private().unwrap().images);
    assert_eq!(kernel.bytes(&images, ADDR, 4, 35).unwrap(), b"cbpf");
    assert_eq!(kernel.bytes(&images, ADDR, 4, 45).unwrap(), b"prog");
    assert_eq!(kernel.bytes(&images, ADDR, 4, 50).unwrap(), b"Prog", "a record changed it");
    assert_eq!(kernel.bytes(&images, ADDR, 4, 15).unwrap(), b"prog");
}

/// Equal stacks at different times are not taken for one another.
#[test]
fn the_profile_keeps_them_apart() {
    let bytes = recording();
    let reader = FileReader::open(&bytes).unwrap();
    let mut resolver = Resolver::new(&reader, ResolveOptions { kallsyms: Some(Vec::new()), ..Default::default() });
    let options = AggregateOptions { sort: vec![SortKey::Sym], ..AggregateOptions::default() };
    let profile = aggregate(&reader, &options, &mut resolver);
    let mut rows: Vec<(String, u64)> = Vec::new();
    for row in profile.rows(0) {
        for key in &row.keys {
            let Key::Sym(frame) = key else { panic!("{key:?}") };
            rows.push((frame.name().into_owned(), row.own.samples));
        }
    }
    rows.sort();
    let expected = [("0xffffffffc0000008", 1), ("[cbpf]", 2), ("bpf_prog_1_a", 1), ("bpf_prog_2_b", 1)];
    assert_eq!(rows, expected.map(|(name, samples)| (name.to_owned(), samples)));
}

//! Recordings that nobody here made: as many samples come out as perf finds.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use afterimage_perf_data::{ErrorKind, FileReader};
use afterimage_profile::{
    AggregateOptions, ReplayOptions, Resolver, Sink, SortKey, State, TimedSample, aggregate, replay,
};
use afterimage_testkit::{Need, corpus, has};

struct Count(u64);

impl Sink for Count {
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>) {
        state.walk(sample, |_| {});
        self.0 += 1;
    }
}

/// Rows `| file | what it is | samples |` of the corpus' index. Where perf gives up, the number is followed by why.
fn listed(index: &str) -> Vec<(String, Option<u64>)> {
    let rows = index.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| file"));
    rows.filter_map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        Some(((*cells.first()?).to_owned(), cells.last()?.parse().ok()))
    })
    .filter(|(file, _)| file.contains('/'))
    .collect()
}

#[test]
fn as_many_samples_as_perf_finds() {
    if !has("as_many_samples_as_perf_finds", &[Need::Corpus]) {
        return;
    }
    let folder = corpus().unwrap();
    let listed = listed(&std::fs::read_to_string(folder.join("INDEX.md")).unwrap());
    assert!(listed.len() > 20, "{listed:?}");
    let mut compared = 0;
    for (file, samples) in listed {
        let bytes = std::fs::read(folder.join(&file)).unwrap();
        let reader = match FileReader::open(&bytes) {
            Ok(reader) => reader,
            Err(error) if error.kind() == ErrorKind::Unsupported => continue,
            Err(error) => panic!("{file}: {error}"),
        };
        let mut count = Count(0);
        let stats = replay(&reader, &ReplayOptions::default(), &mut count).stats;
        assert_eq!(count.0, stats.samples, "{file}");
        // perf makes samples out of hardware traces, which are not read here.
        let traced = file.contains("intel_pt");
        if let (Some(samples), false) = (samples, traced) {
            assert_eq!(stats.samples, samples, "{file}: {stats:?}");
            assert_eq!(stats.undecodable, 0, "{file}: {stats:?}");
            compared += 1;
        }
        let keys = [SortKey::Comm, SortKey::Dso, SortKey::Sym, SortKey::Tid, SortKey::Cpu];
        let options =
            AggregateOptions { sort: keys.into(), chains: true, children: true, ..AggregateOptions::default() };
        let profile = aggregate(&reader, &options, &mut Resolver::new(&reader, Default::default()));
        let of_events: u64 = profile.events.iter().map(|event| event.total.samples).sum();
        assert_eq!(of_events, stats.samples, "{file}");
        for (index, event) in profile.events.iter().enumerate() {
            let rows = profile.rows(index);
            let own: u64 = rows.iter().map(|row| row.own.samples).sum();
            assert_eq!(own, event.total.samples, "{file}: the rows add up to the event");
        }
    }
    assert!(compared >= 20, "{compared}");
}

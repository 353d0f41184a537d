//! Reading ahead on another thread gives what reading on one gives.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "common/forms.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod forms;

use afterimage_perf_data::{AnySource, FileReader, PartsSource};
use afterimage_profile::{ReplayOptions, ReplayStats, replay, replay_from};
use common::Lines;
use forms::mixture;

/// All samples and counts, read by one thread.
fn alone(bytes: &[u8], options: &ReplayOptions) -> (Vec<String>, String) {
    let reader = FileReader::open(bytes).unwrap();
    let mut lines = Lines::default();
    let mut source = AnySource::Parts(PartsSource::new(bytes, reader.records(), &[]));
    let stats = replay_from(&reader, &mut source, options, &mut lines).stats;
    (lines.0, told(&stats))
}

/// The same by two.
fn ahead(bytes: &[u8], options: &ReplayOptions) -> (Vec<String>, String) {
    let reader = FileReader::open(bytes).unwrap();
    let mut lines = Lines::default();
    let stats = replay(&reader, options, &mut lines).stats;
    (lines.0, told(&stats))
}

/// An error without the name of the part that it was found in.
fn told(stats: &ReplayStats) -> String {
    format!("{stats:?}").replace("data file 0, ", "")
}

fn compared(bytes: &[u8], options: &ReplayOptions, what: &str) -> usize {
    let ((one, one_stats), (two, two_stats)) = (alone(bytes, options), ahead(bytes, options));
    assert!(one == two, "{what}: {} and {} samples", one.len(), two.len());
    assert_eq!(one_stats, two_stats, "{what}");
    one.len()
}

#[test]
fn two_threads_see_what_one_sees() {
    let whole = mixture(60_000);
    assert!(whole.len() > 6 << 20, "{}", whole.len());
    let usual = ReplayOptions::default();
    let samples = compared(&whole, &usual, "whole");
    assert_eq!(samples, 60_000 + 20_000);
    let mut damaged = whole.clone();
    for nth in 1..20 {
        let at = nth * whole.len() / 21;
        damaged[at..at + 40].fill(0xff);
    }
    let left = compared(&damaged, &usual, "damaged");
    assert!(left < samples && left > samples / 2, "{left}");
    let cut = &whole[..whole.len() - whole.len() / 10];
    compared(cut, &usual, "cut");
    // Rounds that do not fit: the older half goes.
    let few = ReplayOptions { max_pending: 7, ..ReplayOptions::default() };
    compared(&whole, &few, "few at a time");
}

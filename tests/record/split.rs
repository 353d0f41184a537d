//! A program whose split of CPU time is known comes out of each handler as it ran.

use std::collections::BTreeMap;
use std::path::Path;

use afterimage_testkit::workload::{self, Split};
use afterimage_testkit::{Need, has};

use crate::common::{file, folder, stdout, text, word};
use crate::helper::{alone, record, tally};

/// Functions of the program itself; what the C library adds around them depends on its build.
const OWN: [&str; 10] = [
    "main",
    "half",
    "execute_again",
    "thread_body",
    "recursion_level",
    Split::PAIR[0],
    Split::PAIR[1],
    Split::RECURSION,
    Split::LIBRARY,
    Split::CHILD,
];

/// What one recording says: the weight of each stack of the program's own frames, outermost first.
struct Seen {
    truth: Split,
    stacks: BTreeMap<Vec<String>, f64>,
}

impl Seen {
    fn total(&self) -> f64 {
        self.stacks.values().sum()
    }

    fn percent(&self, keep: impl Fn(&[String]) -> bool) -> f64 {
        100.0 * self.stacks.iter().filter(|(stack, _)| keep(stack)).map(|(_, weight)| weight).sum::<f64>()
            / self.total()
    }
}

fn own_frames(stack: &str) -> Vec<String> {
    stack.split(';').filter(|frame| OWN.contains(frame)).map(str::to_owned).collect()
}

fn seen(path: &Path, seconds: &str, handler: &str) -> Seen {
    let workload = workload::build();
    let split = workload.split.to_str().unwrap();
    let output = record(path, &["-F", "4000", "-g", "--handler", handler, "--", split, seconds]);
    let truth = Split::parse(stdout(&output).as_bytes()).unwrap();
    let sum = tally(path).total();
    println!("{handler}: {}", sum.human());
    assert_eq!((sum.ring.lost, sum.handler_ring.lost, sum.map.lost.total()), (0, 0, 0));
    let mut stacks = BTreeMap::new();
    for line in text(&["export", "--format", "folded", "-i", word(path)]).lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        *stacks.entry(own_frames(stack)).or_insert(0.0) += weight.parse::<f64>().unwrap();
    }
    Seen { truth, stacks }
}

#[test]
fn each_handler_finds_the_known_split() {
    if !has("each_handler_finds_the_known_split", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = alone();
    // The long form has the 10,000 samples that the narrow limits are for.
    let long = std::env::var_os("AFTERIMAGE_LONG").is_some();
    // An emulated machine's clocks and timers are not so exact.
    let emulated = afterimage_testkit::guest().is_some();
    let (seconds, points, least) = match (long, emulated) {
        (true, _) => ("2.8", 2.0, 0.5),
        (false, false) => ("0.7", 3.0, 1.0),
        (false, true) => ("0.7", 6.0, 2.0),
    };
    let folder = folder();
    let all: Vec<(&str, Seen)> = ["none", "emit", "count"]
        .into_iter()
        .map(|handler| (handler, seen(&file(&folder, handler), seconds, handler)))
        .collect();
    for (handler, seen) in &all {
        let known = seen.percent(|stack| stack.iter().any(|frame| seen.truth.functions().any(|f| f == frame)));
        for function in seen.truth.functions() {
            let share = 100.0 * seen.percent(|stack| stack.iter().any(|frame| frame == function)) / known;
            let truth = seen.truth.percent(function);
            println!("{handler}: {function} {share:.2} % of {truth:.2} %");
            assert!((share - truth).abs() <= points, "{handler}: {function} {share} %, in truth {truth} %");
        }
        let deep = seen.percent(|s| s.iter().filter(|f| *f == "recursion_level").count() == Split::DEPTH);
        let leaf = seen.percent(|s| s.iter().any(|f| f == Split::RECURSION));
        assert!((deep - leaf).abs() < 0.5, "{handler}: {leaf} % in the recursion, {deep} % at its whole depth");
    }
    let mut compared = 0;
    for (of, one) in &all {
        for (stack, weight) in one.stacks.iter().filter(|(_, weight)| **weight >= one.total() * least / 100.0) {
            for (in_other, other) in &all {
                assert!(other.stacks.contains_key(stack), "{of} has {weight} of {stack:?}, {in_other} has none");
                compared += 1;
            }
        }
    }
    println!("{compared} stacks compared");
    assert!(compared >= 5 * 9, "{compared}");
}

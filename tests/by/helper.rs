//! What the tests of `record --by` share: turns on the machine, runs, and what their JSON says.

use std::process::Output;
use std::sync::{Mutex, MutexGuard, PoisonError};

use afterimage_perf_data::Tally;
use serde_json::Value;

use crate::common::{run, stderr, stdout};

/// One at a time: a program that runs on a CPU keeps others from running there.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `record --by KEYS --json` with some words, which has to end with 0. Each readout, checked: its rows add up to what the
/// kernel counted, and every line of the tally holds.
pub(crate) fn readouts(keys: &str, words: &[&str]) -> (Vec<Value>, Output) {
    let output = run(&[&["record", "--by", keys, "--json"][..], words].concat());
    assert_eq!(output.status.code(), Some(0), "--by {keys} {words:?}: {}", stderr(&output));
    let readouts: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    check(&readouts);
    (readouts, output)
}

fn check(readouts: &[Value]) {
    let last = readouts.last().expect("a last readout");
    let mut until = None;
    for (nth, readout) in readouts.iter().enumerate() {
        assert_eq!(readout["schema"], "afterimage/by/1");
        assert_eq!(readout["last"], nth + 1 == readouts.len());
        let (from, to) = (number(&readout["from_ns"]), number(&readout["to_ns"]));
        assert!(from <= to && until.is_none_or(|until| until == from), "{nth}: {from} to {to} after {until:?}");
        until = Some(to);
        for event in readout["events"].as_array().unwrap() {
            let sum: u64 = rows(event).iter().map(|row| number(&row["samples"])).sum();
            assert_eq!(number(&event["samples"]), sum);
        }
    }
    for (index, event) in last["events"].as_array().unwrap().iter().enumerate() {
        let tally: Tally = serde_json::from_value(event["tally"].clone()).unwrap();
        assert_eq!(tally.check(), Ok(()));
        let shown: u64 = readouts.iter().map(|readout| number(&readout["events"][index]["samples"])).sum();
        assert_eq!(shown, tally.map.stored, "{tally:?}");
        let others = tally.filtered.unwrap_or(0) + tally.dropped.unwrap_or(0);
        assert_eq!((tally.handled, tally.chained), (Some(tally.counted + others), 0), "{tally:?}");
    }
}

/// The last one of those.
pub(crate) fn readout(keys: &str, words: &[&str]) -> Value {
    let (readouts, _) = readouts(keys, words);
    assert_eq!(readouts.len(), 1);
    readouts.into_iter().next().unwrap()
}

/// The rows of an event.
pub(crate) fn rows(event: &Value) -> &[Value] {
    event["rows"].as_array().unwrap()
}

/// A number of an object.
pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Samples of the rows for which something holds.
pub(crate) fn samples_where(rows: &[Value], holds: impl Fn(&Value) -> bool) -> u64 {
    rows.iter().filter(|row| holds(row)).map(|row| number(&row["samples"])).sum()
}

/// The names of a stack, innermost first; what has none is `?`.
pub(crate) fn names(stack: &Value) -> Vec<&str> {
    stack.as_array().unwrap().iter().map(|frame| frame["sym"].as_str().unwrap_or("?")).collect()
}

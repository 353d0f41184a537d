//! What tests read from `annotate --json`.

use std::path::Path;

use serde_json::Value;

use crate::common::{run, stderr, text, word};

/// Annotates and expects exit 0.
pub(crate) fn annotate(path: &Path, words: &[&str]) -> Value {
    let output = run(&[&["annotate", "--json", "-i", word(path)][..], words].concat());
    assert_eq!(output.status.code(), Some(0), "annotate {words:?}: {}", stderr(&output));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["schema"], "afterimage/annotate/1");
    value
}

/// The only symbol of an annotation.
pub(crate) fn only(value: &Value) -> &Value {
    let all = value["symbols"].as_array().unwrap();
    assert_eq!(all.len(), 1, "{:?}", all.iter().map(|symbol| &symbol["name"]).collect::<Vec<_>>());
    &all[0]
}

/// Its instructions.
pub(crate) fn lines(symbol: &Value) -> &[Value] {
    symbol["lines"].as_array().unwrap()
}

/// All bytes of its instructions, one after the other.
pub(crate) fn bytes(symbol: &Value) -> Vec<u8> {
    let hex: String = lines(symbol).iter().map(|line| line["bytes"].as_str().unwrap()).collect();
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap()).collect()
}

/// Samples of the first event at each instruction.
pub(crate) fn samples(symbol: &Value) -> Vec<u64> {
    lines(symbol).iter().map(|line| line["events"][0]["samples"].as_u64().unwrap()).collect()
}

/// Percentages of the first event.
pub(crate) fn percents(symbol: &Value) -> f64 {
    lines(symbol).iter().map(|line| line["events"][0]["percent"].as_f64().unwrap()).sum()
}

/// Samples at instructions of a line of the source.
pub(crate) fn samples_of_line(symbol: &Value, line: u64) -> u64 {
    let own = |row: &&Value| row["source"].as_array().unwrap().iter().any(|origin| origin["line"] == line);
    lines(symbol).iter().filter(own).map(|row| row["events"][0]["samples"].as_u64().unwrap()).sum()
}

/// The text form, which has to end with 0.
pub(crate) fn plain(path: &Path, words: &[&str]) -> String {
    text(&[&["annotate", "-i", word(path)][..], words].concat())
}

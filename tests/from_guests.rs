//! Recordings made in guests, read here: `AFTERIMAGE_FROM_GUESTS` names the folder in which each guest left its files.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use afterimage_testkit::{Need, has};
use serde_json::Value;

/// The folder of each guest that left recordings.
fn guests() -> Vec<PathBuf> {
    let all = PathBuf::from(std::env::var_os("AFTERIMAGE_FROM_GUESTS").unwrap());
    let folders = fs::read_dir(&all).unwrap().map(|entry| entry.unwrap().path().join("recordings"));
    let found: Vec<PathBuf> = folders.filter(|folder| folder.is_dir()).collect();
    assert!(!found.is_empty(), "no recordings below {}", all.display());
    found
}

fn report(path: &Path) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_afterimage"))
        .args(["report", "--json", "--sort", "dso,sym", "-i"])
        .arg(path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Samples by symbol of the kernel and its modules.
fn of_the_kernel(report: &Value) -> BTreeMap<String, u64> {
    let mut by_symbol = BTreeMap::new();
    for row in report["events"].as_array().unwrap().iter().flat_map(|event| event["rows"].as_array().unwrap()) {
        let dso = row["dso"].as_str().unwrap();
        if dso.starts_with('[') && dso != "[unknown]" && dso != "[vdso]" {
            // What has no name has its address instead.
            let symbol = row["sym"].as_str().or(row["address"].as_str()).unwrap_or_else(|| panic!("{row}"));
            *by_symbol.entry(symbol.to_owned()).or_default() += row["samples"].as_u64().unwrap();
        }
    }
    by_symbol
}

fn is_named(symbol: &str) -> bool {
    !symbol.starts_with("0x") && symbol != "[unknown]"
}

/// The recording brings the names of its kernel along: what the guest saw is what is seen here.
#[test]
fn a_recording_of_a_guest_has_the_names_of_the_guest() {
    if !has("a_recording_of_a_guest_has_the_names_of_the_guest", &[Need::FromGuests]) {
        return;
    }
    for folder in guests() {
        let kallsyms = fs::read_to_string(folder.join("kallsyms")).unwrap();
        for handler in ["none", "emit", "count"] {
            let there: Value =
                serde_json::from_slice(&fs::read(folder.join(format!("{handler}.json"))).unwrap()).unwrap();
            let (there, here) =
                (of_the_kernel(&there), of_the_kernel(&report(&folder.join(format!("{handler}.data")))));
            let named = here.keys().filter(|symbol| is_named(symbol)).count();
            println!("{} {handler}: {} kernel symbols, {named} with names", folder.display(), here.len());
            assert_eq!(here, there);
            assert!(named >= 5, "{here:?}");
            for symbol in here.keys().filter(|symbol| is_named(symbol) && !symbol.starts_with("bpf_")) {
                assert!(kallsyms.contains(&format!(" {symbol}")), "{symbol} is a symbol of the guest");
            }
        }
    }
}

/// Without them, there is no name at all: never one of the kernel that runs here.
#[test]
fn a_killed_recording_of_a_guest_has_no_names_of_this_kernel() {
    if !has("a_killed_recording_of_a_guest_has_no_names_of_this_kernel", &[Need::FromGuests]) {
        return;
    }
    for folder in guests() {
        let report = report(&folder.join("killed.data"));
        let symbols = of_the_kernel(&report);
        println!("{}: {} addresses of the kernel", folder.display(), symbols.len());
        assert!(!symbols.is_empty(), "{report}");
        let named: Vec<&String> = symbols.keys().filter(|s| is_named(s) && !s.starts_with("bpf_")).collect();
        assert!(named.is_empty(), "{named:?}");
        let reasons = report["unresolved"].as_array().unwrap();
        assert!(reasons.iter().any(|r| r["reason"].as_str().unwrap().contains("kernel")), "{reasons:?}");
    }
}

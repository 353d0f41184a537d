//! Recordings made in guests, read here: `AFTERIMAGE_FROM_GUESTS` names the folder in which each guest left its files.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use afterimage_perf_data::{FileReader, TextDesc};
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

/// Text of a guest that is long gone: trampolines, a module, pages of probes, programs. Each is annotated here, from what
/// the recording kept, with the names of the guest.
#[test]
fn text_of_a_guest_is_annotated_here() {
    if !has("text_of_a_guest_is_annotated_here", &[Need::FromGuests]) {
        return;
    }
    let all = PathBuf::from(std::env::var_os("AFTERIMAGE_FROM_GUESTS").unwrap());
    let mut kinds = BTreeMap::<String, (u32, u32)>::new();
    for guest in fs::read_dir(&all).unwrap().map(|entry| entry.unwrap().path().join("texts")) {
        let Ok(files) = fs::read_dir(&guest) else { continue };
        for path in files.map(|file| file.unwrap().path()) {
            let bytes = fs::read(&path).unwrap();
            let reader = FileReader::open(&bytes).unwrap();
            let private = reader.private().unwrap();
            // A few of each kind: some loads bring thousands.
            let mut seen = BTreeMap::<&str, u32>::new();
            for text in private.texts.iter().filter(|text| text.kind != "kernel" && text.name.is_some()) {
                let count = seen.entry(&text.kind).or_default();
                *count += 1;
                if *count <= 5 {
                    let annotated = annotated(&path, text);
                    let (with, without) = kinds.entry(text.kind.clone()).or_default();
                    *if annotated { with } else { without } += 1;
                }
            }
        }
    }
    println!("annotated with and without code: {kinds:?}");
    for kind in ["program", "trampoline", "module"] {
        assert!(kinds.get(kind).is_some_and(|(with, _)| *with > 0), "{kind}: {kinds:?}");
    }
}

/// Annotates one text; whether its code was there.
fn annotated(path: &Path, text: &TextDesc) -> bool {
    let name = text.name.as_deref().unwrap();
    // In a page that stays, slots come while it is recorded: all of it is known when it was copied.
    let copied = text.images.last().map(|image| image.at_ns).filter(|_| text.gone_ns.is_none());
    let at = copied.or(text.born_ns).unwrap_or_else(|| text.gone_ns.map_or(0, |gone| gone - 1));
    let output = Command::new(env!("CARGO_BIN_EXE_afterimage"))
        .args(["annotate", "--json", "-s", &format!("{name}@{:#x}", text.address), "--at", &format!("{at}ns"), "-i"])
        .arg(path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{text:?}: {}", String::from_utf8_lossy(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let symbol = &value["symbols"][0];
    let lines = symbol["lines"].as_array().unwrap();
    let bytes: usize = lines.iter().map(|line| line["bytes"].as_str().map_or(0, |hex| hex.len() / 2)).sum();
    match symbol["code"]["way"].as_str() {
        Some(way) => {
            println!("{name} ({}): {bytes} bytes by {way}, {}", text.kind, lines[0]["text"]);
            assert!(bytes > 0 && text.length.is_none_or(|length| bytes == length as usize), "{bytes} of {text:?}");
            true
        }
        None => {
            assert!(symbol["reason"].as_str().is_some_and(|reason| reason.starts_with("image: ")), "{symbol}");
            false
        }
    }
}

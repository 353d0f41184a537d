//! Functions of the kernel on a machine that has neither its image with symbols nor /proc/kcore: the bytes are in the
//! recording.

use std::path::Path;
use std::process::{Command, Stdio};

use afterimage_perf_data::FileReader;
use afterimage_profile::{ReplayOptions, ResolveOptions, Resolver, Subject, annotate};
use afterimage_testkit::{Need, has, workload};
use serde_json::Value;

use crate::common::{afterimage, file, folder};
use crate::listing::{lines, samples};
use crate::programs::turn;

const NEEDS: [Need; 3] = [Need::Root, Need::Bpf, Need::Cc];

fn record(path: &Path, command: &[&str]) {
    let mut recorder = afterimage();
    recorder.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "2000", "-o"]).arg(path).arg("--").args(command);
    assert!(recorder.stdout(Stdio::null()).status().unwrap().success());
}

/// The heaviest functions of the kernel: each with code, each sample at the start of an instruction.
fn check(path: &Path, most: usize) {
    let shown = crate::listing::annotate(path, &["-d", "[kernel.kallsyms]", "--percent-limit", "0"]);
    let bytes = std::fs::read(path).unwrap();
    let reader = FileReader::open(&bytes).unwrap();
    let mut resolver = Resolver::new(&reader, ResolveOptions::default());
    let found = annotate(&reader, &ReplayOptions::default(), &mut resolver);
    let symbols: Vec<&Value> =
        shown["symbols"].as_array().unwrap().iter().filter(|symbol| symbol["kind"] == "kernel").take(most).collect();
    assert!(!symbols.is_empty());
    for symbol in symbols {
        let total: u64 = samples(symbol).iter().sum();
        println!("{:>6} samples  {}  {}", total, symbol["name"].as_str().unwrap(), symbol["code"]);
        assert!(symbol["code"]["way"].is_string(), "{}: {}", symbol["name"], symbol["reason"]);
        let starts: Vec<u64> = lines(symbol).iter().map(|line| line["offset"].as_u64().unwrap()).collect();
        assert!(lines(symbol).iter().all(|line| line["text"].is_string() && line["text"] != "(bad)"), "{symbol}");
        let address = |text: &Value| u64::from_str_radix(text.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        let start = address(&symbol["address"]);
        let thing = found.things.iter().find(|t| t.subject == Subject::Kernel && t.start == start).unwrap();
        for hits in thing.hits.values() {
            for offset in hits.by_offset.keys() {
                assert!(starts.contains(offset), "{}+{offset:#x} is within an instruction", symbol["name"]);
            }
        }
    }
}

#[test]
fn an_idle_machine() {
    if !has("an_idle_machine", &NEEDS) {
        return;
    }
    let _turn = turn();
    let folder = folder();
    let path = file(&folder, "a.data");
    record(&path, &["sleep", "1"]);
    check(&path, 10);
}

#[test]
fn a_busy_machine() {
    if !has("a_busy_machine", &NEEDS) {
        return;
    }
    let _turn = turn();
    let folder = folder();
    let path = file(&folder, "a.data");
    let faults = workload::build().faults;
    let mut busy =
        Command::new("dd").args(["if=/dev/zero", "of=/dev/null", "bs=64k"]).stderr(Stdio::null()).spawn().unwrap();
    record(&path, &["sh", "-c", &format!("find /usr > /dev/null; {} 200000 > /dev/null", faults.display())]);
    busy.kill().unwrap();
    busy.wait().unwrap();
    check(&path, 10);
}

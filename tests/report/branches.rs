//! Branches and filters, and stacks from copies that filters leave out: what is told of samples, and what of branches.

use std::path::Path;

use afterimage_perf_data::record::{BranchStack, Regs, StackUser};
use afterimage_perf_data::{Attr, Callchain, Endian, Sample, SampleType, Words, context};
use afterimage_testkit::{Need, has};
use serde_json::{Value, json};

use crate::common::{file, folder, perf, stderr, text, word};
use crate::hand::{bytes, raw_event, sample, write};

/// Three samples of process 7, of which one has no branches; of process 9 one with four branches, one with none.
fn two_processes(path: &Path) {
    let (here, there) = ([0x40_1010, 0x40_2000, 2], [0x40_2020, 0x40_1014, 1]);
    let (four, one) = (bytes([here, here, there, here].as_flattened()), bytes(&here));
    let stack =
        |entries| Some(BranchStack { hw_index: None, entries: Words::new(entries, Endian::Little), counters: None });
    let of = |nth, pid, entries| Sample { pid: Some(pid), branch_stack: stack(entries), ..sample(nth) };
    let samples = [of(0, 7, &four), of(1, 7, &[]), of(2, 9, &four), of(3, 7, &one), of(4, 9, &[])];
    write(path, "x86_64", raw_event(SampleType::BRANCH_STACK), samples);
}

#[test]
fn what_is_told_of_branches_is_of_those_that_filters_let_through() {
    let folder = folder();
    let path = file(&folder, "data");
    two_processes(&path);
    let told = |options: &[&str]| -> Vec<String> {
        let shown = text(&[&["report", "-i", word(&path), "--sort", "addr_from"], options].concat());
        shown.lines().filter(|line| line.contains("Left") || line.contains("Branches")).map(str::to_owned).collect()
    };
    assert_eq!(told(&[]), ["# Branches of: 3 of 5 samples"]);
    assert_eq!(
        told(&["--pid", "7"]),
        ["# Left out: 4 of 9 branches: 4 by --pid", "# Branches of: 2 of 3 samples, and filters left out 2 more"]
    );
    // By name a filter speaks of where each branch led to.
    assert_eq!(
        told(&["--pid", "7", "--symbols", "0x0000000000402000"]),
        [
            "# Left out: 5 of 9 branches: 4 by --pid, 1 by --symbols",
            "# Branches of: 2 of 3 samples, and filters left out 2 more"
        ]
    );
    let both = told(&["-i", word(&path), "--tid", "9"]);
    assert_eq!(both[0], "# Left out: 18 of 18 branches: 18 by --tid");
    assert_eq!(both[1], "# Branches of: 0 of 0 samples, and filters left out 10 more");
    let json: Value =
        serde_json::from_str(&text(&["report", "--json", "-b", "-i", word(&path), "--pid", "9"])).unwrap();
    let event = &json["events"][0];
    assert_eq!(event["branches_of"], json!({"samples": 1, "without": 1, "left_out": 3}));
    assert_eq!(event["left_out"], json!([{"filter": "pid", "samples": 5, "period": 5}]));
    assert_eq!((&event["samples"], &event["percent_of"]["samples"]), (&4.into(), &9.into()));
}

/// Eight samples with copies of registers and stack, of two processes and two addresses.
fn with_copies(path: &Path) {
    // As many registers as x86-64 has, each with its own value; the stack pointer and the instruction are among them.
    let mask = 0xff_0fff;
    let attr = Attr {
        sample_regs_user: mask,
        sample_stack_user: 64,
        ..raw_event(SampleType::REGS_USER | SampleType::STACK_USER | SampleType::CALLCHAIN)
    };
    let registers = bytes(&(0..u64::from(u64::count_ones(mask))).map(|nth| 0x7000 + nth * 8).collect::<Vec<_>>());
    let regs = Regs { abi: 2, values: Words::new(&registers, Endian::Little) };
    let chain = bytes(&[context::USER, 0x40_1000]);
    let one = |nth: u64| Sample {
        pid: Some(if nth < 5 { 7 } else { 9 }),
        ip: Some(0x40_1000 + nth % 2),
        callchain: Some(Callchain::new(&chain, Endian::Little)),
        regs_user: Some(regs),
        stack_user: Some(StackUser { bytes: &[7; 64], dyn_size: 64 }),
        ..sample(nth)
    };
    write(path, "x86_64", attr, (0..8).map(one));
}

#[test]
fn what_filters_leave_out_is_not_unwound() {
    let folder = folder();
    let path = file(&folder, "data");
    with_copies(&path);
    let unwound = |options: &[&str]| -> (Value, Value) {
        let json = text(&[&["report", "--json", "-i", word(&path)], options].concat());
        let json: Value = serde_json::from_str(&json).unwrap();
        let event = &json["events"][0];
        assert_eq!(event["user_stacks"]["all"], event["samples"], "{options:?}");
        (json["unwound"]["stacks"].clone(), event["samples"].clone())
    };
    assert_eq!(unwound(&[]), (8.into(), 8.into()));
    assert_eq!(unwound(&["--pid", "7"]), (5.into(), 5.into()));
    assert_eq!(unwound(&["--symbols", "0x0000000000401001"]), (4.into(), 4.into()));
    assert_eq!(unwound(&["--pid", "9", "--symbols", "0x0000000000401001"]), (2.into(), 2.into()));
    assert_eq!(unwound(&["--hide-unresolved"]), (Value::Null, 0.into()));
    // Each sample of `script` is counted once.
    let script = crate::common::run(&["script", "-G", "-i", word(&path), "--pid", "7", "--dsos", "none"]);
    assert!(stderr(&script).contains("left out 8 of 8 samples: 3 by --pid, 5 by --dsos"), "{}", stderr(&script));
}

/// A sample with a loop among its branches and a call chain whose first frame a branch tells of. For perf, which
/// leaves out as many outermost callers as there are branches, there are more of those.
fn with_history(path: &Path, more: &[u64]) {
    let words = [
        // from, to, flags; the newest first.
        [0x40_1010, 0x40_1100, 2],
        [0x40_10fc, 0x40_1000, 2],
        [0x40_2050, 0x40_2080, 2],
        [0x40_20a0, 0x40_2040, 2],
        [0x40_2050, 0x40_2080, 2],
        [0x40_20a0, 0x40_2040, 2],
    ];
    let entries = bytes(words.as_flattened());
    let branches = BranchStack { hw_index: None, entries: Words::new(&entries, Endian::Little), counters: None };
    let chain = [&[context::USER, 0x40_1100, 0x40_2100, 0x40_3000, 0x40_4000], more].concat();
    let chain = bytes(&chain);
    let one = |nth| Sample {
        ip: Some(0x40_1100),
        branch_stack: Some(branches),
        callchain: Some(Callchain::new(&chain, Endian::Little)),
        ..sample(nth)
    };
    write(path, "x86_64", raw_event(SampleType::BRANCH_STACK | SampleType::CALLCHAIN), [one(0), one(1)]);
}

#[test]
fn chains_begin_with_branches() {
    let folder = folder();
    let (path, theirs) = (file(&folder, "data"), file(&folder, "theirs"));
    with_history(&path, &[]);
    let options = ["--branch-history", "--sort", "comm", "-g", "folded,0,callee"];
    let shown = text(&[&["report", "-q", "-i", word(&path)], &options[..]].concat());
    let numbers = |chain: &str| -> Vec<u64> {
        let chain = chain.rsplit_once(' ').map_or(chain, |(_, chain)| chain);
        chain.split(';').map(|word| u64::from_str_radix(word.trim().trim_start_matches("0x"), 16).unwrap()).collect()
    };
    let chain = shown.lines().find(|line| line.contains(';')).unwrap_or_else(|| panic!("{shown}"));
    let branches = [0x40_1100, 0x40_1010, 0x40_1000, 0x40_10fc, 0x40_2080, 0x40_2050, 0x40_2040, 0x40_20a0];
    // Places of callers are those of their calls.
    assert_eq!(numbers(chain), [&branches[..], &[0x40_20ff, 0x40_2fff, 0x40_3fff]].concat());
    let refused = crate::common::run(&["report", "-i", word(&path), "--branch-history", "-b"]);
    assert_eq!(refused.status.code(), Some(2));
    if !has("chains_begin_with_branches", &[Need::Perf]) {
        return;
    }
    with_history(&theirs, &[0x40_5000, 0x40_5000, 0x40_5000, 0x40_5000]);
    let perfs =
        perf(&[&["report", "--stdio", "--no-children", "--no-inline", "-i", word(&theirs)], &options[..]].concat());
    let chain = perfs.lines().find(|line| line.contains(';')).unwrap_or_else(|| panic!("{perfs}"));
    println!("{chain}");
    assert_eq!(numbers(chain), [&branches[..], &[0x40_2100, 0x40_3000, 0x40_4000]].concat());
}

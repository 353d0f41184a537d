//! Sort keys beyond task and place: perf as the judge, of recordings made here, by hand and by others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use afterimage_perf_data::record::BranchStack;
use afterimage_perf_data::{Endian, Sample, SampleType, Words};
use afterimage_testkit::{Need, has, workload};

use crate::body;
use crate::common::{file, folder, perf_record, run, stderr, stdout, text, word};
use crate::foreign::{files, perfs, same};
use crate::hand::{bytes, raw_event, sample, write};

/// The sums of the shares of rows that look alike, and how many those are. perf tells rows apart by bytes that it does not
/// show. Left out is what both write differently: the letter of code that nobody mapped, and blanks.
type Shares = BTreeMap<String, (f64, u32)>;

fn shares(lines: impl Iterator<Item = String>) -> Shares {
    let letter = |word: &str| matches!(word, "[.]" | "[k]" | "[H]" | "[g]" | "[u]");
    let mut shares = Shares::new();
    for line in lines {
        let mut words: Vec<&str> = line.split_whitespace().filter(|word| !letter(word)).collect();
        let share = words.iter().position(|word| word.ends_with('%')).unwrap_or_else(|| panic!("no share: {line}"));
        let share: f64 = words.remove(share).trim_end_matches('%').parse().unwrap();
        // C writes no 0x before a zero.
        let words = words.iter().map(|word| if *word == "0000000000000000" { "0x0000000000000000" } else { word });
        let row = shares.entry(words.collect::<Vec<_>>().join(" ")).or_default();
        *row = (row.0 + share, row.1 + 1);
    }
    shares
}

/// Compares the rows of both in any order, and gives their number.
pub(crate) fn alike(path: &Path, options: &[&str]) -> usize {
    let our = run(&[&["report", "-g", "none", "-i", word(path)], options].concat());
    assert_eq!(our.status.code(), Some(0), "{options:?}: {}", stderr(&our));
    // Separated, so that it cuts nothing off; behind the keys it may have columns that nobody asked for.
    let theirs = perfs(path, &[options, &["-t", "\t"]].concat()).unwrap_or_else(|| panic!("perf {options:?} fails"));
    let keys = options.iter().rev().find(|option| option.contains(',') || !option.starts_with('-')).unwrap();
    let sorted = options.iter().position(|option| *option == "--sort").map_or(*keys, |at| options[at + 1]);
    let columns = 1 + sorted.split(',').filter(|key| *key != "overhead").count();
    let asked = |line: String| line.split('\t').take(columns).collect::<Vec<_>>().join(" ");
    let (our, theirs) = (shares(body(&stdout(&our)).into_iter()), shares(body(&theirs).into_iter().map(asked)));
    let known: BTreeSet<&String> = our.keys().chain(theirs.keys()).collect();
    let of = |rows: &Shares, row: &String| rows.get(row).copied().unwrap_or_default();
    let differ = |row: &&&String| {
        let (our, their) = (of(&our, row), of(&theirs, row));
        // Each share is rounded.
        (our.0 - their.0).abs() > 0.011 * f64::from(our.1.max(their.1).max(1))
    };
    let wrong: Vec<_> = known.iter().filter(differ).map(|row| (row, of(&our, row), of(&theirs, row))).collect();
    assert!(wrong.is_empty(), "{options:?} of {}: {wrong:?}", path.display());
    println!("{options:?}: {} rows", our.len());
    our.len()
}

/// Branches as a CPU leaves them: from, to, flags.
fn branches() -> Vec<u8> {
    let flags = |mispredicted: u64, predicted: u64, in_tx: u64, abort: u64, cycles: u64| {
        mispredicted | predicted << 1 | in_tx << 2 | abort << 3 | cycles << 4
    };
    let all = [
        [0x40_1010, 0x40_2000, flags(0, 1, 0, 0, 7)],
        [0x40_1010, 0x40_2000, flags(0, 1, 0, 0, 7)],
        [0x40_2020, 0x40_1014, flags(1, 0, 1, 0, 3)],
        [0x40_1018, 0xffff_ffff_8100_0000, flags(0, 1, 0, 1, 0)],
    ];
    bytes(all.as_flattened())
}

fn with_branches(path: &Path) {
    let entries = branches();
    let stack = BranchStack { hw_index: None, entries: Words::new(&entries, Endian::Little), counters: None };
    let full = |nth| Sample { branch_stack: Some(stack), ..sample(nth) };
    let empty = |nth| Sample { branch_stack: Some(BranchStack::default()), ..sample(nth) };
    write(path, "x86_64", raw_event(SampleType::BRANCH_STACK), [full(0), empty(1), full(2)]);
}

#[test]
fn branches_stand_for_samples() {
    let folder = folder();
    let path = file(&folder, "data");
    with_branches(&path);
    let shown = text(&["report", "-i", word(&path), "--sort", "addr_from,mispredict,in_tx,abort,cycles", "-n"]);
    let expected = "\
# Branches of: 3 of 3 samples
# Overhead       Samples  Source Address          Branch Mispredicted  Branch in transaction  Transaction abort  Basic Block Cycles
    50.00%             4  [.] 0x0000000000401010  N                    .                      .                  7
    25.00%             2  [.] 0x0000000000401018  N                    .                      A                  -
    25.00%             2  [.] 0x0000000000402020  Y                    T                      .                  3
";
    let of_interest = |line: &&str| line.contains('%') || line.contains("Overhead") || line.contains("Branches");
    let lines: Vec<&str> = shown.lines().filter(of_interest).collect();
    assert_eq!(lines.join("\n") + "\n", expected);
    let json: serde_json::Value =
        serde_json::from_str(&text(&["report", "--json", "-b", "-i", word(&path), "--pid", "8"])).unwrap();
    let event = &json["events"][0];
    assert_eq!(event["samples"], 0);
    assert_eq!(event["left_out"], serde_json::json!([{"filter": "pid", "samples": 8, "period": 8}]));
    assert_eq!(event["tally"]["ring"]["delivered"], 3, "the tally is of samples");
}

#[test]
fn branches_are_perfs() {
    if !has("branches_are_perfs", &[Need::Perf]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    with_branches(&path);
    // Symbols of what nobody mapped make perf 6.1 crash, and for it the kernel has an end.
    for sort in ["addr_from,addr_to", "in_tx", "abort", "comm,cycles"] {
        assert!(alike(&path, &["-b", "--sort", sort]) > 0, "{sort}");
    }
}

#[test]
fn branches_and_memory_of_foreign_recordings_are_perfs() {
    if !has("branches_and_memory_of_foreign_recordings_are_perfs", &[Need::Corpus, Need::Perf]) {
        return;
    }
    let files = files();
    for name in ["perf.data.branch-4.14", "perf.data.callgraph_and_branch-3.4"] {
        // Of the first perf 6.1 crashes on symbols, and shows cycles beyond 32,767 as negative; of the second it cuts names of
        // objects, and names the code of another machine's vDSO by this one's.
        let sorts = match name {
            "perf.data.branch-4.14" => &["dso_from,dso_to", "comm,dso_from", "addr_from,addr_to", "in_tx", "abort"][..],
            _ => &["comm", "in_tx", "abort", "comm,in_tx,cycles"],
        };
        for sort in sorts {
            assert!(alike(&files[name], &["-b", "--sort", sort]) > 0, "{name} {sort}");
        }
    }
    let memory = &files["perf.data.weight_struct"];
    let keys =
        ["mem", "snoop", "tlb", "locked", "blocked", "local_weight", "weight", "ins_lat,local_ins_lat", "symbol_daddr"];
    for sort in keys {
        assert!(alike(memory, &["--mem-mode", "--sort", sort]) > 0, "{sort}");
    }
    assert!(alike(memory, &["--sort", "comm,weight,local_weight"]) > 0);
    // perf looks for data of samples in the kernel among the kernel's maps alone: one is a process's.
    let objects = body(&text(&["report", "-g", "none", "-i", word(memory), "--mem-mode", "--sort", "dso_daddr"]));
    let objects: Vec<&str> = objects.iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(objects, ["[unknown]", "anon", "islandserver", "borglet"]);
}

/// What a sample has of memory, by hand: the words are perf's.
#[test]
fn memory_is_perfs() {
    if !has("memory_is_perfs", &[Need::Perf]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let fields = SampleType::ADDR
        | SampleType::WEIGHT_STRUCT
        | SampleType::DATA_SRC
        | SampleType::PHYS_ADDR
        | SampleType::DATA_PAGE_SIZE
        | SampleType::CODE_PAGE_SIZE;
    let (local, remote) = (0x102_6a10_0142, 0x118_6810_0242);
    let one = |nth: u64, source: u64, weight: u64| Sample {
        addr: Some(0x7000 + nth % 3),
        weight: Some((nth % 2) << 32 | weight),
        data_src: Some(source),
        phys_addr: Some(0x1_0000 + nth % 2),
        data_page_size: Some(4096),
        code_page_size: Some(if nth == 0 { 2 << 20 } else { 4096 }),
        ..sample(nth)
    };
    let samples = [one(0, local, 5), one(1, local, 5), one(2, remote, 900), one(3, 0, 0), one(4, remote, 30)];
    write(&path, "x86_64", raw_event(fields), samples);
    for mode in [&["--mem-mode"][..], &[]] {
        for sort in ["local_weight", "weight", "local_ins_lat", "ins_lat", "code_page_size"] {
            assert!(alike(&path, &[mode, &["--sort", sort]].concat()) > 1, "{sort}");
        }
    }
    for sort in ["mem", "snoop", "tlb", "locked", "blocked", "symbol_daddr", "dso_daddr", "data_page_size"] {
        assert!(alike(&path, &["--mem-mode", "--sort", sort]) > 0, "{sort}");
    }
    // By the periods, which perf does not offer: 1000 each.
    let shown = text(&["report", "-q", "-i", word(&path), "--sort", "mem"]);
    let levels: Vec<&str> = shown.lines().map(|line| line.trim_start()).collect();
    assert_eq!(levels, ["40.00%  L1 or L1 hit", "40.00%  LFB/MAB or LFB/MAB hit", "20.00%  N/A"]);
}

#[test]
fn times_and_parents_are_perfs() {
    if !has("times_and_parents_are_perfs", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let split = workload::build().split;
    let options = ["--no-bpf-event", "-e", "cpu-clock", "-F", "999", "-g", "--namespaces"];
    perf_record(&path, &options, &[word(&split), "1"]);
    for options in [
        &["--sort", "time,overhead"][..],
        &["--sort", "time,overhead", "--time-quantum", "20ms"],
        &["--sort", "comm,overhead"],
        &["--sort", "comm,sample,period"],
    ] {
        let rows = same(&path, options, &[]).unwrap();
        assert!(rows > 2, "{options:?}");
    }
    for options in [
        &["--sort", "parent", "-p", "^recursion_level$"][..],
        &["--sort", "parent,comm", "-p", "^spin_|^library_"],
        &["--sort", "comm,parent", "-p", "^child_spin$", "-x"],
        &["--sort", "time,overhead,comm"],
        &["--sort", "cgroup_id,comm"],
        &["--sort", "addr"],
    ] {
        assert!(alike(&path, options) > 0, "{options:?}");
    }
}

#[test]
fn fields_of_tracepoints_are_perfs() {
    if !has("fields_of_tracepoints_are_perfs", &[Need::Root, Need::Perf, Need::Tracefs, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let split = workload::build().split;
    let events = ["--no-bpf-event", "-e", "sched:sched_switch", "-e", "sched:sched_process_fork", "-e", "cpu-clock"];
    perf_record(&path, &events, &[word(&split), "1"]);
    for sort in
        ["next_pid", "prev_comm,prev_state", "switch.next_comm,comm", "%1.prev_pid", "child_comm", "prev_prio/raw"]
    {
        assert!(alike(&path, &["--sort", sort]) > 0, "{sort}");
    }
    // The same columns by our name for them.
    let rows = |sort: &str| body(&text(&["report", "-q", "-g", "none", "-i", word(&path), "--sort", sort]));
    assert_eq!(rows("trace:next_pid"), rows("next_pid"));
    assert!(alike(&path, &["--sort", "trace"]) > 1);
    let output = run(&["report", "-i", word(&path), "--sort", "comm,no_such_field"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("afterimage: --sort no_such_field: no such key\n  hint: there are comm, dso,"));
}

//! Sort keys beyond task and place: perf as the judge, of recordings made here, by hand and by others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use afterimage_perf_data::record::BranchStack;
use afterimage_perf_data::{Endian, Sample, SampleType, Words};
use afterimage_testkit::{Need, has, workload};

use crate::common::{file, folder, perf_record, run, stderr, stdout, text, word};
use crate::foreign::{files, perfs, same};
use crate::hand::{bytes, raw_event, sample, write};
use crate::{LINES, body};

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
# Branches of: 2 of 3 samples
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
    assert!(alike(&path, &["--mem-mode", "--sort", "dcacheline"]) > 0);
    // Rows in the order of what stands before the share: perf's, which is from more to less for these.
    for sort in ["local_weight,overhead", "local_ins_lat,overhead,local_weight"] {
        assert!(same(&path, &["--mem-mode", "--sort", sort], &[]).unwrap() > 1, "{sort}");
    }
    // By the periods, which perf does not offer: 1000 each.
    let shown = text(&["report", "-q", "-i", word(&path), "--sort", "mem"]);
    let levels: Vec<&str> = shown.lines().map(|line| line.trim_start()).collect();
    assert_eq!(levels, ["40.00%  L1 or L1 hit", "40.00%  LFB/MAB or LFB/MAB hit", "20.00%  N/A"]);
}

/// Rows that weigh the same: numbers as numbers, then names, in the table and out of it.
#[test]
fn rows_of_equal_weight_have_one_order() {
    let folder = folder();
    let path = file(&folder, "data");
    let pids = [10, 9, 100, 8];
    write(
        &path,
        "x86_64",
        raw_event(SampleType::empty()),
        (0..).zip(pids).map(|(nth, pid)| Sample { pid: Some(pid), ..sample(nth) }),
    );
    let shown = text(&["report", "-q", "-i", word(&path), "--sort", "pid"]);
    let pids: Vec<String> = rows_of(&shown, 1).iter().map(|pid| pid.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(pids, ["8", "9", "10", "100"]);
    for files in [&["-i", word(&path)][..], &["-i", word(&path), "-i", word(&path)]] {
        let json = text(&[&["report", "--json", "--sort", "pid"], files].concat());
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let rows = json["events"][0]["rows"].as_array().unwrap();
        assert_eq!(rows.iter().map(|row| row["pid"].as_u64().unwrap()).collect::<Vec<_>>(), [8, 9, 10, 100]);
    }
}

/// What transactions ended with, by hand: the words are perf's.
#[test]
fn transactions_are_perfs() {
    if !has("transactions_are_perfs", &[Need::Perf]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    // Each flag alone, then usual ones with codes, and none.
    let flags = (0..8).map(|bit| 1 << bit).chain([0x6, 0x12_0000_0016, 0xff_0000_0000, 0]);
    let samples = (0..).zip(flags).map(|(nth, flags)| Sample { transaction: Some(flags), ..sample(nth) });
    write(&path, "x86_64", raw_event(SampleType::TRANSACTION), samples);
    assert_eq!(alike(&path, &["--sort", "transaction"]), 12);
    let json: serde_json::Value =
        serde_json::from_str(&text(&["report", "--json", "-i", word(&path), "--sort", "transaction"])).unwrap();
    let rows = json["events"][0]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["transaction"] == 0x12_0000_0016_u64).unwrap();
    assert_eq!(row["transaction_words"], "TX SYNC RETRY :12");
}

fn program(folder: &Path) -> std::path::PathBuf {
    let (source, program) = (folder.join("sizes.c"), folder.join("sizes"));
    std::fs::write(&source, LINES).unwrap();
    let status = std::process::Command::new("cc").args(["-g", "-O1", "-o"]).arg(&program).arg(&source).status();
    assert!(status.unwrap().success());
    program
}

#[test]
fn sizes_files_and_sockets_are_perfs() {
    if !has("sizes_files_and_sockets_are_perfs", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let (path, program) = (file(&folder, "data"), program(folder.path()));
    let options = ["--no-bpf-event", "-e", "cpu-clock:u", "-F", "999", "--sample-cpu"];
    perf_record(&path, &options, &[word(&program)]);
    for sort in ["socket", "socket,cpu", "srcfile", "symbol_size", "dso_size", "srcfile,symbol_size"] {
        assert!(alike(&path, &["--sort", sort]) > 0, "{sort}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&text(&["report", "--json", "-i", word(&path), "--sort", "srcfile,symbol_size,sym"]))
            .unwrap();
    let rows = json["events"][0]["rows"].as_array().unwrap();
    let hot = rows.iter().find(|row| row["sym"] == "hot").unwrap();
    let nm = std::process::Command::new("nm").arg("-S").arg(&program).output().unwrap();
    let nm = String::from_utf8(nm.stdout).unwrap();
    let size = nm.lines().find_map(|line| line.strip_suffix(" t hot")?.split_whitespace().nth(1)).unwrap();
    assert_eq!(hot["symbol_size"], u64::from_str_radix(size, 16).unwrap(), "{nm}");
    assert_eq!(hot["srcfile"], "sizes.c");
}

/// A branch from one function of a program into the other.
#[test]
fn lines_of_branches_are_those_of_addr2line() {
    if !has("lines_of_branches_are_those_of_addr2line", &[Need::Cc, Need::Objdump]) {
        return;
    }
    let folder = folder();
    let (path, program) = (file(&folder, "data"), program(folder.path()));
    let output = |tool: &str, words: &[&str]| {
        let output = std::process::Command::new(tool).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let symbols = output("nm", &[word(&program)]);
    let start = |name: &str| {
        let line = symbols.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix([' ', 'T', 't']));
        u64::from_str_radix(line.unwrap().split_whitespace().next().unwrap(), 16).unwrap()
    };
    let (from, to) = (start(" main") + 4, start(" hot"));
    // Where the linker put the text its addresses are those in the file.
    const AT: u64 = 0x5555_0000_0000;
    let entries = bytes(&[AT + from, AT + to, 2]);
    let stack = BranchStack { hw_index: None, entries: Words::new(&entries, Endian::Little), counters: None };
    let one = Sample { ip: Some(AT + to), branch_stack: Some(stack), ..sample(0) };
    crate::hand::write_mapped(&path, raw_event(SampleType::BRANCH_STACK), (AT, &program), [one]);
    let judged = |addr: u64| {
        let line = output("addr2line", &["-s", "-e", word(&program), &format!("{addr:x}")]);
        line.trim().to_owned()
    };
    let json: serde_json::Value =
        serde_json::from_str(&text(&["report", "--json", "-i", word(&path), "--sort", "srcline_from,srcline_to"]))
            .unwrap();
    let row = &json["events"][0]["rows"][0];
    assert_eq!((row["srcline_from"].as_str(), row["srcline_to"].as_str()), (Some(&*judged(from)), Some(&*judged(to))));
    let shown = text(&["report", "-q", "-i", word(&path), "--sort", "srcline_from,srcline_to,overhead"]);
    let words: Vec<String> = (0..3).map(|column| rows_of(&shown, column).remove(0)).collect();
    assert_eq!(words, ["100.00%".to_owned(), judged(from), judged(to)], "{shown}");
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
        &["-F", "comm,overhead"],
        &["-F", "overhead,comm,sample"],
        &["-F", "+period", "--sort", "comm"],
        &["-F", "sample,overhead", "--sort", "comm"],
        &["-F", "overhead,overhead_sys,overhead_us,comm"],
        &["--show-cpu-utilization", "--sort", "comm"],
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
    // Before the share fields order the rows, in the table and out of it.
    let before = ["report", "-q", "-g", "none", "-i", word(&path), "--sort", "comm,overhead,next_pid", "--event"];
    let before = |options: &[&str]| text(&[&before[..], &["sched:sched_switch"], options].concat());
    let table: Vec<String> = rows_of(&before(&[]), 1);
    let json: serde_json::Value = serde_json::from_str(&before(&["--json"])).unwrap();
    let listed: Vec<&str> =
        json["events"][0]["rows"].as_array().unwrap().iter().map(|row| row["comm"].as_str().unwrap()).collect();
    assert!(table.len() > 2 && table.is_sorted(), "{table:?}");
    assert_eq!(table, listed);
    let options = ["--sort", "next_pid,overhead", "--event", "sched:sched_switch"];
    let shown = text(&[&["report", "-q", "-g", "none", "-i", word(&path)], &options[..]].concat());
    let numbers: Vec<u64> = rows_of(&shown, 1).iter().map(|word| word.parse().unwrap()).collect();
    assert!(numbers.len() > 2 && numbers.is_sorted(), "{numbers:?}");
    // The same columns by our name for them.
    let rows = |sort: &str| body(&text(&["report", "-q", "-g", "none", "-i", word(&path), "--sort", sort]));
    assert_eq!(rows("trace:next_pid"), rows("next_pid"));
    assert!(alike(&path, &["--sort", "trace"]) > 1);
    let output = run(&["report", "-i", word(&path), "--sort", "comm,no_such_field"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("afterimage: --sort no_such_field: no such key\n  hint: there are comm, dso,"));
}

/// The word in a column of each row.
fn rows_of(report: &str, column: usize) -> Vec<String> {
    body(report).iter().map(|line| line.split_whitespace().nth(column).unwrap().to_owned()).collect()
}

//! Chains that are unwound from copies of stacks: ours against perf's, and against what the programs are known to do.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use afterimage_perf_data::context::{KERNEL, USER};
use afterimage_perf_data::record::{Regs, StackUser};
use afterimage_perf_data::{Attr, Callchain, Endian, Sample, SampleType, Words};
use afterimage_testkit::{Need, has, workload};

use crate::common::{afterimage, file, folder, perf_record, stderr, text, word};
use crate::compare::{By, LINES, counts, lines, ours, perfs};
use crate::hand::{bytes, raw_event, sample, write};

const NEEDS: [Need; 3] = [Need::Root, Need::Perf, Need::Cc];

const COPIES: [&str; 6] = ["--call-graph", "dwarf", "-e", "cpu-clock", "-F", "999"];

/// perf's last address of a chain that goes on behind the end of the copy: it takes 0 for what it cannot read, less one as of
/// all callers. Ours says `truncated` of such a stack.
const NOWHERE: &str = "\tffffffffffffffff";

/// The samples of a text, each with its lines.
fn samples(text: &str) -> Vec<Vec<&str>> {
    text.split_terminator("\n\n").map(|sample| sample.lines().filter(|line| !line.is_empty()).collect()).collect()
}

/// Compares the lines of both: gives how many samples there were, and how many addresses of processes.
///
/// `returns`: where signal handlers return to. perf takes one from that address, as if a call stood before it, and so has the
/// end of another function or none; ours names the code that is returned to.
fn alike(path: &Path, returns: &[u64]) -> (usize, usize) {
    let ours = ours(By::Name, path, &[&["script"], LINES].concat());
    let theirs = perfs(By::Name, path, &[&["script", "--no-inline", "--max-stack=1024"], LINES].concat()).unwrap();
    let (ours, theirs) = (samples(&ours), samples(&theirs));
    assert_eq!(ours.len(), theirs.len());
    let (mut addresses, mut wrong) = (0, Vec::new());
    for (our, their) in ours.iter().zip(&theirs) {
        let mut expected: Vec<String> =
            their.iter().filter(|line| **line != NOWHERE).map(|line| line.to_string()).collect();
        for line in &mut expected {
            let address = u64::from_str_radix(line.trim(), 16).unwrap_or(0);
            if returns.contains(&(address + 1)) {
                *line = format!("\t{:16x}", address + 1);
            }
        }
        addresses += our.len() - 1;
        if *our != expected {
            wrong.push(format!("ours\n{}\ntheirs\n{}", our.join("\n"), their.join("\n")));
        }
    }
    let (first, many) = (wrong.first().map_or("", String::as_str), wrong.len());
    // Of some hundred samples one may be another for a reason that is not known: it is printed.
    if many > 0 {
        println!("{many} of {} samples differ, the first\n{first}", ours.len());
    }
    assert!(many <= 1 && many * 200 <= ours.len(), "{many} of {} samples differ, the first\n{first}", ours.len());
    (ours.len(), addresses)
}

/// Records a command by perf with copies, and compares.
fn recorded_alike(command: &[&str]) -> (usize, usize) {
    let folder = folder();
    let path = file(&folder, "copies");
    perf_record(&path, &COPIES, command);
    let (samples, addresses) = alike(&path, &[]);
    println!("{command:?}: {samples} samples, {addresses} addresses: as perf's");
    (samples, addresses)
}

/// The workload of frames, compiled with these flags.
fn frames(folder: &tempfile::TempDir, flags: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let program = file(folder, "frames");
    let mut cc = Command::new("cc");
    cc.args(["-g", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-Wall", "-I"]).arg(here.join("workload"));
    cc.args(flags).arg(here.join("script_lines/frames.c")).arg("-o").arg(&program);
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{flags:?}: {}", stderr(&output));
    program
}

#[test]
fn copied_stacks() {
    if !has("copied_stacks", &NEEDS) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "stacks");
    let busy = workload::build().busy;
    perf_record(&path, &["--call-graph", "dwarf,4096", "-e", "cpu-clock", "-F", "499"], &[word(&busy), "150", "12"]);
    // perf tells nothing of what it unwinds.
    let told = ours(By::Name, &path, &["report", "--stats"]);
    let theirs = perfs(By::Name, &path, &["report", "--stats", "--stdio"]).unwrap();
    let (alike_part, unwound) = told.split_once("Unwound stacks:\n").expect("lines of unwound stacks");
    assert_eq!(alike_part, theirs);
    assert!(unwound.contains("complete stacks:"), "{unwound}");
    assert!(counts(By::Name, &path, &[]).is_err(), "they are counted");
    assert!(lines(By::Name, &path, &["-G", "-F", "comm,tid,time,event,ip"], &[]).unwrap() > 20);
    assert!(lines(By::Name, &path, &["-F", "time,event,uregs", "-G"], &[]).unwrap() > 20);
    let (samples, addresses) = alike(&path, &[]);
    assert!(samples > 20 && addresses > 10 * samples, "{samples} {addresses}");
}

/// Each is executed by perf itself: of one that a shell starts perf still has what the shell had mapped, and takes the lowest
/// place where it ever saw a library for where that is now. By chance it is the shell's, and nothing is found in it.
#[test]
fn unwound_as_perf_does_programs_of_the_system() {
    if !has("unwound_as_perf_does_programs_of_the_system", &NEEDS) {
        return;
    }
    let folder = folder();
    let numbers = file(&folder, "numbers");
    let text: String = (0..200_000_u32).map(|nth| format!("{}\n", nth.wrapping_mul(2_654_435_761))).collect();
    std::fs::write(&numbers, text).unwrap();
    let perl = "sub f { my $n = shift; return $n < 2 ? $n : f($n - 1) + f($n - 2) } f(24)";
    let bash = "for i in {1..200000}; do :; done";
    let commands = [
        &["perl", "-e", perl][..],
        &["bash", "-c", bash],
        &["sort", "-n", word(&numbers)],
        &["gzip", "-c", word(&numbers)],
    ];
    for command in commands {
        let (samples, addresses) = recorded_alike(command);
        assert!(samples > 10 && addresses > 2 * samples, "{samples} {addresses}");
    }
}

#[test]
fn unwound_as_perf_does_every_form_of_frame() {
    if !has("unwound_as_perf_does_every_form_of_frame", &NEEDS) {
        return;
    }
    // perf takes tables of exceptions only where a header stands beside them, which static programs have for the asking.
    for flags in [&["-O2"][..], &["-O2", "-static", "-Wl,--eh-frame-hdr"]] {
        let folder = folder();
        let program = frames(&folder, flags);
        let path = file(&folder, "copies");
        perf_record(&path, &COPIES, &[word(&program), "0.3"]);
        // In the program itself, or in the C library; both are shown as places in files.
        let library = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
        let returns = [returns_of(&program), returns_of(library)].concat();
        let (samples, addresses) = alike(&path, &returns);
        println!("{flags:?}: {samples} samples, {addresses} addresses: as perf's");
        assert!(samples > 100 && addresses > 5 * samples, "{samples} {addresses}");
    }
}

/// Where signal handlers return to in a file: `mov $15, %rax; syscall`.
fn returns_of(file: &Path) -> Vec<u64> {
    let bytes = std::fs::read(file).unwrap_or_default();
    let code = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
    bytes.windows(code.len()).enumerate().filter(|(_, at)| *at == code).map(|(at, _)| at as u64).collect()
}

/// What each leaf is called by, inner to outer, among the functions of the program.
const CALLERS: [(&str, &[&str]); 5] = [
    ("leaf_plain", &["plain_inner", "plain_outer", "main"]),
    ("leaf_aligned", &["aligned", "main"]),
    ("leaf_sized", &["sized", "main"]),
    ("leaf_handler", &["on_signal", "interrupted", "main"]),
    ("leaf_compare", &["compare", "sorted", "main"]),
];

/// The chains of the samples in leaves, functions of the program alone, with how many there are of each. `callers` has the leaves
/// with what they are called by, `options` are of the command.
pub(crate) fn chains<'n, C: AsRef<[&'n str]>>(
    path: &Path,
    options: &[&str],
    callers: &[(&str, C)],
) -> BTreeMap<Vec<String>, usize> {
    let known = |name: &str| callers.iter().any(|(leaf, callers)| *leaf == name || callers.as_ref().contains(&name));
    let mut chains = BTreeMap::new();
    for sample in samples(&text(&[&["script", "-i", word(path), "-F", "comm,ip,sym"], options].concat())) {
        let names = sample.iter().skip(1).filter_map(|line| line.split_whitespace().nth(1));
        // Without parameters, and what compilers put behind the names of functions that they moved (`.lto_priv.0`).
        let names = names.map(|name| match callers.iter().any(|(leaf, _)| leaf.contains('.')) {
            true => name,
            false => name.split(['(', '.']).next().unwrap_or(name),
        });
        let chain: Vec<String> = names.filter(|name| known(name)).map(str::to_owned).collect();
        if chain.first().is_some_and(|name| callers.iter().any(|(leaf, _)| leaf == name)) {
            *chains.entry(chain).or_default() += 1;
        }
    }
    chains
}

/// How many stacks were unwound, and how many to their outermost frame.
pub(crate) fn complete(path: &Path, options: &[&str]) -> (u64, u64) {
    let report = text(&[&["report", "--json", "-i", word(path)], options].concat());
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let count = |key: &str| report["unwound"][key].as_u64().unwrap();
    if count("complete") < count("stacks") {
        println!("ended early: {}", report["unwound"]["ended_early"]);
    }
    (count("stacks"), count("complete"))
}

/// A word among flags: what the compiler made is stripped, and its names are in a debug file.
const STRIPPED: &str = "-Wl,--build-id=sha1";

/// Puts the debug information of a program into a file of its own, where `folder` is the debug folder.
fn strip(folder: &tempfile::TempDir, program: &Path) {
    let id = afterimage_symbols::SymbolTable::from_elf(&std::fs::read(program).unwrap()).unwrap();
    let id: String = id.build_id().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    let filed = folder.path().join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&filed).unwrap();
    let debug = filed.join(format!("{}.debug", &id[2..]));
    for (command, words) in
        [("objcopy", &["--only-keep-debug", word(program), word(&debug)][..]), ("strip", &[word(program)])]
    {
        assert!(Command::new(command).args(words).status().unwrap().success(), "{command}");
    }
}

/// Our own recordings: what is known of each form of frame comes out, whole, however the program was built.
#[test]
fn every_form_of_frame_however_it_is_built() {
    if !has("every_form_of_frame_however_it_is_built", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    for flags in [
        &["-O2"][..],
        &["-O0"],
        &["-O3", "-no-pie"],
        &["-O2", "-static"],
        &["-O2", "-static-pie"],
        &["-O2", "-Wl,--no-eh-frame-hdr"],
        &["-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
        &["-O2", "-flto"],
        &["-O3", "-flto", "-static"],
        &["-O2", STRIPPED],
        &["-O2", STRIPPED, "-static", "-gz"],
        &["-O2", STRIPPED, "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-gz"],
    ] {
        let folder = folder();
        let program = frames(&folder, flags);
        if flags.contains(&STRIPPED) {
            strip(&folder, &program);
        }
        let path = file(&folder, "copies");
        let mut record = afterimage();
        record.args(["record", "-q", "-o", word(&path)]).args(COPIES).arg("--").arg(&program).arg("0.4");
        let output = record.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let apart = [OsStr::new("--debug-dir"), folder.path().as_os_str()].map(|word| word.to_str().unwrap());
        let chains = chains(&path, &apart, &CALLERS);
        for (leaf, callers) in CALLERS {
            let whole: Vec<String> = [&[leaf], callers].concat().into_iter().map(str::to_owned).collect();
            let of_leaf: usize = chains.iter().filter(|(chain, _)| chain[0] == leaf).map(|(_, n)| n).sum();
            let right = chains.get(&whole).copied().unwrap_or(0);
            // A sample may fall between a call and the frame's first steps, but tables cover that too.
            assert!(of_leaf > 20 && right * 100 >= of_leaf * 99, "{flags:?} {leaf}: {right} of {of_leaf}: {chains:?}");
        }
        let (all, complete) = complete(&path, &apart);
        println!("{flags:?}: {complete} of {all} stacks complete");
        assert!(complete * 100 >= all * 99, "{flags:?}: {complete} of {all}");
    }
}

/// Each function and its callers with its share in percent, and how many samples there are.
fn shares(path: &Path) -> (BTreeMap<String, f64>, f64) {
    let split = ["spin_seventy", "spin_thirty", "recursion_level", "recursion_leaf", "library_spin", "child_spin"];
    let known = |name: &str| split.contains(&name) || ["half", "thread_body", "main"].contains(&name);
    let (mut all, mut total) = (BTreeMap::new(), 0.0);
    let samples = text(&["script", "-i", word(path), "-F", "comm"]).lines().count() as f64;
    for line in text(&["export", "-i", word(path)]).lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        let weight: f64 = weight.parse().unwrap();
        total += weight;
        let (comm, frames) = stack.split_once(';').unwrap();
        let own: Vec<&str> = frames.split(';').filter(|name| known(name)).collect();
        // `half` may be inlined into main; the kernel's part is that of the moment.
        let own = own.join(";").replace("main;half", "main");
        if !own.is_empty() {
            *all.entry(format!("{comm};{own}")).or_insert(0.0) += weight;
        }
    }
    (all.into_iter().map(|(stack, weight)| (stack, 100.0 * weight / total)).collect(), samples)
}

/// The known split, walked by frame pointers and unwound in a build without them: the same stacks.
#[test]
fn copies_give_the_stacks_that_frame_pointers_give() {
    if !has("copies_give_the_stacks_that_frame_pointers_give", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let built = workload::build();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workload");
    let flags = ["-O2", "-g", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread"];
    for arguments in [
        &["-shared", "-fPIC", "library.c", "-o", "libsplit.so"][..],
        &["split.c", "-o", "split", "-L.", "-lsplit", "-Wl,-rpath,$ORIGIN"],
    ] {
        let arguments = arguments.iter().map(|word| match word.strip_suffix(".c") {
            Some(_) => here.join(word).into_os_string(),
            None => (*word).into(),
        });
        let output = Command::new("cc").current_dir(folder.path()).args(flags).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let recorded = |name: &str, program: &Path, mode: &str| {
        let path = file(&folder, name);
        let mut record = afterimage();
        record.args(["record", "-q", "-o", word(&path), "-e", "cpu-clock", "-F", "997", "--call-graph", mode, "--"]);
        let output = record.arg(program).arg("2").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        shares(&path)
    };
    let (walked, of_walked) = recorded("walked", &built.split, "fp");
    let (unwound, of_unwound) = recorded("unwound", &folder.path().join("split"), "dwarf");
    println!("by frame pointers {walked:?}\nby copies {unwound:?}");
    // The functions that share the CPU time do so alone: four stacks of leaves, and the one under 25 frames of recursion.
    let among = |some: &BTreeMap<String, f64>, all: &BTreeMap<String, f64>| {
        some.iter().all(|(stack, share)| *share < 0.5 || all.contains_key(stack))
    };
    assert!(among(&walked, &unwound) && among(&unwound, &walked), "not the same stacks");
    let weighty = |(stack, share): (&String, &f64)| (*share >= 0.5).then(|| stack.clone());
    assert!(walked.iter().filter_map(weighty).count() >= 5);
    assert!(unwound.keys().any(|stack| stack.matches("recursion_level").count() == 25), "{unwound:?}");
    // Two runs of the same program, which measures the CPU time that it spends: their shares are the same but for what samples are,
    // of which five standard deviations are never seen, and for half a percent of the time that the looks at the clock take.
    for (stack, share) in walked.iter().filter(|(_, share)| **share >= 0.5) {
        let part = share / 100.0;
        let deviation = 100.0 * (part * (1.0 - part) * (1.0 / of_walked + 1.0 / of_unwound)).sqrt();
        let differ = (share - unwound[stack]).abs();
        println!("{stack}: {differ:.2} points, {:.2} standard deviations", differ / deviation);
        assert!(differ < 5.0 * deviation + 0.5, "{stack}: {share} and {}", unwound[stack]);
    }
}

/// A copy that is too short is said of each stack, and counted.
#[test]
fn a_stack_that_was_cut_says_so() {
    if !has("a_stack_that_was_cut_says_so", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "cut");
    let busy = workload::build().busy;
    let mut record = afterimage();
    let options = ["--call-graph", "dwarf,256", "-e", "cpu-clock", "-F", "499"];
    record.args(["record", "-q", "-o", word(&path)]).args(options).arg("--").arg(&busy).args(["150", "40"]);
    let output = record.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let ends: Vec<String> = text(&["script", "--json", "-i", word(&path)])
        .lines()
        .filter_map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["stack_end"].as_str().map(str::to_owned)
        })
        .collect();
    let cut = ends.iter().filter(|end| *end == "truncated").count();
    assert!(cut > 20 && cut * 10 > ends.len() * 8, "{cut} of {}", ends.len());
    let report = text(&["report", "-i", word(&path)]);
    assert!(report.contains("# Stacks unwound: "), "{report}");
    assert!(report.contains(": truncated: the copy of the stack is too short\n"), "{report}");
    let json: serde_json::Value = serde_json::from_str(&text(&["report", "--json", "-i", word(&path)])).unwrap();
    let early = json["unwound"]["ended_early"].as_array().unwrap();
    let counted = early.iter().find(|early| early["reason"] == "truncated").unwrap()["stacks"].as_u64();
    assert_eq!(counted, Some(cut as u64));
    assert!(text(&["report", "--stats", "-i", word(&path)]).contains(&format!("       truncated stacks: {cut:>10}\n")));
}

/// Of samples made by hand: what is unwound takes the place of the user's part, what cannot be leaves what was recorded.
#[test]
fn what_is_recorded_stays_where_nothing_can_be_unwound() {
    const K: u64 = 0xffff_ffff_8100_0000;
    let folder = folder();
    let path = file(&folder, "made");
    let copies = SampleType::CALLCHAIN | SampleType::REGS_USER | SampleType::STACK_USER;
    // bp, sp and ip.
    let attr = Attr { sample_regs_user: 0x1c0, sample_stack_user: 64, ..raw_event(copies) };
    let chain = bytes(&[KERNEL, K, K + 1, USER, 0x40_1000, 0x40_2000]);
    let values = bytes(&[0, 0x7fff_0000, 0x40_1234]);
    let regs =
        |abi| Regs { abi, values: if abi == 0 { Words::default() } else { Words::new(&values, Endian::Little) } };
    let made = |nth, abi, dyn_size| Sample {
        misc: 1,
        ip: Some(K),
        callchain: Some(Callchain::new(&chain, Endian::Little)),
        regs_user: Some(regs(abi)),
        stack_user: Some(StackUser { bytes: &[7; 64], dyn_size }),
        ..sample(nth)
    };
    let kernel = ["0xffffffff81000000", "0xffffffff81000001"];
    let recorded = [&kernel[..], &["0x401000", "0x402000"]].concat();
    let unwound = [&kernel[..], &["0x401234"]].concat();
    for (machine, abi, dyn_size, chain, end) in [
        ("x86_64", 2, 64, &unwound, Some("no-mapping")),
        ("x86_64", 1, 64, &recorded, Some("no-registers")),
        ("riscv64", 2, 64, &recorded, Some("no-registers")),
        ("x86_64", 0, 64, &recorded, None),
        ("x86_64", 2, 0, &recorded, None),
    ] {
        write(&path, machine, attr.clone(), [made(0, abi, dyn_size)]);
        let line: serde_json::Value =
            serde_json::from_str(text(&["script", "--json", "-i", word(&path)]).trim_end()).unwrap();
        let addresses: Vec<&str> =
            line["callchain"].as_array().unwrap().iter().map(|frame| frame["ip"].as_str().unwrap()).collect();
        assert_eq!((&addresses, line["stack_end"].as_str()), (chain, end), "{machine} {abi} {dyn_size}");
        let report: serde_json::Value = serde_json::from_str(&text(&["report", "--json", "-i", word(&path)])).unwrap();
        assert_eq!(report["unwound"]["ended_early"][0]["reason"].as_str(), end);
    }
}

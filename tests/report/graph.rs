//! Forms of call chains, inlined functions and the head of a recording, with perf as the judge.

use std::collections::BTreeSet;
use std::process::Command;

use afterimage_testkit::{Need, has, workload};

use crate::body;
use crate::common::{file, folder, perf, perf_record, text, word};

/// Each row with its chains, in any order of chains that weigh the same.
fn blocks(report: &str) -> BTreeSet<String> {
    body(report).iter().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn chains_in_a_line_are_perfs() {
    if !has("chains_in_a_line_are_perfs", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let split = workload::build().split;
    perf_record(&path, &["--no-bpf-event", "-g", "-e", "cpu-clock:u", "-F", "499"], &[word(&split), "1"]);
    for how in ["folded,3", "folded,3,count", "folded,3,period,caller", "flat,3", "flat,3,count", "folded,0"] {
        let sort = if how.starts_with("flat") { "comm,sym" } else { "sym" };
        // Below that the two name the vDSO differently.
        let options = ["-i", word(&path), "-g", how, "--sort", sort, "--percent-limit", "3"];
        let ours = text(&[&["report"], &options[..]].concat());
        let theirs = perf(&[&["report", "--stdio", "--no-children", "--no-inline"], &options[..]].concat());
        // perf names the entries of linkage tables by counting, which goes wrong.
        let named = |lines: BTreeSet<String>| -> BTreeSet<String> {
            lines.into_iter().filter(|line| !line.contains("@plt") && !line.contains("_init")).collect()
        };
        let (ours, theirs) = (named(blocks(&ours)), named(blocks(&theirs)));
        assert!(ours.len() > 2, "{how}: {ours:?}");
        assert_eq!(ours, theirs, "{how}");
        println!("{how}: {} lines", ours.len());
    }
}

/// Two functions, one in the other, both in the one that is called.
const INLINED: &str = "volatile long sum;
static inline __attribute__((always_inline)) void inner(long n) {
    for (long i = 0; i < n; i++)
        sum += i;
}
static inline __attribute__((always_inline)) void middle(long n) {
    inner(n);
    sum++;
}
__attribute__((noinline)) void outer(long n) {
    middle(n);
    __asm__ volatile(\"\" ::: \"memory\");
}
int main(void) {
    for (int i = 0; i < 300; i++)
        outer(1000000);
    return 0;
}
";

#[test]
fn inlined_functions_are_frames_of_chains() {
    if !has("inlined_functions_are_frames_of_chains", &[Need::Root, Need::Perf, Need::Cc, Need::Objdump]) {
        return;
    }
    let folder = folder();
    let (path, source, program) = (file(&folder, "data"), file(&folder, "inlined.c"), file(&folder, "inlined"));
    std::fs::write(&source, INLINED).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-g", "-O1", "-fno-omit-frame-pointer", "-o"]).arg(&program).arg(&source);
    assert!(cc.status().unwrap().success());
    perf_record(&path, &["--no-bpf-event", "-g", "-e", "cpu-clock:u", "-F", "499"], &[word(&program)]);
    let options = ["-i", word(&path), "-g", "folded,3", "--sort", "sym", "--percent-limit", "3"];
    let ours = text(&[&["report", "--inline"], &options[..]].concat());
    assert!(body(&ours)[0].ends_with("[.] outer"), "the row is the function that there is: {ours}");
    let chain = body(&ours).into_iter().find(|line| line.contains("inner")).unwrap();
    assert!(chain.contains("% inner (inlined);middle (inlined);outer;"), "{chain}");
    // addr2line is the judge, of a place some bytes into the function, where its loop is under way.
    let symbols = Command::new("nm").arg(&program).output().unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let outer = symbols.lines().find_map(|line| line.strip_suffix(" T outer")).unwrap();
    let within = format!("{:x}", u64::from_str_radix(outer, 16).unwrap() + 0x14);
    let judge = Command::new("addr2line").args(["-f", "-i", "-e"]).arg(&program).arg(&within).output().unwrap();
    let judge = String::from_utf8(judge.stdout).unwrap();
    assert_eq!(judge.lines().step_by(2).collect::<Vec<_>>(), ["inner", "middle", "outer"], "{within}");
    let lines = text(&[&["report", "--inline"], &options[..2], &["-g", "srcline,folded", "--sort", "sym"]].concat());
    assert!(lines.contains("inner (inlined) inlined.c:4;middle (inlined) inlined.c:7;outer inlined.c:11;"), "{lines}");
    // What was inlined begins nowhere, so that no address is so and so far from it.
    let places = text(&[&["report", "--inline"], &options[..2], &["-g", "address,folded", "--sort", "sym"]].concat());
    assert!(places.contains(" inner (inlined);middle (inlined);outer+0x"), "{places}");
    assert!(!places.contains("(inlined)+"), "{places}");
    // `script` has a line for each, at the address that they are at.
    let script = text(&["script", "--inline", "-F", "ip,sym,srcline", "-i", word(&path)]);
    let chain: Vec<&str> = script.lines().map(str::trim).skip_while(|line| !line.ends_with(" inner")).take(6).collect();
    let at = chain[0].split(' ').next().unwrap();
    let (names, lines): (Vec<_>, Vec<_>) =
        (chain.iter().step_by(2).collect(), chain.iter().skip(1).step_by(2).collect());
    assert_eq!(names, [&format!("{at} inner"), &format!("{at} middle"), &format!("{at} outer")], "{chain:?}");
    assert!(lines[0].starts_with("inlined.c:") && lines[0].ends_with(" (inlined)"), "{chain:?}");
    assert_eq!(lines[1..], [&"inlined.c:7 (inlined)", &"inlined.c:11"], "{chain:?}");
    assert!(!text(&["script", "-F", "ip,sym", "-i", word(&path)]).contains("inlined"));
    // perf 6.1 has them where stacks were unwound from copies.
    let copies = file(&folder, "copies");
    let options_of_copies = ["--no-bpf-event", "--call-graph", "dwarf", "-e", "cpu-clock:u", "-F", "199"];
    perf_record(&copies, &options_of_copies, &[word(&program)]);
    // perf takes functions of the C library that have two names for inlined ones.
    let ends = ["/inlined)", " inner (inlined)", " middle (inlined)"];
    let of_program = |script: String| -> Vec<String> {
        script.lines().filter(|line| ends.iter().any(|end| line.ends_with(end))).map(str::to_owned).collect()
    };
    let fields = ["-F", "ip,sym,dso", "-i", word(&copies)];
    let ours = of_program(text(&[&["script", "--inline"], &fields[..]].concat()));
    let theirs = of_program(perf(&[&["script"], &fields[..]].concat()));
    assert!(ours.iter().any(|line| line.ends_with(" middle (inlined)")), "{ours:?}");
    assert_eq!(ours, theirs);
    // Without asking there are none, and with --children they have rows.
    assert!(!text(&[&["report"], &options[..]].concat()).contains("inlined"));
    let children = text(&["report", "--children", "--inline", "-g", "none", "--sort", "sym", "-i", word(&path)]);
    assert!(children.contains("[.] middle (inlined)"), "{children}");
}

#[test]
fn the_head_alone_is_shown_without_the_records() {
    let folder = folder();
    let path = file(&folder, "data");
    crate::two_events(&path);
    let head = text(&["report", "--header-only", "-i", word(&path)]);
    assert!(head.starts_with("# ========\n# header version : 1\n# data offset    : "), "{head}");
    assert!(head.ends_with("# ========\n#\n") && head.lines().all(|line| line.starts_with('#')), "{head}");
    assert_eq!(text(&["script", "--header-only", "-i", word(&path)]), head);
    if has("the_head_alone_is_shown_without_the_records", &[Need::Perf]) {
        let theirs = perf(&["report", "--header-only", "-i", word(&path)]);
        for line in theirs.lines().filter(|line| line.contains(" offset ") || line.contains("data size")) {
            assert!(head.lines().any(|our| our == line), "{line}: {head}");
        }
    }
}

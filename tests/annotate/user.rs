//! User code: the instructions that objdump shows, the samples where perf puts them, source with what was inlined.

use std::path::Path;
use std::process::Command;

use afterimage_testkit::{Need, has, workload};

use crate::common::{afterimage, file, folder, perf, perf_record, stderr, word};
use crate::listing::{annotate, lines, only, percents, plain, samples};

/// Address and text of every instruction of a function, by objdump.
fn objdump(program: &Path, function: &str, options: &[&str]) -> Vec<(u64, String)> {
    let output = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn"])
        .args(options)
        .arg(format!("--disassemble={function}"))
        .arg(program)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().filter_map(|line| line.trim_start().split_once(":\t"));
    let rows = rows.filter_map(|(address, text)| Some((u64::from_str_radix(address, 16).ok()?, one_space(text))));
    rows.collect()
}

fn one_space(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn ours(symbol: &serde_json::Value) -> Vec<(u64, String)> {
    let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let row = |line: &serde_json::Value| {
        (address(line["address"].as_str().unwrap()), one_space(line["text"].as_str().unwrap()))
    };
    lines(symbol).iter().map(row).collect()
}

#[test]
fn instructions_are_those_of_objdump() {
    let needs = [Need::Root, Need::Perf, Need::Cc];
    if !has("instructions_are_those_of_objdump", &needs) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let programs = workload::build();
    perf_record(&path, &["-B", "-e", "cpu-clock:u", "-F", "999"], &[word(&programs.split), "1"]);
    for (function, program) in [("spin_seventy", &programs.split), ("library_spin", &programs.library)] {
        for (style, option) in [("att", "att"), ("intel", "intel")] {
            let shown = annotate(&path, &["-s", function, "-M", style]);
            let (ours, theirs) = (ours(only(&shown)), objdump(program, function, &["-M", option]));
            assert!(theirs.len() > 10, "{theirs:?}");
            let addresses = |rows: &[(u64, String)]| -> Vec<u64> { rows.iter().map(|row| row.0).collect() };
            assert_eq!(addresses(&ours), addresses(&theirs), "{function}");
            let same = ours.iter().zip(&theirs).filter(|(a, b)| a == b).count();
            for (a, b) in ours.iter().zip(&theirs).filter(|(a, b)| a != b) {
                println!("{style}: {:x}: {:?} where objdump has {:?}", a.0, a.1, b.1);
            }
            println!("{function} {style}: {same} of {} instructions read alike", ours.len());
            // Of a number of 64 bits objdump says so, and Intel's manuals do not.
            let first = |text: &str| text.split(' ').next().unwrap_or_default().replace("movabs", "mov");
            let words = |rows: &[(u64, String)]| -> Vec<String> { rows.iter().map(|row| first(&row.1)).collect() };
            assert_eq!(words(&ours), words(&theirs), "{function}");
            assert!(same * 10 >= ours.len() * 8, "{same} of {}", ours.len());
        }
    }
}

#[test]
fn samples_are_where_perf_has_them() {
    if !has("samples_are_where_perf_has_them", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let split = workload::build().split;
    perf_record(&path, &["-B", "-e", "cpu-clock:u", "-F", "1999"], &[word(&split), "1"]);
    let shown = annotate(&path, &["-s", "spin_thirty"]);
    let symbol = only(&shown);
    let total: u64 = samples(symbol).iter().sum();
    assert!(total > 50, "{total}");
    assert_eq!(symbol["events"][0]["samples"], total);
    assert!((percents(symbol) - 100.0).abs() < 0.01);
    // perf script has the address of each sample.
    let listed = perf(&["script", "-i", word(&path), "-F", "ip,sym"]);
    let theirs = listed.lines().filter(|line| line.ends_with(" spin_thirty")).count() as u64;
    assert_eq!(total, theirs);
    // All of the time goes to the loop of multiplications, which is inlined from common.h.
    let inlined = |line: &&serde_json::Value| line["source"][0]["function"] == "churn";
    let in_loop: u64 =
        lines(symbol).iter().filter(inlined).map(|line| line["events"][0]["samples"].as_u64().unwrap()).sum();
    assert!(in_loop * 10 > total * 9, "{in_loop} of {total}");
    let row = lines(symbol).iter().find(inlined).unwrap();
    let chain: Vec<&str> = row["source"].as_array().unwrap().iter().map(|o| o["function"].as_str().unwrap()).collect();
    assert_eq!(chain, ["churn", "work_for", "spin_thirty"]);
    assert!(row["source"][0]["file"].as_str().unwrap().ends_with("common.h"));
}

#[test]
fn everything_heavy_without_a_name() {
    if !has("everything_heavy_without_a_name", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let split = workload::build().split;
    perf_record(&path, &["-B", "-e", "cpu-clock:u", "-F", "999"], &[word(&split), "1"]);
    let shown = plain(&path, &["--percent-limit", "5"]);
    for name in ["spin_seventy", "spin_thirty", "library_spin", "child_spin"] {
        assert!(shown.contains(&format!("Disassembly of {name} for cpu-clock:u (")), "{name} in\n{shown}");
    }
    let first = shown.lines().next().unwrap();
    assert!(first.contains("Disassembly of spin_seventy for") && first.contains("percent: local period"), "{first}");
    let more =
        plain(&path, &["-s", "child_spin", "-n", "--show-total-period", "--asm-raw", "--percent-type", "global-hits"]);
    assert!(more.starts_with(" Percent      Samples           Period |"), "{more}");
    assert!(more.contains(":   55 ") && more.contains("push   %rbp"), "{more}");
    let only_library = plain(&path, &["--percent-limit", "0", "-d", "libsplit.so"]);
    assert!(only_library.contains("of library_spin for") && !only_library.contains("of spin_"), "{only_library}");
}

#[test]
fn a_file_of_another_build_gives_no_code() {
    if !has("a_file_of_another_build_gives_no_code", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let program = file(&folder, "busy");
    std::fs::copy(workload::build().busy, &program).unwrap();
    perf_record(&path, &["-B", "--buildid-mmap", "-e", "cpu-clock:u", "-F", "999"], &[word(&program), "50"]);
    // No copies that perf keeps, and a cache of our own.
    let ours = || {
        let mut command = afterimage();
        command.env("HOME", folder.path()).env("XDG_CACHE_HOME", folder.path().join("cache"));
        let output = command.args(["annotate", "--json", "-i", word(&path), "-s", "busy_leaf"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let shown = ours();
    assert_eq!(only(&shown)["code"]["way"], "file", "{shown}");
    std::fs::copy(workload::build().faults, &program).unwrap();
    // Its name is known from the cache; its code is not there.
    let shown = ours();
    let symbol = only(&shown);
    assert_eq!(symbol["code"], serde_json::Value::Null);
    assert_eq!(symbol["tried"][0]["reason"], "the file is of another build than the recorded one");
    assert!(samples(symbol).iter().sum::<u64>() > 10, "{symbol}");
}

/// Lines of the source between the instructions, where the file is still there.
#[test]
fn the_source_stands_between() {
    if !has("the_source_stands_between", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let (source, program, path) = (file(&folder, "loop.c"), file(&folder, "loop"), file(&folder, "data"));
    let text = "unsigned hot(unsigned x)\n{\n\tfor (unsigned i = 0; i < 300000000; i++)\n\t\tx = x * 31 + i; /* here */\n\treturn x;\n}\n\nint main(int argc, char **argv)\n{\n\treturn hot(argc) & 1;\n}\n";
    std::fs::write(&source, text).unwrap();
    let built =
        Command::new("cc").args(["-O1", "-g", "-fno-inline", "-o"]).arg(&program).arg(&source).status().unwrap();
    assert!(built.success());
    perf_record(&path, &["-B", "-e", "cpu-clock:u", "-F", "999"], &[word(&program)]);
    let shown = plain(&path, &["-s", "hot"]);
    assert!(shown.contains(": loop.c:4          x = x * 31 + i; /* here */\n"), "{shown}");
    let symbol = annotate(&path, &["-s", "hot"]);
    let here = crate::listing::samples_of_line(only(&symbol), 4) + crate::listing::samples_of_line(only(&symbol), 3);
    let all: u64 = samples(only(&symbol)).iter().sum();
    assert!(here * 100 >= all * 99 && all > 20, "{here} of {all}");
}

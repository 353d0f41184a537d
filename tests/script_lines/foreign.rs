//! Recordings that others made.

use std::collections::BTreeMap;
use std::path::PathBuf;

use afterimage_testkit::{Need, corpus, has};

use crate::common::{run, stdout, word};
use crate::compare::{By, LINES, lines, perfs};

/// What perf 6.1 does not read, why, and how many samples are in it.
const BEYOND: [(&str, &str, usize); 4] = [
    ("fibo.compressed2.pipe.data", "records of type COMPRESSED2 are newer", 547),
    ("sleep.data", "its attrs are longer than any of perf 6.1", 7),
    ("sleep.compressed.data", "its attrs are longer than any of perf 6.1", 8),
    ("perf.data.piped.corrupted.zero_size_sample-3.2", "perf stops at the record of size 0, behind which 227 are", 227),
];

/// What perf has to be told, or it prints lines that are not of the recording's samples.
const TOLD: [(&str, &[&str], &str); 1] = [(
    "perf.data.intel_pt-4.14",
    &["--no-itrace"],
    "it makes samples and errors up from the trace of instructions among the 15 that were recorded",
)];

fn files() -> BTreeMap<String, PathBuf> {
    let folders = std::fs::read_dir(corpus().unwrap()).unwrap().flatten().filter(|e| e.path().is_dir());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).unwrap().flatten());
    files.map(|file| (file.file_name().into_string().unwrap(), file.path())).collect()
}

/// Compares each file that perf reads by what `differ` says of it, and gives how many there were.
fn each(differ: impl Fn(&str, &PathBuf, &[&str]) -> Result<usize, String>) -> usize {
    let (mut compared, mut wrong) = (0, Vec::new());
    for (name, path) in files() {
        if BEYOND.iter().any(|(beyond, ..)| *beyond == name) {
            continue;
        }
        let told = TOLD.iter().find(|(of, ..)| *of == name).map_or(&[][..], |(_, told, _)| told);
        match differ(&name, &path, told) {
            Ok(lines) => println!("{name}: {lines} lines {}", told.concat()),
            Err(how) => wrong.push(format!("{name}: {how}")),
        }
        compared += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    compared
}

#[test]
fn foreign_recordings_have_the_lines_of_perf() {
    if !has("foreign_recordings_have_the_lines_of_perf", &[Need::Corpus, Need::Perf]) {
        return;
    }
    let compared = each(|_, path, told| lines(By::Name, path, LINES, told));
    assert!(compared >= 23, "{compared}");
    for (name, why, samples) in BEYOND {
        let path = &files()[name];
        println!("{name}: not compared: {why}");
        assert_eq!(perfs(By::Name, path, &[&["script"], LINES].concat()), None, "{name}");
        let ours = run(&[&["script", "-G", "-i", word(path)], LINES].concat());
        assert_eq!(stdout(&ours).lines().count(), samples, "{name}");
    }
}

/// All that perf shows when it is not asked for anything, but for names: those are other tests'.
#[test]
fn foreign_recordings_have_the_fields_of_perf() {
    if !has("foreign_recordings_have_the_fields_of_perf", &[Need::Corpus, Need::Perf]) {
        return;
    }
    each(|_, path, told| lines(By::Name, path, &["-F", "-sym,-symoff,-dso"], told));
    each(|_, path, told| lines(By::Name, path, &["-F", "comm,pid,tid,time,period,event,misc,flags", "--ns"], told));
    let files = files();
    for (name, fields, told) in [
        ("perf.data.branch-4.14", "event,ip,brstack", &[][..]),
        ("perf.data.branch-4.14", "event,ip,dso,brstack", &[]),
        ("perf.data.branch-4.14", "comm,brstacksym", &[]),
        ("perf.data.branch_stack_hw_index", "event,cpu,ip,brstack", &[]),
        ("perf.data.branch_stack_hw_index", "event,ip,dso,brstack", &[]),
        ("perf.data.callgraph_and_branch-3.4", "event,cpu,ip,brstack", &[]),
        ("perf.data.weight_struct", "event,addr,cpu,data_src,weight,ins_lat,ip", &[]),
        ("perf.data.weight_struct", "weight,ins_lat", &[]),
        ("perf.data.raw-3.4", "cpu,event,ip,period", &[]),
        ("perf.data.intel_pt-4.14", "pid,event,ip", &["--no-itrace"]),
    ] {
        let compared = lines(By::Name, &files[name], &["-F", fields], told);
        assert!(compared.as_ref().is_ok_and(|lines| *lines > 4), "{name} {fields}: {compared:?}");
    }
}

//! Stock perf reads a recording of ours without a word that it does not say about its own, and finds the same in it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use afterimage_testkit::{Need, has, workload};
use serde_json::Value;

use crate::common::{file, folder, perf_record, run, stderr, stdout, word};
use crate::helper::{alone, event, lines, number, record, report, tally};

/// A reader of perf: its stdout, and the lines of its stderr with every number made 0.
fn read_by_perf(words: &[&str], path: &Path) -> (std::process::Output, BTreeSet<String>) {
    let output = Command::new("perf").args(words).arg("-i").arg(path).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "perf {words:?}: {}", stderr(&output));
    let said = stderr(&output).lines().map(without_numbers).filter(|line| !line.is_empty()).collect();
    (output, said)
}

fn without_numbers(line: &str) -> String {
    line.chars().filter(|c| !c.is_ascii_digit()).collect::<String>().trim().to_owned()
}

/// Symbols with their shares, most first.
type Shares = Vec<(String, f64)>;

fn shares_of_perf(text: &str) -> Shares {
    let row = |line: &str| {
        let (percent, symbol) = line.trim().split_once("%")?;
        Some((symbol.trim().trim_end_matches("  -      -").trim().to_owned(), percent.trim().parse().ok()?))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(row).collect()
}

fn shares_of_ours(event: &Value) -> Shares {
    let row = |row: &Value| {
        let level = row["level"].as_str().unwrap();
        let name = match row["sym"].as_str() {
            Some(name) => name.to_owned(),
            None => format!("{:#018x}", hex(row["address"].as_str().unwrap())),
        };
        (format!("[{level}] {name}"), row["percent"].as_f64().unwrap())
    };
    event["rows"].as_array().unwrap().iter().map(row).collect()
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// Every symbol among the first ten of one is among those of the other, save those within a point of the tenth.
fn assert_same_top(perf: &Shares, ours: &Shares) {
    let top = |shares: &Shares| shares.iter().take(10).cloned().collect::<Vec<_>>();
    for (one, other, whose) in [(perf, ours, "perf's"), (ours, perf, "ours")] {
        let tenth = one.get(9).map_or(0.0, |(_, share)| *share);
        let others = top(other);
        for (symbol, share) in top(one).iter().filter(|(_, share)| *share > tenth + 1.0) {
            let found = others.iter().any(|(name, _)| name == symbol);
            assert!(found, "{symbol} with {share} % is only in {whose} top ten: {perf:?} {ours:?}");
        }
    }
}

#[test]
fn stock_perf_reads_a_recording_of_the_machine() {
    if !has("stock_perf_reads_a_recording_of_the_machine", &[Need::Root, Need::Bpf, Need::Perf, Need::Cc]) {
        return;
    }
    let _turn = alone();
    let folder = folder();
    let (path, theirs) = (file(&folder, "a.data"), file(&folder, "perf.data"));
    // Something that stands out, whatever else this machine does.
    let mut busy = Command::new(workload::build().split).arg("20").stdout(Stdio::null()).spawn().unwrap();
    record(&path, &["-a", "-g", "-F", "999", "--", "sleep", "2"]);
    perf_record(&theirs, &["-a", "-g", "-F", "999", "-e", "cpu-clock"], &["sleep", "2"]);
    busy.kill().unwrap();
    busy.wait().unwrap();

    let readers: [&[&str]; 4] = [
        &["report", "--stdio", "--no-inline"],
        &["report", "--stdio", "-g", "none", "--no-children", "--sort", "sym"],
        &["script", "--no-inline"],
        &["script", "--no-inline", "-G", "-F", "comm,tid,time,event,ip"],
    ];
    let of_ours: Vec<_> = readers.iter().map(|words| read_by_perf(words, &path)).collect();
    for ((_, said), words) in of_ours.iter().zip(readers) {
        let (_, usual) = read_by_perf(words, &theirs);
        let unusual: Vec<_> = said.difference(&usual).collect();
        assert!(unusual.is_empty(), "perf {words:?}: {unusual:?}");
    }

    let sum = tally(&path).total();
    let (report, _) = report(&path, &["--sort", "sym"]);
    let shown = event(&report, "cpu-clock");
    let ours = lines(&run(&["script", "-i", word(&path), "-G", "-F", "comm,tid,time,event,ip"]));
    let perf = lines(&of_ours[3].0);
    println!("samples: perf {perf}, script {ours}, report {}, tally {sum:?}", shown["samples"]);
    assert!(perf > 1000, "{perf} samples of 4,000");
    assert_eq!((ours, number(&shown["samples"]), sum.ring.delivered), (perf, perf, perf));
    let (perf, ours) = (shares_of_perf(&stdout(&of_ours[1].0)), shares_of_ours(shown));
    assert!(!perf.is_empty());
    println!(
        "perf {:?}\nours {:?}",
        perf.iter().take(10).collect::<Vec<_>>(),
        ours.iter().take(10).collect::<Vec<_>>()
    );
    assert_same_top(&perf, &ours);
}

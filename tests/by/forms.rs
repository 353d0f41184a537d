//! Table, histogram, folded stacks; the end by a signal, and by a reader that has had enough.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use afterimage_testkit::{Need, has, workload};

use crate::common::{afterimage, run, stderr, stdout, word};
use crate::helper::turn;

const NEEDS: [Need; 3] = [Need::Root, Need::Bpf, Need::Cc];

#[test]
fn a_table_has_a_row_for_each_key() {
    if !has("a_table_has_a_row_for_each_key", &NEEDS) {
        return;
    }
    let _turn = turn();
    let busy = workload::build().busy;
    let output = run(&["record", "--by", "comm,kstack", "-e", "cpu-clock:u", "-F", "1000", "--", word(&busy), "300"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(text.contains("samples of event 'cpu-clock:u' by comm, kstack"), "{text}");
    let row = text.lines().find(|line| line.trim_end().ends_with("busy")).unwrap_or_else(|| panic!("{text}"));
    assert!(row.trim_start().starts_with("100.00%") || row.contains('%'), "{text}");
    // What the command prints does not stand among the rows.
    assert!(!text.contains("cpu_ns") && stderr(&output).contains("cpu_ns"), "{text}");
    assert!(stderr(&output).lines().any(|line| line.contains("samples: ") && line.contains("kept")), "{output:?}");
}

#[test]
fn a_histogram_of_fixed_periods_has_one_bucket() {
    if !has("a_histogram_of_fixed_periods_has_one_bucket", &NEEDS) {
        return;
    }
    let _turn = turn();
    let busy = workload::build().busy;
    let words = ["--value", "hist(period)", "-e", "cpu-clock", "-c", "1500000", "--", word(&busy), "200"];
    let output = run(&[&["record", "--by", "comm"][..], &words].concat());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let bars: Vec<&str> = text.lines().filter(|line| line.ends_with('|')).collect();
    assert!(!bars.is_empty() && bars.iter().all(|line| line.trim().starts_with("[1048576, 2097151]")), "{text}");
    assert!(bars[0].contains(&"@".repeat(40)), "{text}");
}

#[test]
fn folded_stacks_are_drawn() {
    if !has("folded_stacks_are_drawn", &NEEDS) {
        return;
    }
    let _turn = turn();
    let busy = workload::build().busy;
    let words = ["-e", "cpu-clock", "-F", "2000", "--", word(&busy), "400", "3"];
    let output = run(&[&["record", "--by", "comm,stack", "--folded"][..], &words].concat());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let line = |line: &str| line.contains(";main;busy_level;busy_level;busy_level;busy_level;busy_leaf ");
    assert!(text.lines().any(|one| one.starts_with("busy;") && line(one)), "{text}");
    let mut svg = Vec::new();
    let mut options = inferno::flamegraph::Options::default();
    inferno::flamegraph::from_lines(&mut options, text.lines(), &mut svg).unwrap();
    let drawn = String::from_utf8(svg).unwrap();
    assert!(drawn.contains("busy_leaf") && drawn.contains("</svg>"));
    let total: u64 = text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    let said = stderr(&output);
    let kept =
        said.lines().find_map(|line| line.split_once("samples: ")?.1.split(' ').next()).unwrap().replace(',', "");
    assert_eq!(kept.parse(), Ok(total), "{said}");
}

#[test]
fn a_signal_ends_it_with_what_was_counted() {
    if !has("a_signal_ends_it_with_what_was_counted", &NEEDS) {
        return;
    }
    let _turn = turn();
    let mut command = afterimage();
    command.args(["record", "--by", "cpu", "-a", "-e", "cpu-clock", "--interval", "100ms", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("\"last\":false"), "{first}");
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let last = lines.map(Result::unwrap).last().unwrap();
    assert!(last.contains("\"last\":true") && last.contains("\"handled\""), "{last}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_reader_that_goes_ends_it() {
    if !has("a_reader_that_goes_ends_it", &NEEDS) {
        return;
    }
    let _turn = turn();
    let mut command = afterimage();
    command.args(["record", "--by", "cpu", "-a", "-e", "cpu-clock", "--interval", "50ms", "--", "sleep", "60"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).contains("roken pipe")), (Some(0), false), "{output:?}");
}

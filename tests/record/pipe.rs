//! The pipe form: `record -o -` into another program.

use std::process::{Command, Stdio};

use afterimage_perf_data::FileReader;
use afterimage_perf_data::record::{kind, misc};
use afterimage_testkit::{Need, has, turns, workload};

use crate::common::{afterimage, file, folder, stderr, stdout, word};
use crate::helper::{beside, until};

/// `record -o - | reader`: both outputs.
fn piped(handler: &str, reader: &mut Command) -> (std::process::Output, std::process::Output) {
    // What the program prints must not get into the pipe.
    let busy = format!("{} 300 >&2", word(&workload::build().busy));
    streamed(&["-F", "2000", "-g", "--handler", handler, "--", "sh", "-c", &busy], reader)
}

/// `record -o - WORDS | reader`: both outputs.
fn streamed(words: &[&str], reader: &mut Command) -> (std::process::Output, std::process::Output) {
    let mut writer = afterimage()
        .args(["record", "-o", "-"])
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let read = reader.stdin(writer.stdout.take().unwrap()).output().unwrap();
    // The command holds our copy of the pipe, which would stay open.
    reader.stdin(Stdio::null());
    (writer.wait_with_output().unwrap(), read)
}

#[test]
fn a_pipe_carries_a_recording_to_perf_and_to_us() {
    if !has("a_pipe_carries_a_recording_to_perf_and_to_us", &[Need::Root, Need::Bpf, Need::Perf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let mut perf = Command::new("perf");
    perf.args(["report", "--stdio", "--no-inline", "-g", "none", "-i", "-"]);
    let (writer, read) = piped("none", &mut perf);
    println!("{}\n{}", stderr(&writer), stderr(&read));
    assert_eq!(writer.status.code(), Some(0), "{}", stderr(&writer));
    assert!(read.status.success() && stdout(&read).contains("busy_leaf"), "{}\n{}", stdout(&read), stderr(&read));

    for handler in ["none", "emit"] {
        let (writer, read) = piped(handler, afterimage().args(["report", "-i", "-", "--json"]));
        assert_eq!(writer.status.code(), Some(0), "{}", stderr(&writer));
        assert!(stderr(&writer).contains("samples:"), "no tally: {}", stderr(&writer));
        assert_eq!(read.status.code(), Some(0), "{handler}: {}", stderr(&read));
        assert!(stdout(&read).contains("busy_leaf"), "{handler}: {}", stdout(&read));
        // The recorder's own tally has no place in a pipe: the reader counts what it sees.
        assert!(stdout(&read).contains(r#""tally_source":"records""#), "{handler}: {}", stdout(&read));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    if !has("a_reader_that_goes_away_is_no_failure", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let (writer, _) = piped("none", Command::new("head").args(["-c", "100"]));
    assert_eq!(writer.status.code(), Some(0), "{}", stderr(&writer));
}

#[test]
fn a_pipe_carries_the_formats_of_tracepoints() {
    if !has("a_pipe_carries_the_formats_of_tracepoints", &[Need::Root, Need::Perf, Need::Tracefs]) {
        return;
    }
    let _turn = beside();
    let script = ["script", "-F", "comm,tid,time,event,trace", "-i", "-"];
    let mut perf = Command::new("perf");
    perf.args(script);
    for reader in [&mut perf, afterimage().args(script)] {
        let words = ["-e", "sched:sched_process_fork", "--", "sh", "-c", "(exit 3); (exit 4); (exit 5); true"];
        let (writer, read) = streamed(&words, reader);
        assert_eq!(writer.status.code(), Some(0), "{}", stderr(&writer));
        assert!(read.status.success(), "{reader:?}: {}", stderr(&read));
        println!("{reader:?}: {}", stdout(&read));
        let hits = stdout(&read)
            .lines()
            .filter(|line| line.contains("sched_process_fork") && line.contains("child_comm="))
            .count();
        assert_eq!(hits, 3, "{reader:?}: {}{}", stdout(&read), stderr(&read));
    }
}

/// What happens while nobody reads is in the stream all the same.
#[test]
fn a_slow_reader_does_not_hold_up_the_passes() {
    if !has("a_slow_reader_does_not_hold_up_the_passes", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let done = file(&folder, "done");
    let commands = turns(3000);
    let script = format!("i=0; while [ $i -lt {commands} ]; do /bin/true; i=$((i+1)); done; : > {}", word(&done));
    let writer = afterimage()
        .args(["record", "-o", "-", "-a", "-F", "99", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("the end of the command", || done.exists());
    let output = writer.wait_with_output().unwrap();
    println!("{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!stderr(&output).contains("were lost"), "{}", stderr(&output));
    let reader = FileReader::open(&output.stdout).unwrap();
    let execs = reader.records().filter(|record| {
        let record = record.as_ref().unwrap();
        record.header.kind == kind::COMM && record.header.misc & misc::COMM_EXEC != 0
    });
    assert!(execs.count() >= commands as usize);
}

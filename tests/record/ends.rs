//! How a recording ends, and what it leaves behind when it does not begin.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use afterimage_perf_data::FileReader;
use afterimage_perf_data::record::{kind, misc};
use afterimage_testkit::{Need, has, turns};
use rustix::process::Signal;

use crate::common::{file, folder, run, stderr, word};
use crate::helper::{beside, record, recorder, signal, start, tally, until};

const NEEDS: [Need; 2] = [Need::Root, Need::Bpf];

/// Waits until the recorder has samples in its file.
fn sampling(path: &Path) {
    until("sampling", || {
        let bytes = fs::read(path).unwrap_or_default();
        let Ok(reader) = FileReader::open(&bytes) else { return false };
        reader.records().map_while(Result::ok).any(|record| record.header.kind == kind::SAMPLE)
    });
}

#[test]
fn a_signal_ends_in_good_order() {
    if !has("a_signal_ends_in_good_order", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    for (name, end) in [("int", Signal::INT), ("term", Signal::TERM)] {
        let path = file(&folder, &format!("{name}.data"));
        let child = start(&path, &["-a", "-F", "997"]);
        sampling(&path);
        signal(&child, end);
        let output = child.wait_with_output().unwrap();
        let said = stderr(&output);
        println!("{said}");
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.lines().last().unwrap().contains("afterimage report -i"), "{said}");
        assert!(tally(&path).total().ring.delivered > 0);
        assert!(!path.with_extension("data.journal").exists());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_signal_ends_the_command_too() {
    if !has("a_signal_ends_the_command_too", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "a.data");
    let child = start(&path, &["-a", "-F", "997", "--", "sleep", "600"]);
    sampling(&path);
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    // It was asked by SIGTERM to end, and that is passed on.
    assert_eq!(output.status.signal(), Some(15), "{:?} {}", output.status, stderr(&output));
    assert!(tally(&path).total().ring.delivered > 0);
}

#[test]
fn the_command_s_end_is_passed_on() {
    if !has("the_command_s_end_is_passed_on", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "a.data");
    let output = recorder(&path, &["--", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    tally(&path);
    let output = recorder(&path, &["--", "sh", "-c", "kill -9 $$"]).output().unwrap();
    assert_eq!(output.status.signal(), Some(9), "{:?} {}", output.status, stderr(&output));
    tally(&path);
    // The one before is kept under perf's name for it.
    tally(&file(&folder, "a.data.old"));
}

#[test]
fn a_command_that_does_not_start_leaves_nothing() {
    if !has("a_command_that_does_not_start_leaves_nothing", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let (path, text) = (file(&folder, "a.data"), file(&folder, "text"));
    fs::write(&text, "no program").unwrap();
    let refused: [(&[&str], i32); 5] = [
        (&["--", "/nonexistent/command"], 127),
        (&["--", "no-such-command-here"], 127),
        (&["-a", "--", "no-such-command-here"], 127),
        (&["--", word(&text)], 126),
        (&["-D", "10", "--", word(&text)], 126),
    ];
    for (words, code) in refused {
        let output = recorder(&path, words).output().unwrap();
        println!("{words:?}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", stderr(&output));
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["text"], "{words:?}");
    }
    fs::write(&path, "the recording before").unwrap();
    fs::write(file(&folder, "a.data.old"), "and the one before that").unwrap();
    for (words, code) in refused {
        assert_eq!(recorder(&path, words).output().unwrap().status.code(), Some(code), "{words:?}");
        assert_eq!(fs::read(&path).unwrap(), b"the recording before", "{words:?}");
        assert_eq!(fs::read(file(&folder, "a.data.old")).unwrap(), b"and the one before that", "{words:?}");
    }
}

#[test]
fn a_time_limit_and_the_end_of_all_targets() {
    if !has("a_time_limit_and_the_end_of_all_targets", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "a.data");
    record(&path, &["--duration", "0.5", "-a", "-F", "997"]);
    assert!(tally(&path).total().ring.delivered > 0);
    // The limit ends the command, and that is not the command's failure.
    record(&path, &["--duration", "0.3", "--", "sleep", "600"]);
    tally(&path);

    let mut targets: Vec<_> = (0..2).map(|_| Command::new("sleep").arg("600").spawn().unwrap()).collect();
    let list = format!("{}, {}", targets[0].id(), targets[1].id());
    let path = file(&folder, "p.data");
    let child = start(&path, &["-p", &list]);
    until("the file", || fs::metadata(&path).is_ok_and(|m| m.len() > 1000));
    for target in &mut targets {
        target.kill().unwrap();
        target.wait().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    tally(&path);
    let output = recorder(&path, &["-p", &targets[0].id().to_string()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("no such process"), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_is_a_matter_of_usage() {
    let folder = folder();
    let path = file(&folder, "a.data");
    let refused: [(&[&str], &str); 17] = [
        (&["-z", "--", "true"], "--compression-level: not supported yet"),
        (&["--per-thread", "--", "true"], "--per-thread: not supported yet"),
        (&["--where", "pid == ", "--", "true"], "--where"),
        (&["--filter", "x", "--", "true"], "--filter: there is no tracepoint"),
        (&["-u", "nobody"], "--uid: not supported yet"),
        (&["--call-graph", "lbr", "--", "true"], "not supported yet\n  hint: fp follows"),
        (&["--call-graph", "dwarf,x", "--", "true"], "from 1 to 65528\n  hint: for example dwarf,16384"),
        (&["--call-graph", "dwarf,", "--", "true"], "from 1 to 65528\n  hint: for example dwarf,16384"),
        (&["--call-graph", "fp,8192", "--", "true"], "dwarf alone has a size\n  hint: fp follows"),
        (&["--call-graph", "dwarf,8192,1", "--", "true"], "from 1 to 65528\n  hint: for example dwarf,16384"),
        (
            &["--call-graph", "graph", "--", "true"],
            "not a way to take call chains (fp, dwarf or dwarf,SIZE)\n  hint: fp follows",
        ),
        (
            &["--call-graph", "dwarf,70000", "--", "true"],
            "--call-graph dwarf,70000: not a size in bytes from 1 to 65528",
        ),
        (&["--call-graph", "dwarf", "--handler", "count", "--", "true"], "count takes no copies of stacks"),
        (&["-e", "cpu-clok", "--", "true"], "cpu-clock"),
        (&["-e", "", "--", "true"], "-e"),
        (&["--handler", "nun", "--", "true"], "none, emit and count"),
        (&["--chain", "--", "true"], "--handler"),
    ];
    for (words, answer) in refused {
        let output = recorder(&path, words).output().unwrap();
        println!("{words:?}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(answer), "{words:?}: {}", stderr(&output));
    }
    let output = run(&["record", "-o", "-", "--handler", "count", "--", "true"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{}", stderr(&output));
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
}

/// Sampling begins late, the sideband from the beginning: rings much smaller than what it tells meanwhile lose nothing.
#[test]
fn nothing_is_lost_while_sampling_waits() {
    if !has("nothing_is_lost_while_sampling_waits", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "a.data");
    // Each of the commands tells of a kilobyte at least: names, maps, its begin and end.
    let commands = turns(3000);
    let script = format!("i=0; while [ $i -lt {commands} ]; do /bin/true; i=$((i+1)); done");
    let output = record(&path, &["-a", "-D", "600000", "-F", "99", "--", "sh", "-c", &script]);
    // The command ends long before the delay does, and the recording with it.
    let said = stderr(&output);
    println!("{said}");
    assert!(!said.contains("were lost"), "{said}");
    tally(&path);
    let bytes = fs::read(&path).unwrap();
    let reader = FileReader::open(&bytes).unwrap();
    let execs = reader.records().filter(|record| {
        let record = record.as_ref().unwrap();
        record.header.kind == kind::COMM && record.header.misc & misc::COMM_EXEC != 0
    });
    assert!(execs.count() >= commands as usize);
}

#[test]
fn a_delay_ends_and_sampling_begins() {
    if !has("a_delay_ends_and_sampling_begins", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "a.data");
    record(&path, &["-a", "-D", "300", "--duration", "0.5", "-F", "997"]);
    assert!(tally(&path).total().ring.delivered > 0);
}

#[test]
fn processes_come_before_cpus() {
    if !has("processes_come_before_cpus", &NEEDS) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "a.data");
    let own = std::process::id().to_string();
    for (words, options) in [(&["-a"][..], "-a does not count: -p"), (&["-C", "0", "-t", "1"], "-C does not count: -p")]
    {
        let output = record(&path, &[words, &["-p", &own, "--", "true"]].concat());
        assert!(stderr(&output).contains(options), "{}", stderr(&output));
    }
}

//! Events that are counted one by one: every one of them is in the recording, whatever handler runs.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use afterimage_testkit::{Need, has, workload};

use crate::common::{file, folder, run, stderr, word};
use crate::helper::{alone, beside, event, number, record, report, samples_in, tally};

const HANDLERS: [&str; 3] = ["none", "emit", "count"];

/// A program that prints a line and waits for a byte, which a writer to the fifo gives.
pub(crate) fn waiting(program: &mut Command, fifo: &Path) -> (Child, BufReader<ChildStdout>, String) {
    assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    // Opened for both, so that neither end waits for the other.
    let stdin = File::options().read(true).write(true).open(fifo).unwrap();
    let mut child = program.stdin(stdin).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    (child, stdout, line.trim().to_owned())
}

/// The command of a recording that gives the byte once sampling has begun, and then lasts longer than the program.
pub(crate) fn giving(fifo: &Path) -> String {
    format!("printf x > {}; exec sleep 60", word(fifo))
}

#[test]
fn page_faults_are_exact() {
    if !has("page_faults_are_exact", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let (folder, faults) = (folder(), workload::build().faults);
    for handler in HANDLERS {
        let path = file(&folder, handler);
        let words = ["-e", "page-faults", "-c", "1", "-g", "--handler", handler, "--", word(&faults), "1500"];
        record(&path, &words);
        let (report, _) = report(&path, &["--sort", "sym"]);
        let sum = tally(&path).total();
        println!("{handler}: {}", sum.human());
        let shown = event(&report, "page-faults");
        assert_eq!(samples_in(shown, "touch_pages"), 1500, "{handler}");
        assert_eq!(sum.handled, Some(number(&shown["samples"])), "{handler}: {sum:?}");
    }
}

#[test]
fn a_breakpoint_is_exact() {
    if !has("a_breakpoint_is_exact", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let (folder, writes) = (folder(), workload::build().writes);
    for handler in HANDLERS {
        let (path, fifo) = (file(&folder, handler), file(&folder, &format!("{handler}.fifo")));
        let (mut child, _stdout, address) = waiting(Command::new(&writes).arg("1200"), &fifo);
        let name = format!("mem:{address}:w");
        let pid = child.id().to_string();
        let command = giving(&fifo);
        record(&path, &["-e", &name, "-c", "1", "--handler", handler, "-p", &pid, "--", "sh", "-c", &command]);
        assert!(child.wait().unwrap().success());
        let sum = tally(&path).total();
        println!("{handler}: {}", sum.human());
        assert_eq!(sum.handled, Some(1200), "{handler}: {sum:?}");
        let (report, _) = report(&path, &["--sort", "sym"]);
        assert_eq!(samples_in(&report["events"][0], "write_watched"), 1200, "{handler}");
    }
}

#[test]
fn a_tracepoint_carries_no_program() {
    if !has("a_tracepoint_carries_no_program", &[Need::Root, Need::Bpf, Need::Tracefs]) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "data");
    record(&path, &["-e", "sched:sched_process_fork", "--", "sh", "-c", "(exit 3); (exit 4); (exit 5); true"]);
    let alone = tally(&path).total();
    assert_eq!((alone.handled, alone.passed, alone.ring.lost), (None, None, 0));
    assert_eq!(alone.chained, 3, "{alone:?}");

    let refused = file(&folder, "refused");
    let output = run(&["record", "-o", word(&refused), "-e", "sched:sched_switch", "--handler", "emit", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--filter"), "{}", stderr(&output));
    assert!(!refused.exists());
}

#[test]
fn a_filter_takes_some_hits_of_a_tracepoint() {
    if !has("a_filter_takes_some_hits_of_a_tracepoint", &[Need::Root, Need::Tracefs, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let (path, named) = (file(&folder, "data"), file(&folder, "ai-filtered"));
    std::fs::copy(workload::build().faults, &named).unwrap();
    let script = format!("{0} 1; /bin/true; {0} 1", word(&named));
    let exec = ["-e", "sched:sched_process_exec"];
    record(&path, &[&exec[..], &["--filter", "filename ~ \"*ai-filtered\"", "--", "sh", "-c", &script]].concat());
    assert_eq!(tally(&path).total().chained, 2);
    for (words, code) in
        [(["-e", "cpu-clock", "--filter", "pid == 1"], 2), ([exec[0], exec[1], "--filter", "no =="], 1)]
    {
        let output = run(&[&["record", "-o", word(&path)], &words[..], &["true"]].concat());
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn a_handler_runs_on_the_events_beside_a_tracepoint() {
    if !has("a_handler_runs_on_the_events_beside_a_tracepoint", &[Need::Root, Need::Bpf, Need::Tracefs, Need::Cc]) {
        return;
    }
    let _turn = beside();
    let (folder, busy) = (folder(), workload::build().busy);
    for handler in ["emit", "count"] {
        let path = file(&folder, handler);
        let events = "sched:sched_process_exit,cpu-clock";
        record(&path, &["-e", events, "-F", "4000", "--handler", handler, "--", word(&busy), "200"]);
        let tally = tally(&path);
        let [exits, clock] = tally.events.as_slice() else { panic!("{tally:?}") };
        assert_eq!((exits.sum.handled, exits.sum.ring.lost), (None, 0));
        let handled = clock.sum.handled.unwrap();
        let arrived = clock.sum.handler_ring.delivered + clock.sum.map.stored;
        assert!(handled > 50 && arrived == handled && clock.sum.chained == 0, "{clock:?}");
        let (report, _) = report(&path, &[]);
        assert_eq!(number(&event(&report, "cpu-clock")["samples"]), handled, "{handler}");
    }
}

#[test]
fn a_count_of_a_task_that_shares_the_machine_is_its_own() {
    if !has("a_count_of_a_task_that_shares_the_machine_is_its_own", &[Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = alone();
    let (folder, faults) = (folder(), workload::build().faults);
    let (path, fifo) = (file(&folder, "data"), file(&folder, "fifo"));
    let (mut child, _stdout, line) = waiting(Command::new(&faults).args(["700", "wait"]), &fifo);
    assert_eq!(line, "ready");
    let mut other = Command::new(&faults).arg("100000").stdout(Stdio::null()).spawn().unwrap();
    let (pid, command) = (child.id().to_string(), giving(&fifo));
    record(&path, &["-e", "page-faults", "-c", "1", "--handler", "count", "-p", &pid, "--", "sh", "-c", &command]);
    assert!(child.wait().unwrap().success() && other.wait().unwrap().success());
    let (report, _) = report(&path, &["--sort", "sym"]);
    assert_eq!(samples_in(event(&report, "page-faults"), "touch_pages"), 700);
}

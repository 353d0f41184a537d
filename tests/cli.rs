//! The command line: exit codes, what is not built, who is told what.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::io::Read;
use std::process::Stdio;

use common::{afterimage, run, stderr, stdout};

#[test]
fn help_and_version_are_results() {
    for words in [&["--help"][..], &["--version"], &["report", "--help"], &["script", "-h"], &["export", "--help"]] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{words:?}");
    }
    let help = stdout(&run(&["report", "--help"])).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        help.contains("--no-children Count a sample for the function it hit alone (the default, unlike perf)"),
        "{help}"
    );
}

#[test]
fn usage_errors_are_2() {
    for words in [
        &[][..],
        &["nonsense"],
        &["report", "--nonsense"],
        &["report", "--sort", "label:"],
        &["report", "--cpu", "nonsense"],
        &["script", "--time", "nonsense"],
        &["report", "--percent-limit", "many"],
        &["report", "-g", "tree"],
        &["script", "-F", "nonsense"],
        &["export", "--format", "gif"],
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn what_is_not_built_says_so() {
    for (words, says) in [
        (&["report", "--tui"][..], "afterimage: report --tui: not supported yet\n"),
        (&["report", "--hierarchy", "-i", "x"], "afterimage: report --hierarchy: not supported yet\n"),
        (&["script", "-s", "a.py"], "afterimage: script --script: not supported yet\n"),
        (&["script", "-F", "comm,srccode"], "afterimage: -F srccode: not supported yet\n"),
        (&["top", "-a"], "afterimage: top: not supported yet\n"),
        (&["diff", "a", "b"], "afterimage: diff: not supported yet\n"),
    ] {
        let output = run(words);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(2), says), "{words:?}");
    }
}

#[test]
fn a_missing_recording_is_1_with_a_hint() {
    for view in ["report", "script", "export"] {
        let output = run(&[view, "-i", "/nonexistent/perf.data"]);
        let says = "afterimage: /nonexistent/perf.data: no such file\n  hint: afterimage record makes one; -i FILE names another\n";
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(1), says), "{view}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn what_record_cannot_make_out_has_a_hint() {
    for (words, code, says, hint) in [
        (["-e", "nonsense"], 2, "-e: event 'nonsense': no such event", "events are those of perf: cpu-clock, "),
        (["-e", "cycels"], 2, "-e: event 'cycels': no such event", "did you mean 'cycles'?"),
        (
            ["--handler", "/nonexistent.bpf.o"],
            1,
            "--handler /nonexistent.bpf.o: No such file or directory (os error 2)",
            "FILE.bpf.o is what clang made of a handler; ",
        ),
    ] {
        let output = run(&[&["record"], &words[..], &["true"]].concat());
        let start = format!("afterimage: {says}\n  hint: {hint}");
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        assert!(stderr(&output).starts_with(&start), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn a_reader_that_goes_early_is_no_failure() {
    let mut child = afterimage().args(["doctor"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut says = String::new();
    child.stderr.take().unwrap().read_to_string(&mut says).unwrap();
    assert_eq!((child.wait().unwrap().code(), says.as_str()), (Some(0), ""));
}

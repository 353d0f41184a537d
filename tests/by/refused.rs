//! What cannot be counted is refused in a line, before anything runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use afterimage_testkit::{Need, has};

use crate::common::{afterimage, folder, run, stderr, word};
use crate::helper::turn;

#[test]
fn usage_that_makes_no_sense() {
    let cases: [(&[&str], &str); 11] = [
        (&["--by", "com"], "no key is called \"com\""),
        (&["--by", "comm,comm"], "named twice"),
        (&["--by", "stack,kstack"], "kstack is a part of stack"),
        (&["--by", "label:request"], "a handler of your own has to give that label"),
        (&["--by", "comm", "--value", "avg(period)"], "sum, max and hist"),
        (&["--by", "comm", "--interval", "0"], "--interval 0"),
        (&["--by", "comm", "--folded", "--value", "max(addr)"], "--folded"),
        (&["--by", "comm", "--folded", "-e", "cpu-clock,page-faults"], "never added together"),
        (&["--by", "comm", "-o", "x"], "--output"),
        (&["--by", "comm", "--handler", "count"], "--handler"),
        (&["--interval", "1"], "--by"),
    ];
    for (words, says) in cases {
        let output = run(&[&["record"][..], words, &["true"]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(says) && output.stdout.is_empty(), "{words:?}: {said}");
    }
}

#[test]
fn tracepoints_are_not_counted() {
    if !has("tracepoints_are_not_counted", &[Need::Root, Need::Tracefs]) {
        return;
    }
    for events in ["sched:sched_switch", "cpu-clock,sched:sched_switch"] {
        let output = run(&["record", "--by", "comm", "-e", events, "--", "true"]);
        let said = stderr(&output);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 2), "{said}");
        assert!(said.contains("tracepoint"), "{said}");
    }
}

#[test]
fn nobody_is_told_which_capability_is_missing() {
    if !has("nobody_is_told_which_capability_is_missing", &[Need::Root, Need::Setpriv]) {
        return;
    }
    let _turn = turn();
    let folder = folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let command = folder.path().join("afterimage");
    fs::copy(afterimage().get_program(), &command).unwrap();
    for words in [&["--", "true"][..], &["-a", "--duration", "1"]] {
        let output = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args(["--inh-caps=-all", "--bounding-set=-all"])
            .args([word(&command), "record", "--by", "comm"])
            .args(words)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = stderr(&output);
        println!("{said}");
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 2), "{words:?}: {said}");
        assert!(said.contains("--by: needs CAP_BPF and CAP_PERFMON") && said.contains("setcap"), "{said}");
        assert!(output.stdout.is_empty());
    }
}

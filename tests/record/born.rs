//! Tasks that are started while a recording of their parent begins.

use std::process::{Command, Stdio};

use afterimage_testkit::{Need, has, turns};

use crate::common::{file, folder, stderr};
use crate::helper::{beside, recorder, tally};

/// A child that starts while the events of its parent are opened and get their programs inherits events without one: the
/// samples that arrive would be more than the program saw.
#[test]
fn children_that_start_meanwhile_are_counted_too() {
    if !has("children_that_start_meanwhile_are_counted_too", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let path = file(&folder, "a.data");
    for _ in 0..3 {
        let work = format!("(i=0; while [ $i -lt {} ]; do i=$((i+1)); done) &", turns(200_000));
        let script = format!("n=0; while [ $n -lt 25 ]; do {work} n=$((n+1)); sleep 0.01; done; while :; do :; done");
        let mut parent = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn().unwrap();
        let pid = parent.id().to_string();
        let output = recorder(&path, &["-p", &pid, "-F", "2000", "--duration", "1.5"]).output().unwrap();
        parent.kill().unwrap();
        parent.wait().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        println!("{}", stderr(&output));
        assert!(!stderr(&output).contains("does not add up"), "{}", stderr(&output));
        let sum = tally(&path).total();
        assert!(sum.ring.delivered > 0, "{sum:?}");
    }
}

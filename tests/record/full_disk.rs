//! A disk that fills up: what was written is readable, and the cause is said.

use std::process::Command;

use afterimage_testkit::{Need, has};

use crate::common::{afterimage, file, folder};
use crate::helper::{alone, event, number, until};

/// Everything happens in a mount namespace of its own, so that nothing stays mounted.
const SCRIPT: &str = r#"
set -u
mount -t tmpfs -o size=1m tmpfs "$DISK" || exit 99
"$AFTERIMAGE" record -m 1024 -a -g -F 9999 -e cpu-clock --handler "$HANDLER" -o "$DISK/a.data" \
    -- sh -c 'echo $$ >"$OUT/pid"; exec sleep 600' 2>"$OUT/record.err" >&2
echo $? >"$OUT/record.status"
"$AFTERIMAGE" report --json -i "$DISK/a.data" >"$OUT/report.json" 2>"$OUT/report.err"
echo $? >"$OUT/report.status"
perf script --no-inline -G -F comm,tid,time,event -i "$DISK/a.data" >"$OUT/script.txt" 2>"$OUT/script.err"
echo $? >"$OUT/script.status"
"#;

fn run_on_a_small_disk(handler: &str) {
    let folder = folder();
    let (disk, out) = (file(&folder, "disk"), file(&folder, "out"));
    std::fs::create_dir(&disk).unwrap();
    std::fs::create_dir(&out).unwrap();
    let status = Command::new("unshare")
        .args(["-m", "sh", "-c", SCRIPT])
        .env("AFTERIMAGE", afterimage().get_program())
        .env("DISK", &disk)
        .env("OUT", &out)
        .env("HANDLER", handler)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let text = |name: &str| String::from_utf8_lossy(&std::fs::read(out.join(name)).unwrap()).trim().to_owned();
    let said = text("record.err");
    println!("{handler}: {said}\n{}", text("report.err"));
    assert_eq!(text("record.status"), "1", "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert!(said.contains("afterimage report -i"), "{said}");
    assert_eq!(text("report.status"), "0", "{}", text("report.err"));
    let report: serde_json::Value = serde_json::from_str(&text("report.json")).unwrap();
    let shown = event(&report, "cpu-clock");
    let samples = number(&shown["samples"]);
    assert!(samples > 100, "{samples}");
    // The pass that did not fit is known to the journal: what of it is not in the file is lost, and said so.
    let output = &shown["tally"][if handler == "none" { "ring" } else { "handler_ring" }];
    println!("{handler}: {output}");
    assert_eq!(number(&output["delivered"]), samples);
    assert!(number(&output["unwritten"]) > 0 && number(&output["unwritten"]) <= number(&output["lost"]), "{output}");
    assert!(text("report.err").contains("lost (not written)"), "{}", text("report.err"));
    assert_eq!(text("script.status"), "0", "{}", text("script.err"));
    let of_perf = text("script.txt").lines().filter(|l| !l.trim().is_empty()).count() as u64;
    println!("{handler}: {samples} samples readable, {of_perf} lines by perf");
    if handler == "none" {
        assert_eq!(of_perf, samples);
    }
    // The command does not go on with nobody to record it.
    let stat = format!("/proc/{}/stat", text("pid"));
    until("the end of the command", || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
}

#[test]
fn a_full_disk_leaves_what_was_written() {
    if !has("a_full_disk_leaves_what_was_written", &[Need::Root, Need::Bpf, Need::Perf]) {
        return;
    }
    let _turn = alone();
    for handler in ["none", "emit"] {
        run_on_a_small_disk(handler);
    }
}

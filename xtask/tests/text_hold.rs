//! The queue of the series in kernel/patch does what it promises: its C, as the patch has it, compiled for this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use afterimage_testkit::{Need, has};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A file that a patch makes, from its lines `+…` behind `+++ b/PATH`.
fn made(patch: &str, path: &str) -> String {
    let (_, rest) = patch.split_once(&format!("--- /dev/null\n+++ b/{path}\n")).expect("the patch makes the file");
    let body = rest.split("\ndiff --git ").next().unwrap();
    body.lines().filter_map(|line| line.strip_prefix('+')).map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_queue_of_the_series_frees_what_it_may() {
    if !has("the_queue_of_the_series_frees_what_it_may", &[Need::Cc, Need::NoGuest]) {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let patch = here.join("../kernel/patch/0001-mm-hold-freed-kernel-text-for-its-readers.patch");
    let patch = fs::read_to_string(patch).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let linux = folder.path().join("linux");
    fs::create_dir(&linux).unwrap();
    let source = made(&patch, "mm/text_hold.c");
    let header = made(&patch, "include/linux/text_hold.h");
    // All other headers of the kernel are played by the driver.
    for name in source.lines().chain(header.lines()).filter_map(|line| line.strip_prefix("#include <linux/")) {
        fs::write(linux.join(name.trim_end_matches('>')), "").unwrap();
    }
    fs::write(linux.join("text_hold.h"), header).unwrap();
    fs::write(folder.path().join("text_hold.c"), source).unwrap();
    let program = folder.path().join("driver");
    let mut cc = Command::new("cc");
    cc.args([
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Wno-sign-compare",
        "-Wno-unused-parameter",
        "-fsanitize=address",
        "-DCONFIG_TEXT_HOLD",
    ]);
    cc.arg("-I").arg(folder.path()).arg("-o").arg(&program).arg(here.join("tests/text_hold_driver.c"));
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&program).output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{output:?}");
}

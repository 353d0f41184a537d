//! Stock perf reads what the writers write, and has nothing to say about it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use afterimage_perf_data::{Endian, FileWriter, Layout, PipeWriter, Record};
use afterimage_testkit::{Need, has};

/// Runs perf; its standard error must be empty.
fn perf(args: &[&str], file: &Path, input: Option<&[u8]>) -> String {
    let mut child = Command::new("perf")
        .args(args)
        .arg("-i")
        .arg(if input.is_some() { Path::new("-") } else { file })
        .env("PERF_PAGER", "cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.unwrap_or_default()).unwrap();
    drop(stdin);
    let out = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(stderr, "", "perf {args:?}");
    assert!(out.status.success(), "perf {args:?}");
    String::from_utf8(out.stdout).unwrap()
}

fn samples(script: &str) -> usize {
    script.lines().filter(|l| l.contains("cpu-clock:") || l.contains("page-faults:")).count()
}

#[test]
fn finished_file() {
    if !has("finished_file", &[Need::Perf]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ours.data");
    fs::write(&path, common::recording()).unwrap();

    let script = perf(&["script"], &path, None);
    assert_eq!(samples(&script), common::SAMPLES, "{script}");
    let report = perf(&["report", "--stdio", "--no-children", "--no-group"], &path, None);
    assert!(report.contains("# Samples: 150  of events 'cpu-clock'"), "{report}");
    assert!(report.contains("# Samples: 150  of event 'page-faults'"), "{report}");
    assert!(report.contains("burner"), "{report}");

    let header = perf(&["report", "--header-only", "-I"], &path, None);
    for line in [
        "# hostname : host",
        "# os release : 6.1.0",
        "# perf version : 0.1.0",
        "# arch : x86_64",
        "# nrcpus online : 2",
        "# nrcpus avail : 2",
        "# cpudesc : A processor",
        "# cpuid : GenuineIntel,6,1,1",
        "# total memory : 4194304 kB",
        "# cmdline : /usr/bin/afterimage record -a",
        "# event : name = cpu-clock, , id = { 11, 12 }",
        "# event : name = page-faults, , id = { 21, 22 }",
        "# sibling sockets : 0-1",
        "# node0 meminfo  : total = 4194304 kB, free = 1048576 kB",
        "# pmu mappings: software = 1",
        "# group: {cpu-clock,page-faults}",
        "# time of first sample : 0.000001",
        "# clockid frequency: 1000 MHz",
        "# clockid: monotonic (1)",
        "# bpf_prog_info 9: bpf_prog_0123456789abcdef_probe addr 0xffffffffc0000000 size 8",
        "# btf info of id 3",
    ] {
        assert!(header.contains(line), "no {line:?} in\n{header}");
    }
    let ids = perf(&["buildid-list"], &path, None);
    assert!(ids.contains(&format!("{} /nonexistent/burner", "07".repeat(20))), "{ids}");
}

/// What kill -9 leaves: no features, and the size of the last checkpoint.
#[test]
fn unfinished_file() {
    if !has("unfinished_file", &[Need::Perf]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("killed.data");
    let mut writer = FileWriter::create(File::create(&path).unwrap(), &common::events()).unwrap();
    common::fill(&mut writer);
    // Records after the checkpoint, the last one cut short, as a kill in the middle of a write leaves them.
    let layout = Layout::new(&common::events()[0].attr, Endian::Little);
    let chain = common::chain();
    let mut more = Vec::new();
    Record::Sample(common::sample(0, &chain)).encode(&layout, &mut more).unwrap();
    drop(writer);
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(&more[..more.len() - 3]).unwrap();

    let script = perf(&["script"], &path, None);
    assert_eq!(samples(&script), common::SAMPLES, "{script}");
    perf(&["report", "--stdio"], &path, None);
}

#[test]
fn pipe() {
    if !has("pipe", &[Need::Perf]) {
        return;
    }
    let layout = Layout::new(&common::events()[0].attr, Endian::Little);
    let mut events = common::events();
    events[0].name = "page-faults:renamed".into();
    let mut writer = PipeWriter::create(Vec::new(), &events, &common::features()).unwrap();
    let mut records = Vec::new();
    let chain = common::chain();
    common::sideband().iter().for_each(|r| r.encode(&layout, &mut records).unwrap());
    (0..common::SAMPLES).for_each(|i| Record::Sample(common::sample(i, &chain)).encode(&layout, &mut records).unwrap());
    writer.write(&records).unwrap();
    writer.finished_round().unwrap();
    let stream = writer.finish(&common::features()).unwrap();

    let script = perf(&["script"], Path::new("-"), Some(&stream));
    assert_eq!(samples(&script), common::SAMPLES, "{script}");
    let report = perf(&["report", "--stdio", "--header", "--no-group"], Path::new("-"), Some(&stream));
    assert!(report.contains("of events 'page-faults:renamed'"), "{report}");
    assert!(report.contains("# hostname : host"), "{report}");
}

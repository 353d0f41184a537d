//! The same lists given to perf: names and attrs must be the same.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::process::Command;

use afterimage_perf_data::{AttrFlags, FileReader};
use afterimage_perf_event::config::{Config, Rate};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::spec::{EventClass, parse};
use afterimage_testkit::{Need, has};

/// What a list decides about an attr. perf sets EXCLUDE_GUEST by rules of its own where a level is given, so that is
/// compared only where a world is.
fn decided(attr: &afterimage_perf_data::Attr, worlds: bool) -> (u32, u64, u64, u32, u64, u64, AttrFlags) {
    let mut flags = AttrFlags::EXCLUDE_USER
        | AttrFlags::EXCLUDE_KERNEL
        | AttrFlags::EXCLUDE_HV
        | AttrFlags::EXCLUDE_IDLE
        | AttrFlags::PINNED
        | AttrFlags::FREQ;
    if worlds {
        flags |= AttrFlags::EXCLUDE_HOST | AttrFlags::EXCLUDE_GUEST;
    }
    let flags = attr.flags & flags;
    (attr.kind, attr.config, attr.period_or_freq, attr.bp_type, attr.config1, attr.config2, flags)
}

#[test]
fn names_and_attrs_are_those_of_perf() {
    if !has("names_and_attrs_are_those_of_perf", &[Need::Root, Need::Perf, Need::Tracefs]) {
        return;
    }
    let plain = [
        "cpu-clock,faults,cs:u,minor-faults:k,cpu-migrations,alignment-faults,emulation-faults,major-faults",
        "{cpu-clock,page-faults}:u,{cpu-clock:k,page-faults},context-switches",
        "cpu-clock:G,cpu-clock:H,cpu-clock:GH,cpu-clock:ID",
        "mem:0x400000,mem:4194304:x",
        "software/config=2/,software/config=2,name=mine/u",
        "sched:sched_switch,sched:sched_process_e*:u",
    ]
    .join(",");
    let cases: [(&str, &[&str]); 3] = [
        (&plain, &[]),
        ("task-clock:uk,mem:0x400000:w:u,cpu-clock/period=100000/,mem:0x400000/8:rw", &["-F", "99"]),
        ("page-faults,page-faults/freq=100/u,sched:sched_switch", &["-c", "10"]),
    ];
    let facts = Facts::system();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    for (list, args) in cases {
        let out = Command::new("perf")
            .args(["record", "-q", "-B", "-N", "-e", list])
            .args(args)
            .arg("-o")
            .arg(&file)
            .args(["--", "true"])
            .output()
            .unwrap();
        assert!(out.status.success(), "{list}: {}", String::from_utf8_lossy(&out.stderr));
        let bytes = std::fs::read(&file).unwrap();
        let theirs = FileReader::open(&bytes).unwrap();
        let rate = match args {
            ["-F", hz] => Some(Rate::Freq(hz.parse().unwrap())),
            ["-c", counts] => Some(Rate::Period(counts.parse().unwrap())),
            _ => None,
        };
        let mut ours = parse(list, &facts).unwrap();
        ours.iter_mut().for_each(|spec| Config { rate, ..Config::default() }.apply(spec));
        // perf may add a dummy of its own.
        let events: Vec<_> = theirs.events().iter().filter(|e| !e.name.starts_with("dummy")).collect();
        assert_eq!(ours.len(), events.len());
        for (our, their) in ours.iter().zip(events) {
            let worlds = our.name.contains(['G', 'H']);
            assert_eq!(decided(&our.attr, worlds), decided(&their.attr, worlds), "{}", our.name);
            // perf 6.1 ends a breakpoint's name at a slash, by which two could not be told apart. Ours is whole.
            let name = if our.name.starts_with("mem:") { our.name.split('/').next().unwrap() } else { &our.name };
            assert_eq!(name, their.name);
            assert!(our.class != EventClass::Hardware);
        }
    }
}

//! The same as nobody: this test runs itself again without privileges.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use afterimage_perf_data::AttrFlags;
use afterimage_perf_event::config::Rate;
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{OpenErrorKind, Options, Target, open};
use afterimage_perf_event::probe::{self, Answer};
use afterimage_perf_event::sideband;
use afterimage_perf_event::spec::SpecErrorKind;
use afterimage_testkit::{Need, has};
use common::{drain, gettid, kernel, online, open_events, specs, spin};

#[test]
fn nobody_samples_own_user_code_and_is_told_so() {
    if !has("nobody_samples_own_user_code_and_is_told_so", &[Need::Root, Need::Setpriv]) {
        return;
    }
    // Nobody may not be able to reach the folder that holds this program.
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let status = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set", "-all"])
        .arg(&copy)
        .args(["--exact", "as_nobody", "--ignored", "--nocapture"])
        .current_dir("/")
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "run by the test above, without privileges"]
fn as_nobody() {
    let facts = Facts::system();
    let paranoid = facts.paranoid().unwrap();
    if paranoid < 2 {
        println!("kernel.perf_event_paranoid is {paranoid}: nothing is refused here");
        return;
    }
    let all = open(&kernel(), &facts, specs("cpu-clock", None), &Target::Cpus(online()), Options { pages: 1 });
    let e = all.unwrap_err();
    assert_eq!((e.kind, e.kind.capability()), (OpenErrorKind::CpuWideDenied, Some("CAP_PERFMON")));
    println!("{e}");

    let target = Target::Tasks { tids: vec![gettid()], cpus: online(), inherit: true };
    let band = sideband::open(&kernel(), &facts, &target, AttrFlags::BUILD_ID, Options { pages: 16 }).unwrap();
    assert!(!band.all_cpus);
    let mut opened = open_events("cpu-clock", Some(Rate::Freq(1000)), &target, 4096);
    assert_eq!(opened.specs[0].name, "cpu-clock:u");
    assert!(opened.pages < 4096 && opened.pages.is_power_of_two(), "{}", opened.pages);
    println!("{:?}\n{:?}", band.opened.notes, opened.notes);
    assert_eq!(opened.notes.len(), 2, "{:?}", opened.notes);
    opened.enable().unwrap();
    let mut samples = 0;
    while samples < 50 {
        spin(100_000);
        drain(&mut opened, &mut |_, record| {
            let afterimage_perf_data::Record::Sample(s) = record else { return };
            assert_eq!((s.misc & 7, s.pid), (2, Some(std::process::id())));
            samples += 1;
        });
    }

    let init = Target::Tasks { tids: vec![1], cpus: online(), inherit: false };
    let e = open(&kernel(), &facts, specs("cpu-clock", None), &init, Options { pages: 1 }).unwrap_err();
    assert!(matches!(e.kind, OpenErrorKind::TaskDenied | OpenErrorKind::KernelDenied), "{e}");

    {
        let e = afterimage_perf_event::spec::parse("sched:sched_switch", &facts).unwrap_err();
        println!("{e}");
        let mounted = facts.tracefs().is_some();
        assert!(e.kind == if mounted { SpecErrorKind::NotPermitted } else { SpecErrorKind::NotUnderstood }, "{e}");
    }

    let checks = probe::all();
    let answer = |name: &str| checks.iter().find(|check| check.name == name).unwrap().answer;
    assert_eq!([answer("all-cpus"), answer("kernel-samples")], [Answer::No; 2]);
    assert_eq!([answer("build-id-maps"), answer("ksymbol")], [Answer::Yes; 2]);
    assert_ne!(answer("tracepoints"), Answer::No);
    assert_ne!(answer("namespace-records"), Answer::No);
}

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use afterimage_testkit::{Need, has};

use super::*;

#[test]
fn cpu_lists() {
    assert_eq!(parse_cpu_list("0-3,5\n"), Some(vec![0, 1, 2, 3, 5]));
    assert_eq!(parse_cpu_list("5,0,5"), Some(vec![0, 5]));
    for bad in ["", "a", "3-1", "0-", "-1", "0-4294967295", "1;2"] {
        assert_eq!(parse_cpu_list(bad), None, "{bad:?}");
    }
}

#[test]
fn this_machine() {
    let facts = Facts::system();
    let online = facts.online_cpus().unwrap();
    assert!(online.iter().all(|cpu| facts.possible_cpus().unwrap().contains(cpu)));
    assert!(facts.paranoid().is_some() && facts.mlock_kb().is_some() && facts.max_stack().is_some());
    assert_eq!(facts.pmu("software").unwrap().kind, 1);
    assert!(facts.pmu("../software").is_none());
    assert!(facts.pmus().contains(&("software".into(), 1)));
    assert_eq!(facts.release().as_deref(), Some(rustix::system::uname().release().to_str().unwrap()));
    let threads = facts.threads(std::process::id()).unwrap();
    assert!(threads.contains(&std::process::id()));
    assert_eq!(facts.threads(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn tracefs_is_found_or_mounted_for_us_alone() {
    if !has("tracefs_is_found_or_mounted_for_us_alone", &[Need::Root]) {
        return;
    }
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    let private = tracefs::private_mount_for_test().unwrap();
    let facts = Facts::at("/sys", "/proc", Some(private.0.clone()));
    assert!(facts.tracepoint_id("sched", "sched_switch").unwrap() > 0);
    assert_eq!(facts.tracepoint_id("sched", "no_such").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(facts.tracepoint_id("..", "events").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(facts.tracepoints().unwrap().contains(&("sched".into(), "sched_switch".into())));
    assert_eq!(before, mounts(), "nobody else sees the mount");
    assert!(Facts::system().tracefs().is_some());
}

#[test]
fn formats_place_values() {
    let plain = Format::parse("config:0-7\n").unwrap();
    assert_eq!((plain.field, plain.width(), plain.place(0x1ff)), (0, 8, 0xff));
    // AMD's event code has its upper four bits elsewhere.
    let split = Format::parse("config:0-7,32-35").unwrap();
    assert_eq!((split.width(), split.place(0x123)), (12, 1 << 32 | 0x23));
    let whole = Format::parse("config2:0-63").unwrap();
    assert_eq!((whole.field, whole.place(u64::MAX)), (2, u64::MAX));
    for bad in ["", "config", "config:", "config:64", "config:9-3", "config4:0", "config:0-7,"] {
        assert_eq!(Format::parse(bad), None, "{bad:?}");
    }
}

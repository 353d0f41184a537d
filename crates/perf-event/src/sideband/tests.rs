#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use super::*;
use crate::sys::fake::Fake;

const ALL: AttrFlags = AttrFlags::KSYMBOL
    .union(AttrFlags::BPF_EVENT)
    .union(AttrFlags::TEXT_POKE)
    .union(AttrFlags::BUILD_ID)
    .union(AttrFlags::CGROUP)
    .union(AttrFlags::NAMESPACES);

fn facts() -> (tempfile::TempDir, Facts) {
    let dir = tempfile::tempdir().unwrap();
    let cpus = dir.path().join("devices/system/cpu");
    std::fs::create_dir_all(&cpus).unwrap();
    std::fs::write(cpus.join("online"), "0,2\n").unwrap();
    let facts = Facts::at(dir.path(), "/proc", None);
    (dir, facts)
}

fn open_for(fake: &Arc<Fake>, target: &Target) -> Result<Sideband, OpenError> {
    let (_dir, facts) = facts();
    let kernel: Arc<dyn Kernel> = Arc::clone(fake) as Arc<dyn Kernel>;
    open(&kernel, &facts, target, ALL, Options { pages: 8 })
}

fn task() -> Target {
    Target::Command { pid: 10, cpus: vec![0], inherit: false }
}

#[test]
fn one_enabled_event_and_ring_per_online_cpu() {
    let fake = Fake::new();
    let sideband = open_for(&fake, &task()).unwrap();
    assert!(sideband.all_cpus && sideband.missing.is_empty());
    let places: Vec<_> = sideband.opened.events.iter().map(|e| (e.tid, e.cpu, e.ring)).collect();
    assert_eq!(places, [(-1, 0, 0), (-1, 2, 1)]);
    assert_eq!(fake.enabled().len(), 2);
    let attr = sideband.attr();
    assert_eq!((attr.kind, attr.config, attr.wakeup, attr.clockid), (1, 9, 1, 1));
    assert!(attr.flags.contains(ALL | BASIC | AttrFlags::WATERMARK | AttrFlags::SAMPLE_ID_ALL));
    assert!(!attr.flags.contains(AttrFlags::ENABLE_ON_EXEC));
}

#[test]
fn what_an_older_kernel_does_not_know_is_left_out_and_said() {
    let fake = Fake::new();
    fake.rule(|attr, _, _| attr.flags.intersects(AttrFlags::BUILD_ID | AttrFlags::TEXT_POKE).then_some(libc::EINVAL));
    fake.rule(|attr, _, _| attr.flags.contains(AttrFlags::NAMESPACES).then_some(libc::EACCES));
    let sideband = open_for(&fake, &task()).unwrap();
    let missing: Vec<_> = sideband.missing.iter().map(|(bit, _)| *bit).collect();
    assert_eq!(missing, [AttrFlags::TEXT_POKE, AttrFlags::BUILD_ID, AttrFlags::NAMESPACES]);
    assert!(sideband.attr().flags.contains(AttrFlags::KSYMBOL | AttrFlags::BPF_EVENT | AttrFlags::CGROUP));
}

#[test]
fn without_privileges_it_follows_the_target() {
    let fake = Fake::new();
    fake.rule(|attr, pid, _| (pid == -1 || !attr.flags.contains(AttrFlags::EXCLUDE_KERNEL)).then_some(libc::EACCES));
    let sideband = open_for(&fake, &task()).unwrap();
    assert!(!sideband.all_cpus);
    assert!(sideband.opened.events.iter().all(|e| e.tid == 10));
    assert_eq!(sideband.opened.specs[0].name, "dummy");
    assert!(sideband.attr().flags.contains(AttrFlags::INHERIT));
    assert_eq!(sideband.opened.notes.len(), 1);
    let denied = open_for(&fake, &Target::Cpus(vec![0, 2])).unwrap_err();
    assert_eq!(denied.kind, OpenErrorKind::CpuWideDenied);
}

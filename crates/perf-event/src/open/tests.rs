#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs;

use afterimage_perf_data::ReadFormat;

use super::*;
use crate::config::{Config, Rate};
use crate::spec::{self, EventClass};
use crate::sys::fake::{Call, Fake};

const PAGES: usize = 16;

/// Facts of a machine with CPUs 0 and 1 online.
fn facts() -> (tempfile::TempDir, Facts) {
    let dir = tempfile::tempdir().unwrap();
    let cpus = dir.path().join("sys/devices/system/cpu");
    fs::create_dir_all(&cpus).unwrap();
    fs::write(cpus.join("online"), "0-1\n").unwrap();
    let kernel = dir.path().join("proc/sys/kernel");
    fs::create_dir_all(&kernel).unwrap();
    fs::write(kernel.join("perf_event_paranoid"), "2\n").unwrap();
    fs::write(kernel.join("perf_event_max_sample_rate"), "5000\n").unwrap();
    fs::write(kernel.join("perf_event_max_stack"), "127\n").unwrap();
    let facts = Facts::at(dir.path().join("sys"), dir.path().join("proc"), None);
    (dir, facts)
}

fn specs(list: &str, facts: &Facts) -> Vec<EventSpec> {
    let mut specs = spec::parse(list, facts).unwrap();
    specs.iter_mut().for_each(|spec| Config::default().apply(spec));
    specs
}

fn open_on(fake: &Arc<Fake>, list: &str, target: &Target) -> Result<Opened, OpenError> {
    let (_dir, facts) = facts();
    let kernel: Arc<dyn Kernel> = Arc::clone(fake) as Arc<dyn Kernel>;
    open(&kernel, &facts, specs(list, &facts), target, Options { pages: PAGES })
}

fn cpus() -> Target {
    Target::Cpus(vec![0, 1])
}

fn tasks() -> Target {
    Target::Tasks { tids: vec![10, 11], cpus: vec![0, 1], inherit: true }
}

fn notes(opened: &Opened) -> Vec<&str> {
    opened.notes.iter().map(|note| note.0.as_str()).collect()
}

#[test]
fn events_that_may_share_a_ring_do() {
    let fake = Fake::new();
    let opened = open_on(&fake, "cpu-clock,page-faults,mem:0x10,cs,cycles", &cpus()).unwrap();
    assert_eq!(opened.events.len(), 10);
    assert_eq!(opened.rings.len(), 6, "per CPU: the shared one, page-faults, cs");
    let ring = |spec, cpu| opened.events.iter().find(|e| (e.spec, e.cpu) == (spec, cpu)).unwrap().ring;
    for cpu in [0, 1] {
        assert_eq!(ring(0, cpu), ring(2, cpu));
        assert_eq!(ring(0, cpu), ring(4, cpu));
        assert!(ring(1, cpu) != ring(3, cpu) && ring(1, cpu) != ring(0, cpu));
    }
    assert_ne!(ring(0, 0), ring(0, 1));
    assert_eq!(fake.outputs().len(), 4);
    assert!(notes(&opened).is_empty());
    opened.enable().unwrap();
    assert_eq!(fake.enabled().len(), 10);
}

#[test]
fn inherited_tasks_share_the_rings_of_cpus_and_others_have_their_own() {
    let opened = open_on(&Fake::new(), "page-faults,cpu-clock", &tasks()).unwrap();
    assert_eq!((opened.events.len(), opened.rings.len()), (8, 4));
    assert!(opened.specs[0].attr.flags.contains(AttrFlags::INHERIT | AttrFlags::DISABLED));
    let alone = Target::Tasks { tids: vec![10, 11], cpus: Vec::new(), inherit: false };
    let opened = open_on(&Fake::new(), "page-faults,cpu-clock", &alone).unwrap();
    assert_eq!((opened.events.len(), opened.rings.len()), (4, 4));
    assert!(opened.events.iter().all(|e| e.cpu == -1));
}

#[test]
fn a_group_starts_with_its_leader() {
    let fake = Fake::new();
    let opened = open_on(&fake, "{cpu-clock,page-faults},cs", &cpus()).unwrap();
    opened.enable().unwrap();
    let leaders: Vec<u64> = opened.events.iter().filter(|e| e.spec != 1).map(|e| e.id).collect();
    assert_eq!(fake.enabled(), leaders);
    let members: Vec<_> = fake.opened().into_iter().filter(|o| o.group.is_some()).collect();
    assert_eq!(members.len(), 2);
    assert!(members.iter().all(|m| !m.attr.flags.contains(AttrFlags::DISABLED)));
    for member in members {
        let leader = fake.opened().into_iter().find(|o| o.id == member.group).unwrap();
        assert_eq!((leader.cpu, leader.attr.config), (member.cpu, 0));
    }
}

#[test]
fn a_command_starts_its_events() {
    let fake = Fake::new();
    let target = Target::Command { pid: 10, cpus: vec![0, 1], inherit: true };
    let opened = open_on(&fake, "{cpu-clock,page-faults}", &target).unwrap();
    opened.enable().unwrap();
    assert!(fake.enabled().is_empty());
    let on_exec = |spec: usize| opened.specs[spec].attr.flags.contains(AttrFlags::ENABLE_ON_EXEC);
    assert!(on_exec(0) && !on_exec(1));
}

#[test]
fn a_hardware_event_that_is_not_there_becomes_cpu_clock() {
    for errno in [libc::ENOENT, libc::ENODEV, libc::EOPNOTSUPP] {
        let fake = Fake::new();
        fake.rule(move |attr, _, _| (attr.kind != 1).then_some(errno));
        let opened = open_on(&fake, "cycles:ppu,page-faults", &cpus()).unwrap();
        let spec = &opened.specs[0];
        assert_eq!((spec.name.as_str(), spec.class), ("cpu-clock:u", EventClass::Clock));
        assert_eq!((spec.attr.kind, spec.attr.config, spec.attr.precise_ip()), (1, 0, 0));
        assert!(spec.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL));
        assert_eq!(spec.fallback_from.as_deref(), Some("cycles:ppu"));
        assert_eq!(
            notes(&opened),
            ["cycles:ppu: this machine has no such hardware event; cpu-clock:u is sampled instead"]
        );
    }
    // Several that come down to the same are one; another rate is another event.
    let fake = Fake::new();
    fake.rule(move |attr, _, _| (attr.kind != 1).then_some(libc::ENOENT));
    let opened =
        open_on(&fake, "cycles,instructions,page-faults,cache-misses/freq=9/,r1a8:u,cycles:u", &cpus()).unwrap();
    let names: Vec<_> = opened.specs.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["cpu-clock", "page-faults", "cpu-clock", "cpu-clock:u"]);
    assert_eq!(
        notes(&opened),
        [
            "cycles, instructions, cache-misses/freq=9/: this machine has no such hardware events; cpu-clock is sampled \
             instead",
            "r1a8:u, cycles:u: this machine has no such hardware events; cpu-clock:u is sampled instead"
        ]
    );
    for (list, groups) in [
        ("{cycles,instructions}", vec![None]),
        ("{cycles,instructions,page-faults},cpu-clock", vec![Some(0), Some(0)]),
        ("cpu-clock,{cycles,page-faults}", vec![None, Some(1), Some(1)]),
        ("cycles,instructions,{faults,cs}", vec![None, Some(1), Some(1)]),
    ] {
        let opened = open_on(&fake, list, &cpus()).unwrap();
        assert_eq!(opened.specs.iter().map(|s| s.group).collect::<Vec<_>>(), groups, "{list}");
    }
    // Only hardware is replaced.
    let fake = Fake::new();
    fake.rule(|attr, _, _| (attr.kind == 5).then_some(libc::ENOENT));
    assert_eq!(open_on(&fake, "mem:0x10", &cpus()).unwrap_err().kind, OpenErrorKind::NoEvent);
}

#[test]
fn precision_is_lowered_only_where_we_chose_it() {
    let fake = Fake::new();
    fake.rule(|attr, _, _| (attr.precise_ip() > 1).then_some(libc::EOPNOTSUPP));
    let opened = open_on(&fake, "cycles:P", &cpus()).unwrap();
    assert_eq!((opened.specs[0].attr.precise_ip(), opened.specs[0].name.as_str()), (1, "cycles:P"));
}

#[test]
fn eacces_on_cpus_names_the_capability() {
    for errno in [libc::EACCES, libc::EPERM] {
        let fake = Fake::new();
        fake.rule(move |_, pid, _| (pid == -1).then_some(errno));
        let e = open_on(&fake, "cpu-clock", &cpus()).unwrap_err();
        assert_eq!((e.kind, e.kind.capability()), (OpenErrorKind::CpuWideDenied, Some("CAP_PERFMON")));
        assert!(e.to_string().contains("CAP_PERFMON") && !e.to_string().contains('\n'), "{e}");
    }
}

#[test]
fn eacces_on_the_kernel_leaves_user_code() {
    let user_only = |attr: &afterimage_perf_data::Attr, _: i32, _: i32| {
        (!attr.flags.contains(AttrFlags::EXCLUDE_KERNEL)).then_some(libc::EACCES)
    };
    let fake = Fake::new();
    fake.rule(user_only);
    let opened = open_on(&fake, "cpu-clock,cycles:pp,cpu-clock/freq=9/", &tasks()).unwrap();
    let names: Vec<_> = opened.specs.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["cpu-clock:u", "cycles:ppu", "cpu-clock/freq=9/u"]);
    assert_eq!(
        notes(&opened)[0],
        "cpu-clock: only user code is sampled, as cpu-clock:u, without CAP_PERFMON (kernel.perf_event_paranoid is 2)"
    );
    // An event about the kernel alone has nothing left.
    let fake = Fake::new();
    fake.rule(user_only);
    assert_eq!(open_on(&fake, "cpu-clock:k", &tasks()).unwrap_err().kind, OpenErrorKind::KernelDenied);
    let fake = Fake::new();
    fake.rule(|_, _, _| Some(libc::EACCES));
    assert_eq!(open_on(&fake, "cpu-clock:u", &tasks()).unwrap_err().kind, OpenErrorKind::TaskDenied);
}

#[test]
fn emfile_raises_the_limit_once() {
    let fake = Fake::new();
    fake.limit_fds(3);
    let opened = open_on(&fake, "cpu-clock,cs", &cpus()).unwrap();
    assert_eq!((opened.events.len(), fake.raises()), (4, 1));
    let fake = Fake::new();
    fake.rule(|_, _, cpu| (cpu == 1).then_some(libc::EMFILE));
    let e = open_on(&fake, "cpu-clock", &cpus()).unwrap_err();
    assert_eq!((e.kind, fake.raises()), (OpenErrorKind::TooManyFiles, 1));
    assert!(e.to_string().contains("ulimit -n"));
    let fake = Fake::new();
    fake.fail_next(Call::Open, libc::ENFILE);
    assert_eq!(open_on(&fake, "cpu-clock", &cpus()).unwrap_err().kind, OpenErrorKind::SystemFiles);
}

#[test]
fn enospc_and_e2big_are_told() {
    for (errno, kind, words) in [
        (libc::ENOSPC, OpenErrorKind::NoSpace, "in use"),
        (libc::E2BIG, OpenErrorKind::TooNew, "does not know"),
        (libc::EINVAL, OpenErrorKind::Unsupported, "cannot be sampled"),
        (libc::ENOMEM, OpenErrorKind::Other, "cannot be opened"),
    ] {
        let fake = Fake::new();
        fake.rule(move |_, _, _| Some(errno));
        let e = open_on(&fake, "mem:0x10:w", &cpus()).unwrap_err();
        assert_eq!(e.kind, kind);
        assert!(e.to_string().starts_with("mem:0x10:w: ") && e.to_string().contains(words), "{e}");
    }
}

#[test]
fn ebusy_on_one_cpu_is_left_out_and_on_all_is_told() {
    let fake = Fake::new();
    fake.rule(|attr, _, cpu| (attr.config == 1 && cpu == 1).then_some(libc::EBUSY));
    let opened = open_on(&fake, "cpu-clock,instructions", &cpus()).unwrap();
    assert_eq!(opened.events.iter().map(|e| (e.spec, e.cpu)).collect::<Vec<_>>(), [(0, 0), (1, 0), (0, 1)]);
    assert_eq!(notes(&opened), ["instructions is in use by another on CPU 1: it is not sampled there"]);
    let fake = Fake::new();
    fake.rule(|_, _, _| Some(libc::EBUSY));
    assert_eq!(open_on(&fake, "cpu-clock", &cpus()).unwrap_err().kind, OpenErrorKind::Busy);
}

#[test]
fn a_cpu_that_goes_away_is_left_out() {
    let fake = Fake::new();
    fake.rule(|_, _, cpu| (cpu == 7).then_some(libc::ENODEV));
    for cpus in [vec![0, 7, 1], vec![7, 0, 1]] {
        let opened = open_on(&fake, "{cpu-clock,cycles}", &Target::Cpus(cpus)).unwrap();
        assert_eq!(opened.events.iter().map(|e| (e.spec, e.cpu)).collect::<Vec<_>>(), [(0, 0), (1, 0), (0, 1), (1, 1)]);
        assert_eq!(opened.specs[1].name, "cycles", "a missing CPU is no missing event");
        assert_eq!(notes(&opened), ["CPU 7 is offline: it is not sampled"]);
    }
    let e = open_on(&fake, "cpu-clock", &Target::Cpus(vec![7])).unwrap_err();
    assert_eq!(e.kind, OpenErrorKind::NoCpu);
}

#[test]
fn a_thread_that_ended_is_left_out() {
    let fake = Fake::new();
    fake.rule(|_, pid, _| (pid == 10).then_some(libc::ESRCH));
    let opened = open_on(&fake, "cpu-clock", &tasks()).unwrap();
    assert!(opened.events.iter().all(|e| e.tid == 11));
    assert_eq!(notes(&opened), ["1 of the threads ended before they were sampled"]);
    fake.rule(|_, pid, _| (pid == 11).then_some(libc::ESRCH));
    assert_eq!(open_on(&fake, "cpu-clock", &tasks()).unwrap_err().kind, OpenErrorKind::NoTask);
}

#[test]
fn an_interrupted_open_is_repeated() {
    let fake = Fake::new();
    fake.fail_next(Call::Open, libc::EINTR);
    fake.fail_next(Call::Open, libc::EINTR);
    assert_eq!(open_on(&fake, "cpu-clock", &cpus()).unwrap().events.len(), 2);
}

#[test]
fn rings_shrink_together_until_they_fit() {
    let fake = Fake::new();
    fake.limit_pages(4);
    let opened = open_on(&fake, "cpu-clock,cs", &cpus()).unwrap();
    assert!(opened.rings.iter().all(|ring| ring.size() == 4 * 4096));
    assert_eq!(opened.pages, 4);
    assert_eq!(
        notes(&opened),
        ["rings of 16 KiB instead of 64 KiB: locked memory is limited (kernel.perf_event_mlock_kb, ulimit -l)"]
    );
    let fake = Fake::new();
    fake.limit_pages(0);
    let e = open_on(&fake, "cpu-clock", &cpus()).unwrap_err();
    assert_eq!((e.kind, e.kind.capability()), (OpenErrorKind::NoRing, Some("CAP_IPC_LOCK")));
    fake.fail_next(Call::Map, libc::EINVAL);
    assert_eq!(open_on(&fake, "cpu-clock", &cpus()).unwrap_err().kind, OpenErrorKind::Other);
}

#[test]
fn every_later_refusal_is_an_error_too() {
    for (call, list) in [(Call::SetOutput, "cpu-clock,cycles"), (Call::Id, "cpu-clock")] {
        let fake = Fake::new();
        fake.fail_next(call, libc::EINVAL);
        assert_eq!(open_on(&fake, list, &cpus()).unwrap_err().kind, OpenErrorKind::Other, "{call:?}");
    }
    let fake = Fake::new();
    let opened = open_on(&fake, "cpu-clock", &cpus()).unwrap();
    fake.fail_next(Call::Enable, libc::EINVAL);
    assert!(opened.enable().is_err());
    fake.fail_next(Call::Disable, libc::EINVAL);
    assert!(opened.disable().is_err());
    fake.fail_next(Call::Read, libc::EINVAL);
    assert!(opened.events[0].read().is_err());
    assert_eq!(opened.events[0].read().unwrap().lost, Some(0));
}

#[test]
fn an_older_kernel_counts_no_losses() {
    let fake = Fake::new();
    fake.rule(|attr, _, _| attr.read_format.contains(ReadFormat::LOST).then_some(libc::EINVAL));
    let opened = open_on(&fake, "cpu-clock,cs", &cpus()).unwrap();
    assert_eq!(notes(&opened), ["this kernel does not count losses per event (Linux 6.0 does)"]);
    assert_eq!(opened.events[0].read().unwrap().lost, None);
}

#[test]
fn rates_and_depths_beyond_the_limits_are_lowered() {
    let (_dir, facts) = facts();
    let mut specs = spec::parse("cpu-clock,cs/period=3/,mem:0x10", &facts).unwrap();
    let config = Config { rate: Some(Rate::Freq(9999)), callchain: true, max_stack: Some(500), ..Config::default() };
    specs.iter_mut().for_each(|spec| config.apply(spec));
    let notes = settle(&*Fake::new(), &facts, &mut specs, &cpus()).unwrap();
    let rate = |i: usize| (specs[i].attr.flags.contains(AttrFlags::FREQ), specs[i].attr.period_or_freq);
    assert_eq!([rate(0), rate(1), rate(2)], [(true, 5000), (false, 3), (true, 5000)]);
    assert!(specs.iter().all(|spec| spec.attr.sample_max_stack == 127));
    assert_eq!(notes.len(), 2, "{notes:?}");
}

#[test]
fn rates_are_perfs() {
    let facts = Facts::at("/nowhere", "/proc", None);
    let rate = |list: &str, rate: Option<Rate>| {
        let mut spec = spec::parse(list, &facts).unwrap().remove(0);
        Config { rate, ..Config::default() }.apply(&mut spec);
        (spec.attr.flags.contains(AttrFlags::FREQ), spec.attr.period_or_freq)
    };
    assert_eq!(rate("cpu-clock", None), (true, 4000));
    assert_eq!(rate("mem:0x10", None), (false, 1));
    assert_eq!(rate("mem:0x10", Some(Rate::Freq(99))), (true, 99));
    assert_eq!(rate("page-faults", Some(Rate::Period(1))), (false, 1));
    assert_eq!(rate("page-faults/freq=7/", Some(Rate::Period(1))), (true, 7));
}

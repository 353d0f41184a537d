#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::HashSet;

use afterimage_perf_data::AttrFlags;

use super::*;
use crate::facts::Facts;
use crate::sys::fake::Fake;

fn find<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn names_are_unique_and_everything_is_said() {
    let checks = all();
    let names: HashSet<_> = checks.iter().map(|check| check.name).collect();
    assert_eq!(names.len(), checks.len());
    for check in &checks {
        println!(
            "{:20} {:8} {} | {} | {:?}",
            check.name,
            check.answer.as_str(),
            check.why,
            check.consequence,
            check.fix
        );
        assert!(!check.why.is_empty() && !check.consequence.is_empty(), "{}", check.name);
    }
}

#[test]
fn answers_agree_with_this_machine() {
    let checks = all();
    let is = |name: &str, there: bool| {
        let expected = if there { Answer::Yes } else { Answer::No };
        assert_eq!(find(&checks, name).answer, expected, "{name}");
    };
    is("modules", std::path::Path::new("/proc/modules").exists());
    is("kprobes", std::path::Path::new("/sys/bus/event_source/devices/kprobe").exists());
    if !std::path::Path::new("/proc/kcore").exists() {
        is("kcore", false);
    }
    if !std::path::Path::new("/sys/bus/event_source/devices/cpu").exists() {
        is("hardware-counters", false);
        is("precise-samples", false);
    }
}

#[test]
fn a_refusal_for_want_of_privilege_is_no_no() {
    let fake = Fake::new();
    fake.rule(|_, _, _| Some(libc::EACCES));
    let checks = perf::checks(&Facts::system(), &*fake);
    for check in &checks {
        // Two checks ask for the privilege itself.
        let expected = if ["all-cpus", "kernel-samples"].contains(&check.name) { Answer::No } else { Answer::Unknown };
        if check.name != "tracepoints" {
            assert_eq!(check.answer, expected, "{}", check.name);
            assert!(check.fix.is_some(), "{}", check.name);
        }
    }
}

#[test]
fn a_bit_is_missing_only_where_the_same_event_opens_without_it() {
    let old = Fake::new();
    old.rule(|attr, _, _| attr.flags.contains(AttrFlags::BUILD_ID).then_some(libc::EINVAL));
    let checks = perf::checks(&Facts::system(), &*old);
    assert_eq!(find(&checks, "build-id-maps").answer, Answer::No);
    assert_eq!(find(&checks, "build-id-maps").fix.as_deref(), Some("Linux 5.12 or newer"));
    assert_eq!(find(&checks, "ksymbol").answer, Answer::Yes);
    let broken = Fake::new();
    broken.rule(|_, _, _| Some(libc::EINVAL));
    let checks = perf::checks(&Facts::system(), &*broken);
    assert_eq!(find(&checks, "ksymbol").answer, Answer::Unknown);
    assert_eq!(find(&checks, "lost-count").answer, Answer::Unknown);
}

#[test]
fn breakpoints_in_use_are_there() {
    let fake = Fake::new();
    fake.rule(|attr, _, _| (attr.kind == 5).then_some(libc::ENOSPC));
    assert_eq!(find(&perf::checks(&Facts::system(), &*fake), "breakpoints").answer, Answer::Yes);
}

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use afterimage_perf_data::AttrFlags;
use proptest::prelude::*;

use super::tracepoint::matches;
use super::*;

/// One such machine for all tests.
static MACHINE: LazyLock<(tempfile::TempDir, Facts)> = LazyLock::new(machine);

/// A sysfs with one CPU PMU and a tracefs with a few tracepoints.
fn machine() -> (tempfile::TempDir, Facts) {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let devices = "sys/bus/event_source/devices";
    write(&format!("{devices}/cpu/type"), "4\n");
    write(&format!("{devices}/cpu/format/event"), "config:0-7,32-35\n");
    write(&format!("{devices}/cpu/format/umask"), "config:8-15\n");
    write(&format!("{devices}/cpu/format/edge"), "config:18\n");
    write(&format!("{devices}/cpu/format/ldlat"), "config1:0-15\n");
    write(&format!("{devices}/cpu/events/mem-loads"), "event=0xcd,umask=0x1,ldlat=3\n");
    write(&format!("{devices}/cpu/events/loop"), "loop\n");
    write(&format!("{devices}/software/type"), "1\n");
    write(&format!("{devices}/uncore_imc/type"), "17\n");
    for (name, id) in [("sched/sched_switch", 7), ("sched/sched_wakeup", 8), ("irq/softirq_entry", 9)] {
        write(&format!("tracing/events/{name}/id"), &format!("{id}\n"));
    }
    write("tracing/events/sched/enable", "0\n");
    let facts = Facts::at(dir.path().join("sys"), "/proc", Some(dir.path().join("tracing")));
    (dir, facts)
}

fn one(text: &str) -> EventSpec {
    let facts = &MACHINE.1;
    let mut specs = parse(text, facts).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(specs.len(), 1, "{text}");
    specs.remove(0)
}

fn error(text: &str) -> SpecError {
    let facts = &MACHINE.1;
    parse(text, facts).expect_err(text)
}

#[test]
fn fixed_names() {
    for (text, kind, config, class) in [
        ("cpu-clock", 1, 0, EventClass::Clock),
        ("task-clock", 1, 1, EventClass::Clock),
        ("faults", 1, 2, EventClass::Software),
        ("cgroup-switches", 1, 11, EventClass::Software),
        ("cycles", 0, 0, EventClass::Hardware),
        ("branch-misses", 0, 5, EventClass::Hardware),
        ("ref-cycles", 0, 9, EventClass::Hardware),
        ("L1-dcache-load-misses", 3, 0x10000, EventClass::Hardware),
        ("l1-dcache-stores", 3, 0x100, EventClass::Hardware),
        ("LLC-prefetch-misses", 3, 0x10202, EventClass::Hardware),
        ("iTLB-loads", 3, 4, EventClass::Hardware),
        ("branch-load-misses", 3, 0x10005, EventClass::Hardware),
        ("node-store-misses", 3, 0x10106, EventClass::Hardware),
        ("r1a8", 4, 0x1a8, EventClass::Hardware),
    ] {
        let spec = one(text);
        assert_eq!((spec.attr.kind, spec.attr.config, spec.class), (kind, config, class), "{text}");
        assert_eq!((spec.name.as_str(), spec.group), (text, None));
    }
}

#[test]
fn modifiers_name_what_is_wanted() {
    let levels = |text: &str| {
        let flags = one(text).attr.flags;
        [AttrFlags::EXCLUDE_USER, AttrFlags::EXCLUDE_KERNEL, AttrFlags::EXCLUDE_HV].map(|bit| flags.contains(bit))
    };
    assert_eq!(levels("cpu-clock"), [false; 3]);
    assert_eq!(levels("cpu-clock:u"), [false, true, true]);
    assert_eq!(levels("cpu-clock:uk"), [false, false, true]);
    assert_eq!(levels("cpu-clock:h"), [true, true, false]);
    let worlds = |text: &str| {
        let flags = one(text).attr.flags;
        [AttrFlags::EXCLUDE_GUEST, AttrFlags::EXCLUDE_HOST].map(|bit| flags.contains(bit))
    };
    assert_eq!(worlds("cycles"), [true, false]);
    assert_eq!(worlds("cycles:G"), [false, true]);
    assert_eq!(worlds("cycles:GH"), [false, false]);
    assert_eq!(one("cycles:ppu").attr.precise_ip(), 2);
    assert!(one("cycles:P").precise_max && !one("cpu-clock:P").precise_max);
    assert_eq!(one("cpu-clock:ppp").attr.precise_ip(), 0, "a timer has no precision to give");
    assert!(one("cycles:D").attr.flags.contains(AttrFlags::PINNED));
    assert!(one("cycles:I").attr.flags.contains(AttrFlags::EXCLUDE_IDLE));
    assert_eq!(one("cycles:SW").attr, one("cycles").attr);
}

#[test]
fn breakpoints() {
    let bp = |text: &str| {
        let spec = one(text);
        assert_eq!((spec.attr.kind, spec.class, spec.name.as_str()), (5, EventClass::Breakpoint, text));
        assert_eq!(spec.default_rate, Some(Rate::Period(1)));
        (spec.attr.config1, spec.attr.config2, spec.attr.bp_type, spec.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL))
    };
    assert_eq!(bp("mem:0x1000"), (0x1000, 4, 3, false));
    assert_eq!(bp("mem:4096/1:w"), (4096, 1, 2, false));
    assert_eq!(bp("mem:0xffffffff81000000:x"), (0xffff_ffff_8100_0000, 8, 4, false));
    assert_eq!(bp("mem:0x10/8:rw:u"), (16, 8, 3, true));
    assert_eq!(bp("mem:0x10:u"), (16, 4, 3, true));
    for (text, at, len) in [
        ("mem:zero", 4, 4),
        ("mem:0x10/3", 9, 1),
        ("mem:1:wq", 6, 2),
        ("mem:1:w:q", 8, 1),
        ("mem:", 4, 0),
        ("mem:1:ww", 6, 2),
    ] {
        let e = error(text);
        assert_eq!((e.at, e.len), (at, len), "{e}");
    }
}

#[test]
fn terms_of_pmus() {
    let spec = one("cpu/event=0x1c0,umask=3,edge/uk");
    assert_eq!(spec.attr.kind, 4);
    assert_eq!(spec.attr.config, 1 << 32 | 0xc0 | 3 << 8 | 1 << 18);
    assert_eq!((spec.class, spec.name.as_str()), (EventClass::Hardware, "cpu/event=0x1c0,umask=3,edge/uk"));
    assert!(spec.attr.flags.contains(AttrFlags::EXCLUDE_HV));
    let alias = one("cpu/mem-loads,ldlat=30,period=1000/pp");
    assert_eq!((alias.attr.config, alias.attr.config1), (0x1cd, 30));
    assert_eq!((alias.own_rate, alias.attr.precise_ip()), (Some(Rate::Period(1000)), 2));
    assert_eq!(one("mem-loads:u").attr.config, 0x1cd, "an event that a PMU names");
    assert_eq!(one("cpu/config=0x12,name=mine/").name, "mine");
    assert_eq!(one("uncore_imc/config=1/").class, EventClass::RawPmu);
    assert_eq!(one("software/config=1/").class, EventClass::Clock);
    assert_eq!(one("cpu-clock/freq=99/k").own_rate, Some(Rate::Freq(99)));
    let cases = [
        ("cpu/evnt=1/", 4, 4, "did you mean 'event'?"),
        ("cpu/umask=256/", 10, 3, ""),
        ("cpu/umask=x/", 10, 1, ""),
        ("cpu/event/", 0, 0, ""),
        ("cpu/loop/", 4, 4, ""),
        ("cpu/event=1", 0, 11, "write pmu/terms/"),
        ("cpux/event=1/", 0, 4, "did you mean 'cpu'?"),
        ("cpu", 0, 3, "write cpu/terms/"),
        ("cycles/umask=1/", 7, 5, ""),
    ];
    for (text, at, len, hint) in cases {
        if text == "cpu/event/" {
            assert_eq!(one(text).attr.config, 1, "a term without a value is 1");
            continue;
        }
        let e = error(text);
        assert_eq!((e.at, e.len, e.hint.as_deref().unwrap_or("")), (at, len, hint), "{e}");
    }
}

#[test]
fn tracepoints() {
    let spec = one("sched:sched_switch");
    assert_eq!((spec.attr.kind, spec.attr.config, spec.class), (2, 7, EventClass::Tracepoint));
    assert!(spec.attr.sample_type.contains(afterimage_perf_data::SampleType::RAW));
    let user = one("sched:sched_switch:u");
    assert_eq!(user.name, "sched:sched_switch", "perf names a tracepoint without its modifiers");
    assert!(user.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL));
    let facts = &MACHINE.1;
    let names = |text: &str| parse(text, facts).unwrap().into_iter().map(|s| s.name).collect::<Vec<_>>();
    assert_eq!(names("sched:*"), ["sched:sched_switch", "sched:sched_wakeup"]);
    assert_eq!(names("*:s*_[ew]*"), ["irq:softirq_entry", "sched:sched_wakeup"]);
    let e = error("page-faults,sched:sched_swich");
    assert_eq!((e.at, e.hint.as_deref()), (18, Some("did you mean 'sched_switch'?")));
    assert_eq!(error("shed:sched_switch").hint.as_deref(), Some("did you mean 'sched'?"));
    assert_eq!(error("sched:no*").what, "no tracepoint matches");
    let without = Facts::at("/nowhere", "/proc", None);
    assert!(parse("sched:sched_switch", &without).unwrap_err().hint.unwrap().starts_with("mount "));
}

#[test]
fn patterns() {
    for (pattern, text, fits) in [
        ("*", "", true),
        ("a*b*c", "axxbyyc", true),
        ("a*b*c", "axxbyy", false),
        ("?", "", false),
        ("[a-c]x", "bx", true),
        ("[!a-c]x", "bx", false),
        ("[]]", "]", true),
        ("[", "[", true),
        ("*[ab]", "xxa", true),
        ("ab", "abc", false),
    ] {
        assert_eq!(matches(pattern, text), fits, "{pattern} on {text}");
    }
}

#[test]
fn lists_and_groups() {
    let facts = &MACHINE.1;
    let specs = parse("cpu-clock,{cycles,instructions:k}:u,cpu/event=1,umask=2/,mem:0x10/8:w", facts).unwrap();
    let names: Vec<_> = specs.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["cpu-clock", "cycles", "instructions:k", "cpu/event=1,umask=2/", "mem:0x10/8:w"]);
    assert_eq!(specs.iter().map(|s| s.group).collect::<Vec<_>>(), [None, Some(1), Some(1), None, None]);
    assert!(specs[1].attr.flags.contains(AttrFlags::EXCLUDE_KERNEL));
    let all = parse_all(&["cpu-clock", "{page-faults,cs}"], facts).unwrap();
    assert_eq!(all.iter().map(|s| s.group).collect::<Vec<_>>(), [None, Some(1), Some(1)]);
    for bad in
        ["", ",", "cycles,", "{cycles", "{cycles,instructions", "{}", "cycles}", "{cycles}u", "{cycles}:z", "cycles:"]
    {
        let e = error(bad);
        assert!(e.at + e.len <= bad.len(), "{e}");
    }
}

#[test]
fn errors_point_and_help() {
    let e = error("cpu-clock,page-fualts:u");
    assert_eq!(e.picture(), "cpu-clock,page-fualts:u\n          ^^^^^^^^^^^");
    assert_eq!(e.to_string(), "event list 'cpu-clock,page-fualts:u', at 'page-fualts' (byte 10): no such event");
    assert_eq!(e.hint.as_deref(), Some("did you mean 'page-faults'?"));
    assert_eq!(error("cycels").to_string(), "event 'cycels': no such event");
    assert_eq!(error("L1-dcache-load-mises").hint.as_deref(), Some("did you mean 'L1-dcache-load-misses'?"));
    assert_eq!(error("cycles:uz").what, "unknown modifier 'z'");
    assert_eq!(error("nonsense").hint, None);
    // The store of an instruction TLB is no event, nor is a code that is longer than the field.
    assert!(parse("iTLB-stores", &MACHINE.1).is_err());
    assert!(parse("r11111111111111111", &MACHINE.1).is_err());
}

#[test]
fn every_name_that_is_listed_is_known() {
    let facts = Facts::at("/nowhere", "/proc", None);
    for name in software_events().map(str::to_owned).chain(hardware_events()) {
        assert_eq!(parse(&name, &facts).unwrap()[0].name, name);
    }
    assert!(!Path::new("/nowhere").exists());
}

proptest! {
    #[test]
    fn anything_is_a_list_or_an_error_in_it(text in "[a-z0-9:/,{}=*?\\[\\]é.-]{0,40}") {
        let facts = &MACHINE.1;
        if let Err(e) = parse(&text, facts) {
            prop_assert!(e.at + e.len <= text.len(), "{}", e);
            prop_assert!(text.is_char_boundary(e.at) && text.is_char_boundary(e.at + e.len));
            prop_assert!(!e.picture().is_empty());
        }
    }

    #[test]
    fn anything_near_a_list_too(
        parts in prop::collection::vec(prop::sample::select(vec![
            "cycles", "cpu-clock", "sched:", "sched_switch", "mem:0x1", "/8", ":w", ":u", "{", "}", ",", "cpu/", "event=1", "/",
            "r1", "*", "é",
        ]), 0..8),
    ) {
        let facts = &MACHINE.1;
        let text = parts.concat();
        if let Err(e) = parse(&text, facts) {
            prop_assert!(e.at + e.len <= text.len(), "{}", e);
        }
    }
}

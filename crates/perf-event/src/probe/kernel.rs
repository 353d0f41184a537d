//! What there is of the kernel's own text and names.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};

use super::perf::denied;
use super::{Answer, Check};
use crate::facts::Facts;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    vec![
        kallsyms(facts),
        build_id(facts),
        kcore(facts),
        modules(facts),
        kprobes(facts),
        uprobes(facts),
        lockdown(facts),
    ]
}

fn kallsyms(facts: &Facts) -> Check {
    const NAME: &str = "kernel-names";
    let hidden = |level: Option<i32>| {
        let level = level.map_or_else(|| "unknown".to_owned(), |n| n.to_string());
        Check::new(
            NAME,
            Answer::No,
            format!("/proc/kallsyms shows no addresses (kernel.kptr_restrict is {level})"),
            "kernel frames have addresses, no names",
        )
        .fix("run as root, or: sysctl kernel.kptr_restrict=0")
    };
    match first_address(facts) {
        Ok(Some(0)) => hidden(facts.kptr_restrict()),
        Ok(Some(_)) => Check::new(NAME, Answer::Yes, "/proc/kallsyms shows addresses", "kernel frames have names"),
        Ok(None) => Check::new(NAME, Answer::No, "/proc/kallsyms is empty", "kernel frames have addresses, no names"),
        Err(e) => from_error(NAME, "/proc/kallsyms", &e, "kernel frames have addresses, no names"),
    }
}

/// The largest address among the first lines of /proc/kallsyms: some per-CPU symbols are 0 in their own right.
fn first_address(facts: &Facts) -> io::Result<Option<u64>> {
    let file = BufReader::new(File::open(facts.proc().join("kallsyms"))?);
    let mut largest = None;
    for line in file.lines().take(1000) {
        let address = line?.split(' ').next().and_then(|hex| u64::from_str_radix(hex, 16).ok());
        largest = largest.max(address);
    }
    Ok(largest)
}

fn build_id(facts: &Facts) -> Check {
    const NAME: &str = "kernel-build-id";
    match fs::read(facts.sysfs().join("kernel/notes")) {
        Ok(notes) if !notes.is_empty() => Check::new(
            NAME,
            Answer::Yes,
            "/sys/kernel/notes can be read",
            "a recording says which kernel its names are of",
        ),
        Ok(_) => Check::new(NAME, Answer::No, "/sys/kernel/notes is empty", "names are matched by release alone"),
        Err(e) => from_error(NAME, "/sys/kernel/notes", &e, "names are matched by release alone"),
    }
}

fn kcore(facts: &Facts) -> Check {
    const NAME: &str = "kcore";
    let without = "bytes of kernel text cannot be read from /proc/kcore; other ways are used";
    match File::open(facts.proc().join("kcore")) {
        Ok(_) => Check::new(NAME, Answer::Yes, "/proc/kcore opens", "kernel text can be copied from it"),
        Err(e) => from_error(NAME, "/proc/kcore", &e, without),
    }
}

fn modules(facts: &Facts) -> Check {
    const NAME: &str = "modules";
    match File::open(facts.proc().join("modules")) {
        Ok(_) => Check::new(NAME, Answer::Yes, "/proc/modules opens", "frames in modules get the module's name"),
        Err(e) => from_error(NAME, "/proc/modules", &e, "this kernel loads no modules, so there is nothing to name"),
    }
}

fn kprobes(facts: &Facts) -> Check {
    let there = facts.pmu("kprobe").is_some();
    let why = "/sys/bus/event_source/devices/kprobe";
    if there {
        Check::new(
            "kprobes",
            Answer::Yes,
            format!("{why} is there"),
            "events and programs on kernel functions are possible",
        )
    } else {
        Check::new(
            "kprobes",
            Answer::No,
            format!("{why} is missing"),
            "no event or program can sit on an arbitrary kernel function",
        )
        .fix("a kernel with CONFIG_KPROBE_EVENTS")
    }
}

fn uprobes(facts: &Facts) -> Check {
    let why = "/sys/bus/event_source/devices/uprobe";
    if facts.pmu("uprobe").is_some() {
        Check::new("uprobes", Answer::Yes, format!("{why} is there"), "programs on user functions are possible")
    } else {
        Check::new("uprobes", Answer::No, format!("{why} is missing"), "no program can sit on a user function")
            .fix("a kernel with CONFIG_UPROBE_EVENTS")
    }
}

/// Yes means that nothing is locked down.
fn lockdown(facts: &Facts) -> Check {
    const NAME: &str = "no-lockdown";
    match fs::read_to_string(facts.sysfs().join("kernel/security/lockdown")) {
        Ok(text) if text.contains("[none]") => {
            Check::new(NAME, Answer::Yes, "kernel lockdown is off", "BPF programs may read kernel memory")
        }
        Ok(text) if text.contains("[integrity]") => Check::new(
            NAME,
            Answer::No,
            "kernel lockdown is at integrity",
            "BPF programs may read kernel memory, and may not write to user memory; kernel text can still be read",
        ),
        Ok(text) if text.contains("[confidentiality]") => Check::new(
            NAME,
            Answer::No,
            "kernel lockdown is at confidentiality",
            "neither /proc/kcore nor BPF programs may read kernel memory",
        )
        .fix("boot without lockdown=confidentiality"),
        Ok(_) => {
            Check::new(NAME, Answer::Unknown, "the lockdown file says nothing known", "kernel memory may be unreadable")
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Check::new(
            NAME,
            Answer::Unknown,
            "securityfs is not mounted, or the kernel has no lockdown",
            "kernel memory may be unreadable",
        ),
        Err(e) => from_error(NAME, "the lockdown file", &e, "kernel memory may be unreadable"),
    }
}

/// No when the file is not there, unknown when it may not be read.
fn from_error(name: &'static str, what: &str, e: &io::Error, consequence: &str) -> Check {
    if e.kind() == io::ErrorKind::NotFound {
        return Check::new(name, Answer::No, format!("{what} does not exist"), consequence);
    }
    let check = Check::new(name, Answer::Unknown, format!("{what} cannot be read: {e}"), consequence);
    if denied(e) { check.fix("run as root") } else { check }
}

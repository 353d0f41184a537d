//! Events by perf's names: `cpu-clock:u`, `L1-dcache-load-misses`, `r1a8`, `cpu/event=0x3c,umask=1/pp`,
//! `sched:sched_switch`, `mem:0x1234/8:w`, `{cycles,instructions}:k`, several by comma.
//!
//! A name stays as the user wrote it, for that is what perf prints; a tracepoint's goes without its modifiers.

mod breakpoint;
mod error;
mod modifier;
mod names;
mod near;
mod parser;
mod terms;
mod tracepoint;

pub use error::{SpecError, SpecErrorKind};
pub use names::{hardware_events, software_events};

use afterimage_perf_data::{Attr, AttrFlags};

use crate::cgroup::Cgroup;
use crate::config::Rate;
use crate::facts::Facts;

/// `perf_event_attr.type` of the kernel's fixed PMUs (uapi/linux/perf_event.h).
pub mod kind {
    /// Generalized hardware events.
    #[doc(alias = "PERF_TYPE_HARDWARE")]
    pub const HARDWARE: u32 = 0;
    /// The kernel's own events.
    #[doc(alias = "PERF_TYPE_SOFTWARE")]
    pub const SOFTWARE: u32 = 1;
    /// Tracepoints; config is the id.
    #[doc(alias = "PERF_TYPE_TRACEPOINT")]
    pub const TRACEPOINT: u32 = 2;
    /// Cache events: cache, operation << 8, result << 16.
    #[doc(alias = "PERF_TYPE_HW_CACHE")]
    pub const HW_CACHE: u32 = 3;
    /// The CPU's own event codes.
    #[doc(alias = "PERF_TYPE_RAW")]
    pub const RAW: u32 = 4;
    /// Hardware breakpoints.
    #[doc(alias = "PERF_TYPE_BREAKPOINT")]
    pub const BREAKPOINT: u32 = 5;
}

/// `config` of software events (uapi/linux/perf_event.h).
pub mod software {
    /// Time on a CPU, ns, by a timer per CPU.
    #[doc(alias = "PERF_COUNT_SW_CPU_CLOCK")]
    pub const CPU_CLOCK: u64 = 0;
    /// Time a task runs, ns.
    #[doc(alias = "PERF_COUNT_SW_TASK_CLOCK")]
    pub const TASK_CLOCK: u64 = 1;
    /// Counts nothing.
    #[doc(alias = "PERF_COUNT_SW_DUMMY")]
    pub const DUMMY: u64 = 9;
    /// What BPF programs write.
    #[doc(alias = "PERF_COUNT_SW_BPF_OUTPUT")]
    pub const BPF_OUTPUT: u64 = 10;
}

/// What kind of thing makes an event overflow. It decides which events may share a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventClass {
    /// A timer of the kernel: cpu-clock, task-clock.
    Clock,
    /// A place in the kernel that counts: page-faults, context-switches. Such events of one type on one CPU can write
    /// each other's ids, so each has a ring of its own.
    Software,
    /// The CPU's performance monitoring unit.
    Hardware,
    /// A tracepoint.
    Tracepoint,
    /// A debug register.
    Breakpoint,
    /// Another PMU in sysfs.
    RawPmu,
}

/// One event as asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct EventSpec {
    /// As the user wrote it, which is what perf prints.
    pub name: String,
    /// What is counted; [`Config::apply`](crate::config::Config::apply) adds the rest.
    pub attr: Attr,
    /// Index of the group's leader in the same list; a leader names itself.
    pub group: Option<usize>,
    /// What makes it overflow.
    pub class: EventClass,
    /// The name that was asked for, where this event stands in for it.
    pub fallback_from: Option<String>,
    /// A rate in the event's own terms (`/period=1000/`, `/freq=99/`).
    pub own_rate: Option<Rate>,
    /// The rate when the user asks for none: every hit for tracepoints and breakpoints.
    pub default_rate: Option<Rate>,
    /// As precise as the PMU can (`:P`).
    pub precise_max: bool,
    /// A tracepoint's filter (`--filter`), set after opening.
    pub filter: Option<String>,
    /// Only tasks of this cgroup; whole CPUs have to be recorded then.
    pub cgroup: Option<Cgroup>,
}

impl EventSpec {
    /// cpu-clock, the event that every machine has.
    pub fn cpu_clock() -> EventSpec {
        let attr = Attr { kind: kind::SOFTWARE, config: software::CPU_CLOCK, ..Attr::default() };
        EventSpec::new("cpu-clock", attr, EventClass::Clock)
    }

    /// What BPF programs write, with `name` as its name.
    pub fn bpf_output(name: &str) -> EventSpec {
        let attr = Attr { kind: kind::SOFTWARE, config: software::BPF_OUTPUT, ..Attr::default() };
        EventSpec::new(name, attr, EventClass::Software)
    }

    /// An event that the user named: guests are left out unless asked for, as perf does.
    fn parsed(name: &str, attr: Attr, class: EventClass) -> EventSpec {
        EventSpec::new(name, Attr { flags: attr.flags | AttrFlags::EXCLUDE_GUEST, ..attr }, class)
    }

    /// An event of this attr.
    pub fn new(name: &str, attr: Attr, class: EventClass) -> EventSpec {
        EventSpec {
            name: name.to_owned(),
            attr,
            group: None,
            class,
            fallback_from: None,
            own_rate: None,
            default_rate: None,
            precise_max: false,
            filter: None,
            cgroup: None,
        }
    }
}

/// Reads one `-e` list.
///
/// # Errors
/// With the place of what was not understood, and a name near it where there is one.
pub fn parse(list: &str, facts: &Facts) -> Result<Vec<EventSpec>, SpecError> {
    parser::parse(list, facts)
}

/// Reads several `-e` lists as one; indices of leaders are those in the whole.
///
/// # Errors
/// As for [`parse`].
pub fn parse_all<S: AsRef<str>>(lists: &[S], facts: &Facts) -> Result<Vec<EventSpec>, SpecError> {
    let mut all: Vec<EventSpec> = Vec::new();
    for list in lists {
        let base = all.len();
        let parsed = parse(list.as_ref(), facts)?;
        all.extend(parsed.into_iter().map(|spec| EventSpec { group: spec.group.map(|leader| leader + base), ..spec }));
    }
    Ok(all)
}

#[cfg(test)]
mod tests;

//! The formats of tracepoints, as perf's TRACING_DATA section holds them: without it stock perf refuses a recording of
//! tracepoints.
//!
//! The layout is that of trace-cmd's version 0.6 (trace-cmd.dat.v6(5), Linux tools/perf/util/trace-event-info.c): a
//! header, the formats of ring pages and events, the formats by system, then kallsyms, printk strings and task names,
//! each of which may be empty. Numbers are in the byte order that the header names.

use std::fs;
use std::path::Path;

use afterimage_perf_event::spec::{EventClass, EventSpec};

/// Magic, name and version, each as the readers compare them.
const HEADER: &[u8] = b"\x17\x08\x44tracing0.6\0";

/// The section for the tracepoints among `specs`, or `None` when there are none or their formats cannot be read.
pub(crate) fn section(specs: &[EventSpec], tracefs: &Path) -> Option<Vec<u8>> {
    let names: Vec<(&str, &str)> = specs
        .iter()
        .filter(|spec| spec.class == EventClass::Tracepoint)
        .filter_map(|spec| spec.name.split_once(':'))
        .collect();
    if names.is_empty() {
        return None;
    }
    let events = tracefs.join("events");
    let mut out = HEADER.to_vec();
    out.push(u8::from(cfg!(target_endian = "big")));
    out.push(size_of::<usize>() as u8);
    out.extend(u32::try_from(rustix::param::page_size()).ok()?.to_ne_bytes());
    for name in ["header_page", "header_event"] {
        out.extend(name.as_bytes());
        out.push(0);
        sized(&fs::read(events.join(name)).ok()?, &mut out);
    }
    // Events of ftrace itself: none are recorded.
    out.extend(0u32.to_ne_bytes());
    let systems = by_system(&names);
    out.extend(u32::try_from(systems.len()).ok()?.to_ne_bytes());
    for (system, names) in systems {
        out.extend(system.as_bytes());
        out.push(0);
        out.extend(u32::try_from(names.len()).ok()?.to_ne_bytes());
        for name in names {
            sized(&fs::read(events.join(system).join(name).join("format")).ok()?, &mut out);
        }
    }
    // Symbols, printk strings (u32 sizes) and task names (u64): the recording has names of its own.
    out.extend(0u32.to_ne_bytes());
    out.extend(0u32.to_ne_bytes());
    out.extend(0u64.to_ne_bytes());
    Some(out)
}

/// A u64 size and the bytes.
fn sized(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u64).to_ne_bytes());
    out.extend(bytes);
}

/// Each system once with its events, each once, in the order of their first mention.
fn by_system<'a>(names: &[(&'a str, &'a str)]) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut systems: Vec<(&str, Vec<&str>)> = Vec::new();
    for (system, name) in names {
        match systems.iter_mut().find(|(known, _)| known == system) {
            Some((_, events)) if events.contains(name) => (),
            Some((_, events)) => events.push(name),
            None => systems.push((system, vec![name])),
        }
    }
    systems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_gathered() {
        let names = [("sched", "a"), ("irq", "b"), ("sched", "c"), ("sched", "a")];
        assert_eq!(by_system(&names), [("sched", vec!["a", "c"]), ("irq", vec!["b"])]);
    }

    #[test]
    fn other_events_need_no_formats() {
        assert_eq!(section(&[EventSpec::cpu_clock()], Path::new("/nonexistent")), None);
    }
}

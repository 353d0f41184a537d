//! `report --stats`: how many records of each type there are, laid out as perf does.

use std::io::{self, Write};

use afterimage_perf_data::FileReader;
use afterimage_perf_data::features::bit;
use afterimage_perf_data::record::kind;
use afterimage_profile::{NamingSink, ReplayStats, Resolver, Sink, State, TimedSample};

use super::unwound;
use crate::terminal::clean;

/// Takes samples and does nothing with them. Its resolver finds what stacks are unwound by.
pub(super) struct Counted(pub(super) Resolver);

impl Sink for Counted {
    fn sample(&mut self, _: &State, _: &TimedSample<'_>) {}
}

impl NamingSink for Counted {
    fn resolver(&mut self) -> &mut Resolver {
        &mut self.0
    }
}

/// Writes the counts. Records of types without a name are in the total alone, as in perf, and told on
/// standard error. What became of unwound stacks stands behind them; perf tells nothing of that.
pub(super) fn write(out: &mut dyn Write, reader: &FileReader<'_>, stats: &ReplayStats) -> io::Result<()> {
    let traced = reader.features().unknown.iter().any(|(feature, _)| *feature == bit::AUXTRACE);
    let note = if traced { " (excludes AUX area (e.g. instruction trace) decoded / synthesized events)" } else { "" };
    writeln!(out, "\nAggregated stats:{note}")?;
    line(out, "TOTAL", stats.records)?;
    writeln!(out)?;
    for (kind, count) in stats.kinds.iter() {
        let Some(name) = name(kind) else { continue };
        line(out, name, count)?;
        writeln!(out, "  ({:4.1}%)", 100.0 * count as f64 / stats.records.max(1) as f64)?;
    }
    for (event, of) in reader.events().iter().zip(&stats.events) {
        if of.samples == 0 && of.lost_samples == 0 {
            continue;
        }
        writeln!(out, "{} stats:", clean(&event.name))?;
        for (name, count) in [("SAMPLE", of.samples), ("LOST_SAMPLES", of.lost_samples)] {
            if count != 0 {
                line(out, name, count)?;
                writeln!(out)?;
            }
        }
    }
    unwound::stats(out, &stats.stack_ends)
}

fn line(out: &mut dyn Write, name: &str, count: u64) -> io::Result<()> {
    write!(out, "{name:>16} events: {count:>10}")
}

/// The names of the types (`perf_event__names`, tools/perf/util/event.c).
fn name(of: u32) -> Option<&'static str> {
    const KERNEL: [&str; 22] = [
        "MMAP",
        "LOST",
        "COMM",
        "EXIT",
        "THROTTLE",
        "UNTHROTTLE",
        "FORK",
        "READ",
        "SAMPLE",
        "MMAP2",
        "AUX",
        "ITRACE_START",
        "LOST_SAMPLES",
        "SWITCH",
        "SWITCH_CPU_WIDE",
        "NAMESPACES",
        "KSYMBOL",
        "BPF_EVENT",
        "CGROUP",
        "TEXT_POKE",
        "AUX_OUTPUT_HW_ID",
        "CALLCHAIN_DEFERRED",
    ];
    const TOOLS: [&str; 21] = [
        "ATTR",
        "EVENT_TYPE",
        "TRACING_DATA",
        "BUILD_ID",
        "FINISHED_ROUND",
        "ID_INDEX",
        "AUXTRACE_INFO",
        "AUXTRACE",
        "AUXTRACE_ERROR",
        "THREAD_MAP",
        "CPU_MAP",
        "STAT_CONFIG",
        "STAT",
        "STAT_ROUND",
        "EVENT_UPDATE",
        "TIME_CONV",
        "FEATURE",
        "COMPRESSED",
        "FINISHED_INIT",
        "COMPRESSED2",
        "BPF_METADATA",
    ];
    let at = |names: &'static [&'static str], first: u32| names.get(of.checked_sub(first)? as usize).copied();
    if of < kind::FIRST_USER { at(&KERNEL, kind::MMAP) } else { at(&TOOLS, kind::FIRST_USER) }
}

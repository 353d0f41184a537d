//! `--header`: where and how a recording was made, in `#` lines as perf prints them.

use std::io::{self, Write};

use afterimage_perf_data::{EventDesc, FileReader};
use afterimage_profile::ReplayStats;

use crate::terminal::clean;

/// Writes what the recording says about itself.
pub(crate) fn write(out: &mut dyn Write, reader: &FileReader<'_>, stats: &ReplayStats) -> io::Result<()> {
    let features = reader.features();
    writeln!(out, "# ========")?;
    writeln!(out, "# data offset    : {}", reader.data_offset())?;
    writeln!(out, "# data size      : {}", reader.data_size())?;
    let texts = [
        ("hostname", &features.hostname),
        ("os release", &features.os_release),
        ("perf version", &features.version),
        ("arch", &features.arch),
        ("cpudesc", &features.cpu_desc),
        ("cpuid", &features.cpuid),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            writeln!(out, "# {name} : {}", clean(text))?;
        }
    }
    if let Some((available, online)) = features.nr_cpus {
        writeln!(out, "# nrcpus online : {online}")?;
        writeln!(out, "# nrcpus avail : {available}")?;
    }
    if let Some(kilobytes) = features.total_mem {
        writeln!(out, "# total memory : {kilobytes} kB")?;
    }
    if !features.cmdline.is_empty() {
        writeln!(out, "# cmdline : {}", clean(&features.cmdline.join(" ")))?;
    }
    for event in reader.events() {
        one_event(out, event)?;
    }
    times(out, features.sample_time.or(stats.first_time.zip(stats.last_time)))?;
    writeln!(out, "# ========\n#")
}

fn one_event(out: &mut dyn Write, event: &EventDesc) -> io::Result<()> {
    let attr = &event.attr;
    let ids: Vec<String> = event.ids.iter().map(u64::to_string).collect();
    let types: Vec<&str> = attr.sample_type.iter_names().map(|(name, _)| name).collect();
    write!(out, "# event : name = {}, , id = {{ {} }}, ", clean(&event.name), ids.join(", "))?;
    write!(out, "type = {}, config = {:#x}, ", attr.kind, attr.config)?;
    writeln!(out, "{{ sample_period, sample_freq }} = {}, sample_type = {}", attr.period_or_freq, types.join("|"))
}

fn times(out: &mut dyn Write, times: Option<(u64, u64)>) -> io::Result<()> {
    let Some((first, last)) = times else { return Ok(()) };
    let seconds = |ns: u64| format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1000);
    writeln!(out, "# time of first sample : {}", seconds(first))?;
    writeln!(out, "# time of last sample : {}", seconds(last))?;
    // A float holds any duration closely enough for milliseconds.
    writeln!(out, "# sample duration : {:10.3} ms", last.saturating_sub(first) as f64 / 1e6)
}

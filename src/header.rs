//! `--header`: where and how a recording was made, in `#` lines as perf prints them.

use std::io::{self, Write};

use afterimage_perf_data::{EventDesc, FileReader, WayDesc};
use afterimage_profile::ReplayStats;

use crate::terminal::clean;

/// Writes what the recording says about itself.
pub(crate) fn write(out: &mut dyn Write, reader: &FileReader<'_>, stats: &ReplayStats) -> io::Result<()> {
    let features = reader.features();
    writeln!(out, "# ========")?;
    writeln!(out, "# header version : 1")?;
    writeln!(out, "# data offset    : {}", reader.data_offset())?;
    writeln!(out, "# data size      : {}", reader.data_size())?;
    if !reader.is_pipe() {
        writeln!(out, "# feat offset    : {}", reader.data_offset().saturating_add(reader.data_size()))?;
    }
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
    reader.private().map_or(Ok(()), |private| ways(out, &private.ways))?;
    times(out, features.sample_time.or(stats.first_time.zip(stats.last_time)))?;
    writeln!(out, "# ========\n#")
}

fn one_event(out: &mut dyn Write, event: &EventDesc) -> io::Result<()> {
    let attr = &event.attr;
    let ids: Vec<String> = event.ids.iter().map(u64::to_string).collect();
    let types: Vec<&str> = attr.sample_type.iter_names().map(|(name, _)| name).collect();
    write!(out, "# event : name = {}, , id = {{ {} }}, ", clean(&event.name), ids.join(", "))?;
    write!(out, "type = {}, config = {:#x}, ", attr.kind, attr.config)?;
    write!(out, "{{ sample_period, sample_freq }} = {}, sample_type = {}", attr.period_or_freq, types.join("|"))?;
    match attr.sample_max_stack {
        0 => writeln!(out),
        frames => writeln!(out, ", sample_max_stack = {frames}"),
    }
}

/// How kernel text was kept, then why it was not in other ways.
fn ways(out: &mut dyn Write, ways: &[WayDesc]) -> io::Result<()> {
    let kept = ways.iter().filter(|way| way.missing.is_none() && way.part.is_none());
    let kept: Vec<_> = kept.map(|way| clean(&way.way)).collect();
    if !ways.is_empty() {
        writeln!(
            out,
            "# kernel text : {}",
            if kept.is_empty() { "no way to keep it".into() } else { kept.join(", ") }
        )?;
    }
    for way in ways {
        let Some(missing) = &way.missing else { continue };
        let part = way.part.as_ref().map_or(String::new(), |part| format!(", {}", clean(part)));
        writeln!(out, "# kernel text not by {}{part} : {}", clean(&way.way), clean(missing))?;
    }
    Ok(())
}

fn times(out: &mut dyn Write, times: Option<(u64, u64)>) -> io::Result<()> {
    let Some((first, last)) = times else { return Ok(()) };
    let seconds = |ns: u64| format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1000);
    writeln!(out, "# time of first sample : {}", seconds(first))?;
    writeln!(out, "# time of last sample : {}", seconds(last))?;
    // A float holds any duration closely enough for milliseconds.
    writeln!(out, "# sample duration : {:10.3} ms", last.saturating_sub(first) as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_told_with_its_reason() {
        let way = |way: &str, part: Option<&str>, missing: Option<&str>| WayDesc {
            way: way.to_owned(),
            part: part.map(str::to_owned),
            missing: missing.map(str::to_owned),
        };
        let said = |all: &[WayDesc]| {
            let mut out = Vec::new();
            ways(&mut out, all).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(said(&[]), "");
        let refused = way("kcore-qc", None, Some("/proc/kcore: it takes CAP_SYS_RAWIO"));
        let modules = way("free-time", Some("modules"), Some("no\x1b[2J"));
        let used = [way("kcore", None, None), way("free-time", None, None)];
        assert_eq!(
            said(&[used[0].clone(), refused.clone(), used[1].clone(), modules]),
            "# kernel text : kcore, free-time\n\
             # kernel text not by kcore-qc : /proc/kcore: it takes CAP_SYS_RAWIO\n\
             # kernel text not by free-time, modules : no\\x1b[2J\n"
        );
        assert!(said(&[refused]).starts_with("# kernel text : no way to keep it\n"));
    }
}

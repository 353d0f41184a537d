//! From the options to a plan: everything is decided before anything is opened.

use std::path::Path;
use std::time::Duration;

use afterimage_handler::Builtin;
use afterimage_handler::gate::{Expression, GateError, GateErrorKind};
use afterimage_kernel_text::Way;
use afterimage_perf_event::cgroup::Cgroup;
use afterimage_perf_event::config::{MAX_STACK_COPY, Rate, USER_REGISTERS};
use afterimage_perf_event::facts::{Facts, parse_cpu_list};
use afterimage_perf_event::spec;
use afterimage_recorder::by::By;
use afterimage_recorder::{Destination, Handler, OffCpuPlan, Plan, Subject, TextOptions};

use super::args::RecordArgs;
use super::view::View;
use super::{by, handler};
use crate::exit::Problem;

/// The longest duration, ten years: more would be no time that a clock can be set to.
pub(super) const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);

/// Data pages of a ring unless told otherwise: 512 KiB.
const PAGES: usize = 128;

/// The same where samples carry copies of stacks, each as long as some hundred others: 2 MiB.
const PAGES_COPIES: usize = 512;

/// The same where samples are counted in the kernel: what is in the rings are samples of tasks that run no program.
const PAGES_UNUSED: usize = 1;

/// Turns the options into a plan. What of them does not count is appended to `overridden`, a line each.
pub(crate) fn plan(args: &RecordArgs, facts: &Facts, overridden: &mut Vec<String>) -> anyhow::Result<Plan> {
    let mut handler = handler::chosen(args.handler.as_deref(), &args.set)?;
    let mut events = events(args, facts)?;
    let by = by::plan(&args.by, events.len(), &mut handler)?;
    if args.no_callchain && by.as_ref().is_some_and(By::wants_stacks) {
        return Err(usage("--by: a stack is a key, and --no-callchain leaves none"));
    }
    let chains = if args.no_callchain { Chains::None } else { chains(args)? };
    let stack_copy = match chains {
        Chains::Copied(bytes) => Some(bytes),
        _ => None,
    };
    if stack_copy.is_some() {
        copies_go(args, by.is_some(), handler.as_ref())?;
    }
    let pages_unless_told = match (&by, stack_copy) {
        (Some(_), _) => PAGES_UNUSED,
        (None, Some(_)) => PAGES_COPIES,
        (None, None) => PAGES,
    };
    let subject = subject(args, overridden)?;
    in_cgroups(&mut events, &args.cgroup, &subject)?;
    let text = if args.no_text || by.is_some() { None } else { Some(text(args.text_ways.as_deref())?) };
    Ok(Plan {
        events,
        rate: rate(args, facts)?,
        subject,
        command: args.command.clone(),
        inherit: !args.no_inherit,
        callchain: chains != Chains::None,
        stack_copy,
        pages: args.mmap_pages.as_deref().map_or(Ok(pages_unless_told), pages)?,
        destination: if by.is_some() { Destination::Nowhere } else { destination(&args.output) },
        duration: args.duration.map(duration).transpose()?,
        delay: args.delay.map(Duration::from_millis),
        handler,
        chain: args.chain,
        gate: args.gate.as_deref().map(gate).transpose()?,
        by,
        off_cpu: off_cpu(args)?,
        audit: args.audit,
        cgroups: args.all_cgroups,
        namespaces: args.all_cgroups || args.namespaces,
        text,
        command_line: command_line(),
    })
}

fn usage(text: impl Into<String>) -> anyhow::Error {
    Problem::usage(text).into()
}

fn gate(text: &str) -> anyhow::Result<Expression> {
    Expression::parse(text).map_err(|error| not_a_gate(&error).into())
}

/// What of time off CPU is wanted.
fn off_cpu(args: &RecordArgs) -> anyhow::Result<Option<OffCpuPlan>> {
    let Some(text) = &args.off_cpu else { return Ok(None) };
    let (entries, threads) = (args.off_cpu_entries, args.off_cpu_threads);
    Ok(Some(OffCpuPlan { min: least_wait(text)?, wakers: args.wakers, entries, threads }))
}

/// A number with its unit; 0 needs none.
fn least_wait(text: &str) -> anyhow::Result<Duration> {
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let read = |(unit, ns): &(&str, u64)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*ns);
    let ns = if text == "0" { Some(0) } else { units.iter().find_map(read) };
    let least = ns.map(Duration::from_nanos).filter(|least| *least <= LONGEST);
    least.ok_or_else(|| {
        let problem = Problem::usage(format!("--off-cpu={text}: not a time"));
        problem.hint("for example 1ms; there are s, ms, us and ns").into()
    })
}

/// What is wrong with an expression, with the place of it.
pub(crate) fn not_a_gate(error: &GateError) -> Problem {
    let what = format!("--where: {error}");
    let problem = match error.kind {
        GateErrorKind::Unsupported => Problem::failed(what),
        _ => Problem::usage(what),
    };
    let problem = problem.picture(error.picture());
    match &error.hint {
        Some(hint) => problem.hint(hint.clone()),
        None => problem,
    }
}

fn text(ways: Option<&str>) -> anyhow::Result<TextOptions> {
    let offered = [Way::FreeTime, Way::Fentry, Way::KcoreQc, Way::RcuWindow, Way::ById, Way::Kcore];
    let way = |word: &str| {
        let way = offered.into_iter().find(|way| way.key() == word);
        way.ok_or_else(|| {
            usage(format!("--text-ways {word}: there are free-time, fentry, kcore-qc, rcu-window, by-id and kcore"))
        })
    };
    let ways =
        ways.map(|list| list.split(',').map(str::trim).map(way).collect::<anyhow::Result<Vec<_>>>()).transpose()?;
    Ok(TextOptions { ways, ..TextOptions::default() })
}

fn events(args: &RecordArgs, facts: &Facts) -> anyhow::Result<Vec<spec::EventSpec>> {
    let of_view: Vec<String> = args.view.map(|view| view.events().to_owned()).into_iter().collect();
    let lists = if args.view.is_some() { &of_view } else { &args.events };
    if lists.is_empty() {
        if !args.filters.is_empty() {
            return Err(usage("--filter: there is no tracepoint that it could filter"));
        }
        return spec::parse("cycles", facts).map_err(not_parsed);
    }
    let mut events = Vec::new();
    for (index, list) in lists.iter().enumerate() {
        let base = events.len();
        let mut parsed = spec::parse(list, facts).map_err(not_parsed)?;
        // One filter is for all tracepoints, several are for the -e of the same place.
        let filter = if args.filters.len() == 1 { args.filters.first() } else { args.filters.get(index) };
        for event in &mut parsed {
            event.group = event.group.map(|leader| leader + base);
            if event.class == spec::EventClass::Tracepoint {
                event.filter = filter.cloned();
            }
        }
        events.extend(parsed);
    }
    let filtered = events.iter().any(|event| event.filter.is_some());
    match args.filters.len() {
        0 => Ok(events),
        n if n > 1 && n != lists.len() => Err(usage("--filter: give one, or one for each -e")),
        _ if !filtered => Err(usage("--filter: there is no tracepoint that it could filter")),
        _ => Ok(events),
    }
}

/// Gives each event its cgroup, in their order; one alone is for all of them.
fn in_cgroups(events: &mut [spec::EventSpec], lists: &[String], subject: &Subject) -> anyhow::Result<()> {
    let names: Vec<&str> = lists.iter().flat_map(|list| list.split(',')).collect();
    if names.is_empty() {
        return Ok(());
    }
    if !matches!(subject, Subject::AllCpus | Subject::Cpus(_)) {
        return Err(usage("-G: cgroups are recorded on whole CPUs: with -a or -C, without -p, -t or a command alone"));
    }
    if names.len() > events.len() {
        let (names, events) = (names.len(), events.len());
        return Err(usage(format!("-G: {names} cgroups for {events} events: each belongs to an event of -e")));
    }
    for (index, event) in events.iter_mut().enumerate() {
        let name = if names.len() == 1 { names.first() } else { names.get(index) };
        let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
        let cgroup = Cgroup::open(name).map_err(|error| Problem::usage(format!("-G {name}: {error}")))?;
        event.cgroup = Some(cgroup);
    }
    Ok(())
}

fn not_parsed(error: spec::SpecError) -> anyhow::Error {
    let text = format!("-e: {error}");
    let (problem, otherwise) = match error.kind {
        spec::SpecErrorKind::NotPermitted => (Problem::failed(text), "tracepoints need root"),
        _ => (
            Problem::usage(text),
            "events are those of perf: cpu-clock, page-faults, cycles, SYSTEM:TRACEPOINT, PMU/TERMS/, mem:ADDRESS:rw",
        ),
    };
    problem.hint(error.hint.unwrap_or_else(|| otherwise.to_owned())).into()
}

fn rate(args: &RecordArgs, facts: &Facts) -> anyhow::Result<Option<Rate>> {
    if args.view == Some(View::Faults) && args.count.is_none() && args.freq.is_none() {
        return Ok(Some(Rate::Period(1)));
    }
    if let Some(count) = args.count {
        return if count == 0 {
            Err(usage("-c: a period of 0 samples nothing"))
        } else {
            Ok(Some(Rate::Period(count)))
        };
    }
    let Some(freq) = &args.freq else { return Ok(None) };
    let limit = facts.max_sample_rate();
    let freq = match (freq.as_str(), limit) {
        ("max", Some(limit)) => limit,
        ("max", None) => return Err(usage("-F max: the kernel does not say what that is")),
        (text, _) => text.parse().map_err(|_| usage(format!("-F {text}: not a number of samples a second")))?,
    };
    match limit {
        _ if freq == 0 => Err(usage("-F: 0 samples a second are none")),
        Some(limit) if freq > limit => {
            let problem = Problem::usage(format!("-F {freq}: the kernel allows {limit} samples a second"));
            Err(problem.hint("raise kernel.perf_event_max_sample_rate with sysctl, or take -F max").into())
        }
        _ => Ok(Some(Rate::Freq(freq))),
    }
}

/// As in perf, `-p` comes before `-t`, and both before CPUs.
fn subject(args: &RecordArgs, overridden: &mut Vec<String>) -> anyhow::Result<Subject> {
    let given = [("-p", args.pids.is_some()), ("-t", args.tids.is_some())];
    let given = given.into_iter().chain([("-a", args.all_cpus), ("-C", args.cpus.is_some())]);
    let given: Vec<&str> = given.filter_map(|(name, given)| given.then_some(name)).collect();
    if let [first @ ("-p" | "-t"), rest @ ..] = given.as_slice() {
        overridden.extend(rest.iter().map(|option| format!("{option} does not count: {first} says what is recorded")));
    }
    Ok(match (&args.cpus, &args.pids, &args.tids) {
        (_, Some(list), _) => Subject::Processes(ids("-p", list)?),
        (_, _, Some(list)) => Subject::Threads(ids("-t", list)?),
        (Some(list), _, _) => {
            let cpus = parse_cpu_list(list).filter(|cpus| !cpus.is_empty());
            Subject::Cpus(cpus.ok_or_else(|| usage(format!("-C {list}: not a list of CPUs such as 0,2-3")))?)
        }
        _ if args.all_cpus || args.command.is_empty() => Subject::AllCpus,
        _ => Subject::Command,
    })
}

/// A list of ids, apart by commas or spaces.
fn ids(option: &str, list: &str) -> anyhow::Result<Vec<u32>> {
    let words = list.split([',', ' ']).filter(|word| !word.is_empty());
    let ids: Result<Vec<u32>, _> = words.map(str::parse).collect();
    match ids {
        Ok(ids) if !ids.is_empty() && !ids.contains(&0) => Ok(ids),
        _ => Err(usage(format!("{option} {list}: not a list of ids"))),
    }
}

/// How call chains are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chains {
    None,
    /// By frame pointers, in the kernel.
    Walked,
    /// From copies of so many bytes of stacks, when the recording is read.
    Copied(u32),
}

/// As of perf's.
const STACK_COPY: u32 = 8192;

fn chains(args: &RecordArgs) -> anyhow::Result<Chains> {
    let Some(mode) = args.call_graph.as_deref() else {
        return Ok(if args.callchain || args.view.is_some() { Chains::Walked } else { Chains::None });
    };
    match mode.split_once(',').map_or((mode, None), |(mode, size)| (mode, Some(size))) {
        ("fp", None) => Ok(Chains::Walked),
        ("no", None) => Ok(Chains::None),
        ("dwarf", _) if USER_REGISTERS == 0 => {
            let problem = Problem::failed("--call-graph dwarf: stacks of this machine cannot be unwound");
            Err(problem.hint("--call-graph fp walks them by frame pointers").into())
        }
        ("dwarf", size) => Ok(Chains::Copied(size.map_or(Ok(STACK_COPY), copied)?)),
        ("lbr" | "unwind", None) => {
            Err(Problem::usage(format!("--call-graph {mode}: not supported yet")).hint(WAYS_OF_CHAINS).into())
        }
        ("fp" | "no" | "lbr" | "unwind", Some(_)) => {
            let problem = format!("--call-graph {mode}: dwarf alone has a size");
            Err(Problem::usage(problem).hint(WAYS_OF_CHAINS).into())
        }
        _ => {
            let problem = format!("--call-graph {mode}: not a way to take call chains (fp, dwarf or dwarf,SIZE)");
            Err(Problem::usage(problem).hint(WAYS_OF_CHAINS).into())
        }
    }
}

/// What is said of a way that is none.
const WAYS_OF_CHAINS: &str =
    "fp follows frame pointers, dwarf copies stacks for code without them, no takes none; -g is the same as fp";

/// The size of copies of stacks in bytes, rounded up to a multiple of 8 as perf does; hexadecimal too.
fn copied(text: &str) -> anyhow::Result<u32> {
    let bytes = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let bytes = bytes.and_then(|bytes| bytes.checked_next_multiple_of(8));
    bytes.filter(|bytes| (8..=MAX_STACK_COPY).contains(bytes)).ok_or_else(|| {
        let problem = format!("--call-graph dwarf,{text}: not a size in bytes from 1 to {MAX_STACK_COPY}");
        Problem::usage(problem)
            .hint("for example dwarf,16384; without a size 8192 bytes of each stack are copied")
            .into()
    })
}

/// Whether copies of stacks get to where they can be unwound: what handlers write, and what is counted in the kernel, has
/// none.
fn copies_go(args: &RecordArgs, by: bool, handler: Option<&Handler>) -> anyhow::Result<()> {
    if by {
        let problem = "--call-graph dwarf: with --by nothing is recorded that could be unwound";
        return Err(Problem::usage(problem)
            .hint("without --by it is recorded; keys of stacks follow frame pointers")
            .into());
    }
    match handler {
        Some(Handler::Builtin(builtin)) if *builtin != Builtin::None && !args.chain => {
            let problem = format!("--call-graph dwarf: {builtin} takes no copies of stacks");
            Err(Problem::usage(problem).hint("--chain keeps the samples beside it, with their copies").into())
        }
        _ => Ok(()),
    }
}

/// Pages of a ring: a number of pages or a size with a unit, rounded up to a power of two as perf does.
fn pages(text: &str) -> anyhow::Result<usize> {
    let bad = || usage(format!("-m {text}: not a size in pages or with a unit B, K, M or G"));
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: usize = digits.parse().map_err(|_| bad())?;
    let unit: usize = match &text[digits.len()..] {
        "" => 0,
        "B" | "b" => 1,
        "K" | "k" | "KB" => 1 << 10,
        "M" | "m" | "MB" => 1 << 20,
        "G" | "g" | "GB" => 1 << 30,
        _ => return Err(bad()),
    };
    let pages = match unit {
        0 => Some(number),
        _ => number.checked_mul(unit).map(|bytes| bytes.div_ceil(rustix::param::page_size())),
    };
    pages.filter(|&n| n > 0 && n <= 1 << 20).and_then(usize::checked_next_power_of_two).ok_or_else(bad)
}

fn destination(path: &Path) -> Destination {
    if path == Path::new("-") { Destination::Pipe } else { Destination::File(path.to_owned()) }
}

fn duration(seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|d| !d.is_zero() && *d <= LONGEST)
        .ok_or_else(|| usage(format!("--duration {seconds}: not a time")))
}

fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_rings() {
        assert_eq!(pages("1").unwrap(), 1);
        assert_eq!(pages("100").unwrap(), 128);
        assert_eq!(pages("1M").unwrap() * rustix::param::page_size(), 1 << 20);
        for bad in ["0", "x", "", "1Q", "-1", "99999999999999999999", "2000000"] {
            assert!(pages(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_of_copies() {
        for (text, bytes) in [("8192", 8192), ("1", 8), ("65528", 65_528), ("65521", 65_528), ("0x1000", 4096)] {
            assert_eq!(copied(text).unwrap(), bytes, "{text}");
        }
        for bad in ["", "0", "65529", "-8", "8k", "4294967295", "0x"] {
            assert!(copied(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn least_waits_have_units() {
        for (text, ns) in [("0", 0), ("100us", 100_000), ("2ms", 2_000_000), ("1s", 1_000_000_000), ("7ns", 7)] {
            assert_eq!(least_wait(text).unwrap(), Duration::from_nanos(ns), "{text}");
        }
        for bad in ["", "5", "ms", "-1ms", "1.5ms", "99999999999999s"] {
            assert!(least_wait(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_of_ids() {
        assert_eq!(ids("-p", "1, 2 3").unwrap(), [1, 2, 3]);
        for bad in ["", "0", "1,x", "-4"] {
            assert!(ids("-p", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ways_of_capture() {
        assert_eq!(text(None).unwrap().ways, None);
        assert_eq!(text(Some("by-id, free-time")).unwrap().ways, Some(vec![Way::ById, Way::FreeTime]));
        assert_eq!(text(Some("kcore-qc,kcore")).unwrap().ways, Some(vec![Way::KcoreQc, Way::Kcore]));
        for bad in ["", "memory", "free-time,"] {
            assert!(text(Some(bad)).is_err(), "{bad}");
        }
    }
}

//! Options that perf has, or that are planned, and that are not built: the answer is always `not supported yet`, exit 2.

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::exit;

/// An option without a definition: its long name, or its short one alone.
struct Later {
    long: &'static str,
    short: Option<char>,
}

const fn long(long: &'static str) -> Later {
    Later { long, short: None }
}

const fn both(long: &'static str, short: char) -> Later {
    Later { long, short: Some(short) }
}

const RECORD: &[Later] = &[
    long("affinity"),
    long("aio"),
    long("all-kernel"),
    long("all-user"),
    long("aux-sample"),
    both("branch-any", 'b'),
    both("branch-filter", 'j'),
    long("buildid-all"),
    long("buildid-mmap"),
    both("clockid", 'k'),
    long("code-page-size"),
    both("compression-level", 'z'),
    long("control"),
    both("data", 'd'),
    long("data-page-size"),
    long("debuginfod"),
    long("dry-run"),
    long("exclude-perf"),
    long("group"),
    both("intr-regs", 'I'),
    long("kcore"),
    long("kernel-callchains"),
    long("max-size"),
    long("mmap-flush"),
    long("no-bpf-event"),
    long("no-buffering"),
    both("no-buildid", 'B'),
    both("no-buildid-cache", 'N'),
    both("no-samples", 'n'),
    long("num-thread-synthesize"),
    long("overwrite"),
    long("per-thread"),
    both("period", 'P'),
    long("phys-data"),
    long("proc-map-timeout"),
    both("raw-samples", 'R'),
    both("realtime", 'r'),
    long("running-time"),
    long("sample-cpu"),
    long("sample-identifier"),
    both("snapshot", 'S'),
    both("stat", 's'),
    long("strict-freq"),
    long("switch-events"),
    long("switch-max-files"),
    long("switch-output"),
    long("switch-output-event"),
    long("synth"),
    long("tail-synthesize"),
    long("threads"),
    both("timestamp", 'T'),
    long("timestamp-boundary"),
    long("timestamp-filename"),
    long("transaction"),
    both("uid", 'u'),
    long("user-callchains"),
    long("user-regs"),
    long("vmlinux"),
    both("weight", 'W'),
];

const REPORT: &[Later] = &[
    long("buildid"),
    both("column-widths", 'w'),
    long("demangle"),
    both("dump-raw-trace", 'D'),
    both("field-separator", 't'),
    long("full-source-path"),
    long("group"),
    long("group-sort-idx"),
    long("gtk"),
    long("hierarchy"),
    long("ignore-callees"),
    both("show-info", 'I'),
    long("itrace"),
    long("max-stack"),
    long("mmaps"),
    both("modules", 'm'),
    long("no-demangle"),
    long("objdump"),
    long("prefix"),
    long("raw-trace"),
    long("samples"),
    long("show-ref-call-graph"),
    long("skip-empty"),
    long("socket-filter"),
    long("stitch-lbr"),
    long("switch-on"),
    long("switch-off"),
    long("tasks"),
    both("threads", 'T'),
    long("total-cycles"),
    long("tui"),
];

const ANNOTATE: &[Later] = &[
    long("addr2line"),
    both("cpu", 'C'),
    long("data-type"),
    long("demangle"),
    long("demangle-kernel"),
    both("dump-raw-trace", 'D'),
    both("full-paths", 'P'),
    long("group"),
    long("gtk"),
    long("ignore"),
    long("ignore-vmlinux"),
    long("itrace"),
    both("modules", 'm'),
    long("no-demangle"),
    long("objdump"),
    long("prefix"),
    long("prefix-strip"),
    both("print-line", 'l'),
    long("skip-empty"),
    long("skip-missing"),
    long("stdio2"),
    long("stdio-color"),
    long("tui"),
];

const SCRIPT: &[Later] = &[
    both("Latency", 'L'),
    long("addr2line"),
    long("buildid"),
    long("call-trace"),
    long("call-ret-trace"),
    both("debug-mode", 'd'),
    long("deltatime"),
    long("demangle"),
    long("dlfilter"),
    both("dump-raw-trace", 'D'),
    both("gen-script", 'g'),
    long("graph-function"),
    long("guestmount"),
    long("insn-trace"),
    both("show-info", 'I'),
    long("itrace"),
    both("list", 'l'),
    long("max-blocks"),
    long("merge-callchains"),
    long("no-demangle"),
    long("per-event-dump"),
    long("reltime"),
    both("script", 's'),
    long("show-bpf-events"),
    long("show-cgroup-events"),
    long("show-kernel-path"),
    long("show-lost-events"),
    long("show-mmap-events"),
    long("show-namespace-events"),
    long("show-round-events"),
    long("show-switch-events"),
    long("show-task-events"),
    long("show-text-poke-events"),
    long("stitch-lbr"),
    long("stop-bt"),
    long("switch-off"),
    long("switch-on"),
    long("xed"),
];

fn table(subcommand: &str) -> &'static [Later] {
    match subcommand {
        "record" => RECORD,
        "report" => REPORT,
        "script" => SCRIPT,
        "annotate" => ANNOTATE,
        _ => &[],
    }
}

/// Adds the options, hidden, to the subcommands that perf has them for.
pub(super) fn add(mut command: Command) -> Command {
    // The letter stands for something else there.
    command = command.mut_subcommand("script", |c| c.mut_arg("dsos", |arg| arg.short(None)));
    for subcommand in ["record", "report", "script", "annotate"] {
        command = command.mut_subcommand(subcommand, |c| c.args(table(subcommand).iter().map(arg)));
    }
    command
}

fn arg(later: &Later) -> Arg {
    let arg = Arg::new(later.long).long(later.long).hide(true);
    let arg = arg.num_args(0..=1).action(ArgAction::Append);
    match later.short {
        Some(short) => arg.short(short),
        None => arg,
    }
}

/// The refusal of the first such option that was given.
pub(super) fn refuse(matches: &ArgMatches) -> Option<anyhow::Error> {
    let (name, given) = matches.subcommand()?;
    let id = |later: &&Later| given.try_contains_id(later.long).unwrap_or(false);
    let later = table(name).iter().find(id)?;
    Some(exit::not_yet(&format!("{name} --{}", later.long)))
}

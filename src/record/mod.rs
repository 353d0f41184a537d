//! `afterimage record`: the live session as a subcommand.

mod args;
mod by;
pub(crate) mod handler;
pub(crate) mod plan;
mod status;
mod view;

use std::io::{ErrorKind, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use afterimage_perf_data::RecordingTally;
use afterimage_perf_event::child::Ended;
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::OpenErrorKind;
use afterimage_recorder::by::Readout;
use afterimage_recorder::{Destination, Observer, Outcome, Plan, Progress, RecordError, record};

pub(crate) use args::RecordArgs;

use crate::exit::{Exit, Problem};
use crate::out;
use crate::say::Say;
use by::Show;
use status::StatusLine;
use view::View;

/// Records until the command ends, the duration is over or a signal comes.
pub(crate) fn run(args: &RecordArgs, say: &Say) -> anyhow::Result<Exit> {
    let mut overridden = Vec::new();
    let plan = plan::plan(args, &Facts::system(), &mut overridden)?;
    if plan.destination == Destination::Pipe && std::io::stdout().is_terminal() {
        return Err(Problem::usage("-o -: stdout is a terminal").hint("pipe it into a reader, or name a file").into());
    }
    overridden.iter().for_each(|line| say.warn(line));
    let stop = on_signals()?;
    let show = plan.by.as_ref().map(|plan| Show::new(plan, &args.by));
    let mut watcher = Watcher { say, line: StatusLine::new(say.is_quiet()), show };
    let outcome = record(&plan, &stop, &mut watcher);
    watcher.line.clear();
    let outcome = outcome.map_err(|error| explain(error, &plan, say))?;
    tell(&outcome, &plan, args.view, say);
    Ok(match outcome.ended {
        None => Exit::Done,
        Some(Ended::Code(code)) => Exit::Status(code),
        Some(Ended::Signal(signal)) => Exit::Signal(signal),
    })
}

/// The first signal ends a recording or a watch in good order, the second one ends us.
pub(crate) fn on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("cannot handle signals")?;
    }
    // A limit of file size is then an error of the write, which says what happened.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context("cannot handle signals")?;
    Ok(stop)
}

struct Watcher<'a> {
    say: &'a Say,
    line: StatusLine,
    show: Option<Show>,
}

impl Observer for Watcher<'_> {
    fn note(&mut self, line: &str) {
        self.say.note(line);
    }

    fn progress(&mut self, progress: &Progress) {
        self.line.show(progress);
    }

    fn is_watched(&self) -> bool {
        self.line.is_visible()
    }

    fn read_out(&mut self, readout: &Readout, tally: Option<&RecordingTally>) -> std::io::Result<()> {
        let Some(show) = &self.show else { return Ok(()) };
        self.line.clear();
        let mut out = out::stdout().map_err(std::io::Error::other)?;
        show.write(&mut out, readout, tally)
    }
}

/// Words and exit codes of what went wrong.
fn explain(error: RecordError, plan: &Plan, say: &Say) -> anyhow::Error {
    if matches!(&error, RecordError::Output { source, .. } if source.kind() == ErrorKind::BrokenPipe) {
        // A reader that closes the pipe has had what it wanted; the end of the command sees that in the cause.
        return error.into();
    }
    let problem = match &error {
        RecordError::Usage(text) => Problem::usage(text.clone()).hint(usage_hint(text)),
        RecordError::Capability { .. } => Problem::failed(error.to_string()).hint(setcap("cap_bpf,cap_perfmon")),
        RecordError::Open(open) => open_problem(open.kind, &error, plan),
        RecordError::Gate(gate) => plan::not_a_gate(gate),
        RecordError::Start(start) => Problem::failed(error.to_string()).code(u8::try_from(start.code()).unwrap_or(1)),
        RecordError::Handler(error) => handler::not_loaded(error, say),
        RecordError::Output { .. } if plan.by.is_some() => Problem::failed(error.to_string()),
        RecordError::Output { .. } => Problem::failed(error.to_string()).hint(readable(plan)),
        _ => Problem::failed(error.to_string()),
    };
    problem.into()
}

fn usage_hint(text: &str) -> &'static str {
    if text.starts_with("--by") {
        "without --by they are recorded"
    } else if text.contains("tracepoint") {
        "to take some of its hits only, use --filter"
    } else {
        "see afterimage record --help"
    }
}

fn open_problem(kind: OpenErrorKind, error: &RecordError, plan: &Plan) -> Problem {
    let problem = Problem::failed(error.to_string());
    match kind {
        OpenErrorKind::CpuWideDenied | OpenErrorKind::KernelDenied => problem.hint(setcap("cap_perfmon")),
        OpenErrorKind::TaskDenied => problem.hint(setcap("cap_perfmon")),
        OpenErrorKind::NoEvent if plan.events.len() == 1 => {
            problem.hint("afterimage doctor says what this machine has")
        }
        _ => problem,
    }
}

fn setcap(caps: &str) -> String {
    let program = std::env::current_exe().map_or_else(|_| "afterimage".into(), |p| p.display().to_string());
    format!("run as root, or: sudo setcap {caps}+ep {program}")
}

fn readable(plan: &Plan) -> String {
    match &plan.destination {
        Destination::File(path) if std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() > 0) => {
            format!("what was written before is readable: afterimage report -i {}", path.display())
        }
        _ => "choose another place with -o".to_owned(),
    }
}

/// The tally, what was not as it should be, and the next command.
fn tell(outcome: &Outcome, plan: &Plan, view: Option<View>, say: &Say) {
    outcome.problems.iter().for_each(|problem| say.warn(problem));
    for event in &outcome.tally.events {
        if outcome.tally.events.len() == 1 {
            say.note(event.sum.human());
        } else {
            say.note(format!("{}: {}", event.name, event.sum.human()));
        }
    }
    if let Some(off_cpu) = &outcome.tally.off_cpu {
        say.note(format!("{}: {}", off_cpu.name, off_cpu.human()));
        if let Some(wakers) = &off_cpu.wakers {
            say.note(format!("{}: {}", wakers.name, wakers.human()));
        }
        if off_cpu.lost.full.waits > 0 {
            say.hint("--off-cpu-entries N makes room for more stacks");
        }
        if off_cpu.lost.threads > 0 {
            say.hint("--off-cpu-threads N makes room for more threads");
        }
    }
    if plan.by.is_some() && outcome.tally.total().map.lost.full > 0 {
        say.hint("--by-entries N makes room for more keys");
    }
    if let Destination::File(path) = &plan.destination {
        let size = indicatif::HumanBytes(outcome.bytes);
        let input = if path.as_os_str() == "perf.data" { String::new() } else { format!(" -i {}", path.display()) };
        let sort = view.map(|view| format!(" --sort {}", view.sort())).unwrap_or_default();
        say.note(format!("{size} in {}; next: afterimage report{input}{sort}", path.display()));
    }
}

//! `afterimage script`: every sample as lines, in the layout of `perf script`, so that what reads that reads ours.

mod bpf_output;
mod branches;
mod choice;
mod digits;
mod fields;
mod frames;
mod json;
mod line;
mod said;
mod sampled;
pub(crate) mod trace;

use std::fs::File;
use std::io::{self, BufWriter, Write};

use afterimage_perf_data::features::bit;
use afterimage_perf_data::{EventDesc, FileReader, SampleType, Unit};
use afterimage_profile::{
    Frame, Loc, NamingSink, ReplayOptions, Resolver, Said, Sink, State, TimedSample, replay_unwinding,
};
use anyhow::Context;

use crate::cli::ScriptArgs;
use crate::exit::Exit;
use crate::filters::{self, Sieve};
use crate::input::Input;
use crate::out;
use crate::refused;
use crate::say::Say;
use choice::Choice;
pub(crate) use choice::Class;
use fields::Fields;
use json::JsonPrinter;
use line::{EventLine, Printer};
use trace::Formats;

/// Prints the samples of a recording.
pub(crate) fn run(args: &ScriptArgs, say: &Say) -> anyhow::Result<Exit> {
    let choice = Choice::parse(&args.fields)?;
    let mut filters = filters::read(&args.filters)?;
    let input = Input::open(&args.input)?;
    let reader = input.reader()?;
    filters::place(&mut filters, &input, &reader)?;
    let chains = !args.hide_call_graph;
    let events = if args.json { Vec::new() } else { event_lines(&reader, &choice, chains)? };
    let mut to = out::stdout()?;
    if args.header || args.header_only {
        crate::header::write(&mut to, &reader, &afterimage_profile::ReplayStats::default())?;
    }
    if args.header_only {
        out::flush(&mut to)?;
        return Ok(Exit::Done);
    }
    let resolver = Resolver::new(&reader, input.resolve_at_once());
    let (formats, deepest) = (formats(&reader), args.max_stack.unwrap_or(usize::MAX));
    let printer = match args.json {
        true => Print::Json(JsonPrinter::new(&reader, formats, resolver, chains.then_some(deepest))),
        false => Print::Text(Printer::new(events, &reader, formats, resolver, (deepest, args.inline), args.ns)),
    };
    let mut lines = Lines { printer, sieve: Sieve::new(filters), buffer: Vec::new(), to, failed: None };
    let replayed = replay_unwinding(&reader, &mut input.source(&reader)?, &ReplayOptions::default(), &mut lines);
    lines.write_out();
    if let Some(error) = lines.failed.take() {
        return Err(error).context("standard output");
    }
    out::flush(&mut lines.to)?;
    lines.sieve.tell(say);
    let resolver = match &lines.printer {
        Print::Text(printer) => printer.resolver(),
        Print::Json(printer) => printer.resolver(),
    };
    refused::say(input.name(), resolver.refused(), say);
    let exit = input.end(&reader, &replayed.stats, say);
    // The process ends now: giving millions of small pieces back one by one would only cost time.
    std::mem::forget((replayed, lines.printer));
    Ok(exit)
}

/// How the lines of each event look. As in perf, the first event of a kind decides which fields its kind has.
fn event_lines(reader: &FileReader<'_>, choice: &Choice, show_chains: bool) -> anyhow::Result<Vec<EventLine>> {
    let events = reader.events();
    let has_chain = |i: usize| show_chains && events[i].attr.sample_type.contains(SampleType::CALLCHAIN);
    let any_chain = (0..events.len()).any(has_chain);
    let width = events.iter().map(|e| crate::terminal::width(&crate::terminal::clean(&e.name))).max().unwrap_or(0);
    let mut of_class: Vec<(Class, Fields)> = Vec::new();
    let mut lines = Vec::with_capacity(events.len());
    for (i, event) in events.iter().enumerate() {
        let class = Class::of(&event.attr);
        let fields = match of_class.iter().find(|(c, _)| *c == class) {
            Some((_, fields)) => *fields,
            None => {
                let fields = choice.for_class(class, &event.attr, &event.name, any_chain)?;
                of_class.push((class, fields));
                fields
            }
        };
        let event = (event, off_cpu_unit(reader, i, event));
        lines.push(EventLine::new(event, fields, has_chain(i), width, reader.features().arch.as_deref()));
    }
    Ok(lines)
}

/// The unit that stands behind the periods of an event: of time off CPU alone, for others have none in perf.
fn off_cpu_unit(reader: &FileReader<'_>, nth: usize, event: &EventDesc) -> Option<&'static str> {
    Unit::is_off_cpu(event, nth, reader.private()).then(|| Unit::Nanoseconds.symbol()).flatten()
}

/// The formats of the recording's tracepoints.
pub(crate) fn formats(reader: &FileReader<'_>) -> Formats {
    let section = reader.features().unknown.iter().find(|(feature, _)| *feature == bit::TRACING_DATA);
    section.and_then(|(_, range)| reader.bytes(range)).map_or(Formats::default(), Formats::parse)
}

/// What makes lines of samples.
#[expect(clippy::large_enum_variant, reason = "there is one of them")]
enum Print<'f> {
    Text(Printer<'f>),
    Json(JsonPrinter<'f>),
}

impl Print<'_> {
    fn frame(&mut self, state: &State, loc: Loc) -> &Frame {
        match self {
            Print::Text(printer) => printer.frame(state, loc),
            Print::Json(printer) => printer.frame(state, loc),
        }
    }
}

/// Gathers lines and writes them in big pieces. After a failed write nothing more is made.
struct Lines<'f> {
    printer: Print<'f>,
    sieve: Sieve,
    buffer: Vec<u8>,
    to: BufWriter<File>,
    failed: Option<io::Error>,
}

/// As much as is held back behind it, so that pieces are written without being copied.
const PIECE: usize = out::BUFFER;

impl Lines<'_> {
    fn write_out(&mut self) {
        if self.failed.is_none() {
            self.failed = self.to.write_all(&self.buffer).err();
        }
        self.buffer.clear();
    }
}

impl NamingSink for Lines<'_> {
    fn resolver(&mut self) -> &mut Resolver {
        match &mut self.printer {
            Print::Text(printer) => printer.resolver_mut(),
            Print::Json(printer) => printer.resolver_mut(),
        }
    }

    fn wants_stack(&mut self, state: &State, sample: &TimedSample<'_>) -> bool {
        let printer = &mut self.printer;
        self.failed.is_none() && self.sieve.left_out(state, sample, |loc| printer.frame(state, loc)).is_none()
    }
}

impl Sink for Lines<'_> {
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>) {
        self.said(state, sample, &[]);
    }

    fn said(&mut self, state: &State, sample: &TimedSample<'_>, said: &[Said<'_>]) {
        if self.failed.is_some() {
            return;
        }
        let printer = &mut self.printer;
        if self.sieve.leaves_out(state, sample, |loc| printer.frame(state, loc)) {
            return;
        }
        match &mut self.printer {
            Print::Text(printer) => printer.sample(&mut self.buffer, state, sample, said),
            Print::Json(printer) => printer.sample(&mut self.buffer, state, sample, said),
        }
        if self.buffer.len() >= PIECE {
            self.write_out();
        }
    }
}

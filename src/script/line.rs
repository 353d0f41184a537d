//! One sample as text.

use afterimage_perf_data::{EventDesc, FileReader};
use afterimage_profile::{CommId, CpuMode, Frame, Loc, Resolver, Said, SaidTypes, State, TimedSample};
use rustc_hash::FxHashMap;

use super::choice::Class;
use super::digits::{decimal, hex, id, pad, right, zeros};
use super::fields::{Field, Fields};
use super::frames::{FrameLines, Shape};
use super::sampled::{RegisterNames, Widest};
use super::trace::Formats;
use super::{bpf_output, branches, said, sampled};
use crate::terminal::clean;

/// How the lines of one event look.
#[derive(Clone, Debug)]
pub(crate) struct EventLine {
    /// The name, right-aligned, and the colon behind it.
    name: Vec<u8>,
    fields: Fields,
    /// Samples have call chains, and they are shown.
    chain: bool,
    bpf_output: bool,
    /// The unit behind periods.
    unit: Option<&'static str>,
    /// The id of the tracepoint, where its text is shown.
    tracepoint: Option<u64>,
    /// The data address is one of code or data that has names.
    named_addr: bool,
    /// Fields are shown for which a sample is decoded as a whole.
    decodes: bool,
    registers: RegisterNames,
    shape: Shape,
}

impl EventLine {
    /// `machine`: the architecture as the recording names it.
    pub(crate) fn new(
        (event, unit): (&EventDesc, Option<&'static str>),
        fields: Fields,
        chain: bool,
        width: usize,
        machine: Option<&str>,
    ) -> Self {
        let mut name = Vec::new();
        right(&mut name, &clean(&event.name), width);
        name.extend_from_slice(b": ");
        let class = Class::of(&event.attr);
        let software = class == Class::Software;
        let shape = Shape {
            symbol: fields.has(Field::Sym),
            offset: fields.has(Field::SymOff),
            dso: fields.has(Field::Dso),
            line: fields.has(Field::Srcline),
        };
        EventLine {
            name,
            fields,
            chain,
            // PERF_COUNT_SW_BPF_OUTPUT, and the three page fault events.
            unit,
            bpf_output: software && event.attr.config == 10,
            tracepoint: (class == Class::Tracepoint && fields.has(Field::Trace)).then_some(event.attr.config),
            named_addr: software && matches!(event.attr.config, 2 | 5 | 6),
            decodes: sampled::takes_decoding(fields),
            registers: RegisterNames::of(event, machine),
            shape,
        }
    }
}

/// Prints samples; what is the same for many of them is made once.
pub(crate) struct Printer<'f> {
    events: Vec<EventLine>,
    frames: FrameLines<'f>,
    formats: Formats,
    types: SaidTypes<'f>,
    comms: FxHashMap<CommId, Box<str>>,
    nanoseconds: bool,
    widest: Widest,
}

impl<'f> Printer<'f> {
    pub(crate) fn new(
        events: Vec<EventLine>,
        reader: &'f FileReader<'f>,
        formats: Formats,
        resolver: Resolver,
        (deepest, inline): (usize, bool),
        nanoseconds: bool,
    ) -> Self {
        let lines = events.iter().any(|event| event.shape.line);
        let frames = FrameLines::new(reader, resolver, lines, deepest, inline);
        let types = SaidTypes::new(reader.private());
        Printer { events, frames, formats, types, comms: FxHashMap::default(), nanoseconds, widest: Widest::default() }
    }

    /// What names the addresses.
    pub(crate) fn resolver(&self) -> &Resolver {
        self.frames.resolver()
    }

    /// The name of a place.
    pub(super) fn frame(&mut self, state: &State, loc: Loc) -> &Frame {
        self.frames.frame_of(state, loc)
    }

    /// The same, for finding more by it.
    pub(crate) fn resolver_mut(&mut self) -> &mut Resolver {
        self.frames.resolver_mut()
    }

    /// Appends the lines of one sample, and of what was said of it.
    pub(crate) fn sample(&mut self, out: &mut Vec<u8>, state: &State, sample: &TimedSample<'_>, said: &[Said<'_>]) {
        let Some(event) = self.events.get(sample.event) else { return };
        let has = |field| event.fields.has(field);
        let chain = event.chain && has(Field::Ip);
        if has(Field::Comm) {
            let comm = self.comms.entry(sample.comm).or_insert_with(|| clean(state.comm(sample.comm)).into());
            right(out, comm, if chain { 0 } else { 16 });
            out.push(b' ');
        }
        task(out, sample, event.fields);
        if let (true, Some(cpu)) = (has(Field::Cpu), sample.cpu) {
            out.push(b'[');
            zeros(out, u64::from(cpu), 3);
            out.extend_from_slice(b"] ");
        }
        if has(Field::Misc) {
            mode(out, sample.mode());
        }
        if let (true, Some(time)) = (has(Field::Time), sample.time) {
            stamp(out, time, self.nanoseconds);
        }
        if has(Field::Period) {
            decimal(out, sample.period, 10);
            out.extend_from_slice(event.unit.unwrap_or_default().as_bytes());
            out.push(b' ');
        }
        if has(Field::Event) {
            out.extend_from_slice(&event.name);
        }
        if has(Field::Flags) {
            pad(out, b' ', 24);
        }
        if let Some(id) = event.tracepoint {
            if let Ok(Some(raw)) = sample.decode().map(|all| all.raw) {
                let frames = &mut self.frames;
                self.formats.print(out, id, raw, &mut |address| frames.function(state, sample, address));
            }
        }
        if has(Field::Label) {
            said::labels(out, &self.types, said);
        }
        let lines = &mut self.frames;
        if let (true, Some(addr)) = (has(Field::Addr), sample.addr) {
            hex(out, addr, 16);
            if event.named_addr {
                lines.data(out, state, sample, addr, event.shape);
            }
        }
        let all = if event.decodes { sample.decode().ok() } else { None };
        if let Some(all) = &all {
            sampled::before(out, all, state, sample, event.fields, &mut self.widest);
        }
        if chain {
            out.push(b'\n');
            lines.chain(out, state, sample, event.shape);
        } else if has(Field::Ip) {
            out.push(b' ');
            lines.ip(out, state, sample, event.shape);
        }
        if let Some(all) = &all {
            sampled::registers(out, all, &event.registers, event.fields);
            if let (true, Some(stack)) = (has(Field::BrStack) || has(Field::BrStackSym), &all.branch_stack) {
                branches::write(out, stack, lines, state, sample, event.fields);
            }
        }
        if event.bpf_output && has(Field::BpfOutput) && said.is_empty() {
            bpf_output::write(out, sample);
        }
        if let Some(all) = &all {
            sampled::behind(out, all, event.fields);
        }
        if has(Field::Value) {
            said::values(out, &self.types, said);
        }
        out.push(b'\n');
    }
}

fn task(out: &mut Vec<u8>, sample: &TimedSample<'_>, fields: Fields) {
    match (fields.has(Field::Pid), fields.has(Field::Tid)) {
        (true, true) => {
            id(out, sample.pid, 5);
            out.push(b'/');
            let from = out.len();
            id(out, sample.tid, 0);
            let written = out.len() - from;
            pad(out, b' ', 5_usize.saturating_sub(written));
        }
        (true, false) => id(out, sample.pid, 5),
        (false, true) => id(out, sample.tid, 5),
        (false, false) => return,
    }
    out.push(b' ');
}

/// What ran as a letter, in six columns.
fn mode(out: &mut Vec<u8>, mode: CpuMode) {
    out.push(match mode {
        CpuMode::Kernel => b'K',
        CpuMode::User => b'U',
        CpuMode::Hypervisor => b'H',
        CpuMode::GuestKernel => b'G',
        CpuMode::GuestUser => b'g',
        CpuMode::Unknown => b' ',
    });
    pad(out, b' ', 5);
}

/// Seconds and microseconds in twelve columns, or nanoseconds.
fn stamp(out: &mut Vec<u8>, time: u64, nanoseconds: bool) {
    let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
    decimal(out, seconds, 5);
    out.push(b'.');
    if nanoseconds {
        zeros(out, rest, 9)
    } else {
        zeros(out, rest / 1000, 6)
    }
    out.extend_from_slice(b": ");
}

//! One thing taken apart: its instructions, where they come from, and the samples of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use afterimage_kernel_text::{Text, TextKind};
use afterimage_perf_data::Endian;
use afterimage_profile::{FrameKind, Loc, Place, Resolver, Subject, Thing, Things, Weight};
use afterimage_symbols::Machine;

use super::choose::{program_of, text_of};
use super::code::{Code, Sources, Tried};
use super::source::{Lines, Origin, Texts};
use crate::disasm::{self, Style};

/// One instruction with what belongs to it; without code, one place that samples were taken at.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// Bytes from the thing's start.
    pub(super) offset: u64,
    /// Its bytes; none without code.
    pub(super) bytes: Vec<u8>,
    /// Its text; none without code.
    pub(super) text: Option<String>,
    /// Where it branches to.
    pub(super) target: Option<u64>,
    /// Where it comes from, innermost first.
    pub(super) origins: Vec<Origin>,
    /// The first of the BPF instructions that this row's line was made from, where another line begins here: an index into
    /// [`Listing::insns`], and how many.
    pub(super) insns: Option<(usize, usize)>,
    /// Its samples by event.
    pub(super) weights: BTreeMap<usize, Weight>,
}

/// What is known of a thing beside its code.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    /// The word for what it is.
    pub(super) kind: &'static str,
    /// The id of the BPF program.
    pub(super) id: Option<u32>,
    /// The BPF program's tag.
    pub(super) tag: Option<String>,
    /// Which of the program's functions it is.
    pub(super) function: Option<usize>,
    /// When it came and went, ns.
    pub(super) born: Option<u64>,
    pub(super) gone: Option<u64>,
    /// Who loaded it: process and thread name.
    pub(super) loader: Option<(u32, String)>,
    /// Records were lost while it lived, so that name or times may be wrong.
    pub(super) uncertain: bool,
}

/// A thing taken apart.
pub(super) struct Listing<'t> {
    pub(super) thing: &'t Thing,
    pub(super) about: About,
    pub(super) code: Result<Code, Vec<Tried>>,
    pub(super) rows: Vec<Row>,
    /// BPF instructions with their numbers in the program.
    pub(super) insns: Vec<(u32, String)>,
    /// Why there are no BPF instructions, if they were asked for.
    pub(super) no_insns: Option<&'static str>,
}

/// How things are taken apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    pub(super) style: Style,
    pub(super) source: bool,
    pub(super) insns: bool,
    /// The moment whose bytes are shown.
    pub(super) at: Option<u64>,
}

/// What listings are made from.
pub(super) struct Maker<'t, 'm, 'f> {
    pub(super) found: &'t Things,
    pub(super) resolver: &'m mut Resolver,
    pub(super) sources: &'m mut Sources<'f>,
    pub(super) texts: Texts,
    pub(super) how: How,
}

impl<'t> Maker<'t, '_, '_> {
    /// Takes a thing apart.
    pub(super) fn make(&mut self, thing: &'t Thing) -> Listing<'t> {
        let code = self.sources.code(self.found, self.resolver, thing, self.how.at);
        let mut rows = match &code {
            Ok(code) => self.decoded(thing, code),
            Err(_) => Vec::new(),
        };
        weigh(&mut rows, thing);
        let lines = Lines::of(self.sources, self.found, self.resolver, thing);
        if self.how.source {
            for row in &mut rows {
                let address = thing.start.wrapping_add(row.offset);
                row.origins = lines.at(self.sources, &mut self.texts, address, row.offset);
            }
        }
        let about = self.about(thing);
        let mut listing = Listing { thing, about, code, rows, insns: Vec::new(), no_insns: None };
        if self.how.insns {
            self.add_insns(&mut listing, &lines);
        }
        listing
    }

    fn machine(&mut self, thing: &Thing) -> Machine {
        match thing.subject {
            Subject::Object(id) => {
                let opened = self.sources.file(self.found, self.resolver, id);
                opened.map_or(self.sources.machine, |opened| opened.file.machine())
            }
            _ => self.sources.machine,
        }
    }

    fn decoded(&mut self, thing: &Thing, code: &Code) -> Vec<Row> {
        let machine = self.machine(thing);
        let end = thing.start.wrapping_add(code.bytes.len() as u64);
        let (found, at) = (self.found, self.how.at);
        let resolver = &mut *self.resolver;
        let mut name = |target: u64| named(found, resolver, thing, end, at, target);
        let lines = disasm::decode(machine, self.how.style, &code.bytes, thing.start, &mut name);
        let rows = lines.into_iter().map(|line| {
            let start = usize::try_from(line.offset).unwrap_or(usize::MAX);
            let bytes = code.bytes.get(start..start.saturating_add(line.len)).unwrap_or_default().to_vec();
            Row { offset: line.offset, bytes, text: Some(line.text), target: line.target, ..Row::default() }
        });
        rows.collect()
    }

    fn about(&self, thing: &Thing) -> About {
        let Some(text) = text_of(self.found, thing) else {
            return About { kind: kind_of(thing), ..About::default() };
        };
        let function = self.sources.function_of(&text);
        let tag = text.program.map(|program| program.tag).or(function.map(|of| of.info.tag()));
        About {
            kind: text.kind.key(),
            id: program_of(self.found, &self.sources.programs, thing),
            tag: tag.map(|tag| format!("{:016x}", u64::from_be_bytes(tag))),
            function: text.function.and_then(|n| n.try_into().ok()).or(function.map(|of| of.function)),
            born: Some(text.born).filter(|born| *born != 0),
            gone: text.gone,
            loader: text.loader.map(|loader| (loader.pid, loader.comm.to_owned())),
            uncertain: text.uncertain,
        }
    }

    /// Puts the BPF instructions of each line at the first row of that line.
    fn add_insns(&mut self, listing: &mut Listing<'_>, lines: &Lines<'_>) {
        let Lines::Bpf(of) = lines else {
            listing.no_insns = Some("it is no BPF program, or the recording has no info of the program");
            return;
        };
        let Some((first, code)) = of.insns() else {
            listing.no_insns = Some("the recording has no BPF instructions of the program");
            return;
        };
        listing.insns = printed(of, first, code);
        let count = listing.insns.len();
        let of_line = |row: &Row, sources: &mut Sources<'_>| {
            let (start, end) = sources.programs.lines(of.info.id())?.insns_at(of.function, row.offset)?;
            let index = |insn: u32| usize::try_from(insn.saturating_sub(first)).unwrap_or(count).min(count);
            // Numbers count slots, and a number of 64 bits takes two.
            let at = |insn: u32| listing.insns.partition_point(|(number, _)| *number < insn);
            let (start, end) = (at(start).min(index(start)), end.map_or(count, at));
            (start < end).then_some((start, end - start))
        };
        let mut last = None;
        let found: Vec<_> = listing.rows.iter().map(|row| of_line(row, self.sources)).collect();
        for (row, insns) in listing.rows.iter_mut().zip(found) {
            if insns.is_some() && insns != last {
                row.insns = insns;
                last = insns;
            }
        }
        if last.is_none() {
            // Without line info nothing says which belongs to which: they stand in front of all.
            if let Some(row) = listing.rows.first_mut() {
                row.insns = Some((0, count));
            }
        }
    }
}

/// The BPF instructions of a function.
fn printed(of: &afterimage_profile::BpfFunction<'_>, first: u32, code: &[u8]) -> Vec<(u32, String)> {
    let slots = disasm::bpf::parse(code, of.info.endian == Endian::Big);
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(insn) = slots.get(at).copied() {
        let next = slots.get(at + 1).copied();
        let text = disasm::bpf::text(insn, next, &|function| Some(format!("function {function}")));
        out.push((first.saturating_add(u32::try_from(at).unwrap_or(u32::MAX)), text));
        at += if insn.is_double() && next.is_some() { 2 } else { 1 };
    }
    out
}

/// The word for what a thing is that is no text of the timeline.
fn kind_of(thing: &Thing) -> &'static str {
    match thing.kind {
        FrameKind::Kernel => "kernel",
        FrameKind::Module => "module",
        FrameKind::Bpf => "bpf",
        FrameKind::User => "user",
        FrameKind::Vdso => "vdso",
        FrameKind::Jit => "jit",
        _ => "unknown",
    }
}

/// Adds the samples to the rows: each to the instruction that it lies in. What lies in none gets a row of its own.
fn weigh(rows: &mut Vec<Row>, thing: &Thing) {
    let spots = thing.hits.iter().flat_map(|(event, hits)| hits.by_offset.iter().map(|(at, w)| (*event, *at, *w)));
    for (event, offset, weight) in spots {
        let next = rows.partition_point(|row| row.offset <= offset);
        let here = next.checked_sub(1).and_then(|at| rows.get(at)).map(|row| {
            let len = (row.bytes.len() as u64).max(1);
            (offset - row.offset) < len
        });
        let at = match (here, next.checked_sub(1)) {
            (Some(true), Some(at)) => at,
            _ => {
                rows.insert(next, Row { offset, ..Row::default() });
                next
            }
        };
        if let Some(row) = rows.get_mut(at) {
            row.weights.entry(event).or_default().add(weight);
        }
    }
}

/// An address in an operand, with the symbol that it lies in.
fn named(found: &Things, resolver: &mut Resolver, thing: &Thing, end: u64, at: Option<u64>, target: u64) -> String {
    match symbol_at(found, resolver, thing, end, at, target) {
        Some((name, 0)) => format!("{target:x} <{name}>"),
        Some((name, offset)) => format!("{target:x} <{name}+{offset:#x}>"),
        None => format!("{target:x}"),
    }
}

/// The symbol that an address lies in, seen from within a thing.
pub(super) fn symbol_at(
    found: &Things,
    resolver: &mut Resolver,
    thing: &Thing,
    end: u64,
    at: Option<u64>,
    target: u64,
) -> Option<(Arc<str>, u64)> {
    if (thing.start..end).contains(&target) {
        return Some((thing.name.clone(), target - thing.start));
    }
    match thing.subject {
        Subject::Object(id) => resolver.symbol_in(&found.state, id, target),
        Subject::Text(_) | Subject::Kernel => {
            let timeline = found.state.kernel();
            // What was there at the same time as the thing: an address that is free again names nothing.
            let lived = text_of(found, thing).map(|text| text.gone.map_or(u64::MAX, |gone| gone.saturating_sub(1)));
            let time = at.or(lived).unwrap_or(u64::MAX);
            let hit = timeline.lookup(target, time).and_then(|hit| Some((hit.offset, timeline.text(hit.text)?)));
            // Functions of modules have names of their own.
            let is_module = |text: &Text<'_>| matches!(text.kind, TextKind::Module | TextKind::ModuleInit);
            if let Some((offset, text)) = hit.filter(|(_, text)| !is_module(text)) {
                return Some((text.name.into(), offset));
            }
            let frame = resolver.frame(&found.state, Loc { place: Place::Kernel, addr: target });
            frame.symbol.as_ref().ok().map(|name| (name.clone(), frame.offset))
        }
    }
}

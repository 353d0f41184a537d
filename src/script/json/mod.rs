//! `script --json`: a JSON object a line for each sample. Keys are only ever added.
//!
//! What every sample can have is always there, null where it is not known. What takes a bit of `sample_type` is there where
//! the event has it. Addresses are strings, times are ns on the recording's clock.

mod object;
mod sampled;

use afterimage_perf_data::record::Sample;
use afterimage_perf_data::{EventDesc, FileReader, SampleType};
use afterimage_profile::{CommId, CpuMode, Frame, Loc, Resolver, Said, SaidTypes, State, TimedSample};
use rustc_hash::FxHashMap;

use super::branches::mode_of;
use super::choice::Class;
use super::frames::function;
use super::sampled::RegisterNames;
use super::trace::{Formats, Names, Value};
use super::{off_cpu_unit, said};
use object::{Open, display, quoted};

/// What is the same for all samples of an event.
struct Event {
    /// The name in quotes.
    name: Vec<u8>,
    chain: bool,
    /// The unit of its periods, where they are times off CPU.
    unit: Option<&'static str>,
    /// The id of a tracepoint.
    tracepoint: Option<u64>,
    registers: RegisterNames,
}

impl Event {
    fn new(event: &EventDesc, unit: Option<&'static str>, chains: bool, machine: Option<&str>) -> Self {
        let mut name = Vec::new();
        quoted(&mut name, &event.name);
        Event {
            name,
            unit,
            chain: chains && event.attr.sample_type.contains(SampleType::CALLCHAIN),
            tracepoint: (Class::of(&event.attr) == Class::Tracepoint).then_some(event.attr.config),
            registers: RegisterNames::of(event, machine),
        }
    }
}

/// Writes samples; what is the same for many of them is made once.
pub(super) struct JsonPrinter<'f> {
    events: Vec<Event>,
    places: Places,
    formats: Formats,
    types: SaidTypes<'f>,
    comms: FxHashMap<CommId, Box<[u8]>>,
    /// Most addresses of a call chain.
    deepest: usize,
}

impl<'f> JsonPrinter<'f> {
    /// `chains`: how many addresses of a call chain are written; `None` leaves chains out.
    pub(super) fn new(reader: &'f FileReader<'f>, formats: Formats, resolver: Resolver, chains: Option<usize>) -> Self {
        let machine = reader.features().arch.as_deref();
        let events = reader.events().iter().enumerate();
        JsonPrinter {
            events: events
                .map(|(nth, event)| Event::new(event, off_cpu_unit(reader, nth, event), chains.is_some(), machine))
                .collect(),
            places: Places { resolver, known: FxHashMap::default() },
            formats,
            types: SaidTypes::new(reader.private()),
            comms: FxHashMap::default(),
            deepest: chains.unwrap_or(0),
        }
    }

    /// What names the addresses.
    pub(super) fn resolver(&self) -> &Resolver {
        &self.places.resolver
    }

    /// The name of a place.
    pub(super) fn frame(&mut self, state: &State, loc: Loc) -> &Frame {
        self.places.resolver.frame(state, loc)
    }

    /// The same, for finding more by it.
    pub(super) fn resolver_mut(&mut self) -> &mut Resolver {
        &mut self.places.resolver
    }

    /// Appends the line of one sample, and of what was said of it.
    pub(super) fn sample(&mut self, out: &mut Vec<u8>, state: &State, sample: &TimedSample<'_>, said: &[Said<'_>]) {
        let Some(event) = self.events.get(sample.event) else { return };
        let mut object = Open::object(out);
        let comm = self.comms.entry(sample.comm).or_insert_with(|| {
            let mut name = Vec::new();
            quoted(&mut name, state.comm(sample.comm));
            name.into()
        });
        object.key("comm").extend_from_slice(comm);
        display(object.key("pid"), sample.pid as i32);
        display(object.key("tid"), sample.tid as i32);
        object.number("cpu", sample.cpu.map(u64::from));
        object.number("time_ns", sample.time);
        object.key("event").extend_from_slice(&event.name);
        object.number("period", sample.period);
        if let Some(unit) = event.unit {
            object.plain("unit", unit);
        }
        object.number("count", sample.count);
        object.plain("mode", mode(sample.mode()));
        object.address("ip", sample.ip);
        let loc = state.locate(sample.process, sample.mode(), sample.ip);
        self.places.write(&mut object, state, loc, false);
        if event.chain {
            let mut list = Open::list(object.key("callchain"));
            let mut left = self.deepest;
            state.walk(sample, |step| {
                if left == 0 {
                    return;
                }
                left -= 1;
                let mut frame = Open::object(list.item());
                frame.address("ip", step.addr);
                self.places.write(&mut frame, state, step.loc, step.caller);
                frame.close();
            });
            list.close();
            if let Some(end) = sample.stack_end {
                object.plain("stack_end", end.key());
            }
        }
        if let Some(addr) = sample.addr {
            object.address("addr", addr);
        }
        if let (false, Ok(all)) = (sample.is_emitted(), sample.decode()) {
            sampled::write(&mut object, &all, state, sample, &event.registers);
            if let Some(stack) = &all.branch_stack {
                sampled::branches(&mut object, stack, |end, addr| {
                    let loc = state.locate(sample.process, mode_of(sample, addr), addr);
                    self.places.write(end, state, loc, false);
                });
            }
            let resolver = &mut self.places.resolver;
            let names = &mut |address| function(resolver, state, sample, address);
            raw(&mut object, &self.formats, event.tracepoint, &all, names);
        }
        spoken(&mut object, &self.types, said);
        object.close();
        out.push(b'\n');
    }
}

fn mode(mode: CpuMode) -> &'static str {
    match mode {
        CpuMode::Kernel => "kernel",
        CpuMode::User => "user",
        CpuMode::Hypervisor => "hypervisor",
        CpuMode::GuestKernel => "guest_kernel",
        CpuMode::GuestUser => "guest_user",
        CpuMode::Unknown => "unknown",
    }
}

/// What a tracepoint or a program wrote: its fields by name and its text where the recording has its format, else the bytes.
fn raw(object: &mut Open<'_>, formats: &Formats, tracepoint: Option<u64>, all: &Sample<'_>, names: Names<'_>) {
    let Some(raw) = all.raw else { return };
    let mut text = Vec::new();
    let fields = tracepoint.map(|id| {
        formats.print(&mut text, id, raw, names);
        formats.fields(id, raw)
    });
    match fields {
        Some(fields) if !fields.is_empty() => {
            object.text("trace", &String::from_utf8_lossy(&text));
            let mut named = Open::object(object.key("fields"));
            for (name, value) in fields {
                let out = named.named(name);
                match value {
                    Value::Number(number) => display(out, number),
                    Value::Unsigned(number) => display(out, number),
                    Value::Text(text) => quoted(out, &text),
                    Value::Bytes(bytes) => {
                        let mut list = Open::list(out);
                        bytes.numbers().for_each(|number| display(list.item(), number));
                        list.close();
                    }
                }
            }
            named.close();
        }
        _ => {
            let out = object.key("raw");
            out.push(b'"');
            raw.iter().for_each(|byte| display(out, format_args!("{byte:02x}")));
            out.push(b'"');
        }
    }
}

/// What handlers from objects said.
fn spoken(object: &mut Open<'_>, types: &SaidTypes<'_>, said: &[Said<'_>]) {
    if said.iter().any(|one| one.key.is_some()) {
        let mut labels = Open::list(object.key("labels"));
        for one in said {
            if let Some(name) = one.name() {
                let mut label = Open::object(labels.item());
                label.text("name", &name);
                label.text("value", &said::text(types, one));
                label.close();
            }
        }
        labels.close();
    }
    if said.iter().any(|one| one.key.is_none()) {
        let mut values = Open::list(object.key("values"));
        for one in said.iter().filter(|one| one.key.is_none()) {
            quoted(values.item(), &said::text(types, one));
        }
        values.close();
    }
}

/// What addresses belong to, written once for each.
struct Places {
    resolver: Resolver,
    known: FxHashMap<(Loc, bool), Box<[u8]>>,
}

impl Places {
    /// Symbol, offset and object; of a symbol that is not known the reason.
    fn write(&mut self, object: &mut Open<'_>, state: &State, loc: Loc, caller: bool) {
        let resolver = &mut self.resolver;
        let text = self.known.entry((loc, caller)).or_insert_with(|| {
            let frame = resolver.frame(state, loc);
            let mut text = Vec::new();
            let mut parts = Open::object(&mut text);
            match &frame.symbol {
                Ok(name) => {
                    parts.text("symbol", name);
                    parts.number("offset", frame.offset.saturating_add(u64::from(caller)));
                }
                Err(reason) => {
                    parts.key("symbol").extend_from_slice(b"null");
                    parts.text("reason", reason.key());
                }
            }
            parts.text("dso", &frame.dso.long);
            parts.close();
            text.into()
        });
        // Without its braces it is a part of the object.
        let inner = text.strip_prefix(b"{").and_then(|text| text.strip_suffix(b"}")).unwrap_or_default();
        object.item().extend_from_slice(inner);
    }
}

//! Addresses as text: each distinct one is named and written once, then copied.

use afterimage_perf_data::FileReader;
use afterimage_profile::{CpuMode, Frame, Lines, Loc, Place, Resolver, SourceLine, State, Step, TimedSample};
use rustc_hash::FxHashMap;

use super::branches::mode_of;
use super::digits::hex;
use crate::terminal::clean;

/// What stands beside an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) symbol: bool,
    pub(crate) offset: bool,
    pub(crate) dso: bool,
    /// The line of source code, on a line of its own.
    pub(crate) line: bool,
}

/// Where a text lies in the common store.
#[derive(Clone, Copy)]
struct Span {
    from: u32,
    len: u32,
}

/// The texts of one shape: of addresses that were sampled, and of callers.
struct Names {
    shape: Shape,
    sampled: FxHashMap<Loc, Span>,
    callers: FxHashMap<Loc, Span>,
}

/// The texts of all addresses seen so far: ` name+0xoffset (object)`.
pub(crate) struct FrameLines<'f> {
    resolver: Resolver,
    /// Where lines of source code are asked for.
    lines: Option<Lines<'f>>,
    /// One for each shape: all events of a kind share theirs.
    names: Vec<Names>,
    store: Vec<u8>,
    /// Most addresses of a call chain that are shown.
    deepest: usize,
}

impl<'f> FrameLines<'f> {
    /// `lines`: whether any event shows lines of source code; `deepest`: most addresses of a call chain that are shown.
    pub(crate) fn new(reader: &'f FileReader<'f>, resolver: Resolver, lines: bool, deepest: usize) -> Self {
        let lines = lines.then(|| Lines::new(reader));
        FrameLines { resolver, lines, names: Vec::new(), store: Vec::new(), deepest }
    }

    /// The lines of a call chain, innermost first.
    pub(crate) fn chain(&mut self, out: &mut Vec<u8>, state: &State, sample: &TimedSample<'_>, shape: Shape) {
        let mut left = self.deepest;
        state.walk(sample, |step| {
            if left == 0 {
                return;
            }
            left -= 1;
            out.push(b'\t');
            hex(out, shown(&step), 16);
            out.extend_from_slice(self.name(state, step.loc, step.caller, shape));
            out.push(b'\n');
        });
    }

    /// The sampled address behind the event.
    pub(crate) fn ip(&mut self, out: &mut Vec<u8>, state: &State, sample: &TimedSample<'_>, shape: Shape) {
        let loc = state.locate(sample.process, sample.mode(), sample.ip);
        hex(out, sample.ip, 16);
        out.extend_from_slice(self.name(state, loc, false, shape));
    }

    /// What a data address belongs to.
    pub(crate) fn data(&mut self, out: &mut Vec<u8>, state: &State, sample: &TimedSample<'_>, addr: u64, shape: Shape) {
        let loc = state.locate(sample.process, CpuMode::Unknown, addr);
        out.extend_from_slice(self.name(state, loc, false, Shape { line: false, ..shape }));
    }

    /// What an address of a branch belongs to: the symbol, or the object in brackets, with no blank before it.
    pub(crate) fn bare(&mut self, state: &State, sample: &TimedSample<'_>, addr: u64, symbol: bool) -> &[u8] {
        let loc = state.locate(sample.process, mode_of(sample, addr), addr);
        let text = self.name(state, loc, false, Shape { symbol, offset: symbol, dso: !symbol, line: false });
        text.strip_prefix(b" ").unwrap_or(text)
    }

    /// The kernel's function at an address, and how far from its start.
    pub(crate) fn function(&mut self, state: &State, sample: &TimedSample<'_>, addr: u64) -> Option<(String, u64)> {
        function(&mut self.resolver, state, sample, addr)
    }

    /// A caller's place is the last byte of its call; what is shown is the address behind it.
    fn name(&mut self, state: &State, loc: Loc, caller: bool, shape: Shape) -> &[u8] {
        let at = match self.names.iter().position(|names| names.shape == shape) {
            Some(at) => at,
            None => {
                self.names.push(Names { shape, sampled: FxHashMap::default(), callers: FxHashMap::default() });
                self.names.len() - 1
            }
        };
        let names = &mut self.names[at];
        let known = if caller { &mut names.callers } else { &mut names.sampled };
        let span = match known.get(&loc) {
            Some(span) => *span,
            None => {
                let lines = self.lines.as_mut().filter(|_| shape.line);
                let line = lines.and_then(|lines| lines.at(state, &mut self.resolver, loc)).map(|line| &**line);
                let frame = self.resolver.frame(state, loc);
                // 4 GiB of names are more than any recording has; then they are made anew each time.
                let Ok(from) = u32::try_from(self.store.len()) else {
                    self.store.truncate(u32::MAX as usize);
                    write_name(&mut self.store, frame, u64::from(caller), shape, line);
                    return self.store.get(u32::MAX as usize..).unwrap_or_default();
                };
                write_name(&mut self.store, frame, u64::from(caller), shape, line);
                let len = self.store.len() - from as usize;
                let span = Span { from, len: u32::try_from(len).unwrap_or(0) };
                known.insert(loc, span);
                span
            }
        };
        let from = span.from as usize;
        self.store.get(from..from + span.len as usize).unwrap_or_default()
    }
}

/// The kernel's function at an address, and how far from its start.
pub(super) fn function(
    resolver: &mut Resolver,
    state: &State,
    sample: &TimedSample<'_>,
    addr: u64,
) -> Option<(String, u64)> {
    let loc = state.locate(sample.process, CpuMode::Kernel, addr);
    let frame = resolver.frame(state, loc);
    let name = frame.symbol.as_ref().ok()?;
    Some((clean(name).into_owned(), frame.offset))
}

/// perf shows offsets in files for addresses of processes, and the addresses themselves for the kernel.
fn shown(step: &Step) -> u64 {
    match step.loc.place {
        Place::Object(_) => step.loc.addr.wrapping_add(u64::from(step.caller)),
        _ => step.addr,
    }
}

fn write_name(out: &mut Vec<u8>, frame: &Frame, behind: u64, shape: Shape, line: Option<&SourceLine>) {
    if shape.symbol {
        out.push(b' ');
        match &frame.symbol {
            Ok(name) => {
                out.extend_from_slice(clean(name).as_bytes());
                if shape.offset {
                    out.extend_from_slice(b"+0x");
                    hex(out, frame.offset.saturating_add(behind), 0);
                }
            }
            Err(_) => out.extend_from_slice(b"[unknown]"),
        }
    }
    if shape.dso {
        out.extend_from_slice(b" (");
        out.extend_from_slice(clean(&frame.dso.long).as_bytes());
        out.push(b')');
    }
    if let Some(line) = line {
        out.extend_from_slice(b"\n  ");
        out.extend_from_slice(clean(&line.to_string()).as_bytes());
    }
}

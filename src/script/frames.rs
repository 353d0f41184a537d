//! Addresses as text: each distinct one is named and written once, then copied; parts of stacks that come again are copied
//! as a whole.

use std::hash::BuildHasher;

use afterimage_perf_data::{Callchain, FileReader, context};
use afterimage_profile::{
    CpuMode, Frame, KnownParts, Lines, Loc, PartHash, Place, Resolver, SourceLine, Split, State, TimedSample, Under,
    has_return_addresses,
};
use afterimage_symbols::lines::SourceFrame;
use rustc_hash::{FxBuildHasher, FxHashMap};

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

/// Where a text lies in a store.
#[derive(Clone, Copy)]
struct Span {
    from: u32,
    len: u32,
}

impl Span {
    /// The end of a store from `from` on; `None` where it is longer than spans reach.
    fn to_end(store: &[u8], from: usize) -> Option<Span> {
        Some(Span { from: u32::try_from(from).ok()?, len: u32::try_from(store.len() - from).ok()? })
    }

    #[inline]
    fn of(self, store: &[u8]) -> &[u8] {
        let from = self.from as usize;
        store.get(from..from + self.len as usize).unwrap_or_default()
    }
}

/// What is written of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    /// What stands beside it.
    Name,
    /// A line of a chain, of the sampled address.
    Line,
    /// The same of a caller. Its place is the last byte of its call; what is shown is the address behind it.
    CallerLine,
}

/// The texts of one shape.
struct Names {
    shape: Shape,
    texts: FxHashMap<(Loc, What), Span>,
    /// Empty until the first chain.
    recent: Vec<Option<Recent>>,
    kernel: Parts,
    user: Parts,
}

/// A line that was written lately: it is found without finding out where its address lies.
#[derive(Clone, Copy)]
struct Recent {
    addr: u64,
    under: Under,
    kernel: bool,
    caller: bool,
    span: Span,
}

/// A quarter of a megabyte, which stays near the CPU.
const RECENT: usize = 1 << 13;

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
    /// Functions that were inlined have lines of their own in chains.
    inline: bool,
}

impl<'f> FrameLines<'f> {
    /// `lines`: whether any event shows lines of source code; `deepest`: most addresses of a call chain that are shown;
    /// `inline`: whether functions that were inlined have lines in chains.
    pub(crate) fn new(
        reader: &'f FileReader<'f>,
        resolver: Resolver,
        lines: bool,
        deepest: usize,
        inline: bool,
    ) -> Self {
        let lines = lines.then(|| Lines::new(reader));
        FrameLines { resolver, lines, names: Vec::new(), store: Vec::new(), deepest, inline }
    }

    /// What names the frames.
    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// The same, for finding more by it.
    pub(crate) fn resolver_mut(&mut self) -> &mut Resolver {
        &mut self.resolver
    }

    /// The lines of a call chain, innermost first.
    pub(crate) fn chain(&mut self, out: &mut Vec<u8>, state: &State, sample: &TimedSample<'_>, shape: Shape) {
        let (from, at) = (out.len(), self.at(shape));
        if self.parts_of_chain(out, state, sample, at) {
            return;
        }
        out.truncate(from);
        let mut left = self.deepest;
        state.walk(sample, |step| {
            if left == 0 {
                return;
            }
            left -= 1;
            let what = if step.caller { What::CallerLine } else { What::Line };
            self.write(out, state, step.loc, what, at);
        });
    }

    /// The lines of a call chain of the usual form, part by part. `false` for any other; then what was written is of no use.
    fn parts_of_chain(&mut self, out: &mut Vec<u8>, state: &State, sample: &TimedSample<'_>, at: usize) -> bool {
        let Some(Split { kernel, user }) = Split::of(sample.chain) else { return false };
        let mut left = self.deepest;
        match sample.mode() {
            // The sample's own address stands in front where the chain lacks it.
            CpuMode::Kernel if kernel.is_empty() && left > 0 => {
                self.frame(out, state, sample, at, (sample.ip, CpuMode::Kernel, false));
                left -= 1;
            }
            CpuMode::Kernel => {
                let kernel = cut(kernel, left);
                left -= kernel.len().saturating_sub(1);
                if !self.part(out, state, sample, at, kernel, CpuMode::Kernel) {
                    return false;
                }
            }
            CpuMode::User | CpuMode::Unknown if kernel.is_empty() => {}
            _ => return false,
        }
        self.part(out, state, sample, at, cut(user, left), CpuMode::User)
    }

    /// The lines of a part of a stack, or of none. `false` if there is more in it than addresses.
    fn part(
        &mut self,
        out: &mut Vec<u8>,
        state: &State,
        sample: &TimedSample<'_>,
        at: usize,
        part: Callchain<'_>,
        mode: CpuMode,
    ) -> bool {
        if part.len() <= 1 {
            return true;
        }
        let under = under(state, sample, mode);
        let parts = self.names[at].parts(mode);
        let (hash, known) = parts.known.find(part, under);
        if let Some(span) = known {
            out.extend_from_slice(span.of(&parts.store));
            return true;
        }
        if part.iter().skip(1).any(context::is_marker) {
            return false;
        }
        let (from, mut stays) = (out.len(), true);
        let calls = has_return_addresses(part);
        for (nth, addr) in part.iter().skip(1).enumerate() {
            stays &= self.frame(out, state, sample, at, (addr, mode, calls && nth > 0));
        }
        if stays {
            self.names[at].parts(mode).keep(hash, part, under, &out[from..]);
        }
        true
    }

    /// The line of an address; `false` if nothing is mapped there now, which may change.
    #[inline]
    fn frame(
        &mut self,
        out: &mut Vec<u8>,
        state: &State,
        sample: &TimedSample<'_>,
        at: usize,
        (addr, mode, caller): (u64, CpuMode, bool),
    ) -> bool {
        let (under, kernel) = (under(state, sample, mode), mode == CpuMode::Kernel);
        let slot = FxBuildHasher.hash_one((addr, under.number(), caller)) as usize % RECENT;
        if let Some(Some(recent)) = self.names[at].recent.get(slot) {
            if (recent.addr, recent.under, recent.kernel, recent.caller) == (addr, under, kernel, caller) {
                out.extend_from_slice(recent.span.of(&self.store));
                return true;
            }
        }
        let loc = state.locate(sample.process, mode, addr.wrapping_sub(u64::from(caller)));
        let what = if caller { What::CallerLine } else { What::Line };
        let span = self.write(out, state, loc, what, at);
        if loc.place == Place::Unmapped {
            return false;
        }
        let recent = &mut self.names[at].recent;
        if recent.is_empty() {
            recent.resize(RECENT, None);
        }
        if let (Some(span), Some(recent)) = (span, recent.get_mut(slot)) {
            *recent = Some(Recent { addr, under, kernel, caller, span });
        }
        true
    }

    /// The sampled address behind the event.
    pub(crate) fn ip(&mut self, out: &mut Vec<u8>, state: &State, sample: &TimedSample<'_>, shape: Shape) {
        let loc = state.locate(sample.process, sample.mode(), sample.ip);
        hex(out, sample.ip, 16);
        let at = self.at(shape);
        self.write(out, state, loc, What::Name, at);
    }

    /// What a data address belongs to.
    pub(crate) fn data(&mut self, out: &mut Vec<u8>, state: &State, sample: &TimedSample<'_>, addr: u64, shape: Shape) {
        let loc = state.locate(sample.process, CpuMode::Unknown, addr);
        let at = self.at(Shape { line: false, ..shape });
        self.write(out, state, loc, What::Name, at);
    }

    /// Appends what an address of a branch belongs to: the symbol, or the object in brackets, with no blank before it.
    pub(crate) fn bare(&mut self, out: &mut Vec<u8>, state: &State, sample: &TimedSample<'_>, addr: u64, symbol: bool) {
        let loc = state.locate(sample.process, mode_of(sample, addr), addr);
        let at = self.at(Shape { symbol, offset: symbol, dso: !symbol, line: false });
        let from = out.len();
        self.write(out, state, loc, What::Name, at);
        if out.get(from) == Some(&b' ') {
            out.remove(from);
        }
    }

    /// The name of a place.
    pub(crate) fn frame_of(&mut self, state: &State, loc: Loc) -> &Frame {
        self.resolver.frame(state, loc)
    }

    /// The kernel's function at an address, and how far from its start.
    pub(crate) fn function(&mut self, state: &State, sample: &TimedSample<'_>, addr: u64) -> Option<(String, u64)> {
        function(&mut self.resolver, state, sample, addr)
    }

    /// Where the texts of a shape are.
    fn at(&mut self, shape: Shape) -> usize {
        match self.names.iter().position(|names| names.shape == shape) {
            Some(at) => at,
            None => {
                self.names.push(Names::new(shape));
                self.names.len() - 1
            }
        }
    }

    /// Appends the text of a place, and tells where in the store it is.
    fn write(&mut self, out: &mut Vec<u8>, state: &State, loc: Loc, what: What, at: usize) -> Option<Span> {
        let names = &mut self.names[at];
        if let Some(span) = names.texts.get(&(loc, what)) {
            out.extend_from_slice(span.of(&self.store));
            return Some(*span);
        }
        let shape = names.shape;
        let lines = self.lines.as_mut().filter(|_| shape.line);
        let line = lines.and_then(|lines| lines.at(state, &mut self.resolver, loc)).map(|line| &**line);
        let sources = match loc.place {
            Place::Object(id) if self.inline && what != What::Name => self.resolver.source_of(state, id, loc.addr),
            _ => Vec::new(),
        };
        let frame = self.resolver.frame(state, loc);
        let written = out.len();
        match what {
            What::Name => write_name(out, frame, 0, shape, line),
            What::Line | What::CallerLine => {
                let behind = u64::from(what == What::CallerLine);
                // perf shows offsets in files for addresses of processes, and the addresses themselves for the kernel.
                let addr = loc.addr.wrapping_add(behind);
                // The last one is the function that there is: its line is that of the call that was inlined.
                let holder = sources.last().filter(|_| sources.len() > 1);
                let line = match holder {
                    Some(holder) => line.and(source_line(holder)),
                    None => line.cloned(),
                };
                for source in sources.iter().take(sources.len().saturating_sub(1)) {
                    write_inlined(out, addr, source, shape);
                }
                out.push(b'\t');
                hex(out, addr, 16);
                write_name(out, frame, behind, shape, line.as_ref());
                out.push(b'\n');
            }
        }
        let from = self.store.len();
        // 4 GiB of names are more than any recording has; then they are made anew each time.
        if from + (out.len() - written) > u32::MAX as usize {
            return None;
        }
        self.store.extend_from_slice(&out[written..]);
        let span = Span::to_end(&self.store, from)?;
        names.texts.insert((loc, what), span);
        Some(span)
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

/// The part with its marker and no more than so many addresses.
#[inline]
fn cut(part: Callchain<'_>, most: usize) -> Callchain<'_> {
    part.split_at(most.saturating_add(1)).0
}

#[inline]
fn under(state: &State, sample: &TimedSample<'_>, mode: CpuMode) -> Under {
    if mode == CpuMode::Kernel { Under::kernel(state) } else { Under::process(sample) }
}

impl Names {
    fn new(shape: Shape) -> Names {
        let texts = FxHashMap::default();
        Names { shape, texts, recent: Vec::new(), kernel: Parts::new(), user: Parts::new() }
    }

    fn parts(&mut self, mode: CpuMode) -> &mut Parts {
        if mode == CpuMode::Kernel { &mut self.kernel } else { &mut self.user }
    }
}

/// Texts of parts of stacks that came twice or more often.
struct Parts {
    known: KnownParts<Span>,
    store: Vec<u8>,
    /// Pieces of the hashes of parts that came once.
    once: Vec<u32>,
}

/// Bytes of texts, and of the raw parts that they are of: when there are more all are forgotten.
const MOST: usize = 12 << 20;

/// As a power of two: what is remembered of parts that came once takes a quarter of a megabyte.
const ONCE_LOG: u32 = 16;

impl Parts {
    fn new() -> Parts {
        Parts { known: KnownParts::with_room(MOST), store: Vec::new(), once: Vec::new() }
    }

    /// Keeps the text of a part, if it is not the first time that it comes: most parts with addresses of short programs
    /// never come again.
    fn keep(&mut self, PartHash(hash): PartHash, part: Callchain<'_>, under: Under, text: &[u8]) {
        if self.once.is_empty() {
            self.once.resize(1 << ONCE_LOG, 0);
        }
        let tag = hash as u32 | 1;
        if let Some(once) = self.once.get_mut((hash >> (64 - ONCE_LOG)) as usize).filter(|once| **once != tag) {
            *once = tag;
            return;
        }
        if self.store.len() + text.len() > MOST {
            self.store.clear();
            self.known.clear();
        }
        let from = self.store.len();
        self.store.extend_from_slice(text);
        let Some(span) = Span::to_end(&self.store, from) else { return };
        // Where others were forgotten to make room for it, their texts stay until there is no room for these.
        self.known.keep(PartHash(hash), part, under, span);
    }
}

/// The line of a function that was inlined where an address is, as perf writes it. It has no offset, as it begins nowhere.
fn write_inlined(out: &mut Vec<u8>, addr: u64, source: &SourceFrame, shape: Shape) {
    out.push(b'\t');
    hex(out, addr, 16);
    if shape.symbol {
        out.push(b' ');
        out.extend_from_slice(clean(source.function.as_deref().unwrap_or("??")).as_bytes());
    }
    if let (true, Some(line)) = (shape.line, source_line(source)) {
        out.extend_from_slice(b"\n  ");
        out.extend_from_slice(clean(&line.to_string()).as_bytes());
    }
    out.extend_from_slice(b" (inlined)\n");
}

fn source_line(source: &SourceFrame) -> Option<SourceLine> {
    let file = source.file.as_deref().filter(|_| source.line != 0)?;
    Some(SourceLine { file: file.into(), line: source.line, text: None })
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

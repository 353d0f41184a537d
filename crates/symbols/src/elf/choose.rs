//! Which of several symbols at one address gives the name, and where symbols without a size end.
//!
//! Both follow what perf does, so that the two tools print the same names.

use std::borrow::Cow;

use object::elf;

use crate::demangle;
use crate::names::{Range, Span};

/// What a symbol without a size is granted when nothing follows it: the rest of its page and one more.
const PAGE: u64 = 4096;

/// A symbol as its table holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    pub(crate) start: u64,
    /// Zero where the table does not say.
    pub(crate) size: u64,
    /// The end of its section: no symbol reaches past it.
    pub(crate) limit: u64,
    pub(crate) binding: Binding,
    /// Whether the table says that it is a function, and how long; not a label or data among code.
    pub(crate) function: bool,
    pub(crate) name: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    Local,
    Global,
    Weak,
}

impl Binding {
    pub(crate) fn from_elf(bind: u8) -> Binding {
        match bind {
            elf::STB_WEAK => Binding::Weak,
            elf::STB_GLOBAL => Binding::Global,
            _ => Binding::Local,
        }
    }
}

/// One range for each address at which symbols start, by start, and the names that are left.
pub(crate) fn settle(mut symbols: Vec<Raw>, names: &str) -> (Vec<Range>, String) {
    symbols.sort_by_key(|s| s.start);
    end_unsized(&mut symbols);
    let mut ranges: Vec<Range> = Vec::with_capacity(symbols.len());
    let mut kept = String::with_capacity(names.len());
    for aliases in symbols.chunk_by(|a, b| a.start == b.start) {
        let Some(best) = aliases.iter().copied().reduce(|a, b| if prefers_second(&a, &b, names) { b } else { a })
        else {
            continue;
        };
        let name = text(names, best.name);
        // The arena only shrinks, so the spans still fit.
        let span = Span { at: u32::try_from(kept.len()).unwrap_or(u32::MAX), len: best.name.len };
        kept.push_str(name);
        let end = best.start.saturating_add(best.size).min(best.limit);
        // Of nested symbols the inner one, which starts later, owns the address. But a label or a table among the code
        // of a function is no better name for it than the function's.
        let rank = u64::from(best.function) << 32 | ranges.len() as u64;
        ranges.push(Range { start: best.start, end, rank, name: span });
    }
    kept.shrink_to_fit();
    (ranges, kept)
}

/// A symbol without a size ends where the next one starts; of several at one address only the last gets the room.
fn end_unsized(symbols: &mut [Raw]) {
    for at in 0..symbols.len() {
        let next = symbols.get(at + 1).map(|s| s.start);
        let Some(symbol) = symbols.get_mut(at) else { return };
        if symbol.size == 0 {
            let page_rule = || (symbol.start.saturating_add(PAGE - 1) & !(PAGE - 1)).saturating_add(PAGE);
            symbol.size = next.unwrap_or_else(page_rule) - symbol.start;
        }
    }
}

fn text(names: &str, span: Span) -> &str {
    let at = span.at as usize;
    names.get(at..at + span.len as usize).unwrap_or_default()
}

/// A size beats none, a strong symbol a weak one, a global one a local one, fewer leading underscores more, a longer
/// name a shorter one. What is compared is the readable name.
fn prefers_second(a: &Raw, b: &Raw, names: &str) -> bool {
    if (a.size == 0) != (b.size == 0) {
        return a.size == 0;
    }
    if (a.binding == Binding::Weak) != (b.binding == Binding::Weak) {
        return a.binding == Binding::Weak;
    }
    if (a.binding == Binding::Global) != (b.binding == Binding::Global) {
        return b.binding == Binding::Global;
    }
    let (a, b) = (text(names, a.name), text(names, b.name));
    if a == b {
        return false;
    }
    let (a, b): (Cow<'_, str>, Cow<'_, str>) = (demangle(a), demangle(b));
    let (bars_a, bars_b) = (underscores(&a), underscores(&b));
    if bars_a != bars_b { bars_b < bars_a } else { b.len() > a.len() }
}

fn underscores(name: &str) -> usize {
    name.bytes().take_while(|&b| b == b'_').count()
}

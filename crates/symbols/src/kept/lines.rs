//! Lines of some functions: for each stretch of addresses the functions and lines that its code comes from.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{LineOf, TextOfLine};
use crate::jit::Body;
use crate::lines::{DwarfLines, SourceFrame};

/// Stretches without lines.
pub(super) const NOTHING: u32 = u32::MAX;

/// One function with a line, its texts by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Frame {
    /// Number of the function's name among the strings, from 1; 0: not known. The same for the two others.
    pub(super) function: u32,
    pub(super) file: u32,
    pub(super) text: u32,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// For stretches of addresses, from where code comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptLines {
    pub(super) strings: Vec<Arc<str>>,
    pub(super) frames: Vec<Frame>,
    /// Where each chain begins among `links`; it ends where the next one begins.
    pub(super) chains: Vec<u32>,
    /// Numbers of frames, innermost first.
    pub(super) links: Vec<u32>,
    /// Where a stretch begins, and the number of its chain or [`NOTHING`]. It ends where the next one begins.
    pub(super) rows: Vec<(u64, u32)>,
}

impl KeptLines {
    /// The lines of some functions, and of `addrs` exactly, at most `most` stretches.
    pub(super) fn of(
        lines: &DwarfLines,
        spans: &[Range<u64>],
        addrs: &BTreeSet<u64>,
        shift: u64,
        most: usize,
        text: TextOfLine<'_>,
    ) -> KeptLines {
        let mut building = Building { lines, shift, text, kept: KeptLines::default(), known: Known::default() };
        // Addresses outside of functions stand for themselves.
        let alone = addrs.iter().filter(|addr| !within(spans, **addr));
        let alone = alone.filter_map(|addr| Some(*addr..addr.checked_add(1)?));
        let mut all: Vec<Range<u64>> = spans.iter().cloned().chain(alone).collect();
        all.sort_unstable_by_key(|range| range.start);
        for span in all {
            if building.kept.rows.len() >= most {
                break;
            }
            building.span(span, addrs);
        }
        building.kept
    }

    /// The lines of code of a JIT compiler, by address; the files are numbers of `files`.
    pub(super) fn of_bodies(bodies: &[Body], files: &[Arc<str>], most: usize) -> KeptLines {
        let mut kept = KeptLines::default();
        let mut known = Known::default();
        let string = |text: &str, kept: &mut KeptLines, known: &mut Known| match known.strings.get(text) {
            Some(number) => *number,
            None => {
                kept.strings.push(text.into());
                let number = number(kept.strings.len());
                known.strings.insert(text.into(), number);
                number
            }
        };
        for body in bodies.iter().filter(|body| !body.lines.is_empty()) {
            if kept.rows.len() >= most {
                break;
            }
            let function = string(&body.name, &mut kept, &mut known);
            for (addr, line, file) in body.lines.iter().filter(|line| (body.addr..body.end).contains(&line.0)) {
                let file = files.get(*file as usize).map_or(0, |file| string(file, &mut kept, &mut known));
                let frame = Frame { function, file, text: 0, line: *line, column: 0 };
                let next = number(kept.frames.len());
                let chain = *known.frames.entry(frame).or_insert(next);
                if chain == next {
                    // A chain of this frame alone has its number.
                    kept.frames.push(frame);
                    kept.chains.push(next);
                    kept.links.push(next);
                }
                kept.row(*addr, chain);
            }
            kept.row(body.end, NOTHING);
        }
        kept
    }

    /// Code from an address on is of a chain.
    fn row(&mut self, start: u64, chain: u32) {
        let rows = &mut self.rows;
        if rows.last().is_some_and(|(last, _)| *last == start) {
            rows.pop();
        }
        if rows.last().map_or(NOTHING, |(_, last)| *last) != chain {
            rows.push((start, chain));
        }
    }

    /// How many stretches there are.
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn frames(&self, vaddr: u64) -> Vec<SourceFrame> {
        let at = self.rows.partition_point(|(start, _)| *start <= vaddr).checked_sub(1);
        let chain = at.and_then(|at| self.rows.get(at)).map_or(NOTHING, |(_, chain)| *chain);
        self.chain(chain)
            .iter()
            .filter_map(|frame| self.frames.get(*frame as usize))
            .map(|frame| self.shown(frame))
            .collect()
    }

    pub(super) fn chain(&self, chain: u32) -> &[u32] {
        let Some(from) = self.chains.get(chain as usize) else { return &[] };
        let to = self.chains.get(chain as usize + 1).map_or(self.links.len(), |to| *to as usize);
        self.links.get(*from as usize..to).unwrap_or_default()
    }

    fn shown(&self, frame: &Frame) -> SourceFrame {
        let string = |number: u32| self.strings.get((number as usize).checked_sub(1)?).cloned();
        SourceFrame {
            function: string(frame.function).map(|name| name.to_string()),
            file: string(frame.file).map(|file| file.to_string()),
            line: frame.line,
            column: frame.column,
            text: string(frame.text),
        }
    }
}

struct Building<'l, 't> {
    lines: &'l DwarfLines,
    shift: u64,
    text: TextOfLine<'t>,
    kept: KeptLines,
    known: Known,
}

/// What there is already, by content.
#[derive(Default)]
struct Known {
    strings: FxHashMap<Arc<str>, u32>,
    frames: FxHashMap<Frame, u32>,
    chains: FxHashMap<Vec<u32>, u32>,
    /// The text of a line, by the file's number among the strings and the line.
    texts: FxHashMap<(u32, u32), u32>,
    /// The MD5 of a file that has one, by its number.
    sums: FxHashMap<u32, Option<[u8; 16]>>,
}

impl Building<'_, '_> {
    /// Appends the stretches of a function.
    fn span(&mut self, span: Range<u64>, addrs: &BTreeSet<u64>) {
        let there = span.start.wrapping_sub(self.shift)..span.end.wrapping_sub(self.shift);
        let mut cuts: BTreeSet<u64> =
            self.lines.rows(there).into_iter().map(|at| at.wrapping_add(self.shift)).collect();
        cuts.insert(span.start);
        // Beside the rows of the line table: the addresses that are asked for, exactly.
        cuts.extend(addrs.range(span.clone()).flat_map(|addr| [*addr, addr + 1]).filter(|at| span.contains(at)));
        let ends: Vec<u64> = cuts.iter().skip(1).copied().chain([span.end]).collect();
        for (start, end) in cuts.into_iter().zip(ends) {
            let (first, last) = (self.chain_at(start), self.chain_at(end - 1));
            self.stretch(start, first, end - 1, last);
        }
        self.row(span.end, NOTHING);
    }

    /// Appends what is between two addresses, both included, whose chains are known: cut in halves where they differ. A change
    /// and a change back between two equal ones would go unseen: the rows of the line table are where changes are.
    fn stretch(&mut self, mut start: u64, mut first: u32, last_at: u64, last: u32) {
        loop {
            self.row(start, first);
            if first == last || start >= last_at {
                return;
            }
            // The first address that has another chain than `first`.
            let (mut from, mut to) = (start, last_at);
            while to - from > 1 {
                let middle = from + (to - from) / 2;
                if self.chain_at(middle) == first { from = middle } else { to = middle }
            }
            (start, first) = (to, self.chain_at(to));
        }
    }

    fn row(&mut self, start: u64, chain: u32) {
        self.kept.row(start, chain);
    }

    fn chain_at(&mut self, addr: u64) -> u32 {
        let frames = self.lines.frames(addr.wrapping_sub(self.shift));
        if frames.is_empty() {
            return NOTHING;
        }
        let vaddr = addr.wrapping_sub(self.shift);
        let links: Vec<u32> = frames.into_iter().map(|frame| self.frame(vaddr, &frame)).collect();
        if let Some(known) = self.known.chains.get(&links) {
            return *known;
        }
        let number = number(self.kept.chains.len());
        self.kept.chains.push(self::number(self.kept.links.len()));
        self.kept.links.extend(&links);
        self.known.chains.insert(links, number);
        number
    }

    fn frame(&mut self, vaddr: u64, frame: &SourceFrame) -> u32 {
        let function = self.string(frame.function.as_deref());
        let file = self.string(frame.file.as_deref());
        let text = match frame.file.as_deref() {
            // What an archive names is not here. Its texts are.
            _ if self.lines.is_kept() => self.string(frame.text.as_deref()),
            Some(path) if frame.line > 0 => self.text_of(vaddr, path, file, frame.line),
            _ => 0,
        };
        let frame = Frame { function, file, text, line: frame.line, column: frame.column };
        let next = number(self.kept.frames.len());
        *self.known.frames.entry(frame).or_insert_with(|| {
            self.kept.frames.push(frame);
            next
        })
    }

    /// What stands in a line of a file, which has the number `file` among the strings.
    fn text_of(&mut self, vaddr: u64, path: &str, file: u32, line: u32) -> u32 {
        if let Some(known) = self.known.texts.get(&(file, line)) {
            return *known;
        }
        let lines = self.lines;
        let md5 = *self.known.sums.entry(file).or_insert_with(|| lines.md5_of(vaddr, path));
        let text = (self.text)(&LineOf { file: path, line, md5, owner: lines.owner() });
        let number = self.string(text.as_deref());
        self.known.texts.insert((file, line), number);
        number
    }

    fn string(&mut self, text: Option<&str>) -> u32 {
        let Some(text) = text else { return 0 };
        if let Some(known) = self.known.strings.get(text) {
            return *known;
        }
        let text: Arc<str> = text.into();
        self.kept.strings.push(text.clone());
        let number = number(self.kept.strings.len());
        self.known.strings.insert(text, number);
        number
    }
}

/// Whether one of the ranges, which ascend and lie apart, holds an address.
fn within(ranges: &[Range<u64>], addr: u64) -> bool {
    let next = ranges.partition_point(|range| range.start <= addr);
    next.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|range| range.contains(&addr))
}

/// Numbers beyond this are never reached: stretches are bounded.
fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(NOTHING - 1)
}

//! Names over address ranges: built once, then looked up millions of times.
//!
//! Ranges may overlap. Building cuts them into pieces that do not, each owned by one symbol or by none:
//!
//! ```text
//! symbols   [a──────────────)          [c────)
//!               [b────)
//! pieces    a───b─────a─────none───────c─────none
//! ```
//!
//! A look-up then is one table access that narrows the pieces to a handful, and a short binary search.

use std::collections::{BTreeSet, BinaryHeap};

use rustc_hash::FxHashMap;

use crate::bytes::{Cursor, put_block};

/// A symbol that covers an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<'t> {
    /// The name as the file spells it; see [`demangle`](crate::demangle()).
    pub name: &'t str,
    /// The symbol's number in its table, which names the symbol for as long as the table lives.
    pub id: u32,
    /// Where the symbol starts, in the table's address space.
    pub start: u64,
    /// How far into the symbol the address is, in bytes.
    pub offset: u64,
}

/// A symbol as a builder knows it. Empty ranges are dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) start: u64,
    /// One past the last address.
    pub(crate) end: u64,
    /// Where several ranges cover an address, the one of the highest rank is its owner.
    pub(crate) rank: u64,
    pub(crate) name: Span,
}

/// A place in the arena of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Symbol {
    start: u64,
    name: Span,
}

/// The owner of a piece that no symbol covers.
const NOBODY: u32 = u32::MAX;

/// A range with one owner. It ends where the next one starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    start: u64,
    /// The number of the symbol that owns it, or [`NOBODY`]. Beside the start, so that both come in one line of cache.
    owner: u32,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct NameMap {
    /// By start, ascending.
    pieces: Vec<Piece>,
    symbols: Vec<Symbol>,
    names: Box<str>,
    buckets: Buckets,
}

impl NameMap {
    /// `ranges` must be sorted by start, with spans inside `names`; symbols are numbered in that order.
    pub(crate) fn build(ranges: &[Range], names: String) -> NameMap {
        let ranges: Vec<Range> = ranges.iter().copied().filter(|r| r.end > r.start).collect();
        let symbols = ranges.iter().map(|r| Symbol { start: r.start, name: r.name }).collect();
        let cut = Cut::all(&ranges);
        let buckets = Buckets::over(&cut.pieces);
        NameMap { pieces: cut.pieces, symbols, names: names.into_boxed_str(), buckets }
    }

    /// The number of the symbol that owns an address. Touches no names.
    pub(crate) fn id_at(&self, addr: u64) -> Option<u32> {
        self.buckets.piece_at(&self.pieces, addr).map(|piece| piece.owner).filter(|&owner| owner != NOBODY)
    }

    /// A symbol by its number, at its start.
    pub(crate) fn get(&self, id: u32) -> Option<Hit<'_>> {
        let symbol = self.symbols.get(id as usize)?;
        Some(Hit { name: self.name(symbol.name), id, start: symbol.start, offset: 0 })
    }

    pub(crate) fn lookup(&self, addr: u64) -> Option<Hit<'_>> {
        let symbol = self.get(self.id_at(addr)?)?;
        Some(Hit { offset: addr.wrapping_sub(symbol.start), ..symbol })
    }

    /// Where the stretch around `addr` that one symbol owns, or none, ends: one past its last address.
    pub(crate) fn end_at(&self, addr: u64) -> u64 {
        let next = self.pieces.partition_point(|piece| piece.start <= addr);
        self.pieces.get(next).map_or(u64::MAX, |piece| piece.start)
    }

    /// From a symbol's start to the end of the last piece that it owns. Others may own pieces between.
    pub(crate) fn extent(&self, id: u32) -> Option<std::ops::Range<u64>> {
        /// Symbols within a symbol that are looked past.
        const WITHIN: usize = 64;
        let start = self.symbols.get(id as usize)?.start;
        let first = self.pieces.partition_point(|piece| piece.start < start);
        let (mut end, mut others) = (start, 0);
        for (at, piece) in self.pieces.iter().enumerate().skip(first) {
            if piece.owner == id {
                end = self.pieces.get(at + 1).map_or(u64::MAX, |next| next.start);
                others = 0;
            } else {
                others += 1;
            }
            if others > WITHIN {
                break;
            }
        }
        (end > start).then_some(start..end)
    }

    /// The same map with these symbols alone, which answers for their addresses as this one does. They are numbered anew.
    pub(crate) fn excerpt(&self, ids: &BTreeSet<u32>) -> NameMap {
        let (mut symbols, mut names) = (Vec::new(), String::new());
        let mut numbers = FxHashMap::default();
        for id in ids {
            let Some(symbol) = self.symbols.get(*id as usize) else { continue };
            let (Ok(at), Ok(number)) = (u32::try_from(names.len()), u32::try_from(symbols.len())) else { break };
            names.push_str(self.name(symbol.name));
            symbols.push(Symbol { start: symbol.start, name: Span { at, len: symbol.name.len } });
            numbers.insert(*id, number);
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for piece in &self.pieces {
            let owner = numbers.get(&piece.owner).copied().unwrap_or(NOBODY);
            if pieces.last().map_or(NOBODY, |last| last.owner) != owner {
                pieces.push(Piece { start: piece.start, owner });
            }
        }
        let buckets = Buckets::over(&pieces);
        NameMap { pieces, symbols, names: names.into_boxed_str(), buckets }
    }

    fn name(&self, span: Span) -> &str {
        let at = span.at as usize;
        self.names.get(at..at + span.len as usize).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Every symbol with its number, by start.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Hit<'_>> {
        (0..).zip(&self.symbols).map(|(id, s)| Hit { name: self.name(s.name), id, start: s.start, offset: 0 })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend((self.pieces.len() as u64).to_le_bytes());
        out.extend((self.symbols.len() as u64).to_le_bytes());
        self.pieces.iter().for_each(|p| out.extend(p.start.to_le_bytes()));
        self.pieces.iter().for_each(|p| out.extend(p.owner.to_le_bytes()));
        self.symbols.iter().for_each(|s| out.extend(s.start.to_le_bytes()));
        self.symbols.iter().for_each(|s| out.extend(s.name.at.to_le_bytes()));
        self.symbols.iter().for_each(|s| out.extend(s.name.len.to_le_bytes()));
        put_block(out, self.names.as_bytes());
    }

    /// What [`encode`](NameMap::encode) wrote, or `None` when it cannot be that.
    pub(crate) fn decode(cursor: &mut Cursor<'_>) -> Option<NameMap> {
        let piece_count = cursor.count()?;
        let symbol_count = cursor.count()?;
        let piece_starts = cursor.words(piece_count, u64::from_le_bytes)?;
        let owners = cursor.words(piece_count, u32::from_le_bytes)?;
        let starts = cursor.words(symbol_count, u64::from_le_bytes)?;
        let ats = cursor.words(symbol_count, u32::from_le_bytes)?;
        let lens = cursor.words(symbol_count, u32::from_le_bytes)?;
        let names: Box<str> = std::str::from_utf8(cursor.block()?).ok()?.into();
        let spans = ats.into_iter().zip(lens).map(|(at, len)| Span { at, len });
        let symbols: Vec<_> = starts.into_iter().zip(spans).map(|(start, name)| Symbol { start, name }).collect();
        let pieces = piece_starts.into_iter().zip(owners).map(|(start, owner)| Piece { start, owner });
        let pieces: Vec<Piece> = pieces.collect();
        let ascending = pieces.windows(2).all(|w| w[0].start < w[1].start);
        let owned = pieces.iter().all(|p| p.owner == NOBODY || (p.owner as usize) < symbols.len());
        let buckets = Buckets::over(&pieces);
        (ascending && owned).then_some(NameMap { pieces, symbols, names, buckets })
    }
}

/// The pieces while they are cut.
#[derive(Default)]
struct Cut {
    pieces: Vec<Piece>,
    /// Ranges that started and may still own addresses: rank, then number.
    open: BinaryHeap<(u64, u32)>,
}

impl Cut {
    fn all(ranges: &[Range]) -> Cut {
        let mut cut = Cut::default();
        cut.pieces.reserve(ranges.len() + ranges.len() / 8);
        for (id, range) in (0..NOBODY).zip(ranges) {
            cut.close_until(range.start, ranges);
            cut.open.push((range.rank, id));
            cut.own(range.start);
        }
        cut.close_until(u64::MAX, ranges);
        cut
    }

    /// Ends every owner that ends at or before `limit`.
    fn close_until(&mut self, limit: u64, ranges: &[Range]) {
        let end_of = |id: u32| ranges.get(id as usize).map_or(0, |r| r.end);
        while let Some(end) = self.open.peek().map(|&(_, id)| end_of(id)).filter(|&end| end <= limit) {
            while self.open.peek().is_some_and(|&(_, id)| end_of(id) <= end) {
                self.open.pop();
            }
            self.own(end);
        }
    }

    /// From `at` on, the open range of the highest rank is the owner.
    fn own(&mut self, at: u64) {
        let owner = self.open.peek().map_or(NOBODY, |&(_, id)| id);
        if self.pieces.last().is_some_and(|p| p.start == at) {
            self.pieces.pop();
        }
        if self.pieces.last().map_or(NOBODY, |p| p.owner) != owner {
            self.pieces.push(Piece { start: at, owner });
        }
    }
}

/// Equal slices of the whole span, about one for each piece, with the number of pieces that start before each slice.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Buckets {
    base: u64,
    shift: u32,
    first: Vec<u32>,
}

impl Buckets {
    fn over(pieces: &[Piece]) -> Buckets {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Buckets::default() };
        let base = first.start;
        // A damaged file may hold descending pieces; it is refused after this.
        let span = last.start.saturating_sub(base);
        let wanted = (pieces.len() as u64).max(1);
        let shift = (span / wanted).checked_ilog2().map_or(0, |log| log + 1);
        let count = usize::try_from(span >> shift).unwrap_or(0) + 2;
        let mut first = Vec::with_capacity(count);
        let mut piece = 0;
        for bucket in 0..count as u64 {
            let starts_before = |p: &Piece| p.start.saturating_sub(base) >> shift < bucket;
            while pieces.get(piece).is_some_and(starts_before) {
                piece += 1;
            }
            first.push(u32::try_from(piece).unwrap_or(u32::MAX));
        }
        Buckets { base, shift, first }
    }

    /// The last piece that starts at or before `addr`.
    fn piece_at<'p>(&self, pieces: &'p [Piece], addr: u64) -> Option<&'p Piece> {
        let bucket = usize::try_from(addr.checked_sub(self.base)? >> self.shift).unwrap_or(usize::MAX);
        let from = self.first.get(bucket).map_or(pieces.len(), |&f| f as usize);
        let to = self.first.get(bucket.saturating_add(1)).map_or(pieces.len(), |&f| f as usize);
        let inside = pieces.get(from..to)?.partition_point(|p| p.start <= addr);
        pieces.get((from + inside).checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    fn map(ranges: &[(u64, u64, u64)]) -> NameMap {
        let mut names = String::new();
        let mut sorted: Vec<_> = ranges.to_vec();
        sorted.sort();
        let ranges: Vec<_> = sorted
            .iter()
            .map(|&(start, end, rank)| {
                let name = format!("{start}-{end}-{rank}");
                let span = Span { at: names.len() as u32, len: name.len() as u32 };
                names.push_str(&name);
                Range { start, end, rank, name: span }
            })
            .collect();
        NameMap::build(&ranges, names)
    }

    #[test]
    fn nested_and_touching_ranges() {
        let map = map(&[(10, 50, 1), (20, 30, 2), (50, 60, 3), (70, 70, 4)]);
        let at = |addr| map.lookup(addr).map(|h| (h.name, h.offset));
        assert_eq!(at(9), None);
        assert_eq!(at(10), Some(("10-50-1", 0)));
        assert_eq!(at(29), Some(("20-30-2", 9)));
        assert_eq!(at(30), Some(("10-50-1", 20)));
        assert_eq!(at(50), Some(("50-60-3", 0)));
        assert_eq!(at(60), None);
        assert_eq!(at(70), None, "an empty range owns nothing");
        assert_eq!(at(u64::MAX), None);
        assert_eq!(map.len(), 3);
    }

    #[test]
    fn an_empty_map_names_nothing() {
        let empty = map(&[]);
        assert_eq!(empty.lookup(0), None);
        assert_eq!(empty.lookup(u64::MAX), None);
    }

    #[test]
    fn a_range_to_the_end_of_the_address_space() {
        let map = map(&[(0, u64::MAX, 0), (u64::MAX - 8, u64::MAX, 1)]);
        assert_eq!(map.lookup(0).unwrap().name, format!("0-{}-0", u64::MAX));
        assert_eq!(map.lookup(u64::MAX - 1).unwrap().offset, 7);
    }

    proptest! {
        #[test]
        fn the_owner_is_the_highest_rank_that_covers(
            ranges in prop::collection::vec((0u64..200, 0u64..40), 0..30),
            spread in prop::sample::select(vec![1u64, 1 << 20, 1 << 55]),
        ) {
            let mut ranges: Vec<_> = ranges.iter().map(|&(s, l)| (s * spread, (s + l) * spread)).collect();
            ranges.sort();
            let ranked: Vec<_> = ranges.iter().zip(0..).map(|(&(s, e), rank)| (s, e, rank)).collect();
            let map = map(&ranked);
            for step in 0..241 {
                for addr in [step * spread, step * spread + spread / 2] {
                    let expected = ranked.iter().filter(|r| r.0 <= addr && addr < r.1).max_by_key(|r| r.2);
                    let got = map.lookup(addr);
                    prop_assert_eq!(got.map(|h| h.start), expected.map(|r| r.0));
                    prop_assert_eq!(
                        got.map(|h| h.name.to_string()),
                        expected.map(|r| format!("{}-{}-{}", r.0, r.1, r.2))
                    );
                }
            }
            // Every other symbol that owns something: it answers for these as the whole map does.
            let owners: BTreeSet<u32> = (0..241).filter_map(|step| map.id_at(step * spread)).filter(|id| id % 2 == 0).collect();
            let excerpt = map.excerpt(&owners);
            prop_assert_eq!(excerpt.len(), owners.len());
            for addr in (0..241).map(|step| step * spread) {
                let shown = |map: &NameMap| map.lookup(addr).map(|h| (h.name.to_string(), h.offset, map.extent(h.id)));
                let wanted = map.id_at(addr).is_some_and(|id| owners.contains(&id));
                prop_assert_eq!(shown(&excerpt), wanted.then(|| shown(&map)).flatten());
            }
            let mut bytes = Vec::new();
            map.encode(&mut bytes);
            prop_assert_eq!(NameMap::decode(&mut Cursor(&bytes)), Some(map));
        }

        #[test]
        fn decoding_any_bytes_is_safe(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(map) = NameMap::decode(&mut Cursor(&bytes)) {
                let _ = map.lookup(0).is_some() | map.lookup(u64::MAX).is_some();
            }
        }
    }
}

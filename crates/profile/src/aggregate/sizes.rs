//! How long symbols and mappings are, where rows are told apart by that.

use rustc_hash::FxHashMap;

use super::SortKey;
use super::places::Places;
use crate::resolve::{Frame, Resolver};
use crate::state::State;

/// Bytes of a symbol and of the mapping that it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sizes {
    /// Up to the end that the symbol table gives it, or to the next symbol; `None` without a symbol.
    pub(crate) symbol: Option<u64>,
    /// `None` where nothing is known to be mapped.
    pub(crate) mapping: Option<u64>,
}

/// Finds out how long symbols and mappings of the places that were looked up are, if keys ask for that: gives the distinct
/// ones, whose numbers from 1 on the frames get.
pub(crate) fn find(
    sort: &[SortKey],
    places: &Places,
    (frames, known): (&mut [Frame], &[bool]),
    (state, resolver): (&State, &mut Resolver),
) -> Vec<Sizes> {
    let has = |key| sort.contains(&key);
    let (of_symbols, of_mappings) = (has(SortKey::SymbolSize), has(SortKey::DsoSize));
    let mut all = Vec::new();
    if !(of_symbols || of_mappings) {
        return all;
    }
    let mut numbers: FxHashMap<Sizes, u32> = FxHashMap::default();
    let looked_up = frames.iter_mut().zip(&places.locs).zip(known).enumerate().filter(|(_, (_, known))| **known);
    for (at, ((frame, loc), _)) in looked_up {
        let mut sizes = Sizes::default();
        if of_symbols && frame.symbol.is_ok() {
            sizes.symbol = resolver.extent(state, *loc).map(|extent| extent.end.saturating_sub(extent.start));
        }
        if of_mappings {
            sizes.mapping = places.sizes.get(at).copied().filter(|size| *size != 0);
        }
        let next = u32::try_from(all.len() + 1).unwrap_or(0);
        frame.sizes = *numbers.entry(sizes).or_insert_with(|| {
            all.push(sizes);
            next
        });
    }
    all
}

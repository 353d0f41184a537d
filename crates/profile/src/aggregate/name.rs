//! Names for the places of a profile: of those alone that filters leave in it.

use rustc_hash::FxHashMap;

use super::collect::{Entry, EventSums};
use super::more::More;
use super::places::{LocId, Places, Stacks};
use crate::filter::{FilterKind, Filters, Pattern};
use crate::resolve::{Frame, Resolver};
use crate::state::State;

/// The frames of all places, and which of them were looked up.
pub(crate) struct Named {
    pub(crate) frames: Vec<Frame>,
    pub(crate) known: Vec<bool>,
}

/// Looks up the places of all entries; `found` are frames that are known already. Where filters ask for names, the entries that they leave out are taken away, and
/// what only those had on their stacks is not looked up.
pub(crate) fn name(
    filters: &Filters,
    (places, stacks, more): (&Places, &Stacks, &More),
    (entries, sums): (&mut Vec<Entry>, &mut [EventSums]),
    mut found: FxHashMap<LocId, Frame>,
    (state, resolver): (&State, &mut Resolver),
) -> Named {
    if !filters.ask_places() {
        // A place is in the list once, so that there is nothing to be remembered by it.
        let frames: Vec<Frame> = places.locs.iter().map(|loc| resolver.resolve(state, *loc)).collect();
        return Named { known: vec![true; frames.len()], frames };
    }
    let nothing = resolver.nothing();
    let mut named = Named { frames: vec![nothing; places.locs.len()], known: vec![false; places.locs.len()] };
    let mut look_up = |named: &mut Named, loc: LocId| {
        let at = loc as usize;
        let (Some(place), Some(known)) = (places.locs.get(at), named.known.get_mut(at)) else { return };
        if !std::mem::replace(known, true) {
            named.frames[at] = found.remove(&loc).unwrap_or_else(|| resolver.resolve(state, *place));
        }
    };
    entries.iter().for_each(|entry| look_up(&mut named, entry.key.leaf));
    leave_out(filters, &named.frames, entries, sums);
    for loc in more.places() {
        look_up(&mut named, loc);
    }
    for entry in entries.iter() {
        let (inner, outer) = stacks.get(entry.key.stack);
        inner.iter().chain(outer).for_each(|loc| look_up(&mut named, *loc));
    }
    if let (true, Some(parents)) = (filters.exclude_other, &filters.parents) {
        without_parents(parents, (&named.frames, stacks), entries, sums);
    }
    named
}

/// Takes the entries away that filters by names leave out.
fn leave_out(filters: &Filters, frames: &[Frame], entries: &mut Vec<Entry>, sums: &mut [EventSums]) {
    let mut by_place: Vec<Option<Option<FilterKind>>> = vec![None; frames.len()];
    entries.retain(|entry| {
        let at = entry.key.leaf as usize;
        let (Some(frame), Some(known)) = (frames.get(at), by_place.get_mut(at)) else { return true };
        let Some(kind) = *known.get_or_insert_with(|| filters.left_out_at(frame)) else { return true };
        if let Some(sums) = sums.get_mut(entry.key.event as usize) {
            sums.weight.take(entry.weight);
            sums.left_out.get_mut(kind as usize).into_iter().for_each(|sum| sum.add(entry.weight));
        }
        false
    });
}

/// Takes the entries away that have no parent on their stacks.
fn without_parents(
    parents: &Pattern,
    (frames, stacks): (&[Frame], &Stacks),
    entries: &mut Vec<Entry>,
    sums: &mut [EventSums],
) {
    let is_parent: Vec<bool> = frames.iter().map(|frame| parents.is_parent(frame)).collect();
    let is = |loc: &LocId| is_parent.get(*loc as usize).copied().unwrap_or(false);
    entries.retain(|entry| {
        // As the key `parent`: of a sample without a stack its own place.
        let (inner, outer) = stacks.get(entry.key.stack);
        if entry.key.stack == 0 && is(&entry.key.leaf) || inner.iter().chain(outer).any(is) {
            return true;
        }
        if let Some(sums) = sums.get_mut(entry.key.event as usize) {
            sums.weight.take(entry.weight);
            sums.left_out.get_mut(FilterKind::Parent as usize).into_iter().for_each(|sum| sum.add(entry.weight));
        }
        false
    });
}

//! Inlined functions as frames of stacks: what stood in the source at a place, where debug information tells.
//!
//! A place of a stack becomes the functions that were inlined there, innermost first, and then the function that holds
//! them. Rows stay those of the functions that there are in the object, as in perf.

use rustc_hash::FxHashMap;

use super::collect::Entry;
use super::places::{LocId, Stacks};
use crate::lines::Lines;
use crate::loc::{Loc, Place};
use crate::resolve::{Frame, Resolver};
use crate::state::State;

/// Puts inlined functions into the stacks of the entries; their frames stand behind those of the places.
pub(crate) fn put_in(
    (entries, stacks): (&[Entry], &mut Stacks),
    locs: &[Loc],
    frames: &mut Vec<Frame>,
    (state, resolver): (&State, &mut Resolver),
    mut lines: Option<&mut Lines<'_>>,
) {
    let mut asked = vec![false; locs.len()];
    for entry in entries {
        let (inner, outer) = stacks.get(entry.key.stack);
        for loc in inner.iter().chain(outer) {
            asked.get_mut(*loc as usize).into_iter().for_each(|asked| *asked = true);
        }
    }
    let mut inlined: FxHashMap<LocId, Vec<LocId>> = FxHashMap::default();
    for (at, loc) in locs.iter().enumerate().filter(|(at, _)| asked.get(*at) == Some(&true)) {
        let Place::Object(object) = loc.place else { continue };
        let sources = resolver.source_of(state, object, loc.addr);
        let [inner @ .., outermost] = sources.as_slice() else { continue };
        if inner.is_empty() {
            continue;
        }
        let Some(holder) = frames.get(at).cloned() else { continue };
        let mut list = Vec::with_capacity(sources.len());
        for source in inner {
            let name = source.function.as_deref().unwrap_or("??");
            let line = lines.as_mut().map_or(0, |lines| lines.number_of(source));
            let frame = Frame { line, ..resolver.inlined(&holder, name) };
            list.push(LocId::try_from(frames.len()).unwrap_or(LocId::MAX));
            frames.push(frame);
        }
        // The holder's line is that of the call that was inlined.
        let line = lines.as_mut().map_or(holder.line, |lines| lines.number_of(outermost));
        list.push(LocId::try_from(frames.len()).unwrap_or(LocId::MAX));
        frames.push(Frame { line, ..holder });
        inlined.insert(LocId::try_from(at).unwrap_or(LocId::MAX), list);
    }
    if !inlined.is_empty() {
        stacks.expand(|loc| inlined.get(&loc).map(Vec::as_slice));
    }
}

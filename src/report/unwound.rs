//! What became of stacks that were unwound from copies: how many are whole, and why the others are not.

use std::io::{self, Write};

use afterimage_profile::{StackEnd, StackEnds};
use serde_json::{Value, json};

use super::graph::percent_of;
use crate::terminal::grouped;

/// The reasons why stacks ended early, most frequent first.
fn early(ends: &StackEnds) -> Vec<(StackEnd, u64)> {
    let mut early: Vec<_> = ends.iter().filter(|(end, _)| *end != StackEnd::Complete).collect();
    early.sort_by_key(|(end, stacks)| (std::cmp::Reverse(*stacks), *end));
    early
}

/// Lines for the head of a report; none where nothing was unwound.
pub(super) fn head(out: &mut dyn Write, ends: &StackEnds) -> io::Result<()> {
    if ends.total() == 0 {
        return Ok(());
    }
    let (whole, all) = (ends.complete(), ends.total());
    let percent = percent_of(whole, all);
    writeln!(out, "# Stacks unwound: {}, {} of them complete ({percent:.1}%)", grouped(all), grouped(whole))?;
    for (end, stacks) in early(ends) {
        writeln!(out, "#   {}: {end}", grouped(stacks))?;
    }
    let cut = ends.iter().find(|(end, _)| *end == StackEnd::Truncated).map_or(0, |(_, stacks)| stacks);
    if cut.saturating_mul(10) >= all {
        writeln!(out, "#   hint: --call-graph dwarf,SIZE copies more of each stack, up to 65528 bytes")?;
    }
    writeln!(out, "#")
}

/// Lines behind the counts of `--stats`; none where nothing was unwound.
pub(super) fn stats(out: &mut dyn Write, ends: &StackEnds) -> io::Result<()> {
    if ends.total() == 0 {
        return Ok(());
    }
    writeln!(out, "Unwound stacks:")?;
    let complete = (StackEnd::Complete, ends.complete());
    for (end, stacks) in [complete].into_iter().chain(early(ends)) {
        writeln!(out, "{:>16} stacks: {stacks:>10}", end.key())?;
    }
    Ok(())
}

/// The same as an object; null where nothing was unwound.
pub(super) fn json(ends: &StackEnds) -> Value {
    if ends.total() == 0 {
        return Value::Null;
    }
    let early: Vec<Value> =
        early(ends).into_iter().map(|(end, stacks)| json!({"reason": end.key(), "stacks": stacks})).collect();
    json!({"stacks": ends.total(), "complete": ends.complete(), "ended_early": early})
}

//! `system:name`, with `*`, `?` and `[…]` in either.

use std::io;

use afterimage_perf_data::{Attr, SampleType};

use super::near::nearest;
use super::parser::Part;
use super::{EventClass, EventSpec, SpecError, SpecErrorKind, kind};
use crate::config::Rate;
use crate::facts::Facts;

/// The tracepoints that a pattern names, at least one.
pub(super) fn parse(system: Part<'_>, name: Part<'_>, facts: &Facts) -> Result<Vec<EventSpec>, SpecError> {
    let whole = system.until(name);
    if facts.tracefs().is_none() {
        return Err(whole.error("tracepoints need tracefs").hint("mount -t tracefs nodev /sys/kernel/tracing"));
    }
    let is_pattern = |text: &str| text.contains(['*', '?', '[']);
    if !is_pattern(system.text) && !is_pattern(name.text) {
        let id = facts.tracepoint_id(system.text, name.text).map_err(|cause| refused(system, name, facts, &cause))?;
        return Ok(vec![spec(system.text, name.text, id)]);
    }
    let all = facts.tracepoints().map_err(|cause| refused(system, name, facts, &cause))?;
    let mut found = Vec::new();
    for (in_system, called) in all.iter().filter(|(s, n)| matches(system.text, s) && matches(name.text, n)) {
        let id = facts.tracepoint_id(in_system, called).map_err(|cause| refused(system, name, facts, &cause))?;
        found.push(spec(in_system, called, id));
    }
    if found.is_empty() {
        return Err(whole.error("no tracepoint matches"));
    }
    Ok(found)
}

fn spec(system: &str, name: &str, id: u64) -> EventSpec {
    let attr = Attr { kind: kind::TRACEPOINT, config: id, sample_type: SampleType::RAW, ..Attr::default() };
    let mut spec = EventSpec::parsed(&format!("{system}:{name}"), attr, EventClass::Tracepoint);
    spec.default_rate = Some(Rate::Period(1));
    spec
}

fn refused(system: Part<'_>, name: Part<'_>, facts: &Facts, cause: &io::Error) -> SpecError {
    let whole = system.until(name);
    if cause.kind() == io::ErrorKind::PermissionDenied {
        let error = whole.error("tracefs may not be read");
        return SpecError { kind: SpecErrorKind::NotPermitted, ..error };
    }
    if cause.kind() != io::ErrorKind::NotFound {
        return whole.error(format!("tracefs cannot be read: {cause}"));
    }
    let all = facts.tracepoints().unwrap_or_default();
    let in_system: Vec<&str> = all.iter().filter(|(s, _)| s == system.text).map(|(_, n)| n.as_str()).collect();
    if in_system.is_empty() {
        let systems = all.iter().map(|(s, _)| s.as_str());
        return system.error("no such event, nor a folder of tracepoints").near(nearest(system.text, systems));
    }
    name.error(format!("no such tracepoint in {}", system.text)).near(nearest(name.text, in_system))
}

/// Whether `text` matches a pattern with `*`, `?`, `[abc]`, `[a-z]` and `[!…]`.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the last star does not fit: the star takes one letter more.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p, t));
            p += 1;
        } else if let Some(next) = one(&pattern, p, text[t]) {
            p = next;
            t += 1;
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            p = at + 1;
            t = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// The position after the element at `p`, when that element takes the letter.
fn one(pattern: &[char], p: usize, letter: char) -> Option<usize> {
    match *pattern.get(p)? {
        '?' => Some(p + 1),
        '[' => match pattern[p + 1..].iter().skip(1).position(|c| *c == ']') {
            Some(length) => {
                let end = p + 2 + length;
                set(&pattern[p + 1..end], letter).then_some(end + 1)
            }
            None => (letter == '[').then_some(p + 1),
        },
        plain => (plain == letter).then_some(p + 1),
    }
}

/// Whether a set's content, without its brackets, has the letter.
fn set(content: &[char], letter: char) -> bool {
    let (inverted, mut rest) = match content {
        ['!' | '^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut found = false;
    while let [first, tail @ ..] = rest {
        (found, rest) = match tail {
            ['-', last, after @ ..] => (found || (*first..=*last).contains(&letter), after),
            _ => (found || *first == letter, tail),
        };
    }
    found != inverted
}

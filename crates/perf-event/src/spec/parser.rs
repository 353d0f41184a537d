//! Cutting a list into groups and events, and finding out what each event is.

use afterimage_perf_data::Attr;

use super::near::nearest;
use super::{EventClass, EventSpec, SpecError, SpecErrorKind, breakpoint, kind, modifier, names, terms, tracepoint};
use crate::facts::Facts;

/// A part of the list that remembers its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) list: &'a str,
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Part<'a> {
    fn slice(self, from: usize, to: usize) -> Part<'a> {
        Part { text: self.text.get(from..to).unwrap_or(""), at: self.at + from, ..self }
    }

    /// What follows the first `bytes`.
    pub(super) fn skip(self, bytes: usize) -> Part<'a> {
        self.slice(bytes, self.text.len())
    }

    pub(super) fn split_once(self, by: char) -> (Part<'a>, Option<Part<'a>>) {
        match self.text.find(by) {
            Some(i) => (self.slice(0, i), Some(self.skip(i + by.len_utf8()))),
            None => (self, None),
        }
    }

    fn rsplit_once(self, by: char) -> Option<(Part<'a>, Part<'a>)> {
        self.text.rfind(by).map(|i| (self.slice(0, i), self.skip(i + by.len_utf8())))
    }

    pub(super) fn split(self, by: char) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        let mut rest = Some(self);
        while let Some(part) = rest {
            let (first, tail) = part.split_once(by);
            parts.push(first);
            rest = tail;
        }
        parts
    }

    /// From the start of this to the end of `last`.
    pub(super) fn until(self, last: Part<'a>) -> Part<'a> {
        let end = last.at + last.text.len();
        Part { text: self.list.get(self.at..end).unwrap_or(self.text), ..self }
    }

    pub(super) fn error(self, what: impl Into<String>) -> SpecError {
        SpecError {
            list: self.list.to_owned(),
            at: self.at,
            len: self.text.len(),
            what: what.into(),
            hint: None,
            kind: SpecErrorKind::NotUnderstood,
        }
    }
}

impl SpecError {
    pub(super) fn hint(self, hint: impl Into<String>) -> SpecError {
        SpecError { hint: Some(hint.into()), ..self }
    }

    pub(super) fn near(self, name: Option<&str>) -> SpecError {
        match name {
            Some(name) => self.hint(format!("did you mean '{name}'?")),
            None => self,
        }
    }
}

pub(super) fn parse(list: &str, facts: &Facts) -> Result<Vec<EventSpec>, SpecError> {
    let mut rest = Part { list, text: list, at: 0 };
    let mut all = Vec::new();
    loop {
        rest = if rest.text.starts_with('{') {
            group(rest, facts, &mut all)?
        } else {
            let (item, tail) = cut(rest);
            all.extend(event(item, facts)?);
            tail
        };
        if rest.text.is_empty() {
            return Ok(all);
        }
        if !rest.text.starts_with(',') {
            return Err(rest.error("a comma is expected"));
        }
        rest = rest.skip(1);
    }
}

/// `{a,b}:modifiers`. Returns what follows.
fn group<'a>(open: Part<'a>, facts: &Facts, all: &mut Vec<EventSpec>) -> Result<Part<'a>, SpecError> {
    let leader = all.len();
    let mut rest = open.skip(1);
    loop {
        let (item, tail) = cut(rest);
        all.extend(event(item, facts)?);
        rest = tail.skip(1);
        match tail.text.chars().next() {
            Some(',') => {}
            Some('}') => break,
            _ => return Err(open.error("the group is not closed").hint("add '}'")),
        }
    }
    let mut modifiers = None;
    if rest.text.starts_with(':') {
        let (letters, tail) = cut(rest.skip(1));
        modifiers = Some(letters);
        rest = tail;
    }
    for spec in all.iter_mut().skip(leader) {
        spec.group = Some(leader);
        if let Some(letters) = modifiers {
            modifiers_of(spec, letters)?;
        }
    }
    Ok(rest)
}

/// One event, and what follows it from the comma or brace on. Commas between slashes do not count, but for
/// breakpoints, whose slash stands alone.
fn cut(rest: Part<'_>) -> (Part<'_>, Part<'_>) {
    let slashes = !rest.text.starts_with("mem:");
    let mut inside = false;
    for (i, c) in rest.text.char_indices() {
        match c {
            '/' if slashes => inside = !inside,
            ',' | '}' | '{' if !inside => return (rest.slice(0, i), rest.skip(i)),
            _ => {}
        }
    }
    (rest, rest.skip(rest.text.len()))
}

/// One event; a pattern of tracepoints is several.
fn event(item: Part<'_>, facts: &Facts) -> Result<Vec<EventSpec>, SpecError> {
    if item.text.is_empty() {
        return Err(item.error("an event is missing"));
    }
    Ok(match classify(item, facts)? {
        Found::One(spec) => vec![*spec],
        Found::Several(specs) => specs,
    })
}

enum Found {
    One(Box<EventSpec>),
    Several(Vec<EventSpec>),
}

fn classify(item: Part<'_>, facts: &Facts) -> Result<Found, SpecError> {
    if item.text.starts_with("mem:") {
        return Ok(Found::One(Box::new(breakpoint::parse(item)?)));
    }
    if item.text.contains('/') {
        return Ok(Found::One(Box::new(with_terms(item, facts)?)));
    }
    if let Some(spec) = by_name(item.text, item.text, facts) {
        return Ok(Found::One(Box::new(spec)));
    }
    let Some((head, tail)) = item.rsplit_once(':') else { return Err(unknown(item, facts)) };
    if let Some(mut spec) = by_name(head.text, item.text, facts) {
        modifiers_of(&mut spec, tail)?;
        return Ok(Found::One(Box::new(spec)));
    }
    // Now it can only be a tracepoint, with modifiers when there is a second colon.
    let (system, name, letters) = match head.rsplit_once(':') {
        Some((system, name)) => (system, name, Some(tail)),
        None => (head, tail, None),
    };
    if letters.is_none() && modifier::is_modifier(tail.text) && near_fixed(head.text).is_some() {
        return Err(unknown(head, facts));
    }
    let mut specs = tracepoint::parse(system, name, facts)?;
    if let Some(letters) = letters {
        for spec in &mut specs {
            modifiers_of(spec, letters)?;
        }
    }
    Ok(Found::Several(specs))
}

fn modifiers_of(spec: &mut EventSpec, letters: Part<'_>) -> Result<(), SpecError> {
    if letters.text.is_empty() {
        return Err(letters.error("modifiers are missing after the colon"));
    }
    modifier::apply(spec, letters.text).map_err(|what| letters.error(what))
}

/// `name/terms/modifiers`: a PMU, or an event with a name of its own.
fn with_terms(item: Part<'_>, facts: &Facts) -> Result<EventSpec, SpecError> {
    let (head, tail) = item.split_once('/');
    let (inside, after) = tail.unwrap_or(head).split_once('/');
    let after = after.ok_or_else(|| item.error("the second slash is missing").hint("write pmu/terms/"))?;
    let mut spec = match facts.pmu(head.text) {
        Some(pmu) => terms::pmu_event(&pmu, item.text, inside)?,
        None => {
            let mut spec = by_name(head.text, item.text, facts).ok_or_else(|| no_pmu(head, facts))?;
            terms::common(&mut spec, inside)?;
            spec
        }
    };
    let letters = if after.text.starts_with(':') { after.skip(1) } else { after };
    if !after.text.is_empty() {
        modifiers_of(&mut spec, letters)?;
    }
    Ok(spec)
}

/// An event that has a name of its own; `whole` is what the user wrote.
fn by_name(name: &str, whole: &str, facts: &Facts) -> Option<EventSpec> {
    let fixed =
        |kind: u32, config: u64, class| Some(EventSpec::parsed(whole, Attr { kind, config, ..Attr::default() }, class));
    if let Some(config) = names::software(name) {
        let class = if config <= 1 { EventClass::Clock } else { EventClass::Software };
        return fixed(kind::SOFTWARE, config, class);
    }
    if let Some(config) = names::hardware(name) {
        return fixed(kind::HARDWARE, config, EventClass::Hardware);
    }
    if let Some(config) = names::cache(name) {
        return fixed(kind::HW_CACHE, config, EventClass::Hardware);
    }
    if let Some(config) = raw(name) {
        return fixed(kind::RAW, config, EventClass::Hardware);
    }
    // An event that some PMU names in sysfs.
    if name.contains([':', '*', '?', '[']) {
        return None;
    }
    facts
        .pmus()
        .iter()
        .filter_map(|(pmu, _)| facts.pmu(pmu))
        .filter(|pmu| pmu.event(name).is_some())
        .find_map(|pmu| terms::pmu_event(&pmu, whole, Part { list: name, text: name, at: 0 }).ok())
}

/// `r` and hexadecimal digits.
fn raw(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('r')?;
    let hex = digits.chars().all(|c| c.is_ascii_hexdigit()) && !digits.is_empty();
    if hex { u64::from_str_radix(digits, 16).ok() } else { None }
}

/// The fixed name nearest to `word`.
fn near_fixed(word: &str) -> Option<String> {
    let hardware = names::hardware_events();
    let mut known: Vec<&str> = names::software_events().collect();
    known.extend(hardware.iter().map(String::as_str));
    nearest(word, known).map(str::to_owned)
}

fn unknown(item: Part<'_>, facts: &Facts) -> SpecError {
    if facts.pmu(item.text).is_some() {
        return item.error("this is a PMU").hint(format!("write {}/terms/", item.text));
    }
    item.error("no such event").near(near_fixed(item.text).as_deref())
}

fn no_pmu(head: Part<'_>, facts: &Facts) -> SpecError {
    let pmus = facts.pmus();
    let near = nearest(head.text, pmus.iter().map(|(name, _)| name.as_str())).map(str::to_owned);
    head.error("no such PMU or event").near(near.or_else(|| near_fixed(head.text)).as_deref())
}

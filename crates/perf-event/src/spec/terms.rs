//! Terms between slashes: `pmu/term=value,…/` and the few that any event may carry.

use afterimage_perf_data::Attr;

use super::breakpoint::number;
use super::near::nearest;
use super::parser::Part;
use super::{EventClass, EventSpec, SpecError};
use crate::config::Rate;
use crate::facts::Pmu;

/// How deep an event's alias may refer to another's.
const MAX_DEPTH: u32 = 8;

/// Terms that every event knows.
const COMMON: [&str; 7] = ["config", "config1", "config2", "config3", "name", "period", "freq"];

/// The event `pmu/terms/`; `name` is the whole as the user wrote it.
pub(super) fn pmu_event(pmu: &Pmu, name: &str, terms: Part<'_>) -> Result<EventSpec, SpecError> {
    let class = match pmu.name.as_str() {
        // The software PMU's events differ in nothing from those asked for by name.
        "software" => EventClass::Software,
        "tracepoint" => EventClass::Tracepoint,
        "breakpoint" => EventClass::Breakpoint,
        name if name == "cpu" || name.starts_with("cpu_") || name.starts_with("armv") => EventClass::Hardware,
        _ => EventClass::RawPmu,
    };
    let attr = Attr { kind: pmu.kind, ..Attr::default() };
    let mut spec = EventSpec::parsed(name, attr, class);
    for term in terms.split(',') {
        one(&mut spec, Some(pmu), term, 0)?;
    }
    if class == EventClass::Software && spec.attr.config <= 1 {
        spec.class = EventClass::Clock;
    }
    Ok(spec)
}

/// The terms of an event that has a name of its own.
pub(super) fn common(spec: &mut EventSpec, terms: Part<'_>) -> Result<(), SpecError> {
    terms.split(',').into_iter().try_for_each(|term| one(spec, None, term, 0))
}

fn one(spec: &mut EventSpec, pmu: Option<&Pmu>, term: Part<'_>, depth: u32) -> Result<(), SpecError> {
    let (key, value) = term.split_once('=');
    if key.text.is_empty() {
        return if term.text.is_empty() { Ok(()) } else { Err(term.error("a term has no name")) };
    }
    let numeric = |default: Option<u64>| match value {
        Some(part) => number(part.text).ok_or_else(|| part.error("a number is expected")),
        None => default.ok_or_else(|| key.error("a value is expected")),
    };
    match key.text {
        "config" => spec.attr.config = numeric(None)?,
        "config1" => spec.attr.config1 = numeric(None)?,
        "config2" => spec.attr.config2 = numeric(None)?,
        "config3" => spec.attr.config3 = numeric(None)?,
        "period" => spec.own_rate = Some(Rate::Period(numeric(None)?)),
        "freq" => spec.own_rate = Some(Rate::Freq(numeric(None)?)),
        "name" => spec.name = value.ok_or_else(|| key.error("a value is expected"))?.text.to_owned(),
        other => {
            let Some(pmu) = pmu else {
                return Err(key.error("no such term of this event").near(nearest(other, COMMON)));
            };
            if let Some(format) = pmu.format(other) {
                let given = numeric(Some(1))?;
                let width = format.width();
                if width < 64 && given >> width != 0 {
                    return Err(value.unwrap_or(key).error(format!("the value has more than the term's {width} bits")));
                }
                place(&mut spec.attr, format.field, format.place(u64::MAX), format.place(given));
            } else if let (Some(alias), None) = (pmu.event(other), value) {
                return expand(spec, pmu, key, &alias, depth);
            } else {
                return Err(unknown(pmu, key));
            }
        }
    }
    Ok(())
}

/// Puts the terms that an event of the PMU stands for in its place.
fn expand(spec: &mut EventSpec, pmu: &Pmu, key: Part<'_>, alias: &str, depth: u32) -> Result<(), SpecError> {
    if depth >= MAX_DEPTH {
        return Err(key.error("the kernel's alias refers to itself"));
    }
    for term in alias.split(',') {
        // Places inside an alias are of no use to the user, who wrote only its name.
        let inner = Part { list: alias, text: term, at: 0 };
        one(spec, Some(pmu), inner, depth + 1)
            .map_err(|e| key.error(format!("in the kernel's '{alias}': {}", e.what)))?;
    }
    Ok(())
}

fn place(attr: &mut Attr, field: u8, mask: u64, value: u64) {
    let word = match field {
        0 => &mut attr.config,
        1 => &mut attr.config1,
        2 => &mut attr.config2,
        _ => &mut attr.config3,
    };
    *word = *word & !mask | value;
}

fn unknown(pmu: &Pmu, key: Part<'_>) -> SpecError {
    let (events, formats) = (pmu.events(), pmu.formats());
    let known = events.iter().chain(&formats).map(String::as_str).chain(COMMON);
    key.error(format!("no such term or event of {}", pmu.name)).near(nearest(key.text, known))
}

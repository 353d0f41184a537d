//! Fields of tracepoints as columns of a report: each distinct value is read once.

use afterimage_perf_data::{EventDesc, FileReader};
use afterimage_profile::{Columns, State, TimedSample};
use rustc_hash::FxHashMap;

use super::keys::no_such_key;
use crate::script::trace::Formats;
use crate::script::{Class, formats};

/// The bytes that all tracepoints begin with: type, flags, and the task that it hit, which other columns show.
const COMMON: usize = 8;

/// What a column shows.
#[derive(Clone, Debug)]
enum Wanted {
    /// All of the tracepoint's text (`trace`).
    All,
    /// One field; `raw` without what the text makes of it.
    Field { name: String, raw: bool },
}

/// One column.
#[derive(Debug)]
struct Column {
    wanted: Wanted,
    /// By event, its tracepoint's id, if the column shows something of it.
    events: Vec<Option<u64>>,
    texts: Vec<String>,
    by_text: FxHashMap<String, u32>,
    /// By event: numbers of texts by the bytes that they were made of.
    known: Vec<FxHashMap<Box<[u8]>, u32>>,
}

/// Values in a column whose bytes are remembered.
const MOST: usize = 1 << 20;

/// The columns of a report.
#[derive(Debug, Default)]
pub(super) struct TraceColumns {
    formats: Formats,
    columns: Vec<Column>,
}

impl TraceColumns {
    /// Of words as `--sort` has them: `trace`, `FIELD`, `EVENT.FIELD`, the latter two perhaps with `/raw` behind them.
    pub(super) fn new(words: &[String], reader: &FileReader<'_>) -> TraceColumns {
        if words.is_empty() {
            return TraceColumns::default();
        }
        let formats = formats(reader);
        let columns = words.iter().map(|word| {
            let (of, wanted) = read(word);
            let shows = |(nth, event): (usize, &EventDesc)| -> Option<u64> {
                let tracepoint = Class::of(&event.attr) == Class::Tracepoint;
                let id = Some(event.attr.config).filter(|_| tracepoint && is_meant(of, nth, event))?;
                match &wanted {
                    Wanted::All => Some(id),
                    Wanted::Field { name, .. } => formats.has_field(id, name).then_some(id),
                }
            };
            let events: Vec<Option<u64>> = reader.events().iter().enumerate().map(shows).collect();
            let known = vec![FxHashMap::default(); events.len()];
            Column { wanted, events, texts: Vec::new(), by_text: FxHashMap::default(), known }
        });
        let columns = columns.collect();
        TraceColumns { formats, columns }
    }

    /// Whether every word is one of some event of these recordings; if not, the error names the first that is none.
    pub(super) fn check<'c>(
        words: &[String],
        all: impl Iterator<Item = &'c TraceColumns> + Clone,
    ) -> anyhow::Result<()> {
        let is_there = |nth: usize| {
            let shows =
                |column: &Column| matches!(column.wanted, Wanted::All) || column.events.iter().any(Option::is_some);
            all.clone().any(|columns| columns.columns.get(nth).is_some_and(shows))
        };
        match words.iter().enumerate().find(|(nth, _)| !is_there(*nth)) {
            Some((_, word)) => Err(no_such_key(word)),
            None => Ok(()),
        }
    }

    /// Whether a column stands in the table of an event, as in perf: fields in those of events that have them.
    pub(super) fn shows(&self, nth: u8, event: usize) -> bool {
        self.columns.get(usize::from(nth)).is_some_and(|column| {
            matches!(column.wanted, Wanted::All) || column.events.get(event).is_some_and(Option::is_some)
        })
    }

    /// The text of a value.
    pub(super) fn text(&self, nth: u8, value: u32) -> Option<&str> {
        self.columns.get(usize::from(nth))?.texts.get(value as usize).map(String::as_str)
    }
}

/// The title of the column that a word asks for.
pub(super) fn title(word: &str) -> String {
    match read(word).1 {
        Wanted::Field { name, .. } => name,
        Wanted::All => "Trace output".to_owned(),
    }
}

/// The event that a word names, if it names one, and what of it is wanted.
fn read(word: &str) -> (Option<&str>, Wanted) {
    if word == "trace" {
        return (None, Wanted::All);
    }
    let (word, raw) = word.strip_suffix("/raw").map_or((word, false), |word| (word, true));
    let (event, field) = word.rsplit_once('.').map_or((None, word), |(event, field)| (Some(event), field));
    (event, Wanted::Field { name: field.to_owned(), raw })
}

/// Whether an event is meant by a part of its name, or by `%N`, which counts from 1.
fn is_meant(of: Option<&str>, nth: usize, event: &EventDesc) -> bool {
    of.is_none_or(|of| match of.strip_prefix('%') {
        Some(number) => number.parse() == Ok(nth + 1),
        None => event.name.contains(of),
    })
}

impl Columns for TraceColumns {
    fn value(&mut self, nth: u8, _: &State, sample: &TimedSample<'_>) -> Option<u32> {
        let column = self.columns.get_mut(usize::from(nth))?;
        let id = (*column.events.get(sample.event)?)?;
        let raw = sample.decode().ok()?.raw?;
        let bytes = match &column.wanted {
            Wanted::All => raw.get(COMMON..)?,
            Wanted::Field { name, .. } => self.formats.field_bytes(id, name, raw)?,
        };
        let known = column.known.get_mut(sample.event)?;
        if let Some(number) = known.get(bytes) {
            return Some(*number);
        }
        let text = match &column.wanted {
            Wanted::All => self.formats.text(id, raw),
            Wanted::Field { name, raw: as_it_is } => self.formats.field_text(id, name, raw, *as_it_is)?,
        };
        let next = u32::try_from(column.texts.len()).ok()?;
        let number = *column.by_text.entry(text).or_insert_with_key(|text| {
            column.texts.push(text.clone());
            next
        });
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(bytes.into(), number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_fields_of_events() {
        let told = |word| match read(word) {
            (of, Wanted::Field { name, raw }) => (of, name, raw),
            (of, Wanted::All) => (of, "all".to_owned(), false),
        };
        assert_eq!(told("trace"), (None, "all".to_owned(), false));
        assert_eq!(told("next_pid"), (None, "next_pid".to_owned(), false));
        assert_eq!(told("switch.next_pid/raw"), (Some("switch"), "next_pid".to_owned(), true));
        let event = EventDesc { attr: Default::default(), ids: Vec::new(), name: "sched:sched_switch".into() };
        let meant = [None, Some("switch"), Some("%2"), Some("%1"), Some("waking")].map(|of| is_meant(of, 1, &event));
        assert_eq!(meant, [true, true, true, false, false]);
    }
}

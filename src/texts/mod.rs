//! `afterimage text`: the kernel code that came and went, with its bytes: list, dump, diff, watch.

mod args;
mod diff;
mod dump;
mod dwarf;
mod elf;
mod keep;
mod known;
mod list;
mod select;
mod time;
mod watch;

use afterimage_perf_data::TextDesc;
use afterimage_symbols::lines::BpfLine;
use serde_json::{Map, Value, json};

pub(crate) use args::{TextArgs, What};

use crate::exit::{Exit, Problem};
use crate::say::Say;
use known::Texts;
use select::Selector;
use time::Seconds;

/// Does what `text` is asked for.
pub(crate) fn run(args: &TextArgs, say: &Say) -> anyhow::Result<Exit> {
    match &args.what {
        What::List(args) => list::run(args, say),
        What::Dump(args) => dump::run(args, say),
        What::Diff(args) => diff::run(args, say),
        What::Watch(args) => watch::run(args, say),
    }
}

/// What a text is called: its symbol, and the id of the program where it has one; without a symbol, its address. Options
/// that take a text take this.
pub(crate) fn called(text: &TextDesc) -> String {
    let name = text.name.clone().unwrap_or_else(|| format!("@{:#x}", text.address));
    match text.id {
        Some(id) => format!("{name}@{id}"),
        None => name,
    }
}

/// A text in one line: what it is called, its kind, and when it was there.
pub(crate) fn label(text: &TextDesc) -> String {
    let when = match (text.born_ns.map(Seconds), text.gone_ns.map(Seconds)) {
        (None, None) => String::new(),
        (None, Some(gone)) => format!(", until {gone}"),
        (Some(born), None) => format!(", from {born}"),
        (Some(born), Some(gone)) => format!(", {born} to {gone}"),
    };
    format!("{} ({}{when})", called(text), text.kind)
}

/// What tells a text from all others, as JSON.
pub(crate) fn identity(text: &TextDesc) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("name".into(), json!(text.name));
    object.insert("kind".into(), json!(text.kind));
    object.insert("id".into(), json!(text.id));
    object.insert("tag".into(), json!(text.tag));
    object.insert("address".into(), json!(format!("{:#x}", text.address)));
    object.insert("born_ns".into(), json!(text.born_ns));
    object.insert("gone_ns".into(), json!(text.gone_ns));
    object
}

/// The same with lengths, loader and doubts.
fn described(text: &TextDesc) -> Map<String, Value> {
    let mut object = identity(text);
    object.insert("length_bytes".into(), json!(text.length));
    object.insert("length_reported_bytes".into(), json!(text.length_reported));
    object.insert("loader".into(), json!(text.loader));
    object.insert("function".into(), json!(text.function));
    object.insert("uncertain".into(), json!(text.uncertain));
    object
}

/// Where a line of source code begins, in the form that an ELF file takes.
fn line_of((offset, line): (u64, BpfLine<'_>)) -> dwarf::Line {
    dwarf::Line { offset, file: line.file.into_owned(), line: line.line, column: line.column }
}

/// The one text that `name` means, as its place among all. Where it is none or several, says so with all candidates: they are never mixed.
fn the_one(texts: &Texts<'_>, name: &str, say: &Say) -> anyhow::Result<usize> {
    let selector = Selector::parse(name)?;
    let taken = |index: &usize| texts.all.get(*index).is_some_and(|known| selector.takes(&known.text));
    let found: Vec<usize> = (0..texts.all.len()).filter(taken).collect();
    match found.as_slice() {
        [only] => Ok(*only),
        _ => Err(candidates(texts, name, &found, say)),
    }
}

/// Most candidates that are named.
const NAMED: usize = 30;

fn candidates(texts: &Texts<'_>, name: &str, found: &[usize], say: &Say) -> anyhow::Error {
    if found.is_empty() {
        let hint = match texts.all.len() {
            0 => "the recording tells of no kernel code that came or went".to_owned(),
            count => format!("afterimage text list shows the {count} that are there"),
        };
        return Problem::usage(format!("{name}: no such text in the recording")).hint(hint).into();
    }
    for known in found.iter().filter_map(|index| texts.all.get(*index)).take(NAMED) {
        say.note(format!("{} at {:#x}", label(&known.text), known.text.address));
    }
    if found.len() > NAMED {
        say.note(format!("and {} more", found.len() - NAMED));
    }
    let problem = Problem::usage(format!("{name}: {} texts are called that", found.len()));
    problem.hint("NAME@ID, NAME@0xADDRESS or NAME@SECONDS.FRACTION takes one of them").into()
}

//! `text list`: when, how long, who loaded it, size, samples, code.

use std::fmt::Write as _;
use std::io::{self, Write};

use afterimage_kernel_text::TextKind;
use anyhow::Context;
use serde_json::{Map, Value, json};

use super::args::ListArgs;
use super::known::{Code, Known, Texts};
use super::time::{self, Seconds, lasting};
use super::{called, described};
use crate::exit::{Exit, Problem};
use crate::input::Input;
use crate::out;
use crate::say::Say;
use crate::table::{Cells, Column, Side, Table};
use crate::terminal::{clean, grouped};

/// Which texts are listed.
struct Filter {
    since: u64,
    kinds: Vec<TextKind>,
    sampled: bool,
}

impl Filter {
    fn of(args: &ListArgs) -> anyhow::Result<Self> {
        let since = match &args.since {
            None => 0,
            Some(text) => time::parse(text).ok_or_else(|| {
                Problem::usage(format!("--since {text}: not a time"))
                    .hint("seconds, as script prints them: 1234.567890")
            })?,
        };
        let kind = |word: &String| {
            let problem = || Problem::usage(format!("--kind {word}: no such kind")).hint("--help lists them");
            TextKind::from_key(word.trim()).ok_or_else(problem)
        };
        let kinds = args.kind.iter().map(kind).collect::<Result<_, _>>()?;
        Ok(Filter { since, kinds, sampled: args.sampled })
    }

    /// Whether a text is listed. The kernel's own functions are no news: they stand in a list only when asked for.
    fn takes(&self, known: &Known<'_>) -> bool {
        let kind = TextKind::from_key(&known.text.kind).unwrap_or(TextKind::Unknown);
        let kind = if self.kinds.is_empty() { kind != TextKind::Kernel } else { self.kinds.contains(&kind) };
        kind && known.text.born_ns.unwrap_or(0) >= self.since && (!self.sampled || known.samples > 0)
    }
}

/// Lists the texts of a recording.
pub(super) fn run(args: &ListArgs, say: &Say) -> anyhow::Result<Exit> {
    let filter = Filter::of(args)?;
    let input = Input::open(&args.input)?;
    let reader = input.reader()?;
    let texts = Texts::of(&reader, &mut input.source(&reader)?);
    let listed: Vec<&Known<'_>> = texts.all.iter().filter(|known| filter.takes(known)).collect();
    let mut to = out::stdout()?;
    if args.json {
        write_json(&mut to, &listed).context("standard output")?;
    } else {
        write_table(&mut to, &listed, say.is_quiet()).context("standard output")?;
    }
    out::flush(&mut to)?;
    let functions = texts.all.iter().filter(|known| known.text.kind == TextKind::Kernel.key()).count();
    if functions > 0 && filter.kinds.is_empty() && !args.json {
        say.note(format!(
            "{} functions of the kernel itself were kept, too (--kind kernel)",
            grouped(functions as u64)
        ));
    }
    let lost = texts.stats.sideband_lost;
    if lost > 0 {
        say.warn(format!("{}: {} records of what came and went were lost", input.name(), grouped(lost)));
    }
    Ok(input.end(&reader, &texts.stats, say))
}

fn write_json(out: &mut dyn Write, listed: &[&Known<'_>]) -> io::Result<()> {
    let texts: Vec<Value> = listed.iter().map(|known| one(known)).collect();
    let mut object = Map::new();
    object.insert("schema".into(), "afterimage/text-list/1".into());
    object.insert("texts".into(), texts.into());
    serde_json::to_writer(&mut *out, &Value::Object(object))?;
    writeln!(out)
}

fn one(known: &Known<'_>) -> Value {
    let text = &known.text;
    let code = known.code.as_ref();
    let mut object = described(text);
    object.insert("samples".into(), json!(known.samples));
    let image = |code: &Code<'_>| json!({"size_bytes": code.bytes.len(), "way": code.way, "proven": code.proven});
    object.insert("image".into(), json!(code.ok().map(image)));
    object.insert("reason".into(), json!(code.err()));
    object.into()
}

fn write_table(out: &mut dyn Write, listed: &[&Known<'_>], quiet: bool) -> io::Result<()> {
    let columns = vec![
        Column::new("Came", 0, Side::Right),
        Column::new("Lived", 0, Side::Right),
        Column::new("Loaded by", 0, Side::Left),
        Column::new("Size", 0, Side::Right),
        Column::new("Samples", 0, Side::Right),
        Column::new("Kind", 0, Side::Left),
        Column::new("Text", 0, Side::Left),
        Column::new("Code", 0, Side::Left),
    ];
    let mut cells = Cells::new(columns.len());
    listed.iter().for_each(|known| row(&mut cells, known));
    let table = Table::fit(columns, &cells);
    if !quiet {
        table.head(out)?;
    }
    (0..cells.rows()).try_for_each(|row| table.row(out, &cells, row))
}

fn row(cells: &mut Cells, known: &Known<'_>) {
    let text = &known.text;
    let doubt = if text.uncertain { "~" } else { "" };
    cells.push(|to| match text.born_ns {
        None => to.write_str("before"),
        Some(born) => write!(to, "{doubt}{}", Seconds(born)),
    });
    cells.push(|to| match (text.born_ns, text.gone_ns) {
        (_, None) => to.write_str("to the end"),
        (None, Some(gone)) => write!(to, "to {doubt}{}", Seconds(gone)),
        (Some(born), Some(gone)) => to.write_str(&lasting(gone.saturating_sub(born))),
    });
    cells.push(|to| match &text.loader {
        Some(loader) => write!(to, "{}/{}", clean(&loader.comm), loader.pid),
        None => to.write_str("-"),
    });
    cells.push(|to| match text.length {
        Some(length) => write!(to, "{length}"),
        None => to.write_str("-"),
    });
    cells.push(|to| write!(to, "{}", known.samples));
    cells.push(|to| to.write_str(&clean(&text.kind)));
    cells.push(|to| to.write_str(&clean(&called(text))));
    cells.push(|to| match &known.code {
        Ok(code) if code.proven => to.write_str(&clean(&code.way)),
        Ok(code) => write!(to, "{}, not proven", clean(&code.way)),
        Err(reason) => write!(to, "none: {}", clean(reason)),
    });
}

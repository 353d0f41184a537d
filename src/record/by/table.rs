//! Rows as a table, their stacks and histograms under them. Rows that look the same are one: addresses that differ may
//! belong to one function.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use afterimage_recorder::by::{At, EventRows, Field, Key, Readout, Row, Value, bucket_range};

use super::Show;
use crate::table::{Cells, Column, Side, Table};
use crate::terminal::{clean, grouped};

/// Characters of the longest bar.
const BAR: u64 = 40;

/// What is shown as one row.
#[derive(Clone, Debug, Default)]
struct Line {
    cells: Vec<String>,
    frames: Vec<String>,
    samples: u64,
    value: u64,
    buckets: BTreeMap<u32, u64>,
}

pub(super) fn write(out: &mut dyn Write, show: &Show, readout: &Readout) -> io::Result<()> {
    for event in &readout.events {
        head(out, show, readout, event)?;
        let lines = lines(show, &event.rows);
        one_event(out, show, &lines)?;
        writeln!(out)?;
    }
    Ok(())
}

fn head(out: &mut dyn Write, show: &Show, readout: &Readout, event: &EventRows) -> io::Result<()> {
    let samples: u64 = event.rows.iter().map(|row| row.samples).sum();
    let s = if samples == 1 { "" } else { "s" };
    let (samples, keys, name) = (grouped(samples), show.names.join(", "), clean(&event.name));
    write!(out, "# {samples} sample{s} of event '{name}' by {keys}")?;
    if show.interval {
        write!(out, ", {:.3} s to {:.3} s", readout.from.as_secs_f64(), readout.to.as_secs_f64())?;
    }
    write!(out, "\n#\n")
}

/// The rows as they look, each once, the largest first.
fn lines(show: &Show, rows: &[Row]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut known: HashMap<(Vec<String>, Vec<String>), usize> = HashMap::new();
    for row in rows {
        let cells: Vec<String> = show.keys.iter().filter_map(|key| cell(*key, row)).collect();
        let frames: Vec<String> = row.kernel.iter().chain(&row.user).map(frame).collect();
        let at = *known.entry((cells.clone(), frames.clone())).or_insert_with(|| {
            lines.push(Line { cells, frames, ..Line::default() });
            lines.len() - 1
        });
        let Some(line) = lines.get_mut(at) else { continue };
        line.samples += row.samples;
        line.value = match show.value {
            Value::Max(_) => line.value.max(row.value),
            _ => line.value.saturating_add(row.value),
        };
        row.buckets.iter().for_each(|(bucket, samples)| *line.buckets.entry(*bucket).or_default() += samples);
    }
    let by_value = matches!(show.value, Value::Sum(_) | Value::Max(_));
    lines.sort_by(|a, b| {
        let weight = |line: &Line| Reverse((if by_value { line.value } else { line.samples }, line.samples));
        (weight(a), &a.cells, &a.frames).cmp(&(weight(b), &b.cells, &b.frames))
    });
    lines
}

fn cell(key: Key, row: &Row) -> Option<String> {
    let number = |number: Option<u32>| Some(number.map_or_else(String::new, |number| number.to_string()));
    match key {
        Key::Comm => Some(clean(row.comm.as_deref().unwrap_or_default()).into_owned()),
        Key::Pid => number(row.pid),
        Key::Tid => number(row.tid),
        Key::Cpu => number(row.cpu),
        Key::Cgroup => row.cgroup.as_ref().map(|(id, path)| match path {
            Some(path) => clean(path).into_owned(),
            None => format!("#{id} (gone)"),
        }),
        Key::Ip => Some(row.ip.as_ref().map_or_else(String::new, |at| format!("{:#018x} {}", at.addr, frame(at)))),
        Key::Label => row.label.as_ref().map(|label| clean(&super::label(label)).into_owned()),
        Key::Kstack | Key::Ustack | Key::Stack => None,
    }
}

/// A frame by its function, so that calls from different places in it are one.
fn frame(at: &At) -> String {
    format!("{} ({})", clean(&at.frame.name()), clean(&at.frame.dso.short))
}

fn one_event(out: &mut dyn Write, show: &Show, lines: &[Line]) -> io::Result<()> {
    let columns = columns(show);
    let cells = cells(show, lines, columns.len());
    let table = Table::fit(columns, &cells);
    table.head(out)?;
    let has_stack = show.keys.iter().any(|key| key.is_stack());
    for (nth, line) in lines.iter().enumerate() {
        table.row(out, &cells, nth)?;
        line.frames.iter().try_for_each(|frame| writeln!(out, "            {frame}"))?;
        if has_stack && line.frames.is_empty() {
            writeln!(out, "            (no stack)")?;
        }
        if let Value::Hist(field) = show.value {
            histogram(out, field, &line.buckets)?;
        }
        if has_stack || matches!(show.value, Value::Hist(_)) {
            writeln!(out)?;
        }
    }
    Ok(())
}

fn columns(show: &Show) -> Vec<Column> {
    let measured = |name: &str, field: Field| Column::new(&format!("{name}({})", field.name()), 0, Side::Right);
    let overhead = || Column::new("Overhead", 0, Side::Right);
    let mut columns = match show.value {
        Value::Sum(field) => vec![overhead(), measured("sum", field)],
        // The largest values are no parts of a whole.
        Value::Max(field) => vec![measured("max", field)],
        Value::Count | Value::Hist(_) => vec![overhead()],
    };
    columns.push(Column::new("Samples", 0, Side::Right));
    columns.extend(show.keys.iter().zip(&show.names).filter_map(|(key, name)| column(*key, name)));
    columns
}

fn cells(show: &Show, lines: &[Line], columns: usize) -> Cells {
    let total: u128 = lines.iter().map(|line| u128::from(weight(show, line))).sum();
    let mut cells = Cells::new(columns);
    for line in lines {
        let mut push = |text: &str| cells.push(|to| std::fmt::Write::write_str(to, text));
        if !matches!(show.value, Value::Max(_)) {
            push(&format!("{:.2}%", share(weight(show, line), total)));
        }
        if let Value::Sum(field) | Value::Max(field) = show.value {
            push(&number(field, line.value));
        }
        push(&line.samples.to_string());
        line.cells.iter().for_each(|cell| push(cell));
    }
    cells
}

fn column(key: Key, name: &str) -> Option<Column> {
    Some(match key {
        Key::Comm => Column::new("Command", 0, Side::Left),
        Key::Pid => Column::new("Pid", 0, Side::Right),
        Key::Tid => Column::new("Tid", 0, Side::Right),
        Key::Cpu => Column::new("CPU", 0, Side::Right),
        Key::Cgroup => Column::new("Cgroup", 0, Side::Left),
        Key::Ip => Column::new("Address", 0, Side::Left),
        Key::Label => Column::new(&clean(name.strip_prefix("label:").unwrap_or(name)), 0, Side::Left),
        Key::Kstack | Key::Ustack | Key::Stack => return None,
    })
}

fn weight(show: &Show, line: &Line) -> u64 {
    if let Value::Sum(_) = show.value { line.value } else { line.samples }
}

fn share(part: u64, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn number(field: Field, number: u64) -> String {
    if field == Field::Addr { format!("{number:#x}") } else { number.to_string() }
}

/// From the first bucket that is not empty to the last.
fn histogram(out: &mut dyn Write, field: Field, buckets: &BTreeMap<u32, u64>) -> io::Result<()> {
    let (Some(first), Some(last)) = (buckets.keys().next(), buckets.keys().next_back()) else { return Ok(()) };
    let most = buckets.values().copied().max().unwrap_or(1).max(1);
    let label = |bucket: u32| match bucket_range(bucket) {
        (from, to) if from == to => format!("[{}]", number(field, from)),
        (from, to) => format!("[{}, {}]", number(field, from), number(field, to)),
    };
    let labels: Vec<String> = (*first..=*last).map(label).collect();
    let width = labels.iter().map(String::len).max().unwrap_or(0);
    for (bucket, label) in (*first..=*last).zip(labels) {
        let samples = buckets.get(&bucket).copied().unwrap_or(0);
        let bar = (u128::from(samples) * u128::from(BAR)).div_ceil(u128::from(most)) as usize;
        writeln!(out, "            {label:<width$}  {samples:>8} |{:<40}|", "@".repeat(bar))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn show(keys: &[Key], value: Value) -> Show {
        let names = keys.iter().map(|key| key.to_string()).collect();
        Show { keys: keys.to_vec(), names, value, form: super::super::Form::Table, interval: false }
    }

    fn written(show: &Show, rows: Vec<Row>) -> String {
        let events = vec![EventRows { name: "cpu-clock".into(), rows }];
        let readout = Readout { begun_ns: 0, from: Duration::ZERO, to: Duration::from_secs(1), last: true, events };
        let mut out = Vec::new();
        write(&mut out, show, &readout).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn row(comm: &str, samples: u64) -> Row {
        Row { comm: Some(comm.into()), samples, ..Row::default() }
    }

    #[test]
    fn rows_that_look_the_same_are_one() {
        let rows = vec![row("a", 1), Row { pid: Some(7), ..row("bee", 5) }, Row { pid: Some(8), ..row("bee", 4) }];
        let text = written(&show(&[Key::Comm], Value::Count), rows);
        let expected = "\
# 10 samples of event 'cpu-clock' by comm
#
# Overhead  Samples  Command
# ........  .......  .......
#
    90.00%        9  bee
    10.00%        1  a

";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_histogram_shows_what_lies_between() {
        let rows = vec![Row { buckets: vec![(0, 1), (3, 20)], ..row("a", 21) }];
        let text = written(&show(&[Key::Comm], Value::Hist(Field::Period)), rows);
        let lines: Vec<&str> = text.lines().skip(6).map(str::trim).collect();
        let full = "@".repeat(40);
        assert_eq!(lines[0], format!("[0]            1 |@@{}|", " ".repeat(38)));
        assert_eq!(lines[1], format!("[1]            0 |{}|", " ".repeat(40)));
        assert_eq!(lines[3], format!("[4, 7]        20 |{full}|"));
    }

    #[test]
    fn the_largest_value_is_no_share() {
        let rows = vec![Row { value: 9, ..row("a", 2) }, Row { value: 11, ..row("a", 1) }];
        let text = written(&show(&[Key::Comm], Value::Max(Field::Addr)), rows);
        assert!(text.contains("# max(addr)  Samples  Command") && text.contains("        0xb        3  a\n"), "{text}");
    }
}

//! The order of rows: by what the columns were asked for in, each in perf's order of its values.

use std::cmp::Ordering;

use afterimage_profile::{Key, Label, Row, SortKey};

use super::Plan;
use super::cell::cell;
use super::columns::TraceColumns;
use super::keys::Shown;

/// What a row is ordered by under one key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    /// The samples do not have it.
    Nothing,
    Number(i128),
    Text(String),
    /// A file and a line in it.
    Line(String, u32),
    /// What has no name comes behind what has one.
    Last,
}

/// The numbers of rows in the order in which they are shown. `columns` are those that a row's fields are of; `ties` is the
/// order of rows that nothing asked for tells apart.
pub(super) fn order<'c>(
    plan: &Plan,
    rows: &[Row],
    columns: impl Fn(usize) -> &'c TraceColumns,
    ties: impl Fn(usize, usize) -> Ordering,
) -> Vec<usize> {
    let keys = |shown: &&Shown| matches!(shown, Shown::Key(_));
    let width = plan.keys.order.iter().filter(keys).count();
    let value = |row: usize, shown: &Shown| match shown {
        Shown::Key(nth) => rows[row].keys.get(*nth).map(|key| of_key(key, &rows[row], columns(row))),
        _ => None,
    };
    // Those of one row after those of the other: most reports have none.
    let values: Vec<Value> = (0..if width == 0 { 0 } else { rows.len() })
        .flat_map(|row| plan.keys.order.iter().filter(keys).map(move |shown| (row, shown)))
        .map(|(row, shown)| value(row, shown).unwrap_or(Value::Nothing))
        .collect();
    let compare = |a: usize, b: usize| {
        let (mut nth, (one, other)) = (0, (&rows[a], &rows[b]));
        for shown in &plan.keys.order {
            let order = match shown {
                Shown::Children => other.children.period.cmp(&one.children.period),
                Shown::Overhead | Shown::Period | Shown::Time => other.own.period.cmp(&one.own.period),
                Shown::Mode(mode) => mode.of(other).cmp(&mode.of(one)),
                Shown::Samples => other.own.samples.cmp(&one.own.samples),
                Shown::Key(_) => {
                    nth += 1;
                    values[a * width + nth - 1].cmp(&values[b * width + nth - 1])
                }
            };
            if order.is_ne() {
                return order;
            }
        }
        ties(a, b)
    };
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|a, b| compare(*a, *b));
    order
}

/// The order of two rows by what is shown of their keys.
pub(super) fn by_texts(plan: &Plan, (a, of_a): (&Row, &TraceColumns), (b, of_b): (&Row, &TraceColumns)) -> Ordering {
    let text = |row: &Row, columns: &TraceColumns, nth: usize| {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = row.keys.get(nth).map(|key| cell(&mut text, key, row, columns));
        text
    };
    let keys = plan.keys.shown.iter().filter_map(|shown| if let Shown::Key(nth) = shown { Some(*nth) } else { None });
    let orders = keys.map(|nth| text(a, of_a, nth).cmp(&text(b, of_b, nth)));
    orders.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Whether more comes before less, as in perf.
fn descends(key: SortKey) -> bool {
    use SortKey::{Cycles, DsoSize, InsLat, LocalInsLat, LocalWeight, SymbolSize, Transaction, Weight};
    matches!(key, Weight | LocalWeight | InsLat | LocalInsLat | Cycles | Transaction | SymbolSize | DsoSize)
}

fn of_key(key: &Key, row: &Row, columns: &TraceColumns) -> Value {
    match key {
        Key::Number(key, None) if descends(*key) => Value::Last,
        Key::Number(key, Some(number)) if descends(*key) => Value::Number(-i128::from(*number)),
        Key::Number(_, number) => number.map_or(Value::Nothing, |number| Value::Number(number.into())),
        Key::Pid(id, _) | Key::Tid(id, _) => Value::Number((*id).into()),
        Key::Cpu(cpu) => cpu.map_or(Value::Nothing, |cpu| Value::Number(cpu.into())),
        Key::Comm(name) | Key::Event(name) | Key::Cgroup(name) => Value::Text(name.to_string()),
        Key::Dso(dso) => Value::Text(dso.short.clone()),
        Key::Sym(frame) if frame.symbol.is_ok() => Value::Text(frame.name().into_owned()),
        Key::Sym(_) | Key::Parent(None) => Value::Last,
        Key::Parent(Some(frame)) => Value::Text(frame.name().into_owned()),
        Key::Line(SortKey::Srcfile, Some(line)) => Value::Text(line.file_name().to_owned()),
        Key::Srcline(Some(line)) | Key::Line(_, Some(line)) => Value::Line(line.file_name().to_owned(), line.line),
        Key::Label(_, Some(label)) => of_label(label),
        Key::Column(nth, value) => match value.and_then(|value| columns.text(*nth, value)) {
            Some(text) => of_text(text),
            None => Value::Nothing,
        },
        Key::Srcline(None) | Key::Line(_, None) | Key::Text(None) | Key::Label(_, None) => Value::Nothing,
        Key::Flag(_, holds) => holds.map_or(Value::Nothing, |holds| Value::Number(holds.into())),
        Key::CgroupId(Some((dev, ino))) => Value::Number(i128::from(*dev) << 64 | i128::from(*ino)),
        Key::Container(Some(container)) => Value::Text(container.to_string()),
        Key::Container(None) | Key::CgroupId(None) | Key::Source(_, None) | Key::Place(_, None) => Value::Nothing,
        Key::Text(Some(_)) | Key::Source(..) | Key::Place(..) => {
            let mut text = String::new();
            // Writing to a String does not fail.
            let _ = cell(&mut text, key, row, columns);
            Value::Text(text)
        }
    }
}

/// Numbers as numbers, in parts of 2³²; all else by its text.
fn of_label(label: &Label) -> Value {
    let json = &label.json;
    let whole = json.as_i64().map(i128::from).or(json.as_u64().map(i128::from));
    match (whole, json.as_f64()) {
        (Some(whole), _) => Value::Number(whole << 32),
        (None, Some(float)) => Value::Number((float * 4_294_967_296.0) as i128),
        (None, None) => Value::Text(label.text.clone()),
    }
}

/// Fields are texts already: those that are numbers are ordered as such.
fn of_text(text: &str) -> Value {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(i128::from),
        None => text.parse::<i64>().ok().map(i128::from).or_else(|| text.parse::<u64>().ok().map(i128::from)),
    };
    number.map_or_else(|| Value::Text(text.to_owned()), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ordered_as_numbers() {
        let label = |json: serde_json::Value| of_label(&Label { text: json.to_string(), json });
        let ordered = [label((-3).into()), label(2.into()), label(2.5.into()), label(10.into()), label("10".into())];
        assert!(ordered.is_sorted(), "{ordered:?}");
        let fields = ["-7", "9", "0x10", "17", "18446744073709551615", "R", "S"].map(of_text);
        assert!(fields.is_sorted(), "{fields:?}");
        assert!(Value::Nothing < fields[0] && fields[6] < Value::Last);
    }
}

//! The text of one event's format: its id, its fields, and how the kernel would print it.

use super::expr::{Expr, parse_arguments};

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number.
    Number { signed: bool },
    /// Text in the record itself.
    Text,
    /// Numbers of some size each.
    Array { item: usize },
    /// Offset and length of data further on in the record; `relative` to the end of this field. Numbers of `item` bytes
    /// each, or text where that is 0.
    Dynamic { relative: bool, item: usize },
}

/// One field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) offset: usize,
    pub(super) size: usize,
    pub(super) kind: Kind,
}

/// One event.
#[derive(Clone, Debug)]
pub(super) struct Format {
    pub(super) id: u64,
    pub(super) fields: Vec<Field>,
    /// Numbers have their lowest byte first.
    pub(super) little: bool,
    /// The format string with its arguments, where it could be read.
    pub(super) print: Option<(String, Vec<Expr>)>,
}

impl Format {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut format = Format { id: 0, fields: Vec::new(), little: true, print: None };
        let mut has_id = false;
        // The string of the last part may have line breaks in it.
        let (text, print) = text.split_once("\nprint fmt:").unwrap_or((text, ""));
        format.print = parse_arguments(print);
        for line in text.lines() {
            let line = line.trim_start();
            if let Some(id) = line.strip_prefix("ID:") {
                format.id = id.trim().parse().ok()?;
                has_id = true;
            } else if let Some(field) = line.strip_prefix("field:") {
                format.fields.extend(parse_field(field));
            }
        }
        has_id.then_some(format)
    }

    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}

/// One line of the format: a declaration as in C, then `offset:16;` and the like, with semicolons and tabs between.
fn parse_field(text: &str) -> Option<Field> {
    let mut parts = text.split(';').map(str::trim);
    let declaration = parts.next()?;
    let (mut offset, mut size, mut signed) = (None, None, false);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", value)) => offset = value.parse().ok(),
            Some(("size", value)) => size = value.parse().ok(),
            Some(("signed", value)) => signed = value != "0",
            _ => {}
        }
    }
    let (size, offset): (usize, usize) = (size?, offset?);
    let dynamic = ["__data_loc", "__rel_loc"].iter().position(|word| declaration.starts_with(word));
    let (before, length) = match declaration.split_once('[') {
        Some((before, rest)) if dynamic.is_none() => (before, rest.split_once(']')?.0.trim().parse::<usize>().ok()),
        _ => (declaration, None),
    };
    // Of dynamic data the brackets stand before the name.
    let name = before.rsplit([' ', '*', ']']).next()?.to_owned();
    let is_char = before.split_whitespace().any(|word| matches!(word, "char" | "char[]")) && !before.contains('*');
    let kind = match (dynamic, length) {
        (Some(which), _) => Kind::Dynamic { relative: which == 1, item: if is_char { 0 } else { item_size(before) } },
        (None, _) if declaration.contains('[') && is_char => Kind::Text,
        (None, Some(length)) if length > 0 && matches!(size / length, 1 | 2 | 4 | 8) => {
            Kind::Array { item: size / length }
        }
        (None, None) if declaration.contains('[') => Kind::Array { item: 1 },
        _ if matches!(size, 1 | 2 | 4 | 8) => Kind::Number { signed },
        _ => Kind::Array { item: 1 },
    };
    Some(Field { name, offset, size, kind })
}

/// Bytes of an item of dynamic data by the name of its type; 1 for what is not known.
fn item_size(declaration: &str) -> usize {
    let is = |names: &[&str]| declaration.split_whitespace().any(|word| names.contains(&word.trim_end_matches("[]")));
    match () {
        () if declaration.contains('*') || is(&["long", "u64", "s64", "__u64", "__s64", "size_t"]) => 8,
        () if is(&["short", "u16", "s16", "__u16", "__s16"]) => 2,
        () if is(&["int", "unsigned", "u32", "s32", "__u32", "__s32"]) && !is(&["char"]) => 4,
        () => 1,
    }
}

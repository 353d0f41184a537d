//! A record as text: the expressions of its format worked out, and put into its format string as C does.

use std::fmt::Write as _;

use rustc_hash::FxHashMap;

use super::Names;
use super::expr::Expr;
use super::format::{Field, Format, Kind};
use super::spec::{Pointers, Spec};
use crate::terminal::clean;

/// Appends the text of a record, or its fields where the format's expressions are not understood.
pub(super) fn write(
    out: &mut Vec<u8>,
    format: &Format,
    raw: &[u8],
    strings: &FxHashMap<u64, String>,
    names: Names<'_>,
) {
    let record = Record { format, raw };
    let mut pointers = Pointers { strings, names };
    let text = format.print.as_ref().and_then(|(string, arguments)| record.formatted(string, arguments, &mut pointers));
    let text = text.unwrap_or_else(|| record.listed());
    out.extend_from_slice(clean(&text).as_bytes());
}

/// The fields of a record, as far as they fit into it.
pub(super) fn fields<'r>(format: &'r Format, raw: &'r [u8]) -> Vec<(&'r str, Value<'r>)> {
    let record = Record { format, raw };
    format.fields.iter().filter_map(|field| Some((field.name.as_str(), record.value(field)?))).collect()
}

/// The bytes of a field: of dynamic data the data itself.
pub(super) fn field_bytes<'r>(format: &Format, name: &str, raw: &'r [u8]) -> Option<&'r [u8]> {
    let field = format.field(name)?;
    match field.kind {
        Kind::Dynamic { .. } => dynamic(format, field, raw),
        _ => raw.get(field.offset..field.offset.checked_add(field.size)?),
    }
}

/// A field as text, numbers in decimal digits.
pub(super) fn field_text(format: &Format, name: &str, raw: &[u8]) -> Option<String> {
    Some(match (Record { format, raw }).value(format.field(name)?)? {
        Value::Number(number) => number.to_string(),
        Value::Unsigned(number) => number.to_string(),
        Value::Text(text) => text,
        Value::Bytes(bytes) => bytes.text(),
    })
}

/// The data that a field of four bytes points to: the offset in its low half, the length in its high half.
fn dynamic<'r>(format: &Format, field: &Field, raw: &'r [u8]) -> Option<&'r [u8]> {
    let Kind::Dynamic { relative, .. } = field.kind else { return None };
    let word = number(raw.get(field.offset..field.offset.checked_add(4)?)?, false, format.little)? as usize;
    let base = if relative { field.offset + field.size } else { 0 };
    let from = base.checked_add(word & 0xffff)?;
    raw.get(from..from.checked_add(word >> 16 & 0xffff)?)
}

/// What an expression or a field comes to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'r> {
    Number(i64),
    /// Of a field without a sign; the same bits.
    Unsigned(u64),
    Text(String),
    Bytes(Bytes<'r>),
}

/// Bytes of the record, as numbers of `item` bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bytes<'r> {
    bytes: &'r [u8],
    item: usize,
    little: bool,
}

impl<'r> Bytes<'r> {
    /// The bytes as they are in the record.
    pub(super) fn raw(&self) -> &'r [u8] {
        self.bytes
    }

    /// Whether each number is a byte.
    pub(super) fn are_bytes(&self) -> bool {
        self.item == 1
    }

    /// The numbers, without signs.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.bytes.chunks_exact(self.item.max(1)).filter_map(|chunk| Some(number(chunk, false, self.little)? as u64))
    }

    fn text(&self) -> String {
        let texts: Vec<String> = self.numbers().map(|n| format!("{n:#x}")).collect();
        format!("{{{}}}", texts.join(","))
    }
}

struct Record<'r> {
    format: &'r Format,
    raw: &'r [u8],
}

impl<'r> Record<'r> {
    /// `name=value` for every field of the event itself.
    fn listed(&self) -> String {
        let mut out = String::new();
        for field in self.format.fields.iter().filter(|f| !f.name.starts_with("common_")) {
            let separator = if out.is_empty() { "" } else { " " };
            let _ = write!(out, "{separator}{}=", field.name);
            match self.value(field) {
                Some(Value::Number(number)) => {
                    let _ = write!(out, "{number}");
                }
                Some(Value::Unsigned(number)) => {
                    let _ = write!(out, "{number:#x}");
                }
                Some(Value::Text(text)) => out.push_str(&text),
                Some(Value::Bytes(bytes)) => out.push_str(&bytes.text()),
                None => out.push('?'),
            }
        }
        out
    }

    fn value(&self, field: &Field) -> Option<Value<'r>> {
        let end = field.offset.checked_add(field.size)?;
        let bytes = self.raw.get(field.offset..end)?;
        Some(match field.kind {
            Kind::Number { signed: true } => Value::Number(self.number(bytes, true)?),
            Kind::Number { signed: false } => Value::Unsigned(self.number(bytes, false)? as u64),
            Kind::Text => Value::Text(string(bytes)),
            Kind::Array { item } => Value::Bytes(self.bytes(bytes, item)),
            Kind::Dynamic { item: 0, .. } => Value::Text(string(self.dynamic(field)?)),
            Kind::Dynamic { item, .. } => Value::Bytes(self.bytes(self.dynamic(field)?, item)),
        })
    }

    fn bytes(&self, bytes: &'r [u8], item: usize) -> Bytes<'r> {
        Bytes { bytes, item, little: self.format.little }
    }

    fn number(&self, bytes: &[u8], signed: bool) -> Option<i64> {
        number(bytes, signed, self.format.little)
    }

    fn dynamic(&self, field: &Field) -> Option<&'r [u8]> {
        dynamic(self.format, field, self.raw)
    }

    fn eval(&self, expr: &Expr) -> Option<Value<'r>> {
        Some(match expr {
            Expr::Number(number) => Value::Number(*number),
            Expr::Text(text) => Value::Text(text.clone()),
            Expr::Field(name) => match self.value(self.format.field(name)?)? {
                Value::Unsigned(number) => Value::Number(number as i64),
                value => value,
            },
            Expr::Index(of, index) => match (self.items(of)?, self.int(index)?) {
                (Value::Bytes(Bytes { bytes, item, .. }), index) => {
                    let from = usize::try_from(index).ok()?.checked_mul(item)?;
                    Value::Number(self.number(bytes.get(from..from.checked_add(item)?)?, false)?)
                }
                _ => return None,
            },
            Expr::Cast { size, signed, of } => match self.eval(of)? {
                Value::Number(n) => Value::Number(number(n.to_le_bytes().get(..*size)?, *signed, true)?),
                other => other,
            },
            Expr::Unary(sign, of) => {
                let n = self.int(of)?;
                Value::Number(match sign {
                    '-' => n.wrapping_neg(),
                    '!' => i64::from(n == 0),
                    _ => !n,
                })
            }
            Expr::Binary(sign, left, right) => Value::Number(binary(sign, self.int(left)?, self.int(right)?)?),
            Expr::Choice(condition, yes, no) => self.eval(if self.int(condition)? != 0 { yes } else { no })?,
            Expr::Call(name, arguments) => self.call(name, arguments)?,
            // Constants of the kernel that it did not put a number for: perf takes them for 0.
            Expr::Name(_) => Value::Number(0),
            Expr::Pair(..) => return None,
        })
    }

    /// What an index goes into: of a field of characters their bytes.
    fn items(&self, of: &Expr) -> Option<Value<'r>> {
        if let Expr::Field(name) = of {
            let field = self.format.field(name)?;
            if field.kind == Kind::Text {
                let bytes = self.raw.get(field.offset..field.offset.checked_add(field.size)?)?;
                return Some(Value::Bytes(self.bytes(bytes, 1)));
            }
        }
        self.eval(of)
    }

    fn int(&self, expr: &Expr) -> Option<i64> {
        match self.eval(expr)? {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    fn call(&self, name: &str, arguments: &[Expr]) -> Option<Value<'r>> {
        let named = |i: usize| match arguments.get(i)? {
            Expr::Name(name) => self.format.field(name),
            _ => None,
        };
        Some(match name {
            "__get_str" | "__get_rel_str" => Value::Text(string(self.dynamic(named(0)?)?)),
            "__get_dynamic_array" | "__get_rel_dynamic_array" => Value::Bytes(self.bytes(self.dynamic(named(0)?)?, 1)),
            "__builtin_expect" => self.eval(arguments.first()?)?,
            "__get_dynamic_array_len" => Value::Number(i64::try_from(self.dynamic(named(0)?)?.len()).ok()?),
            "__print_flags" => Value::Text(self.flags(arguments)?),
            "__print_symbolic" => Value::Text(self.symbol(arguments)?),
            "__print_hex" | "__print_hex_str" => {
                let Value::Bytes(Bytes { bytes, .. }) = self.eval(arguments.first()?)? else { return None };
                let count = usize::try_from(self.int(arguments.get(1)?)?).ok()?;
                let hex: Vec<String> = bytes.get(..count)?.iter().map(|b| format!("{b:02x}")).collect();
                Value::Text(hex.join(if name == "__print_hex" { " " } else { "" }))
            }
            "__print_array" => {
                let Value::Bytes(Bytes { bytes, .. }) = self.eval(arguments.first()?)? else { return None };
                let count = usize::try_from(self.int(arguments.get(1)?)?).ok()?;
                let item = usize::try_from(self.int(arguments.get(2)?)?).ok()?;
                Value::Text(self.bytes(bytes.get(..count.checked_mul(item)?)?, item).text())
            }
            _ => return None,
        })
    }

    fn flags(&self, arguments: &[Expr]) -> Option<String> {
        let mut left = self.int(arguments.first()?)?;
        let Expr::Text(separator) = arguments.get(1)? else { return None };
        let mut names: Vec<String> = Vec::new();
        for pair in arguments.get(2..)? {
            let Some((mask, name)) = entry(pair) else { continue };
            let mask = self.int(mask)?;
            if mask == 0 && left == 0 && names.is_empty() {
                return Some(name.to_owned());
            }
            if mask != 0 && left & mask == mask {
                names.push(name.to_owned());
                left &= !mask;
            }
        }
        if left != 0 {
            names.push(format!("{left:#x}"));
        }
        Some(names.join(separator))
    }

    fn symbol(&self, arguments: &[Expr]) -> Option<String> {
        let value = self.int(arguments.first()?)?;
        for pair in arguments.get(1..)? {
            let Some((number, name)) = entry(pair) else { continue };
            if self.int(number)? == value {
                return Some(name.to_owned());
            }
        }
        Some(format!("{value:#x}"))
    }

    /// The format string with the arguments in it.
    fn formatted(&self, string: &str, arguments: &[Expr], pointers: &mut Pointers<'_>) -> Option<String> {
        let mut out = Vec::new();
        let mut arguments = arguments.iter();
        let mut rest = string;
        while let Some(at) = rest.find('%') {
            out.extend_from_slice(&rest.as_bytes()[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('%') {
                out.push(b'%');
                rest = after;
                continue;
            }
            let (spec, after) = Spec::parse(rest, &mut || self.int(arguments.next()?))?;
            spec.put(&mut out, self.eval(arguments.next()?)?, pointers)?;
            rest = after;
        }
        out.extend_from_slice(rest.trim_end_matches('\n').as_bytes());
        Some(String::from_utf8_lossy(&out).into_owned())
    }
}

/// The value and the name of one entry in a list of flags or symbols; `None` of one that ends the list, or whose value is a
/// constant of the kernel that it did not put a number for.
fn entry(expr: &Expr) -> Option<(&Expr, &str)> {
    let Expr::Pair(value, name) = expr else { return None };
    match (&**value, &**name) {
        (Expr::Name(_), _) => None,
        (_, Expr::Text(name)) => Some((value, name)),
        _ => None,
    }
}

fn binary(sign: &str, a: i64, b: i64) -> Option<i64> {
    let shift = || u32::try_from(b).ok().filter(|by| *by < 64);
    Some(match sign {
        "||" => i64::from(a != 0 || b != 0),
        "&&" => i64::from(a != 0 && b != 0),
        "|" => a | b,
        "^" => a ^ b,
        "&" => a & b,
        "==" => i64::from(a == b),
        "!=" => i64::from(a != b),
        "<" => i64::from(a < b),
        ">" => i64::from(a > b),
        "<=" => i64::from(a <= b),
        ">=" => i64::from(a >= b),
        "<<" => a.wrapping_shl(shift()?),
        ">>" => ((a as u64) >> shift()?) as i64,
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" => a.checked_div(b)?,
        "%" => a.checked_rem(b)?,
        _ => return None,
    })
}

/// A number of one, two, four or eight bytes.
pub(super) fn number(bytes: &[u8], signed: bool, little: bool) -> Option<i64> {
    let mut word = [0; 8];
    let words = word.get_mut(..bytes.len())?;
    words.copy_from_slice(bytes);
    if !little {
        words.reverse();
    }
    let word = i64::from_le_bytes(word);
    let shift = match bytes.len() {
        1 | 2 | 4 | 8 => 64 - 8 * bytes.len() as u32,
        _ => return None,
    };
    Some(if signed { word << shift >> shift } else { word })
}

/// The bytes up to the first zero.
pub(super) fn string(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

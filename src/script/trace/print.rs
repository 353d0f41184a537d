//! A record as text: the expressions of its format worked out, and put into its format string as C does.

use std::fmt::Write as _;

use super::expr::Expr;
use super::format::{Field, Format, Kind};
use crate::script::digits::right;
use crate::terminal::clean;

/// Appends the text of a record, or its fields where the format's expressions are not understood.
pub(super) fn write(out: &mut Vec<u8>, format: &Format, raw: &[u8]) {
    let record = Record { format, raw };
    let text = format.print.as_ref().and_then(|(string, arguments)| record.formatted(string, arguments));
    let text = text.unwrap_or_else(|| record.listed());
    out.extend_from_slice(clean(&text).as_bytes());
}

/// What an expression comes to.
#[derive(Clone, Debug, PartialEq)]
enum Value<'r> {
    Number(i64),
    Text(String),
    /// Bytes of the record, as numbers of `item` bytes.
    Bytes(&'r [u8], usize),
}

struct Record<'r> {
    format: &'r Format,
    raw: &'r [u8],
}

/// Widths and precisions beyond this are damage.
const WIDEST: usize = 4096;

impl<'r> Record<'r> {
    /// `name=value` for every field of the event itself.
    fn listed(&self) -> String {
        let mut out = String::new();
        for field in self.format.fields.iter().filter(|f| !f.name.starts_with("common_")) {
            let separator = if out.is_empty() { "" } else { " " };
            let _ = write!(out, "{separator}{}=", field.name);
            match self.value(field) {
                Some(Value::Number(number)) if matches!(field.kind, Kind::Number { signed: true }) => {
                    let _ = write!(out, "{number}");
                }
                Some(Value::Number(number)) => {
                    let _ = write!(out, "{:#x}", number as u64);
                }
                Some(Value::Text(text)) => out.push_str(&text),
                Some(Value::Bytes(bytes, item)) => out.push_str(&array(bytes, item)),
                None => out.push('?'),
            }
        }
        out
    }

    fn value(&self, field: &Field) -> Option<Value<'r>> {
        let end = field.offset.checked_add(field.size)?;
        let bytes = self.raw.get(field.offset..end)?;
        Some(match field.kind {
            Kind::Number { signed } => Value::Number(number(bytes, signed)?),
            Kind::Text => Value::Text(string(bytes)),
            Kind::Array { item } => Value::Bytes(bytes, item),
            Kind::Dynamic { .. } => Value::Text(string(self.dynamic(field)?)),
        })
    }

    /// The data that a field of four bytes points to: the offset in its low half, the length in its high half.
    fn dynamic(&self, field: &Field) -> Option<&'r [u8]> {
        let Kind::Dynamic { relative } = field.kind else { return None };
        let word = number(self.raw.get(field.offset..field.offset.checked_add(4)?)?, false)? as usize;
        let base = if relative { field.offset + field.size } else { 0 };
        let from = base.checked_add(word & 0xffff)?;
        self.raw.get(from..from.checked_add(word >> 16 & 0xffff)?)
    }

    fn eval(&self, expr: &Expr) -> Option<Value<'r>> {
        Some(match expr {
            Expr::Number(number) => Value::Number(*number),
            Expr::Text(text) => Value::Text(text.clone()),
            Expr::Field(name) => self.value(self.format.field(name)?)?,
            Expr::Index(of, index) => match (self.eval(of)?, self.int(index)?) {
                (Value::Bytes(bytes, item), index) => {
                    let from = usize::try_from(index).ok()?.checked_mul(item)?;
                    Value::Number(number(bytes.get(from..from.checked_add(item)?)?, false)?)
                }
                _ => return None,
            },
            Expr::Cast { size, signed, of } => match self.eval(of)? {
                Value::Number(n) => Value::Number(number(n.to_le_bytes().get(..*size)?, *signed)?),
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
            Expr::Pair(..) | Expr::Name(_) => return None,
        })
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
            "__get_dynamic_array" | "__get_rel_dynamic_array" => Value::Bytes(self.dynamic(named(0)?)?, 1),
            "__get_dynamic_array_len" => Value::Number(i64::try_from(self.dynamic(named(0)?)?.len()).ok()?),
            "__print_flags" => Value::Text(self.flags(arguments)?),
            "__print_symbolic" => Value::Text(self.symbol(arguments)?),
            "__print_hex" | "__print_hex_str" => {
                let Value::Bytes(bytes, _) = self.eval(arguments.first()?)? else { return None };
                let count = usize::try_from(self.int(arguments.get(1)?)?).ok()?;
                let hex: Vec<String> = bytes.get(..count)?.iter().map(|b| format!("{b:02x}")).collect();
                Value::Text(hex.join(if name == "__print_hex" { " " } else { "" }))
            }
            "__print_array" => {
                let Value::Bytes(bytes, _) = self.eval(arguments.first()?)? else { return None };
                let count = usize::try_from(self.int(arguments.get(1)?)?).ok()?;
                let item = usize::try_from(self.int(arguments.get(2)?)?).ok()?;
                Value::Text(array(bytes.get(..count.checked_mul(item)?)?, item))
            }
            _ => return None,
        })
    }

    fn flags(&self, arguments: &[Expr]) -> Option<String> {
        let mut left = self.int(arguments.first()?)?;
        let Expr::Text(separator) = arguments.get(1)? else { return None };
        let mut names: Vec<String> = Vec::new();
        for pair in arguments.get(2..)? {
            let (mask, name) = entry(pair)?;
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
            let (number, name) = entry(pair)?;
            if self.int(number)? == value {
                return Some(name.to_owned());
            }
        }
        Some(format!("{value:#x}"))
    }

    /// The format string with the arguments in it.
    fn formatted(&self, string: &str, arguments: &[Expr]) -> Option<String> {
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
            spec.put(&mut out, self.eval(arguments.next()?)?)?;
            rest = after;
        }
        out.extend_from_slice(rest.trim_end_matches('\n').as_bytes());
        Some(String::from_utf8_lossy(&out).into_owned())
    }
}

/// One conversion of a format string.
#[derive(Debug, Default, PartialEq)]
struct Spec {
    left: bool,
    zero: bool,
    alternate: bool,
    plus: bool,
    width: usize,
    precision: Option<usize>,
    /// Bytes of the number.
    size: usize,
    conversion: char,
}

impl Spec {
    /// Reads what follows a `%`. `star` gives the next argument, for widths that are one.
    fn parse<'s>(text: &'s str, star: &mut dyn FnMut() -> Option<i64>) -> Option<(Spec, &'s str)> {
        let mut spec = Spec { size: 4, ..Spec::default() };
        let mut rest = text;
        loop {
            match rest.chars().next()? {
                '-' => spec.left = true,
                '0' => spec.zero = true,
                '#' => spec.alternate = true,
                '+' => spec.plus = true,
                ' ' => {}
                _ => break,
            }
            rest = &rest[1..];
        }
        let mut count = |rest: &mut &'s str| -> Option<usize> {
            if let Some(after) = rest.strip_prefix('*') {
                *rest = after;
                return usize::try_from(star()?).ok();
            }
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let digits = &rest[..end];
            *rest = &rest[end..];
            if digits.is_empty() { Some(0) } else { digits.parse().ok() }
        };
        spec.width = count(&mut rest)?.min(WIDEST);
        if let Some(after) = rest.strip_prefix('.') {
            rest = after;
            spec.precision = Some(count(&mut rest)?.min(WIDEST));
        }
        for (word, size) in [("hh", 1), ("h", 2), ("ll", 8), ("l", 8), ("z", 8), ("L", 8), ("q", 8), ("t", 8), ("j", 8)]
        {
            if let Some(after) = rest.strip_prefix(word) {
                rest = after;
                spec.size = size;
                break;
            }
        }
        spec.conversion = rest.chars().next()?;
        rest = &rest[spec.conversion.len_utf8()..];
        if spec.conversion == 'p' && rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            // Pointers that stand for something else: a function, an address of a network.
            return None;
        }
        Some((spec, rest))
    }

    fn put(&self, out: &mut Vec<u8>, value: Value<'_>) -> Option<()> {
        let text = match (self.conversion, value) {
            ('s', Value::Text(text)) => match self.precision {
                Some(most) => text.chars().take(most).collect(),
                None => text,
            },
            ('s', Value::Bytes(bytes, 1)) => string(bytes),
            ('c', Value::Number(n)) => char::from(n as u8).to_string(),
            ('d' | 'i', Value::Number(n)) => self.digits(&number(n.to_le_bytes().get(..self.size)?, true)?.to_string()),
            (conversion, Value::Number(n)) => {
                let size = if conversion == 'p' { 8 } else { self.size };
                let n = number(n.to_le_bytes().get(..size)?, false)? as u64;
                let prefix = |p: &'static str| if self.alternate && n != 0 { p } else { "" };
                match conversion {
                    'u' => self.digits(&n.to_string()),
                    'x' => self.digits(&format!("{}{n:x}", prefix("0x"))),
                    'X' => self.digits(&format!("{}{n:X}", prefix("0X"))),
                    'o' => self.digits(&format!("{}{n:o}", prefix("0"))),
                    'p' => format!("{n:#x}"),
                    _ => return None,
                }
            }
            _ => return None,
        };
        if self.left {
            let from = out.len();
            out.extend_from_slice(text.as_bytes());
            let padding = self.width.saturating_sub(out.len() - from);
            out.resize(out.len() + padding, b' ');
        } else {
            right(out, &text, self.width);
        }
        Some(())
    }

    /// A number with its zeros and sign.
    fn digits(&self, text: &str) -> String {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => (if self.plus && matches!(self.conversion, 'd' | 'i') { "+" } else { "" }, text),
        };
        let zeros = match self.precision {
            Some(least) => least,
            None if self.zero && !self.left => self.width.saturating_sub(sign.len()),
            None => 0,
        };
        format!("{sign}{}{digits}", "0".repeat(zeros.saturating_sub(digits.len())))
    }
}

/// The value and the name of one entry in a list of flags or symbols.
fn entry(expr: &Expr) -> Option<(&Expr, &str)> {
    match expr {
        Expr::Pair(value, name) => match &**name {
            Expr::Text(name) => Some((value, name)),
            _ => None,
        },
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

/// A number of one to eight bytes in this machine's order.
fn number(bytes: &[u8], signed: bool) -> Option<i64> {
    Some(match (bytes.len(), signed) {
        (1, false) => i64::from(bytes[0]),
        (1, true) => i64::from(bytes[0] as i8),
        (2, false) => i64::from(u16::from_le_bytes(bytes.try_into().ok()?)),
        (2, true) => i64::from(i16::from_le_bytes(bytes.try_into().ok()?)),
        (4, false) => i64::from(u32::from_le_bytes(bytes.try_into().ok()?)),
        (4, true) => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        (8, _) => i64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    })
}

/// The bytes up to the first zero.
fn string(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn array(bytes: &[u8], item: usize) -> String {
    let numbers = bytes.chunks_exact(item.max(1)).filter_map(|chunk| number(chunk, false));
    let texts: Vec<String> = numbers.map(|n| format!("{:#x}", n as u64)).collect();
    format!("{{{}}}", texts.join(","))
}

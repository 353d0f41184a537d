//! The conversions of a format string, `%#08llx`, and what they make of a value.

use std::net::{Ipv4Addr, Ipv6Addr};

use rustc_hash::FxHashMap;

use super::Names;
use super::print::{Value, number, string};
use crate::script::digits::right;

/// Widths and precisions beyond this are damage.
const WIDEST: usize = 4096;

/// One conversion of a format string.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Spec {
    left: bool,
    zero: bool,
    alternate: bool,
    plus: bool,
    width: usize,
    precision: Option<usize>,
    /// Bytes of the number.
    size: usize,
    conversion: char,
    /// What follows a `p` that stands for something else than a number.
    kind: String,
}

impl Spec {
    /// Reads what follows a `%`. `star` gives the next argument, for widths that are one.
    pub(super) fn parse<'s>(text: &'s str, star: &mut dyn FnMut() -> Option<i64>) -> Option<(Spec, &'s str)> {
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
        if spec.conversion == 'p' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            spec.kind = rest[..end].to_owned();
            rest = &rest[end..];
        }
        Some((spec, rest))
    }

    /// Appends a value; `None` where it is none of this conversion.
    pub(super) fn put(&self, out: &mut Vec<u8>, value: Value<'_>, pointers: &mut Pointers<'_>) -> Option<()> {
        let text = match (self.conversion, value) {
            ('s', value) => {
                let text = match value {
                    Value::Text(text) => text,
                    Value::Bytes(bytes) if bytes.are_bytes() => string(bytes.raw()),
                    Value::Number(address) => pointers.string(address as u64),
                    _ => return None,
                };
                match self.precision {
                    Some(most) => text.chars().take(most).collect(),
                    None => text,
                }
            }
            ('p', value) if !self.kind.is_empty() => pointers.pointed(&self.kind, &value)?,
            ('p', Value::Number(0)) => "(nil)".to_owned(),
            ('c', Value::Number(n)) => char::from(n as u8).to_string(),
            ('d' | 'i', Value::Number(n)) => {
                self.digits("", &number(n.to_le_bytes().get(..self.size)?, true, true)?.to_string())
            }
            (conversion, Value::Number(n)) => {
                let size = if conversion == 'p' { 8 } else { self.size };
                let n = number(n.to_le_bytes().get(..size)?, false, true)? as u64;
                let prefix = |p: &'static str| if self.alternate && n != 0 { p } else { "" };
                match conversion {
                    'u' => self.digits("", &n.to_string()),
                    'x' => self.digits(prefix("0x"), &format!("{n:x}")),
                    'X' => self.digits(prefix("0X"), &format!("{n:X}")),
                    'o' => self.digits(prefix("0"), &format!("{n:o}")),
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

    /// A number with its sign, what tells its base, and zeros.
    fn digits(&self, prefix: &str, text: &str) -> String {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => (if self.plus && matches!(self.conversion, 'd' | 'i') { "+" } else { "" }, text),
        };
        let zeros = match self.precision {
            Some(least) => least,
            None if self.zero && !self.left => self.width.saturating_sub(sign.len() + prefix.len()),
            None => 0,
        };
        format!("{sign}{prefix}{}{digits}", "0".repeat(zeros.saturating_sub(digits.len())))
    }
}

/// What addresses in records lead to.
pub(super) struct Pointers<'n> {
    /// Texts of the kernel.
    pub(super) strings: &'n FxHashMap<u64, String>,
    pub(super) names: Names<'n>,
}

impl Pointers<'_> {
    /// The text at an address of the kernel, or the address where that is not known.
    fn string(&self, address: u64) -> String {
        self.strings.get(&address).cloned().unwrap_or_else(|| format!("{address:x}"))
    }

    /// What the letters behind `%p` make of a value (Documentation/core-api/printk-formats.rst).
    fn pointed(&mut self, kind: &str, value: &Value<'_>) -> Option<String> {
        match value {
            Value::Number(address) if matches!(kind, "S" | "s" | "F" | "f") => {
                let address = *address as u64;
                Some(match (self.names)(address) {
                    Some((name, offset)) if matches!(kind, "S" | "F") => format!("{name}+{offset:#x}"),
                    Some((name, _)) => name,
                    None => format!("{address:#x}"),
                })
            }
            Value::Bytes(bytes) => of_bytes(kind, bytes.raw()),
            Value::Text(text) if kind == "M" => of_bytes(kind, text.as_bytes()),
            _ => None,
        }
    }
}

fn of_bytes(kind: &str, bytes: &[u8]) -> Option<String> {
    let v4 = |at: usize| Some(Ipv4Addr::from(*bytes.get(at..)?.first_chunk::<4>()?));
    let v6 = |at: usize| Some(Ipv6Addr::from(*bytes.get(at..)?.first_chunk::<16>()?));
    let pairs = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
    Some(match kind {
        "I4" => v4(0)?.to_string(),
        "I6c" => v6(0)?.to_string(),
        "ISpc" => {
            let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk::<2>()?);
            match u16::from_le_bytes(*bytes.first_chunk::<2>()?) {
                2 => format!("{}:{port}", v4(4)?),
                10 => format!("[{}]:{port}", v6(8)?),
                _ => return None,
            }
        }
        "M" => pairs(bytes.get(..6)?).join(":"),
        "U" | "Ub" => {
            let digits = pairs(bytes.get(..16)?).concat();
            let cuts = [0..8, 8..12, 12..16, 16..20, 20..32];
            cuts.map(|cut| digits.get(cut).unwrap_or_default().to_owned()).join("-")
        }
        _ => return None,
    })
}

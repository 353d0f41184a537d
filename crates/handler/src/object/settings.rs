//! Constants of an object that are set before it is loaded: its `const volatile` variables, by their types.

use std::fmt;
use std::str::FromStr;

use libbpf_rs::btf::types::{Array, DataSec, Enum, Enum64, Int, IntEncoding, Var};
use libbpf_rs::btf::{Btf, BtfType};

use crate::{Error, ErrorKind, Result};

/// Names of the public header that the loader itself sets.
const OURS: [&str; 5] = ["ai_nr_cpus", "ai_handler_id", "ai_context", "ai_stack_words", BY_LABEL];

/// The key of the label that samples are counted by.
pub(super) const BY_LABEL: &str = "ai_by_label";

/// No constant ends further into its section than this.
const LONGEST: usize = 16 << 20;

/// `NAME=VALUE`, as a user says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The variable.
    pub name: String,
    /// Its value: a number (decimal, 0x, 0o, 0b), `true` or `false`, the name of an enumerator, or a text.
    pub value: String,
}

impl FromStr for Setting {
    type Err = Error;

    fn from_str(text: &str) -> Result<Setting> {
        let (name, value) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| Error::new(ErrorKind::Options, text, "not of the form NAME=VALUE"))?;
        Ok(Setting { name: name.to_owned(), value: value.to_owned() })
    }
}

/// What a variable holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int {
        signed: bool,
    },
    Enum(Vec<(String, i128)>),
    Text,
    /// Anything that cannot be set.
    Other,
}

/// A `const volatile` variable.
#[derive(Clone, Debug)]
pub(super) struct Constant {
    pub(super) name: String,
    pub(super) section: String,
    pub(super) offset: usize,
    size: usize,
    kind: Kind,
}

/// The bytes that a variable gets.
#[derive(Clone, Debug)]
pub(super) struct Patch {
    pub(super) section: String,
    pub(super) offset: usize,
    pub(super) bytes: Vec<u8>,
}

/// The constants that an object has.
pub(super) fn constants(btf: &Btf<'_>) -> Vec<Constant> {
    let mut found = Vec::new();
    for section in btf.type_by_kind::<DataSec<'_>>() {
        let name = section.name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if !name.starts_with(".rodata") {
            continue;
        }
        for place in section.iter() {
            // What a damaged object says of sizes must not be believed.
            let end = (place.offset as usize).checked_add(place.size);
            if place.size == 0 || end.is_none_or(|end| end > LONGEST) {
                continue;
            }
            let Some(var) = btf.type_by_id::<Var<'_>>(place.ty) else { continue };
            let Some(of) = var.next_type() else { continue };
            found.push(Constant {
                name: var.name().and_then(|n| n.to_str()).unwrap_or_default().to_owned(),
                section: name.clone(),
                offset: place.offset as usize,
                size: place.size,
                kind: kind(btf, of),
            });
        }
    }
    found
}

fn kind(btf: &Btf<'_>, of: BtfType<'_>) -> Kind {
    let of = of.skip_mods_and_typedefs();
    if let Ok(int) = Int::try_from(of) {
        return match int.encoding {
            IntEncoding::Bool => Kind::Bool,
            IntEncoding::Signed | IntEncoding::Char => Kind::Int { signed: true },
            IntEncoding::None => Kind::Int { signed: false },
        };
    }
    let text = |name: Option<&std::ffi::OsStr>| name.and_then(|n| n.to_str()).unwrap_or_default().to_owned();
    if let Ok(of) = Enum::try_from(of) {
        return Kind::Enum(of.iter().map(|e| (text(e.name), i128::from(e.value))).collect());
    }
    if let Ok(of) = Enum64::try_from(of) {
        return Kind::Enum(of.iter().map(|e| (text(e.name), e.value)).collect());
    }
    if let Ok(array) = Array::try_from(of) {
        let element = btf.type_by_id::<BtfType<'_>>(array.ty()).map(|t| t.skip_mods_and_typedefs());
        if element.and_then(|e| Int::try_from(e).ok()).is_some_and(|int| int.bits == 8) {
            return Kind::Text;
        }
    }
    Kind::Other
}

impl Constant {
    /// Whether `--set` may name it.
    pub(super) fn is_free(&self) -> bool {
        !OURS.contains(&self.name.as_str()) && self.kind != Kind::Other
    }

    /// The bytes for a value.
    pub(super) fn patch(&self, value: &str) -> Result<Patch> {
        let bytes = self
            .bytes(value)
            .map_err(|cause| Error::new(ErrorKind::Options, format!("{}={value}", self.name), cause))?;
        Ok(Patch { section: self.section.clone(), offset: self.offset, bytes })
    }

    /// The bytes for a number, which is cut to the variable's size: for what the loader sets.
    pub(super) fn number(&self, value: u64) -> Patch {
        let mut bytes = value.to_le_bytes().to_vec();
        bytes.resize(self.size, 0);
        Patch { section: self.section.clone(), offset: self.offset, bytes }
    }

    /// The bytes of a text, whatever the variable's type: for what the loader sets. `None` where it has no room.
    pub(super) fn raw(&self, text: &str) -> Option<Patch> {
        let mut bytes = text.as_bytes().to_vec();
        if bytes.len() >= self.size {
            return None;
        }
        bytes.resize(self.size, 0);
        Some(Patch { section: self.section.clone(), offset: self.offset, bytes })
    }

    fn bytes(&self, value: &str) -> std::result::Result<Vec<u8>, String> {
        let number = match &self.kind {
            Kind::Text if value.len() < self.size => {
                let mut bytes = value.as_bytes().to_vec();
                bytes.resize(self.size, 0);
                return Ok(bytes);
            }
            Kind::Text => return Err(format!("it has room for {} bytes", self.size.saturating_sub(1))),
            Kind::Other => return Err("it is no integer, enum or text".to_owned()),
            Kind::Bool => match value {
                "true" | "yes" | "1" => 1,
                "false" | "no" | "0" => 0,
                _ => return Err("it is true or false".to_owned()),
            },
            Kind::Enum(all) => match all.iter().find(|(name, _)| name == value) {
                Some((_, number)) => *number,
                None => number(value).ok_or_else(|| {
                    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
                    format!("it is a number or one of {}", names.join(", "))
                })?,
            },
            Kind::Int { .. } => number(value).ok_or("it is a number")?,
        };
        let bits = 8 * self.size.min(8) as u32;
        let (low, high) = match self.kind {
            Kind::Int { signed: false } => (0, (1i128 << bits) - 1),
            Kind::Int { signed: true } => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            _ => (-(1i128 << (bits - 1)), (1i128 << bits) - 1),
        };
        if !(low..=high).contains(&number) {
            return Err(format!("it is between {low} and {high}"));
        }
        Ok(number.to_le_bytes()[..self.size.min(8)].to_vec())
    }
}

impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn number(text: &str) -> Option<i128> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let radices = [("0x", 16), ("0b", 2), ("0o", 8)];
    let found = radices.into_iter().find_map(|(prefix, radix)| Some((digits.strip_prefix(prefix)?, radix)));
    let (digits, radix) = found.unwrap_or((digits, 10));
    let value = u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))?;
    Some(if negative { -i128::from(value) } else { i128::from(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(size: usize, kind: Kind) -> Constant {
        Constant { name: "n".into(), section: ".rodata".into(), offset: 0, size, kind }
    }

    #[test]
    fn settings_are_pairs() {
        let setting: Setting = "who=a=b".parse().unwrap();
        assert_eq!((setting.name.as_str(), setting.value.as_str()), ("who", "a=b"));
        for bad in ["", "who", "=1"] {
            assert_eq!(bad.parse::<Setting>().unwrap_err().kind(), ErrorKind::Options);
        }
    }

    #[test]
    fn values_become_bytes_of_the_type() {
        let unsigned = |size| constant(size, Kind::Int { signed: false });
        let signed = |size| constant(size, Kind::Int { signed: true });
        assert_eq!(unsigned(4).bytes("0x10"), Ok(vec![16, 0, 0, 0]));
        assert_eq!(unsigned(8).bytes("18446744073709551615"), Ok(vec![255; 8]));
        assert_eq!(unsigned(1).bytes("256"), Err("it is between 0 and 255".into()));
        assert_eq!(unsigned(2).bytes("-1"), Err("it is between 0 and 65535".into()));
        assert_eq!(signed(1).bytes("-128"), Ok(vec![128]));
        assert_eq!(signed(2).bytes("0b101"), Ok(vec![5, 0]));
        assert_eq!(signed(4).bytes("ten"), Err("it is a number".into()));
        assert_eq!(signed(4).bytes("0x-1"), Err("it is a number".into()));
        assert_eq!(constant(1, Kind::Bool).bytes("true"), Ok(vec![1]));
        assert_eq!(constant(1, Kind::Bool).bytes("2"), Err("it is true or false".into()));
        assert_eq!(constant(4, Kind::Text).bytes("abc"), Ok(b"abc\0".to_vec()));
        assert_eq!(constant(4, Kind::Text).bytes("abcd"), Err("it has room for 3 bytes".into()));
        let colours = constant(4, Kind::Enum(vec![("RED".into(), 0), ("BLUE".into(), 8)]));
        assert_eq!(colours.bytes("BLUE"), Ok(vec![8, 0, 0, 0]));
        assert_eq!(colours.bytes("PINK"), Err("it is a number or one of RED, BLUE".into()));
        assert!(constant(8, Kind::Other).bytes("1").is_err());
    }
}

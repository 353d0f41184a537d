//! `mem:ADDR[/LEN][:rwx]` (perf-record(1), uapi/linux/hw_breakpoint.h).

use afterimage_perf_data::Attr;

use super::parser::Part;
use super::{EventClass, EventSpec, SpecError, kind, modifier};
use crate::config::Rate;

const READ: u32 = 1;
const WRITE: u32 = 2;
const EXECUTE: u32 = 4;

/// Reads what follows `mem:`.
pub(super) fn parse(item: Part<'_>) -> Result<EventSpec, SpecError> {
    let rest = item.skip("mem:".len());
    let (place, tail) = rest.split_once(':');
    let (address, length) = place.split_once('/');
    let addr = number(address.text).ok_or_else(|| address.error("an address like 0x1234 is expected"))?;
    let (access, modifiers) = match tail {
        None => (None, None),
        Some(tail) => match tail.split_once(':') {
            (access, Some(modifiers)) => (Some(access), Some(modifiers)),
            (only, None) if access_bits(only.text).is_some() => (Some(only), None),
            (only, None) => (None, Some(only)),
        },
    };
    let access_error = |part: Part<'_>| part.error("an access made of r, w and x is expected");
    let bp_type = match access {
        None => READ | WRITE,
        Some(part) => access_bits(part.text).ok_or_else(|| access_error(part))?,
    };
    let bp_len = match length {
        Some(part) => number(part.text)
            .filter(|len| matches!(len, 1 | 2 | 4 | 8))
            .ok_or_else(|| part.error("a length of 1, 2, 4 or 8 bytes is expected"))?,
        None if bp_type == EXECUTE => size_of::<usize>() as u64,
        None => 4,
    };
    let attr = Attr { kind: kind::BREAKPOINT, bp_type, config1: addr, config2: bp_len, ..Attr::default() };
    let mut spec = EventSpec::parsed(item.text, attr, EventClass::Breakpoint);
    spec.default_rate = Some(Rate::Period(1));
    if let Some(part) = modifiers {
        if !modifier::is_modifier(part.text) {
            return Err(access_error(part));
        }
        modifier::apply(&mut spec, part.text).map_err(|what| part.error(what))?;
    }
    Ok(spec)
}

/// A decimal number, or a hexadecimal one after 0x.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with('+') => u64::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None if text.starts_with('+') => None,
        None => text.parse().ok(),
    }
}

fn access_bits(text: &str) -> Option<u32> {
    let mut bits = 0;
    for letter in text.chars() {
        let bit = match letter {
            'r' => READ,
            'w' => WRITE,
            'x' => EXECUTE,
            _ => return None,
        };
        if bits & bit != 0 {
            return None;
        }
        bits |= bit;
    }
    (bits != 0).then_some(bits)
}

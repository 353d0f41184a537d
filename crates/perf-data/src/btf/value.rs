//! A value of a type, taken apart.

use std::borrow::Cow;

use super::{DEEPEST, Type, Types, kind};
use crate::Endian;

/// Most steps that one value is taken apart in. Unions in unions would double them with each level.
const STEPS: u32 = 1 << 17;

/// What a value of a type is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'b> {
    /// A signed integer, whatever its size; also a part of one (a bit-field).
    Signed(i128),
    /// An unsigned one.
    Unsigned(u128),
    /// A `bool`.
    Bool(bool),
    /// A single `char`.
    Char(u8),
    /// An enumerator, or the number where there is none.
    Enum(Option<Cow<'b, str>>, i128),
    /// A pointer.
    Pointer(u64),
    /// A floating-point number.
    Float(f64),
    /// An array of `char`, up to its first NUL; what is no UTF-8 is replaced.
    Text(String),
    /// Another array.
    List(Vec<Value<'b>>),
    /// The members of a struct, or of a union, of which each shows the same bytes. Members of a member without a name stand
    /// among them.
    Fields(Vec<(Cow<'b, str>, Value<'b>)>),
    /// A part of which nothing can be said, and why.
    Absent(&'static str),
}

/// Why bytes cannot be read as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// The recording has no types for the handler.
    #[error("the recording has no types of the handler")]
    NoTypes,
    /// The handler's types cannot be read.
    #[error("the types of the handler are damaged")]
    BadTypes,
    /// The record does not hold what it says that it does.
    #[error("the record is damaged")]
    Damaged,
    /// There is no type of that number.
    #[error("the handler has no type {0}")]
    NoType(u32),
    /// The type has no values, or makes no sense.
    #[error("type {0} is none of values")]
    NoValues(u32),
    /// The value is shorter than its type.
    #[error("{there} of the type's {wanted} bytes")]
    Short {
        /// Bytes that there are.
        there: u64,
        /// Bytes of a value.
        wanted: u64,
    },
}

impl<'b> Types<'b> {
    /// Takes bytes apart as a value of a type. Of an array there may be less than the whole; bytes behind a value are left
    /// alone, but that an array without a length at the end of a struct takes them.
    ///
    /// # Errors
    /// When there is no such type, or too few bytes.
    pub fn value(&self, id: u32, bytes: &[u8]) -> Result<Value<'b>, Unreadable> {
        self.check(id, bytes)?;
        Ok(Walk { types: self, left: STEPS }.value(id, bytes, DEEPEST))
    }
}

impl<'b> Types<'b> {
    /// Whether the bytes can be taken apart as a value, or several, of a type.
    pub fn fits(&self, id: u32, bytes: &[u8]) -> bool {
        self.check(id, bytes).is_ok()
    }

    fn check(&self, id: u32, bytes: &[u8]) -> Result<(), Unreadable> {
        let (_, found) = self.plain(id).ok_or(Unreadable::NoType(id))?;
        let wanted = self.size(id).ok_or(Unreadable::NoValues(id))?;
        let there = bytes.len() as u64;
        if there < wanted && found.kind != kind::ARRAY {
            return Err(Unreadable::Short { there, wanted });
        }
        Ok(())
    }

    /// Takes bytes apart as [`Types::value`] does, or as a list of values where they are a multiple of one's size.
    ///
    /// # Errors
    /// As [`Types::value`].
    pub fn values(&self, id: u32, bytes: &[u8]) -> Result<Value<'b>, Unreadable> {
        let (_, found) = self.plain(id).ok_or(Unreadable::NoType(id))?;
        let size = self.size(id).and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
        let several = size != 0 && bytes.len() > size && bytes.len() % size == 0 && !self.is_open(&found);
        if several {
            Ok(Walk { types: self, left: STEPS }.list(id, size, bytes, DEEPEST))
        } else {
            self.value(id, bytes)
        }
    }

    /// Whether a struct ends in an array without a length, or what is an array has none.
    fn is_open(&self, found: &Type<'b>) -> bool {
        const W: &str = "BTF member";
        match found.kind {
            kind::ARRAY => found.array().is_none_or(|(_, count)| count == 0),
            kind::STRUCT => {
                let mut c = found.more;
                let skipped = c.take(u64::from(found.count.saturating_sub(1)) * 12 + 4, W);
                let last = skipped.and_then(|_| c.u32(W)).ok().filter(|_| found.count != 0);
                let last = last.and_then(|id| self.plain(id)).filter(|(_, of)| of.kind == kind::ARRAY);
                let last = last.and_then(|(_, of)| of.array());
                matches!(last, Some((_, 0)))
            }
            _ => false,
        }
    }
}

struct Walk<'w, 'b> {
    types: &'w Types<'b>,
    left: u32,
}

impl<'b> Walk<'_, 'b> {
    fn big(&self) -> bool {
        self.types.endian == Endian::Big
    }

    /// Whether so many steps more are allowed.
    fn steps(&mut self, steps: u32) -> bool {
        let enough = self.left >= steps;
        self.left = self.left.saturating_sub(steps);
        enough
    }

    fn value(&mut self, id: u32, bytes: &[u8], depth: u32) -> Value<'b> {
        if depth == 0 {
            return Value::Absent("nested too deep");
        }
        if !self.steps(1) {
            return Value::Absent("too many parts");
        }
        let Some((_, found)) = self.types.plain(id) else { return Value::Absent("no such type") };
        let cut = Value::Absent("cut short");
        match found.kind {
            kind::INT | kind::ENUM | kind::ENUM64 => {
                let bits = found.size_or_type.saturating_mul(8);
                match extract(bytes, 0, bits, self.big()) {
                    Some(_) if bits == 0 => Value::Absent("no size"),
                    Some(raw) => self.whole(&found, raw, bits),
                    None => cut,
                }
            }
            kind::PTR => match extract(bytes, 0, 64, self.big()) {
                Some(raw) => Value::Pointer(raw as u64),
                None => cut,
            },
            kind::FLOAT => {
                match (found.size_or_type, extract(bytes, 0, found.size_or_type.saturating_mul(8), self.big())) {
                    (4, Some(raw)) => Value::Float(f32::from_bits(raw as u32).into()),
                    (8, Some(raw)) => Value::Float(f64::from_bits(raw as u64)),
                    (4 | 8, None) => cut,
                    _ => Value::Absent("a float of an unusual size"),
                }
            }
            kind::ARRAY => self.array(&found, bytes, depth),
            kind::STRUCT | kind::UNION => {
                let mut fields = Vec::new();
                self.fields(&found, bytes, depth, &mut fields);
                Value::Fields(fields)
            }
            _ => Value::Absent("of no type that has values"),
        }
    }

    /// An integer or enumerator that fills its bytes: older compilers put the place of a bit-field here.
    fn whole(&mut self, found: &Type<'b>, raw: u128, bits: u32) -> Value<'b> {
        if found.kind != kind::INT {
            return self.scalar(found, raw, bits);
        }
        let encoding = found.more.clone().u32("BTF integer").unwrap_or(0);
        let (own, offset) = (encoding & 0xff, encoding >> 16 & 0xff);
        let up = if self.big() { bits.saturating_sub(own + offset) } else { offset };
        if own == 0 || own + offset > bits {
            return self.scalar(found, raw, bits);
        }
        self.scalar(found, raw >> up & mask(own), own)
    }

    /// What so many bits mean, the higher ones of `raw` being zero.
    fn scalar(&mut self, found: &Type<'b>, raw: u128, bits: u32) -> Value<'b> {
        const SIGNED: u32 = 1;
        const CHAR: u32 = 2;
        const BOOL: u32 = 4;
        let signed = || {
            let unused = 128 - bits.clamp(1, 128);
            (raw << unused) as i128 >> unused
        };
        if found.kind != kind::INT {
            let name = self.enumerator(found, raw, bits);
            return Value::Enum(name, if found.flag { signed() } else { raw as i128 });
        }
        let encoding = found.more.clone().u32("BTF integer").unwrap_or(0) >> 24;
        if encoding & BOOL != 0 {
            return Value::Bool(raw != 0);
        }
        if bits == 8 && (encoding & CHAR != 0 || self.types.string(found.name) == "char") {
            return Value::Char(raw as u8);
        }
        if encoding & SIGNED != 0 { Value::Signed(signed()) } else { Value::Unsigned(raw) }
    }

    /// The name of the enumerator whose lowest bits are these.
    fn enumerator(&mut self, found: &Type<'b>, raw: u128, bits: u32) -> Option<Cow<'b, str>> {
        const W: &str = "BTF enumerator";
        if !self.steps(found.count / 16) {
            return None;
        }
        let mut c = found.more;
        for _ in 0..found.count {
            let (name, low) = (c.u32(W).ok()?, c.u32(W).ok()?);
            let high = if found.kind == kind::ENUM64 {
                c.u32(W).ok()?
            } else if low >> 31 != 0 {
                u32::MAX
            } else {
                0
            };
            let value = u128::from(u64::from(high) << 32 | u64::from(low));
            if value & mask(bits.min(64)) == raw {
                return Some(self.types.string(name));
            }
        }
        None
    }

    fn array(&mut self, found: &Type<'b>, bytes: &[u8], depth: u32) -> Value<'b> {
        let Some((element, count)) = found.array() else { return Value::Absent("no such type") };
        let Some(size) = self.types.size(element).and_then(|size| usize::try_from(size).ok()) else {
            return Value::Absent("of no type that has values");
        };
        if size == 0 {
            return Value::List(Vec::new());
        }
        // Without a length it is what is there.
        let count = if count == 0 { usize::MAX } else { count as usize };
        self.list(element, size, &bytes[..bytes.len().min(size.saturating_mul(count))], depth)
    }

    /// Values of one type and size, which is not 0, one behind the other; a text, where these are characters.
    fn list(&mut self, element: u32, size: usize, bytes: &[u8], depth: u32) -> Value<'b> {
        let Some((_, of)) = self.types.plain(element) else { return Value::Absent("no such type") };
        if size == 1 && of.kind == kind::INT && matches!(self.whole(&of, 0, 8), Value::Char(_)) {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            // A union may have the same text as its member thousands of times.
            if !self.steps(1 + (end / 64) as u32) {
                return Value::Absent("too many parts");
            }
            return Value::Text(String::from_utf8_lossy(&bytes[..end]).into_owned());
        }
        let mut items = Vec::new();
        for bytes in bytes.chunks_exact(size) {
            items.push(self.value(element, bytes, depth - 1));
            if self.left == 0 {
                break;
            }
        }
        Value::List(items)
    }

    fn fields(&mut self, found: &Type<'b>, bytes: &[u8], depth: u32, to: &mut Vec<(Cow<'b, str>, Value<'b>)>) {
        const W: &str = "BTF member";
        let mut c = found.more;
        for _ in 0..found.count {
            let (Ok(name), Ok(id), Ok(place)) = (c.u32(W), c.u32(W), c.u32(W)) else { return };
            if !self.steps(1) || depth <= 1 {
                to.push((self.types.string(name), Value::Absent("too many parts")));
                return;
            }
            let (at, bits) = if found.flag { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
            let name = self.types.string(name);
            let inner = self.types.plain(id);
            if bits != 0 || at % 8 != 0 {
                to.push((name, self.bit_field(inner.map(|(_, of)| of), bytes, at, bits)));
                continue;
            }
            let there = bytes.get(at as usize / 8..).unwrap_or_default();
            // An array without a length takes all that is left.
            let size = self.types.size(id).filter(|size| *size != 0).and_then(|size| usize::try_from(size).ok());
            let there = &there[..size.unwrap_or(there.len()).min(there.len())];
            match inner {
                Some((_, of)) if name.is_empty() && matches!(of.kind, kind::STRUCT | kind::UNION) => {
                    self.fields(&of, there, depth - 1, to);
                }
                _ => to.push((name, self.value(id, there, depth - 1))),
            }
        }
    }

    fn bit_field(&mut self, found: Option<Type<'b>>, bytes: &[u8], at: u32, bits: u32) -> Value<'b> {
        let Some(found) = found.filter(|of| matches!(of.kind, kind::INT | kind::ENUM | kind::ENUM64)) else {
            return Value::Absent("a bit-field of no integer");
        };
        let own = found.more.clone().u32("BTF integer").unwrap_or(0) & 0xff;
        let bits = match bits {
            0 if found.kind == kind::INT && own != 0 => own,
            0 => found.size_or_type.saturating_mul(8),
            bits => bits,
        };
        match extract(bytes, at, bits, self.big()) {
            Some(raw) => self.scalar(&found, raw, bits),
            None => Value::Absent("cut short"),
        }
    }
}

fn mask(bits: u32) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

/// The number in so many bits, the first of which is bit `at`; counted from the lowest bit of the first byte, or on big-endian
/// machines from the highest.
fn extract(bytes: &[u8], at: u32, bits: u32, big: bool) -> Option<u128> {
    let low = at % 8;
    let len = (low.checked_add(bits)?).div_ceil(8);
    if len > 16 {
        return None;
    }
    let bytes = bytes.get(at as usize / 8..)?.get(..len as usize)?;
    let add = |number: u128, byte: &u8| number << 8 | u128::from(*byte);
    let (number, down) =
        if big { (bytes.iter().fold(0, add), len * 8 - low - bits) } else { (bytes.iter().rev().fold(0, add), low) };
    Some(number.checked_shr(down).unwrap_or(0) & mask(bits))
}

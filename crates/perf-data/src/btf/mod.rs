//! Types as BTF describes them (linux/btf.h, Documentation/bpf/btf.rst), and values of these types.
//!
//! ```text
//!   btf_header │ types: { name, info: kind and count, size or type } and what the kind adds, one behind the other │ strings
//! ```
//!
//! A type's id is its place in that row, counted from 1; 0 is `void`. Nothing here trusts an id, an offset or a count:
//! chains of types are followed for so many steps, and a value is made of so many parts, and no more.

mod show;
mod value;

use std::borrow::Cow;

use crate::bytes::{Cursor, until_nul};
use crate::{Endian, Error, ErrorKind, Result};

pub use value::{Unreadable, Value};

/// `BTF_MAGIC`.
const MAGIC: u16 = 0xeb9f;
/// Longer names are cut. The kernel's own limit is 128 bytes.
const NAME_MAX: usize = 512;
/// Most types that lead from one to the next: qualifiers, typedefs, arrays of arrays, structs in structs.
const DEEPEST: u32 = 32;

/// `BTF_KIND_*`, as far as they are asked for.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FWD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// Bytes that a kind has behind `struct btf_type`; `None` for a kind that is not known.
fn bytes_behind(kind: u32, count: u32) -> Option<u64> {
    let (fixed, each) = match kind {
        kind::INT | kind::VAR | kind::DECL_TAG => (4, 0),
        kind::ARRAY => (12, 0),
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => (0, 12),
        kind::ENUM | kind::FUNC_PROTO => (0, 8),
        kind::PTR
        | kind::FWD
        | kind::TYPEDEF
        | kind::VOLATILE
        | kind::CONST
        | kind::RESTRICT
        | kind::FUNC
        | kind::FLOAT
        | kind::TYPE_TAG => (0, 0),
        _ => return None,
    };
    Some(fixed + u64::from(count) * each)
}

/// The types of one object.
#[derive(Clone, Debug, Default)]
pub struct Types<'b> {
    endian: Endian,
    types: &'b [u8],
    strings: &'b [u8],
    /// Where each type begins in `types`; the first is type 1.
    starts: Vec<u32>,
}

/// One type.
#[derive(Clone, Copy)]
struct Type<'b> {
    name: u32,
    kind: u32,
    count: u32,
    flag: bool,
    /// Bytes of a value, or another type's id, by the kind.
    size_or_type: u32,
    /// What the kind adds.
    more: Cursor<'b>,
}

impl<'b> Types<'b> {
    /// Reads types. Those from the first one of an unknown kind on are not there.
    ///
    /// # Errors
    /// When the header is none, the parts lie outside, or a type is cut short.
    pub fn parse(btf: &'b [u8]) -> Result<Self> {
        const W: &str = "BTF";
        let endian = match btf.first_chunk::<2>() {
            Some(magic) if u16::from_le_bytes(*magic) == MAGIC => Endian::Little,
            Some(magic) if u16::from_be_bytes(*magic) == MAGIC => Endian::Big,
            _ => return Err(Error::at(ErrorKind::BadValue, "magic of BTF", 0)),
        };
        let mut c = Cursor::new(btf, 0, endian);
        c.take(4, W)?;
        let header = c.u32(W)?;
        let mut part = || {
            let (offset, len) = (c.u32(W)?, c.u32(W)?);
            let mut c = Cursor::new(btf, 0, endian);
            c.take(u64::from(header) + u64::from(offset), W)?;
            c.take(len.into(), W)
        };
        let (types, strings) = (part()?, part()?);
        let mut this = Types { endian, types, strings, starts: Vec::new() };
        let mut c = Cursor::new(types, 0, endian);
        while !c.rest().is_empty() {
            let start = c.at();
            let found = Type::read(&mut c)?;
            let Some(behind) = bytes_behind(found.kind, found.count) else { break };
            c.take(behind, W)?;
            this.starts.push(u32::try_from(start).unwrap_or(u32::MAX));
        }
        Ok(this)
    }

    /// How many types there are, `void` not counted.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The first type of this name, as [`Types::name`] gives it.
    pub fn find(&self, name: &str) -> Option<u32> {
        (1..=self.len() as u32).find(|id| self.name(*id) == name)
    }

    fn get(&self, id: u32) -> Option<Type<'b>> {
        let start = *self.starts.get((id as usize).checked_sub(1)?)?;
        let mut c = Cursor::new(self.types.get(start as usize..)?, 0, self.endian);
        Type::read(&mut c).ok()
    }

    /// The type behind typedefs, qualifiers and variables.
    fn plain(&self, mut id: u32) -> Option<(u32, Type<'b>)> {
        for _ in 0..DEEPEST {
            let found = self.get(id)?;
            match found.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG | kind::VAR => {
                    id = found.size_or_type;
                }
                _ => return Some((id, found)),
            }
        }
        None
    }

    /// Bytes of a value of this type. `None` for what has no values, and for what makes no sense.
    pub fn size(&self, id: u32) -> Option<u64> {
        let (mut id, mut times) = (id, 1_u64);
        for _ in 0..DEEPEST {
            let (_, found) = self.plain(id)?;
            let size = match found.kind {
                kind::INT | kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64 | kind::FLOAT | kind::DATASEC => {
                    found.size_or_type.into()
                }
                // Those of BPF have 8 bytes on every machine.
                kind::PTR => 8,
                kind::ARRAY => {
                    let (element, count) = found.array()?;
                    times = times.checked_mul(count.into())?;
                    id = element;
                    continue;
                }
                _ => return None,
            };
            return times.checked_mul(size);
        }
        None
    }

    /// The name of a type as C writes it, without qualifiers: `struct hit`, `u64`, `char[16]`, `struct hit *`.
    pub fn name(&self, id: u32) -> Cow<'b, str> {
        let (mut id, mut behind) = (id, String::new());
        for _ in 0..DEEPEST {
            let Some(found) = self.get(id) else {
                return if id == 0 { format!("void{behind}").into() } else { format!("type {id}").into() };
            };
            let word = match found.kind {
                kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG | kind::VAR => {
                    id = found.size_or_type;
                    continue;
                }
                kind::PTR => {
                    behind.insert_str(0, " *");
                    id = found.size_or_type;
                    continue;
                }
                kind::ARRAY => {
                    let (element, count) = found.array().unwrap_or_default();
                    // Of an array of arrays the outer count stands first.
                    behind.push_str(&format!("[{count}]"));
                    id = element;
                    continue;
                }
                kind::STRUCT => "struct ",
                kind::UNION => "union ",
                kind::ENUM | kind::ENUM64 => "enum ",
                kind::FWD if found.flag => "union ",
                kind::FWD => "struct ",
                kind::FUNC_PROTO => "function",
                _ => "",
            };
            let name = self.string(found.name);
            if word.is_empty() && behind.is_empty() {
                return name;
            }
            let name = if name.is_empty() && word.ends_with(' ') { "(anonymous)" } else { &name };
            return format!("{word}{name}{behind}").into();
        }
        format!("type {id}").into()
    }

    fn string(&self, offset: u32) -> Cow<'b, str> {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        String::from_utf8_lossy(until_nul(&rest[..rest.len().min(NAME_MAX)]))
    }
}

impl<'b> Type<'b> {
    fn read(c: &mut Cursor<'b>) -> Result<Self> {
        const W: &str = "BTF type";
        let (name, info, size_or_type) = (c.u32(W)?, c.u32(W)?, c.u32(W)?);
        let (kind, count, flag) = (info >> 24 & 0x1f, info & 0xffff, info >> 31 != 0);
        Ok(Type { name, kind, count, flag, size_or_type, more: *c })
    }

    /// Of an array, its elements' type and how many there are.
    fn array(&self) -> Option<(u32, u32)> {
        const W: &str = "BTF array";
        let mut c = self.more;
        let (element, _, count) = (c.u32(W).ok()?, c.u32(W).ok()?, c.u32(W).ok()?);
        Some((element, count))
    }
}

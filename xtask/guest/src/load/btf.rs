//! Type information: a writer for the names of functions, and a look for one function or structure of the kernel
//! (Documentation/bpf/btf.rst; little endian, as the machine is).

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
const KIND_INT: u32 = 1;
const KIND_STRUCT: u32 = 4;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
/// Type 1 is `int`, 2 is `int (int x)`, the functions follow.
const INT: u32 = 1;
const PROTO: u32 = 2;

/// The type of the first function in what [`functions`] writes; the others follow.
pub(crate) const FIRST_FUNCTION: u32 = 3;

/// Type information of static functions `int name(int x)`.
pub(crate) fn functions<'a>(names: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut strings = vec![0u8];
    let mut text = |name: &str| {
        let at = strings.len() as u32;
        strings.extend_from_slice(name.as_bytes());
        strings.push(0);
        at
    };
    // Signed, 32 bits from bit 0.
    let mut types = vec![text("int"), KIND_INT << 24, 4, 1 << 24 | 32];
    types.extend([0, KIND_FUNC_PROTO << 24 | 1, INT, text("x"), INT]);
    for name in names {
        types.extend([text(name), KIND_FUNC << 24, PROTO]);
    }
    let type_len = types.len() as u32 * 4;
    let mut out = Vec::new();
    out.extend(MAGIC.to_le_bytes());
    out.extend([1, 0]);
    for word in [HEADER as u32, 0, type_len, type_len, strings.len() as u32] {
        out.extend(word.to_le_bytes());
    }
    types.iter().for_each(|word| out.extend(word.to_le_bytes()));
    out.extend(strings);
    out
}

/// The number of the type of function `wanted` in `btf`; None where it is not, or where `btf` is damaged.
pub(crate) fn function_id(btf: &[u8], wanted: &str) -> Option<u32> {
    Types::of(btf)?.find(|found| found.kind() == KIND_FUNC && is_text(found.name, wanted)).map(|found| found.id)
}

/// A structure of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Struct {
    /// The number of its type.
    pub(crate) id: u32,
    /// Its size in bytes.
    pub(crate) size: u32,
    /// The members in their order: name, and place in bytes.
    members: Vec<(String, u32)>,
}

impl Struct {
    /// The structure of that name in `btf`; None where it is not, or where `btf` is damaged.
    pub(crate) fn find(btf: &[u8], wanted: &str) -> Option<Struct> {
        let mut types = Types::of(btf)?;
        let found = types.find(|found| found.kind() == KIND_STRUCT && is_text(found.name, wanted))?;
        let member = |words: &[u8]| {
            let name = types.strings.get(word(words, 0)? as usize..)?;
            let name = name.split(|byte| *byte == 0).next()?;
            // Where bit fields are about, only the lower half says where a member begins.
            let bits = word(words, 8)? & if found.info >> 31 == 1 { 0xff_ffff } else { u32::MAX };
            Some((String::from_utf8_lossy(name).into_owned(), bits / 8))
        };
        let members = found.rest.chunks_exact(12).map(member).collect::<Option<Vec<_>>>()?;
        Some(Struct { id: found.id, size: found.size, members })
    }

    /// The number and the place of a member.
    pub(crate) fn member(&self, wanted: &str) -> Option<(u32, u32)> {
        let at = self.members.iter().position(|(name, _)| name == wanted)?;
        Some((at as u32, self.members[at].1))
    }
}

/// One type.
struct Type<'b> {
    /// Its number.
    id: u32,
    /// The names from its own on.
    name: &'b [u8],
    info: u32,
    /// Its size in bytes, or the type it refers to.
    size: u32,
    /// What follows the words that every type has.
    rest: &'b [u8],
}

impl Type<'_> {
    fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }
}

/// The types one after the other, up to the first that is damaged.
struct Types<'b> {
    types: &'b [u8],
    strings: &'b [u8],
    id: u32,
}

impl<'b> Types<'b> {
    fn of(btf: &'b [u8]) -> Option<Types<'b>> {
        let header = word(btf, 4)? as usize;
        let section = |at: usize, len: usize| {
            let start = header.checked_add(word(btf, at)? as usize)?;
            btf.get(start..start.checked_add(word(btf, len)? as usize)?)
        };
        Some(Types { types: section(8, 12)?, strings: section(16, 20)?, id: 0 })
    }
}

impl<'b> Iterator for Types<'b> {
    type Item = Type<'b>;

    fn next(&mut self) -> Option<Type<'b>> {
        let (name, info, size) = (word(self.types, 0)? as usize, word(self.types, 4)?, word(self.types, 8)?);
        let end = 12 + tail(info >> 24 & 0x1f, (info & 0xffff) as usize)?;
        let rest = self.types.get(12..end)?;
        self.types = &self.types[end..];
        self.id += 1;
        Some(Type { id: self.id, name: self.strings.get(name..)?, info, size, rest })
    }
}

/// How many bytes follow the 12 that every type has.
fn tail(kind: u32, count: usize) -> Option<usize> {
    match kind {
        1 | 14 | 17 => Some(4),
        2 | 7..=12 | 16 | 18 => Some(0),
        3 => Some(12),
        4 | 5 | 15 | 19 => Some(12 * count),
        6 | 13 => Some(8 * count),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn is_text(strings: &[u8], wanted: &str) -> bool {
    strings.strip_prefix(wanted.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_function_is_found_by_its_whole_name() {
        let btf = functions(["load_main", "load"].into_iter());
        assert_eq!(function_id(&btf, "load_main"), Some(FIRST_FUNCTION));
        assert_eq!(function_id(&btf, "load"), Some(FIRST_FUNCTION + 1));
        for missing in ["x", "load_mai", "load_main_", "int"] {
            assert_eq!(function_id(&btf, missing), None, "{missing}");
        }
    }

    #[test]
    fn members_are_numbered_and_have_their_places() {
        let btf = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
        if let Some(list) = Struct::find(&btf, "list_head") {
            let both = [list.member("next"), list.member("prev"), list.member("nex")];
            assert_eq!((list.size, both), (16, [Some((0, 0)), Some((1, 8)), None]));
        }
        assert_eq!(Struct::find(&functions(["load_main"].into_iter()), "load_main"), None);
    }

    #[test]
    fn damage_is_no_function() {
        let whole = functions(["load_main"].into_iter());
        for len in 0..whole.len() {
            assert_eq!(function_id(&whole[..len], "load_main"), None, "{len} bytes");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0xff;
            let _ = function_id(&flipped, "load_main");
        }
    }
}

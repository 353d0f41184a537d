//! Type information: a writer for the names of functions, and a look for one function of the kernel
//! (Documentation/bpf/btf.rst; little endian, as the machine is).

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
const KIND_INT: u32 = 1;
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
    let header = word(btf, 4)? as usize;
    let section = |at: usize, len: usize| {
        let start = header.checked_add(word(btf, at)? as usize)?;
        btf.get(start..start.checked_add(word(btf, len)? as usize)?)
    };
    let (types, strings) = (section(8, 12)?, section(16, 20)?);
    let (mut at, mut id) = (0, 1);
    while at < types.len() {
        let (name, info) = (word(types, at)? as usize, word(types, at + 4)?);
        let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        if kind == KIND_FUNC && is_text(strings.get(name..)?, wanted) {
            return Some(id);
        }
        at += 12 + tail(kind, count)?;
        id += 1;
    }
    None
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

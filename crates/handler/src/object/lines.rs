//! Source lines of instructions, from the sections .BTF and .BTF.ext (Documentation/bpf/btf.rst).

/// A line of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) file: String,
    pub(super) number: u32,
    pub(super) text: String,
}

/// What .BTF.ext tells: by name of the section and offset in it.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) lines: Vec<(String, usize, Line)>,
    /// Instructions that are rewritten by the kernel's types.
    pub(super) rewritten: Vec<(String, usize)>,
}

const MAGIC: u32 = 0xeb9f;
/// Offset and length of a part stand here in the header of .BTF.ext.
const LINE_INFO: usize = 16;
const CORE_RELOCATIONS: usize = 24;

/// Reads both sections; what is damaged tells nothing.
pub(super) fn read(btf: &[u8], ext: &[u8]) -> Told {
    read_all(btf, ext).unwrap_or_default()
}

fn read_all(btf: &[u8], ext: &[u8]) -> Option<Told> {
    let strings = strings(btf)?;
    let mut told = Told::default();
    each(ext, LINE_INFO, strings, |section, record| {
        let [offset, file, text, line] = [0, 4, 8, 12].map(|at| word(record, at).unwrap_or(0));
        let line =
            Line { file: string(strings, file), number: line >> 10, text: string(strings, text).trim().to_owned() };
        told.lines.push((section.to_owned(), offset as usize, line));
    });
    each(ext, CORE_RELOCATIONS, strings, |section, record| {
        told.rewritten.push((section.to_owned(), word(record, 0).unwrap_or(0) as usize));
    });
    Some(told)
}

/// Hands out the records of one part of .BTF.ext: the size of a record, then for each section its name, a count, records.
fn each(ext: &[u8], part: usize, strings: &[u8], mut f: impl FnMut(&str, &[u8])) -> Option<()> {
    let header = header(ext)?;
    if header < part + 8 {
        return None;
    }
    let (at, len) = (word(ext, part)? as usize, word(ext, part + 4)? as usize);
    let mut rest = ext.get(header..)?.get(at..)?.get(..len)?;
    let size = word(rest, 0)? as usize;
    rest = &rest[4..];
    while size >= 4 && rest.len() >= 8 {
        let (name, count) = (string(strings, word(rest, 0)?), word(rest, 4)? as usize);
        let records = rest.get(8..)?.get(..count.checked_mul(size)?)?;
        records.chunks_exact(size).for_each(|record| f(&name, record));
        rest = rest.get(8 + records.len()..)?;
    }
    Some(())
}

fn header(section: &[u8]) -> Option<usize> {
    (word(section, 0)? & 0xffff == MAGIC).then_some(word(section, 4)? as usize)
}

fn strings(btf: &[u8]) -> Option<&[u8]> {
    let header = header(btf)?;
    btf.get(header..)?.get(word(btf, 16)? as usize..)?.get(..word(btf, 20)? as usize)
}

fn string(strings: &[u8], at: u32) -> String {
    let rest = strings.get(at as usize..).unwrap_or_default();
    String::from_utf8_lossy(rest.split(|&b| b == 0).next().unwrap_or_default()).into_owned()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.get(..4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_tells_nothing_and_breaks_nothing() {
        let whole = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, b'a', b'b', 0];
        let mut ext = vec![0x9f, 0xeb, 1, 0];
        for word in [32u32, 0, 0, 0, 28, 0, 0, 16, 1, 1, 0, 1, 1, 5 << 10] {
            ext.extend(word.to_le_bytes());
        }
        let told = read(&whole, &ext);
        let line = Line { file: "ab".into(), number: 5, text: "ab".into() };
        assert_eq!(told.lines, [("ab".to_owned(), 0, line)]);
        for cut in 0..ext.len() {
            assert!(read(&whole, &ext[..cut]).lines.len() <= 1);
            assert!(read(&whole[..cut.min(whole.len())], &ext).lines.len() <= 1);
        }
    }
}

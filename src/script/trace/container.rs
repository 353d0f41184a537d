//! The TRACING_DATA section: a magic number and a version, two header formats, then the text of each event's format, the
//! kernel's symbols, and texts that records point to.

const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// What the section holds, as far as it goes.
#[derive(Debug)]
pub(super) struct Contents<'s> {
    /// The texts of the formats.
    pub(super) formats: Vec<&'s str>,
    /// Lines of `ADDRESS : "text"`, which the kernel has in `printk_formats`.
    pub(super) strings: &'s str,
    /// The numbers of records have their lowest byte first.
    pub(super) little: bool,
}

/// Reads the section.
pub(super) fn read(section: &[u8]) -> Contents<'_> {
    let mut contents = Contents { formats: Vec::new(), strings: "", little: true };
    let _ = read_all(&mut Bytes { rest: section, little: true }, &mut contents);
    contents
}

fn read_all<'s>(bytes: &mut Bytes<'s>, contents: &mut Contents<'s>) -> Option<()> {
    (bytes.take(MAGIC.len())? == MAGIC).then_some(())?;
    bytes.string()?;
    bytes.little = bytes.take(1)?[0] == 0;
    contents.little = bytes.little;
    // The size of a long, and of a page.
    bytes.take(1 + 4)?;
    for _ in 0..2 {
        bytes.string()?;
        let size = bytes.u64()?;
        bytes.take(size)?;
    }
    // Events of the function tracer, of which perf has none.
    let count = bytes.u32()?;
    texts_of(bytes, count, &mut contents.formats)?;
    let systems = bytes.u32()?;
    for _ in 0..systems {
        bytes.string()?;
        let count = bytes.u32()?;
        texts_of(bytes, count, &mut contents.formats)?;
    }
    let symbols = bytes.u32()?;
    bytes.take(symbols as usize)?;
    let strings = bytes.u32()?;
    contents.strings = std::str::from_utf8(bytes.take(strings as usize)?).ok()?;
    Some(())
}

fn texts_of<'s>(bytes: &mut Bytes<'s>, count: u32, texts: &mut Vec<&'s str>) -> Option<()> {
    for _ in 0..count {
        let size = bytes.u64()?;
        texts.extend(std::str::from_utf8(bytes.take(size)?).ok());
    }
    Some(())
}

struct Bytes<'s> {
    rest: &'s [u8],
    little: bool,
}

impl<'s> Bytes<'s> {
    fn take(&mut self, size: usize) -> Option<&'s [u8]> {
        let (taken, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        Some(taken)
    }

    fn string(&mut self) -> Option<&'s [u8]> {
        let end = self.rest.iter().position(|b| *b == 0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(text)
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.try_into().ok()?;
        Some(if self.little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn u64(&mut self) -> Option<usize> {
        let bytes = self.take(8)?.try_into().ok()?;
        let number = if self.little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) };
        usize::try_from(number).ok()
    }
}

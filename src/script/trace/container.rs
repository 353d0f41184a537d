//! The TRACING_DATA section: a magic number and a version, two header formats, then the text of each event's format.

const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// The texts of the formats, as far as the section goes.
pub(super) fn formats(section: &[u8]) -> Vec<&str> {
    let mut texts = Vec::new();
    let _ = read(&mut Bytes { rest: section, little: true }, &mut texts);
    texts
}

fn read<'s>(bytes: &mut Bytes<'s>, texts: &mut Vec<&'s str>) -> Option<()> {
    (bytes.take(MAGIC.len())? == MAGIC).then_some(())?;
    bytes.string()?;
    bytes.little = bytes.take(1)?[0] == 0;
    // The size of a long, and of a page.
    bytes.take(1 + 4)?;
    for _ in 0..2 {
        bytes.string()?;
        let size = bytes.u64()?;
        bytes.take(size)?;
    }
    // Events of the function tracer, of which perf has none.
    let count = bytes.u32()?;
    texts_of(bytes, count, texts)?;
    let systems = bytes.u32()?;
    for _ in 0..systems {
        bytes.string()?;
        let count = bytes.u32()?;
        texts_of(bytes, count, texts)?;
    }
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

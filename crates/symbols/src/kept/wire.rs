//! The bytes of a kept object. `docs/format.md` describes them (kind 13).

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::lines::{Frame, NOTHING};
use super::{FileName, KeptContent, KeptLines, KeptObject, ObjectName};
use crate::bytes::{Cursor, put_block, seal, unseal};
use crate::notes::MAX_BUILD_ID;
use crate::{Machine, Reason, SymbolTable};

/// The last byte is the version of the layout.
const MAGIC: &[u8; 8] = b"AIKEPT\0\x01";

const MACHINES: [(Machine, u32); 4] =
    [(Machine::Other, 0), (Machine::X86_64, 1), (Machine::X86, 2), (Machine::Aarch64, 3)];

/// Bits of the flags.
const NAMED: u32 = 1;
const JIT: u32 = 2;

impl KeptObject {
    /// Its bytes, checksummed.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_name(&mut out, &self.of);
        match &self.content {
            Err(reason) => put_block(&mut out, reason.key().as_bytes()),
            Ok(content) => {
                put_block(&mut out, b"");
                put_content(&mut out, content);
            }
        }
        KeptObject::seal(&out)
    }

    pub(crate) fn seal(payload: &[u8]) -> Vec<u8> {
        seal(MAGIC, payload)
    }

    /// What [`encode`](KeptObject::encode) made, or `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<KeptObject> {
        KeptObject::decode_payload(unseal(MAGIC, bytes)?)
    }

    /// The same without the checksum.
    pub(crate) fn decode_payload(bytes: &[u8]) -> Option<KeptObject> {
        let mut c = Cursor(bytes);
        let of = name(&mut c)?;
        let reason = c.block()?;
        let content = match reason {
            b"" => Ok(Arc::new(content(&mut c)?)),
            // A reason of a newer version is one all the same.
            key => Err(std::str::from_utf8(key).ok().and_then(Reason::of_key).unwrap_or(Reason::NoFile)),
        };
        c.0.is_empty().then_some(KeptObject { of, content })
    }
}

pub(super) fn put_name(out: &mut Vec<u8>, of: &ObjectName) {
    put_block(out, &of.path);
    match &of.file {
        FileName::Path => out.extend(0u32.to_le_bytes()),
        FileName::Inode(major, minor, inode, generation) => {
            [1, *major, *minor].iter().for_each(|word| out.extend(word.to_le_bytes()));
            [inode, generation].iter().for_each(|word| out.extend(word.to_le_bytes()));
        }
        FileName::BuildId(id) => {
            out.extend(2u32.to_le_bytes());
            put_block(out, id);
        }
    }
    let (has, pid, delta) = of.own.map_or((0u32, 0u32, 0u64), |(pid, delta)| (1, pid, delta));
    [has, pid].iter().for_each(|word| out.extend(word.to_le_bytes()));
    out.extend(delta.to_le_bytes());
}

pub(super) fn name(c: &mut Cursor<'_>) -> Option<ObjectName> {
    let path = c.block()?.to_vec();
    let file = match c.u32()? {
        0 => FileName::Path,
        1 => FileName::Inode(c.u32()?, c.u32()?, c.u64()?, c.u64()?),
        2 => FileName::BuildId(c.block().filter(|id| id.len() <= MAX_BUILD_ID)?.to_vec()),
        _ => return None,
    };
    let (has, pid, delta) = (c.u32()?, c.u32()?, c.u64()?);
    Some(ObjectName { path, file, own: (has != 0).then_some((pid, delta)) })
}

/// The number of a machine.
pub(super) fn machine_code(machine: Machine) -> u32 {
    MACHINES.iter().find(|(known, _)| *known == machine).map_or(0, |(_, code)| *code)
}

/// The machine of a number.
pub(super) fn machine_of_code(code: u32) -> Machine {
    MACHINES.iter().find(|(_, known)| *known == code).map_or(Machine::Other, |(machine, _)| *machine)
}

fn put_content(out: &mut Vec<u8>, content: &KeptContent) {
    let machine = machine_code(content.machine);
    let flags = if content.named { NAMED } else { 0 } | if content.jit { JIT } else { 0 };
    [machine, flags].iter().for_each(|word| out.extend(word.to_le_bytes()));
    put_block(out, content.path.as_os_str().as_bytes());
    put_block(out, &content.table.encode());
    out.extend((content.code.len() as u64).to_le_bytes());
    for (start, bytes) in &content.code {
        out.extend(start.to_le_bytes());
        put_block(out, bytes);
    }
    put_lines(out, &content.lines);
}

fn content(c: &mut Cursor<'_>) -> Option<KeptContent> {
    let machine = machine_of_code(c.u32()?);
    let flags = c.u32()?;
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(c.block()?));
    let table = SymbolTable::decode(c.block()?)?;
    let mut code: Vec<(u64, Vec<u8>)> = Vec::new();
    for _ in 0..c.count()? {
        let (start, bytes) = (c.u64()?, c.block()?);
        // In order, and none within another.
        let behind = code.last().is_none_or(|(last, bytes)| {
            last.checked_add(bytes.len() as u64).is_some_and(|end| end <= start) && *last < start
        });
        if !behind {
            return None;
        }
        code.push((start, bytes.to_vec()));
    }
    let lines = Arc::new(lines(c)?);
    let (named, jit) = (flags & NAMED != 0, flags & JIT != 0);
    Some(KeptContent { table, named, jit, machine, path, code, lines })
}

fn put_lines(out: &mut Vec<u8>, lines: &KeptLines) {
    let counts = [lines.strings.len(), lines.frames.len(), lines.chains.len(), lines.links.len(), lines.rows.len()];
    counts.iter().for_each(|count| out.extend((*count as u64).to_le_bytes()));
    lines.strings.iter().for_each(|text| put_block(out, text.as_bytes()));
    for frame in &lines.frames {
        let words = [frame.function, frame.file, frame.text, frame.line, frame.column];
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    }
    lines.chains.iter().chain(&lines.links).for_each(|word| out.extend(word.to_le_bytes()));
    lines.rows.iter().for_each(|(start, _)| out.extend(start.to_le_bytes()));
    lines.rows.iter().for_each(|(_, chain)| out.extend(chain.to_le_bytes()));
}

fn lines(c: &mut Cursor<'_>) -> Option<KeptLines> {
    let [strings, frames, chains, links, rows] = [c.count()?, c.count()?, c.count()?, c.count()?, c.count()?];
    let mut texts: Vec<Arc<str>> = Vec::new();
    for _ in 0..strings {
        texts.push(std::str::from_utf8(c.block()?).ok()?.into());
    }
    let words = c.words(frames.checked_mul(5)?, u32::from_le_bytes)?;
    let frame = |words: &[u32]| match *words {
        [function, file, text, line, column] => Some(Frame { function, file, text, line, column }),
        _ => None,
    };
    let frames: Vec<Frame> = words.chunks_exact(5).filter_map(frame).collect();
    let chains = c.words(chains, u32::from_le_bytes)?;
    let links = c.words(links, u32::from_le_bytes)?;
    let starts = c.words(rows, u64::from_le_bytes)?;
    let of_rows = c.words(rows, u32::from_le_bytes)?;
    let rows: Vec<(u64, u32)> = starts.into_iter().zip(of_rows).collect();
    let ascending = rows.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0));
    let in_order = chains.windows(2).all(|pair| matches!(pair, [a, b] if a <= b));
    let known = links.iter().all(|link| (*link as usize) < frames.len())
        && chains.iter().all(|chain| (*chain as usize) <= links.len())
        && rows.iter().all(|(_, chain)| *chain == NOTHING || (*chain as usize) < chains.len())
        && frames.iter().flat_map(|f| [f.function, f.file, f.text]).all(|text| (text as usize) <= texts.len());
    (ascending && in_order && known).then_some(KeptLines { strings: texts, frames, chains, links, rows })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_could_not_be_had_is_kept_with_its_reason() {
        let names = [FileName::Path, FileName::Inode(8, 1, 77, 3), FileName::BuildId(vec![1, 2, 3])];
        for (file, own) in names.into_iter().zip([None, Some((7, u64::MAX)), None]) {
            let of = ObjectName { path: b"/opt/x (deleted)".to_vec(), file, own };
            let kept = KeptObject { of, content: Err(Reason::Deleted) };
            assert_eq!(KeptObject::decode(&kept.encode()).unwrap(), kept);
        }
    }

    proptest! {
        /// Behind a right checksum, any bytes are an object or none.
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(lines(&mut Cursor(&bytes)).is_none_or(|lines| lines.rows.len() <= bytes.len()));
            let _ = KeptObject::decode(&seal(MAGIC, &bytes));
        }
    }
}

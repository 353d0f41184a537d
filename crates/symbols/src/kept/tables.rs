//! The unwind tables of an object, so that copied stacks come out elsewhere as they did at home. `docs/format.md` describes the
//! bytes (kind 15).

use std::sync::Arc;

use super::ObjectName;
use super::wire::{machine_code, machine_of_code, name, put_name};
use crate::bytes::{Cursor, put_block, seal, unseal};
use crate::elf::Segment;
use crate::unwind::MAX_SECTION;
use crate::{Placed, Reason, UnwindSections};

/// The last byte is the version of the layout.
const MAGIC: &[u8; 8] = b"AIUNWT\0\x01";

/// Bits of the flags.
const LEFT_OUT: u32 = 1;

/// One object of a recording, and the tables that its stacks are unwound by.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptTables {
    /// Which object of the recording.
    pub of: ObjectName,
    /// Its tables, or why there were none.
    pub content: Result<Arc<UnwindContent>, Reason>,
}

/// Unwind tables, and the code that they do not do without.
#[derive(Clone, Debug, PartialEq)]
pub struct UnwindContent {
    /// The tables.
    pub sections: UnwindSections,
    /// Code that signal handlers return to, by its address in the object's own address space: it says of itself what it is.
    pub code: Vec<(u64, Vec<u8>)>,
}

impl UnwindContent {
    /// Bytes of tables.
    pub fn len(&self) -> u64 {
        let UnwindSections { eh_frame, eh_frame_hdr, debug_frame, .. } = &self.sections;
        let placed = [eh_frame, eh_frame_hdr].into_iter().flatten().map(|section| section.bytes.len());
        placed.chain(debug_frame.as_ref().map(Vec::len)).map(|len| len as u64).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl KeptTables {
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
        seal(MAGIC, &out)
    }

    /// What [`encode`](KeptTables::encode) made, or `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<KeptTables> {
        KeptTables::decode_payload(unseal(MAGIC, bytes)?)
    }

    /// The same without the checksum.
    pub(crate) fn decode_payload(bytes: &[u8]) -> Option<KeptTables> {
        let mut c = Cursor(bytes);
        let of = name(&mut c)?;
        let content = match c.block()? {
            b"" => Ok(Arc::new(content(&mut c)?)),
            // A reason of a newer version is one all the same.
            key => Err(std::str::from_utf8(key).ok().and_then(Reason::of_key).unwrap_or(Reason::NoFile)),
        };
        c.0.is_empty().then_some(KeptTables { of, content })
    }
}

fn put_content(out: &mut Vec<u8>, content: &UnwindContent) {
    let UnwindSections { machine, eh_frame, eh_frame_hdr, debug_frame, left_out, text, got, segments } =
        &content.sections;
    let flags = if *left_out { LEFT_OUT } else { 0 };
    [machine_code(*machine), flags].iter().for_each(|word| out.extend(word.to_le_bytes()));
    [text, got].iter().for_each(|word| out.extend(word.to_le_bytes()));
    out.extend((segments.len() as u64).to_le_bytes());
    segments.iter().flat_map(Segment::words).for_each(|word| out.extend(word.to_le_bytes()));
    for section in [eh_frame, eh_frame_hdr] {
        out.extend(section.as_ref().map_or(0, |section| section.address).to_le_bytes());
        put_block(out, section.as_ref().map_or(&[], |section| &section.bytes));
    }
    put_block(out, debug_frame.as_deref().unwrap_or_default());
    out.extend((content.code.len() as u64).to_le_bytes());
    for (address, bytes) in &content.code {
        out.extend(address.to_le_bytes());
        put_block(out, bytes);
    }
}

fn content(c: &mut Cursor<'_>) -> Option<UnwindContent> {
    let machine = machine_of_code(c.u32()?);
    let left_out = c.u32()? & LEFT_OUT != 0;
    let (text, got) = (c.u64()?, c.u64()?);
    let words = c.count()?.checked_mul(4)?;
    let words = c.words(words, u64::from_le_bytes)?;
    let segments = words.chunks_exact(4).filter_map(Segment::from_words).collect();
    let (eh_frame, eh_frame_hdr) = (placed(c)?, placed(c)?);
    let debug_frame = Some(section(c)?).filter(|bytes| !bytes.is_empty());
    let mut code = Vec::new();
    for _ in 0..c.count()? {
        code.push((c.u64()?, c.block()?.to_vec()));
    }
    let sections = UnwindSections { machine, eh_frame, eh_frame_hdr, debug_frame, left_out, text, got, segments };
    Some(UnwindContent { sections, code })
}

fn placed(c: &mut Cursor<'_>) -> Option<Option<Placed>> {
    let address = c.u64()?;
    let bytes = section(c)?;
    Some((!bytes.is_empty()).then_some(Placed { address, bytes }))
}

/// A section, if it is none that would not be read of a file either.
fn section(c: &mut Cursor<'_>) -> Option<Vec<u8>> {
    c.block().filter(|bytes| bytes.len() as u64 <= MAX_SECTION).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::kept::FileName;
    use proptest::prelude::*;

    fn of() -> ObjectName {
        ObjectName { path: b"/usr/lib/libx.so".to_vec(), file: FileName::BuildId(vec![7; 20]), own: None }
    }

    #[test]
    fn what_was_kept_is_what_there_was() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let sections = UnwindSections::of(program.as_slice(), program.len() as u64).unwrap();
        let code = vec![(0x1000, vec![0x0f, 0x05]), (0x77, Vec::new())];
        let content = UnwindContent { sections, code };
        assert!(content.len() > 1000);
        let kept = KeptTables { of: of(), content: Ok(Arc::new(content)) };
        let bytes = kept.encode();
        assert_eq!(KeptTables::decode(&bytes).unwrap(), kept);
        // Cut and flipped.
        assert_eq!(KeptTables::decode(&bytes[..bytes.len() - 1]), None);
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 4;
        assert_eq!(KeptTables::decode(&flipped), None);
        let none = KeptTables { of: of(), content: Err(Reason::Anonymous) };
        assert_eq!(KeptTables::decode(&none.encode()).unwrap(), none);
    }

    proptest! {
        /// Behind a right checksum, any bytes are tables or none.
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..400), named in any::<bool>()) {
            let mut payload = Vec::new();
            if named {
                put_name(&mut payload, &of());
                put_block(&mut payload, b"");
            }
            payload.extend(bytes);
            if let Some(kept) = KeptTables::decode(&seal(MAGIC, &payload)) {
                prop_assert!(KeptTables::decode(&kept.encode()) == Some(kept));
            }
        }
    }
}

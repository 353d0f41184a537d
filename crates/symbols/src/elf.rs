//! The symbols of one ELF object.

mod choose;
mod debugdata;
mod object;
mod plt;

use std::fs::File;

use crate::bytes::{Cursor, put_block, seal, unseal};
use crate::error::Error;
use crate::names::{Hit, NameMap};
use crate::notes::MAX_BUILD_ID;
use crate::source::Tables;
pub(crate) use object::{Builder, Debuglink, build_id_of, debuglink_of, segments_of};

/// Marks an encoded table. The last byte is the version of the layout; in a cache an older one is derived anew. Archives hold
/// tables of this version (docs/format.md), so that a reader of a newer one has to read it still.
const MAGIC: &[u8; 8] = b"AISYMT\0\x01";

/// The names of one object, indexed by its own addresses and by file offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SymbolTable {
    pub(crate) build_id: Vec<u8>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) origin: Origin,
    pub(crate) names: NameMap,
}

/// The best source of names that a table was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
#[non_exhaustive]
pub enum Origin {
    /// No symbols were found.
    Nothing = 0,
    /// `.dynsym` alone: what the object exports.
    Dynamic = 1,
    /// `.gnu_debugdata`: an xz-compressed table of the functions, beside `.dynsym`.
    DebugData = 2,
    /// The object's own `.symtab`.
    Symtab = 3,
    /// A separate debug file.
    DebugFile = 4,
}

/// A `PT_LOAD` program header (elf(5)), in bytes.
#[doc(alias = "PT_LOAD")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where its bytes are in the file.
    pub offset: u64,
    /// How many of its bytes are in the file.
    pub file_size: u64,
    /// The address it asks for: the address space of the symbols.
    pub vaddr: u64,
    /// Whether it is mapped executable.
    pub executable: bool,
}

impl SymbolTable {
    /// Reads the symbols of an ELF object that is wholly in memory.
    ///
    /// # Errors
    /// When the bytes are not an ELF object, or a header or table leads outside of them.
    pub fn from_elf(elf: &[u8]) -> Result<SymbolTable, Error> {
        let mut builder = Builder::default();
        builder.add_object(elf)?;
        Ok(builder.finish())
    }

    /// Reads the symbols of an ELF file: only its tables, without mapping it, so that its owner may cut it meanwhile.
    ///
    /// # Errors
    /// As for [`from_elf`](SymbolTable::from_elf), and where the file cannot be read.
    pub fn from_file(file: &File) -> Result<SymbolTable, Error> {
        let mut builder = Builder::default();
        builder.add_object(&Tables::of(file))?;
        Ok(builder.finish())
    }

    /// A table of nothing.
    pub(crate) fn empty() -> SymbolTable {
        let (build_id, segments, names) = (Vec::new(), Vec::new(), NameMap::default());
        SymbolTable { build_id, segments, origin: Origin::Nothing, names }
    }

    /// The symbol at an address of the object's own address space.
    pub fn lookup_vaddr(&self, vaddr: u64) -> Option<Hit<'_>> {
        self.names.lookup(vaddr)
    }

    /// The number of the symbol at an address, for counting without names; [`symbol`](SymbolTable::symbol) has the rest.
    pub fn id_of_vaddr(&self, vaddr: u64) -> Option<u32> {
        self.names.id_at(vaddr)
    }

    /// The symbol of a number, at its start.
    pub fn symbol(&self, id: u32) -> Option<Hit<'_>> {
        self.names.get(id)
    }

    /// From a symbol's start to the end of the last address that is its own: symbols may lie within others.
    pub fn extent(&self, id: u32) -> Option<std::ops::Range<u64>> {
        self.names.extent(id)
    }

    /// The symbol at an offset in the file: for a mapping this is `ip - map.start + map.offset`.
    pub fn lookup_offset(&self, offset: u64) -> Option<Hit<'_>> {
        self.lookup_vaddr(self.vaddr_of_offset(offset)?)
    }

    /// The address that the byte at `offset` of the file is loaded to, relative to the object's load bias.
    pub fn vaddr_of_offset(&self, offset: u64) -> Option<u64> {
        let holds = |s: &&Segment| offset.checked_sub(s.offset).is_some_and(|into| into < s.file_size);
        let executable = self.segments.iter().filter(|s| s.executable).find(holds);
        let segment = executable.or_else(|| self.segments.iter().find(holds))?;
        Some(segment.vaddr.wrapping_add(offset.wrapping_sub(segment.offset)))
    }

    /// The build id, when the object has one.
    pub fn build_id(&self) -> Option<&[u8]> {
        (!self.build_id.is_empty()).then_some(&self.build_id)
    }

    /// The loadable segments.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// What the names come from.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// How many symbols there are, aliases counted once.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no symbols.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every symbol by its start.
    pub fn iter(&self) -> impl Iterator<Item = Hit<'_>> {
        self.names.iter()
    }

    /// The same table with the symbols of these addresses alone.
    pub(crate) fn excerpt(&self, vaddrs: impl IntoIterator<Item = u64>) -> SymbolTable {
        let ids = vaddrs.into_iter().filter_map(|vaddr| self.names.id_at(vaddr)).collect();
        SymbolTable {
            build_id: self.build_id.clone(),
            segments: self.segments.clone(),
            origin: self.origin,
            names: self.names.excerpt(&ids),
        }
    }

    /// A compact, checksummed form for a cache and for archives.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_block(&mut out, &self.build_id);
        out.extend((self.origin as u32).to_le_bytes());
        out.extend((self.segments.len() as u64).to_le_bytes());
        self.segments.iter().flat_map(Segment::words).for_each(|word| out.extend(word.to_le_bytes()));
        self.names.encode(&mut out);
        seal(MAGIC, &out)
    }

    /// What [`encode`](SymbolTable::encode) made, or `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<SymbolTable> {
        let mut cursor = Cursor(unseal(MAGIC, bytes)?);
        let build_id = cursor.block()?.to_vec();
        let origin = Origin::from_code(cursor.u32()?)?;
        let count = cursor.count()?;
        let words = cursor.words(count.checked_mul(4)?, u64::from_le_bytes)?;
        let segments = words.chunks_exact(4).filter_map(Segment::from_words).collect();
        let names = NameMap::decode(&mut cursor)?;
        (cursor.0.is_empty() && build_id.len() <= MAX_BUILD_ID).then_some(SymbolTable {
            build_id,
            segments,
            origin,
            names,
        })
    }
}

impl Origin {
    fn from_code(code: u32) -> Option<Origin> {
        let all = [Origin::Nothing, Origin::Dynamic, Origin::DebugData, Origin::Symtab, Origin::DebugFile];
        all.into_iter().find(|&o| o as u32 == code)
    }
}

impl Segment {
    /// As it is kept.
    pub(crate) fn words(&self) -> [u64; 4] {
        [self.offset, self.file_size, self.vaddr, u64::from(self.executable)]
    }

    pub(crate) fn from_words(words: &[u64]) -> Option<Segment> {
        let &[offset, file_size, vaddr, executable] = words else { return None };
        Some(Segment { offset, file_size, vaddr, executable: executable != 0 })
    }
}

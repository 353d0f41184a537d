//! Reads one ELF object: which of its symbols are code, where they end, and what else identifies it.
//!
//! Reads are made through [`ReadRef`], so that an object may be a slice or a file of which only the tables are read.
//! Every table is checked against the object's length before it is touched; nothing is allocated by a stated size.

use object::elf;
use object::endian::{Endian, Endianness};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};
use object::read::{ReadRef, SectionIndex};

use super::choose::{self, Binding, Raw};
use super::{Origin, Segment, SymbolTable, debugdata, plt};
use crate::error::{Error, ErrorKind, damaged};
use crate::names::{NameMap, Span};
use crate::notes;

/// The arena may grow to this many times the string tables it is filled from. Linkers share the tails of names, so a
/// little growth is honest; a table in which every name is the tail of one huge string is not.
const NAME_GROWTH: usize = 4;

/// Gathers the symbols of an object and of its debug file into one table.
#[derive(Default)]
pub(crate) struct Builder {
    build_id: Vec<u8>,
    segments: Vec<Segment>,
    origin: Option<Origin>,
    symbols: Vec<Raw>,
    names: String,
    budget: usize,
}

/// Where an object says its debug file is: `.gnu_debuglink`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Debuglink {
    /// A bare file name.
    pub(crate) name: Vec<u8>,
    /// CRC-32 (IEEE) of the whole debug file.
    pub(crate) crc: u32,
}

impl Builder {
    /// Adds an object: its identity, its segments and all names that it holds.
    pub(crate) fn add_object<'d, R: ReadRef<'d>>(&mut self, data: R) -> Result<Option<Debuglink>, Error> {
        match class(data)? {
            Class::Elf32 => self.add_whole::<elf::FileHeader32<Endianness>, R>(data),
            Class::Elf64 => self.add_whole::<elf::FileHeader64<Endianness>, R>(data),
        }
    }

    /// Adds the symbols of a separate debug file to those of its object.
    pub(crate) fn add_debug_file<'d, R: ReadRef<'d>>(&mut self, data: R) -> Result<(), Error> {
        self.add_symtab_of(data, Origin::DebugFile)
    }

    fn add_symtab_of<'d, R: ReadRef<'d>>(&mut self, data: R, origin: Origin) -> Result<(), Error> {
        match class(data)? {
            Class::Elf32 => self.add_table(&Object::<elf::FileHeader32<Endianness>, R>::open(data)?, true, origin),
            Class::Elf64 => self.add_table(&Object::<elf::FileHeader64<Endianness>, R>::open(data)?, true, origin),
        }
    }

    fn add_whole<'d, E, R>(&mut self, data: R) -> Result<Option<Debuglink>, Error>
    where
        E: FileHeader<Endian = Endianness>,
        R: ReadRef<'d>,
    {
        let object = Object::<E, R>::open(data)?;
        self.build_id = object.build_id();
        self.segments = object.segments()?;
        self.add_table(&object, true, Origin::Symtab)?;
        self.add_table(&object, false, Origin::Dynamic)?;
        let packed = object.section(b".gnu_debugdata").filter(|_| self.origin != Some(Origin::Symtab));
        let beyond = packed.and_then(|packed| self.add_debug_data(&object, packed).err());
        if let Some(error) = beyond {
            // What passes a limit does not take the names with it that the object has beside it.
            if error.kind() != ErrorKind::Limit || self.symbols.is_empty() {
                return Err(error);
            }
        }
        plt::add(&object, self)?;
        Ok(object.debuglink())
    }

    /// Adds the table in `.gnu_debugdata`.
    fn add_debug_data<'d, E, R>(&mut self, object: &Object<'d, E, R>, packed: &'d E::SectionHeader) -> Result<(), Error>
    where
        E: FileHeader<Endian = Endianness>,
        R: ReadRef<'d>,
    {
        const W: &str = ".gnu_debugdata";
        if packed.sh_size(object.endian).into() > debugdata::MAX_OBJECT {
            return Err(Error::new(ErrorKind::Limit, W));
        }
        let inner = debugdata::unpack(object.bytes(packed, W)?)?;
        self.add_symtab_of(inner.as_slice(), Origin::DebugData)
    }

    /// Adds `.symtab`, or else `.dynsym`.
    fn add_table<'d, E, R>(&mut self, object: &Object<'d, E, R>, full: bool, origin: Origin) -> Result<(), Error>
    where
        E: FileHeader<Endian = Endianness>,
        R: ReadRef<'d>,
    {
        let kind = if full { elf::SHT_SYMTAB } else { elf::SHT_DYNSYM };
        let Some(table) = object.table(kind)? else { return Ok(()) };
        self.grow_budget(table.strings.len());
        self.symbols.reserve(table.symbols.len());
        let before = self.symbols.len();
        for symbol in table.symbols {
            let Some(code) = object.code_symbol(symbol) else { continue };
            let Some(name) = table.name(symbol.st_name(object.endian)) else { continue };
            if code.may_be_label && is_mapping_symbol(name) {
                continue;
            }
            self.push(code.raw, name, "")?;
        }
        if self.symbols.len() > before {
            self.origin = self.origin.max(Some(origin));
        }
        Ok(())
    }

    pub(super) fn grow_budget(&mut self, strings: usize) {
        self.budget = self.budget.saturating_add(strings.saturating_mul(NAME_GROWTH)).saturating_add(1 << 16);
    }

    /// Adds a symbol under `name` and `suffix`; bytes that are not UTF-8 are replaced.
    pub(super) fn push(&mut self, mut raw: Raw, name: &[u8], suffix: &str) -> Result<(), Error> {
        let at = self.names.len();
        match std::str::from_utf8(name) {
            Ok(name) => self.names.push_str(name),
            Err(_) => self.names.push_str(&String::from_utf8_lossy(name)),
        }
        self.names.push_str(suffix);
        let too_long = || Error::new(ErrorKind::Limit, "names of symbols");
        if self.names.len() > self.budget {
            return Err(too_long());
        }
        let word = |n: usize| u32::try_from(n).map_err(|_| too_long());
        raw.name = Span { at: word(at)?, len: word(self.names.len() - at)? };
        self.symbols.push(raw);
        Ok(())
    }

    pub(crate) fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin.unwrap_or(Origin::Nothing)
    }

    /// Ends symbols without a size, keeps one of each set of aliases, and indexes what is left.
    pub(crate) fn finish(self) -> SymbolTable {
        let origin = self.origin();
        let (ranges, names) = choose::settle(self.symbols, &self.names);
        SymbolTable { build_id: self.build_id, segments: self.segments, origin, names: NameMap::build(&ranges, names) }
    }
}

/// The build id of an object, empty where it has none; its symbols are not read.
pub(crate) fn build_id_of<'d, R: ReadRef<'d>>(data: R) -> Result<Vec<u8>, Error> {
    match class(data)? {
        Class::Elf32 => Ok(Object::<elf::FileHeader32<Endianness>, R>::open(data)?.build_id()),
        Class::Elf64 => Ok(Object::<elf::FileHeader64<Endianness>, R>::open(data)?.build_id()),
    }
}

/// The loadable segments of an object; its symbols are not read.
pub(crate) fn segments_of<'d, R: ReadRef<'d>>(data: R) -> Result<Vec<Segment>, Error> {
    match class(data)? {
        Class::Elf32 => Object::<elf::FileHeader32<Endianness>, R>::open(data)?.segments(),
        Class::Elf64 => Object::<elf::FileHeader64<Endianness>, R>::open(data)?.segments(),
    }
}

/// Where an object says its debug file is.
pub(crate) fn debuglink_of<'d, R: ReadRef<'d>>(data: R) -> Option<Debuglink> {
    match class(data).ok()? {
        Class::Elf32 => Object::<elf::FileHeader32<Endianness>, R>::open(data).ok()?.debuglink(),
        Class::Elf64 => Object::<elf::FileHeader64<Endianness>, R>::open(data).ok()?.debuglink(),
    }
}

enum Class {
    Elf32,
    Elf64,
}

fn class<'d, R: ReadRef<'d>>(data: R) -> Result<Class, Error> {
    let head = data.read_bytes_at(0, 6).unwrap_or_default();
    match head {
        [0x7f, b'E', b'L', b'F', elf::ELFCLASS32, _] => Ok(Class::Elf32),
        [0x7f, b'E', b'L', b'F', elf::ELFCLASS64, _] => Ok(Class::Elf64),
        _ => Err(Error::new(ErrorKind::NotElf, "ELF header")),
    }
}

/// `$a`, `$d.1`, `$x…`: marks of ARM and RISC-V between code and data, not names.
fn is_mapping_symbol(name: &[u8]) -> bool {
    match name {
        [b'$', b'x', ..] => true, // RISC-V writes the instruction set behind it.
        [b'$', b'a' | b'd' | b't', rest @ ..] => rest.first().is_none_or(|&c| c == b'.'),
        _ => false,
    }
}

/// An opened object of one class.
pub(super) struct Object<'d, E: FileHeader, R: ReadRef<'d>> {
    pub(super) header: &'d E,
    pub(super) endian: Endianness,
    pub(super) data: R,
    pub(super) sections: SectionTable<'d, E, R>,
}

/// A symbol table with its strings.
pub(super) struct Table<'d, S> {
    pub(super) symbols: &'d [S],
    pub(super) strings: &'d [u8],
}

impl<'d, S> Table<'d, S> {
    pub(super) fn name(&self, at: u32) -> Option<&'d [u8]> {
        let tail = self.strings.get(usize::try_from(at).ok()?..)?;
        let end = tail.iter().position(|&b| b == 0)?;
        tail.get(..end).filter(|name| !name.is_empty())
    }
}

struct Code {
    raw: Raw,
    may_be_label: bool,
}

impl<'d, E, R> Object<'d, E, R>
where
    E: FileHeader<Endian = Endianness>,
    R: ReadRef<'d>,
{
    pub(super) fn open(data: R) -> Result<Self, Error> {
        let header = E::parse(data).map_err(damaged("ELF header"))?;
        let endian = header.endian().map_err(damaged("ELF header"))?;
        let sections = header.sections(endian, data).map_err(damaged("section headers"))?;
        Ok(Object { header, endian, data, sections })
    }

    pub(super) fn section(&self, name: &[u8]) -> Option<&'d E::SectionHeader> {
        self.sections.section_by_name(self.endian, name).map(|(_, section)| section)
    }

    pub(super) fn bytes(&self, section: &'d E::SectionHeader, what: &'static str) -> Result<&'d [u8], Error> {
        section.data(self.endian, self.data).map_err(damaged(what))
    }

    pub(super) fn table(&self, kind: u32) -> Result<Option<Table<'d, E::Sym>>, Error> {
        let what = if kind == elf::SHT_SYMTAB { ".symtab" } else { ".dynsym" };
        let Some(section) = self.sections.iter().find(|s| s.sh_type(self.endian) == kind) else { return Ok(None) };
        let symbols = section.data_as_array(self.endian, self.data).map_err(damaged(what))?;
        let strings = self.sections.section(section.link(self.endian)).map_err(damaged(what))?;
        Ok(Some(Table { symbols, strings: self.bytes(strings, what)? }))
    }

    /// The symbol as a piece of code, or `None` when it names something else.
    fn code_symbol(&self, symbol: &E::Sym) -> Option<Code> {
        let endian = self.endian;
        let index = symbol.st_shndx(endian);
        if symbol.st_name(endian) == 0 || index == elf::SHN_UNDEF {
            return None;
        }
        let section = (index < elf::SHN_LORESERVE)
            .then(|| self.sections.section(SectionIndex(usize::from(index))).ok())
            .flatten();
        let executable = section.is_some_and(|s| s.sh_flags(endian).into() & u64::from(elf::SHF_EXECINSTR) != 0);
        let shown = matches!(symbol.st_visibility(), elf::STV_DEFAULT | elf::STV_PROTECTED);
        let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
        let may_be_label = symbol.st_type() == elf::STT_NOTYPE;
        if !is_function && !(executable && (symbol.st_type() == elf::STT_OBJECT || may_be_label && shown)) {
            return None;
        }
        let mut start: u64 = symbol.st_value(endian).into();
        if is_function && self.header.e_machine(endian) == elf::EM_ARM {
            start &= !1; // The lowest bit says that the function is Thumb code.
        }
        let size: u64 = symbol.st_size(endian).into();
        let raw = Raw {
            start,
            size,
            function: is_function && size != 0,
            limit: section.map_or(u64::MAX, |s| section_end(s, endian, start)),
            binding: Binding::from_elf(symbol.st_bind()),
            name: Span::default(),
        };
        Some(Code { raw, may_be_label })
    }

    fn segments(&self) -> Result<Vec<Segment>, Error> {
        let headers = self.header.program_headers(self.endian, self.data).map_err(damaged("program headers"))?;
        let loaded = headers.iter().filter(|h| h.p_type(self.endian) == elf::PT_LOAD);
        Ok(loaded
            .map(|h| Segment {
                offset: h.p_offset(self.endian).into(),
                file_size: h.p_filesz(self.endian).into(),
                vaddr: h.p_vaddr(self.endian).into(),
                executable: h.p_flags(self.endian) & elf::PF_X != 0,
            })
            .collect())
    }

    /// The build id in the note sections, or in the note segments where there are no sections.
    fn build_id(&self) -> Vec<u8> {
        let endian = self.endian;
        let in_notes = |bytes: &'d [u8]| notes::find(bytes, |word| endian.read_u32_bytes(word));
        let sections = self.sections.iter().filter(|s| s.sh_type(endian) == elf::SHT_NOTE);
        let in_sections = sections.filter_map(|s| s.data(endian, self.data).ok()).find_map(in_notes);
        let in_segments = || {
            let headers = self.header.program_headers(endian, self.data).ok()?;
            let noted = headers.iter().filter(|h| h.p_type(endian) == elf::PT_NOTE);
            noted.filter_map(|h| h.data(endian, self.data).ok()).find_map(in_notes)
        };
        in_sections.or_else(in_segments).unwrap_or_default().to_vec()
    }

    /// `name NUL padding crc` (the GDB manual, "Separate Debug Files").
    fn debuglink(&self) -> Option<Debuglink> {
        let bytes = self.bytes(self.section(b".gnu_debuglink")?, ".gnu_debuglink").ok()?;
        let len = bytes.iter().position(|&b| b == 0)?;
        let name = bytes.get(..len).filter(|name| !name.is_empty() && !name.contains(&b'/'))?;
        let crc = bytes.get((len + 1).next_multiple_of(4)..)?.get(..4)?.try_into().ok()?;
        Some(Debuglink { name: name.to_vec(), crc: self.endian.read_u32_bytes(crc) })
    }
}

/// The end of a section that holds `start`; a symbol outside of the section it names has no limit.
fn section_end<S: SectionHeader>(section: &S, endian: S::Endian, start: u64) -> u64 {
    let from: u64 = section.sh_addr(endian).into();
    let end = from.saturating_add(section.sh_size(endian).into());
    if (from..end).contains(&start) { end } else { u64::MAX }
}

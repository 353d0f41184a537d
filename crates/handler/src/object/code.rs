//! The code of an object file: sections, functions, what instructions refer to, and the lines they came from.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object as _, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SymbolKind, SymbolSection,
};

use super::insn::{Insn, SIZE};
use super::lines::{self, Line};
use super::settings::Patch;

/// A place in the code: section, and number of the instruction in it.
pub(super) type Site = (SectionIndex, usize);

/// What an instruction refers to by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A function of the object.
    Function(Site),
    /// A map.
    Map(String),
    /// A place in data, by section and offset.
    Data(SectionIndex, u64),
    /// Something of the kernel.
    Kernel(String),
}

/// A function.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) start: Site,
    pub(super) instructions: usize,
}

/// The code of an object.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub(super) functions: Vec<Function>,
    instructions: BTreeMap<usize, Vec<Insn>>,
    targets: BTreeMap<(usize, usize), Target>,
    /// Instructions that the loader rewrites by the running kernel's types.
    rewritten: BTreeSet<(usize, usize)>,
    lines: BTreeMap<(usize, usize), Line>,
    /// Read-only data, which loads can be told from.
    constants: BTreeMap<usize, Vec<u8>>,
    /// Sections of those by name.
    constant_sections: BTreeMap<String, usize>,
    /// Programs that stand in maps from the beginning.
    pub(super) in_maps: Vec<Site>,
    /// The raw `.BTF` section.
    pub(super) btf: Vec<u8>,
}

impl Code {
    /// Reads an ELF file for BPF. What is damaged or unknown in it is left out: libbpf, which opens the same file, says so.
    pub(super) fn read(bytes: &[u8]) -> object::Result<Code> {
        let file = ElfFile64::<LittleEndian>::parse(bytes)?;
        let mut code = Code::default();
        for section in file.sections() {
            let (index, name) = (section.index(), section.name().unwrap_or_default());
            let data = section.data().unwrap_or_default();
            if name == ".BTF" {
                code.btf = data.to_vec();
            } else if name.starts_with(".rodata") {
                code.constants.insert(index.0, data.to_vec());
                code.constant_sections.insert(name.to_owned(), index.0);
            } else if section.kind() == object::SectionKind::Text {
                code.instructions.insert(index.0, Insn::all(data));
            }
        }
        code.functions = functions(&file);
        for section in file.sections() {
            code.relocate(&file, &section);
        }
        let sections = |name: &str| file.section_by_name(name).map(|s| s.index().0);
        let ext = file.section_by_name(".BTF.ext").and_then(|s| s.data().ok()).unwrap_or_default();
        let told = lines::read(&code.btf, ext);
        for (section, offset, line) in told.lines {
            sections(&section).map(|index| code.lines.insert((index, offset / SIZE), line));
        }
        for (section, offset) in told.rewritten {
            sections(&section).map(|index| code.rewritten.insert((index, offset / SIZE)));
        }
        Ok(code)
    }

    fn relocate<'d>(
        &mut self,
        file: &ElfFile64<'d, LittleEndian>,
        section: &object::read::elf::ElfSection64<'d, '_, LittleEndian>,
    ) {
        let maps = section.name() == Ok(".maps");
        let instructions = self.instructions.get(&section.index().0);
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
            let Ok(symbol) = file.symbol_by_index(symbol) else { continue };
            let number = offset as usize / SIZE;
            if maps {
                self.in_maps.extend(function_at(file, &symbol, symbol.address()));
                continue;
            }
            let Some(insn) = instructions.and_then(|all| all.get(number)) else { continue };
            if let Some(target) = target(file, &symbol, *insn) {
                self.targets.insert((section.index().0, number), target);
            }
        }
    }

    /// The contents of read-only data by section, with these places changed.
    pub(super) fn data<'p>(&self, patches: impl Iterator<Item = &'p Patch>) -> BTreeMap<usize, Vec<u8>> {
        let mut data = self.constants.clone();
        for patch in patches {
            let index = self.constant_sections.get(&patch.section);
            let section = index.and_then(|index| data.get_mut(index));
            if let Some(place) = section.and_then(|s| s.get_mut(patch.offset..patch.offset + patch.bytes.len())) {
                place.copy_from_slice(&patch.bytes);
            }
        }
        data
    }

    /// The instructions of a section.
    pub(super) fn section(&self, index: SectionIndex) -> &[Insn] {
        self.instructions.get(&index.0).map_or(&[], Vec::as_slice)
    }

    pub(super) fn insn(&self, (section, number): Site) -> Option<Insn> {
        self.section(section).get(number).copied()
    }

    pub(super) fn target(&self, (section, number): Site) -> Option<&Target> {
        self.targets.get(&(section.0, number))
    }

    pub(super) fn is_rewritten(&self, (section, number): Site) -> bool {
        self.rewritten.contains(&(section.0, number))
    }

    /// The function that a place is in.
    pub(super) fn function(&self, (section, number): Site) -> Option<&Function> {
        self.functions
            .iter()
            .find(|f| f.start.0 == section && (f.start.1..f.start.1 + f.instructions).contains(&number))
    }

    /// Where a place is in the source, as `file:line`; without line information, its function and instruction.
    pub(super) fn place(&self, site: Site) -> Place {
        let (section, number) = site;
        let function = self.function(site);
        let first = function.map_or(0, |f| f.start.1);
        let line = self.lines.range((section.0, first)..=(section.0, number)).next_back().map(|(_, line)| line.clone());
        Place { line, function: function.map(|f| f.name.clone()).unwrap_or_default(), insn: number - first }
    }
}

/// A place in the source of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    line: Option<Line>,
    function: String,
    insn: usize,
}

impl Place {
    /// The text of the line, where the object has it.
    pub fn source(&self) -> Option<&str> {
        self.line.as_ref().map(|line| line.text.as_str()).filter(|text| !text.is_empty())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.line {
            Some(line) => {
                let here = std::env::current_dir().unwrap_or_default();
                let file = Path::new(&line.file);
                let file = file.strip_prefix(here).unwrap_or(file);
                write!(f, "{}:{}", file.display(), line.number)
            }
            None => write!(f, "{}, instruction {}", self.function, self.insn),
        }
    }
}

fn functions(file: &ElfFile64<'_, LittleEndian>) -> Vec<Function> {
    let function = |symbol: object::read::elf::ElfSymbol64<'_, '_, LittleEndian>| {
        let section = symbol.section_index().filter(|_| symbol.kind() == SymbolKind::Text)?;
        Some(Function {
            name: symbol.name().unwrap_or_default().to_owned(),
            start: (section, symbol.address() as usize / SIZE),
            instructions: symbol.size() as usize / SIZE,
        })
    };
    file.symbols().filter_map(function).collect()
}

fn function_at(
    file: &ElfFile64<'_, LittleEndian>,
    symbol: &object::read::elf::ElfSymbol64<'_, '_, LittleEndian>,
    offset: u64,
) -> Option<Site> {
    let SymbolSection::Section(section) = symbol.section() else { return None };
    let is_code = file.section_by_index(section).is_ok_and(|s| s.kind() == object::SectionKind::Text);
    is_code.then_some((section, offset as usize / SIZE))
}

fn target(
    file: &ElfFile64<'_, LittleEndian>,
    symbol: &object::read::elf::ElfSymbol64<'_, '_, LittleEndian>,
    insn: Insn,
) -> Option<Target> {
    let name = symbol.name().unwrap_or_default().to_owned();
    let SymbolSection::Section(section) = symbol.section() else { return Some(Target::Kernel(name)) };
    let data = file.section_by_index(section).ok()?;
    // Symbols of a section stand for its beginning, and the instruction has the offset.
    let addend = i64::from(insn.imm);
    if data.kind() == object::SectionKind::Text {
        let offset = if insn.code == super::insn::CALL { (addend + 1) * SIZE as i64 } else { addend };
        return function_at(file, symbol, symbol.address().wrapping_add_signed(offset)).map(Target::Function);
    }
    match data.name().unwrap_or_default() {
        ".maps" => Some(Target::Map(name)),
        _ => Some(Target::Data(section, symbol.address().wrapping_add_signed(addend))),
    }
}

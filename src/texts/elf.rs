//! A text as a small ELF file: its code at its address, its symbol, and its source lines as DWARF, so that objdump and
//! gdb show it like any program.

use afterimage_perf_data::Endian;
use object::Endianness;
use object::elf;
use object::write::StringId;
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, SectionIndex, Sym, Writer};

use super::dwarf::{self, Line};

/// What goes into the file.
pub(super) struct Object<'a> {
    /// The symbol.
    pub(super) name: &'a str,
    /// Kernel address of the first byte.
    pub(super) address: u64,
    /// The machine code.
    pub(super) code: &'a [u8],
    /// Where lines of source code begin, ascending.
    pub(super) lines: &'a [Line],
    /// The machine, as `uname -m` names it.
    pub(super) arch: &'a str,
    pub(super) endian: Endian,
}

/// One section but the tables of the file itself.
struct Section<'a> {
    name: StringId,
    index: SectionIndex,
    offset: usize,
    data: &'a [u8],
}

impl Object<'_> {
    /// The file's bytes.
    ///
    /// # Errors
    /// When the lines do not fit into DWARF, or the code not into a file.
    pub(super) fn to_elf(&self) -> anyhow::Result<Vec<u8>> {
        let debug = dwarf::sections(self.name, self.address, self.code.len() as u64, self.lines, self.endian)?;
        let endian = if self.endian == Endian::Little { Endianness::Little } else { Endianness::Big };
        let mut file = Vec::new();
        let mut writer = Writer::new(endian, true, &mut file);
        // A symbol ends at its first NUL; the kernel's have none.
        let symbol = self.name.split('\0').next().unwrap_or_default();

        writer.reserve_file_header();
        writer.reserve_program_headers(1);
        let text = reserve(&mut writer, b".text", self.code, CODE_ALIGN);
        let debug: Vec<Section<'_>> =
            debug.iter().map(|(name, data)| reserve(&mut writer, name.as_bytes(), data, 1)).collect();
        writer.reserve_null_symbol_index();
        let symbol = writer.add_string(symbol.as_bytes());
        writer.reserve_symbol_index(Some(text.index));
        writer.reserve_symtab_section_index();
        writer.reserve_symtab();
        writer.reserve_strtab_section_index();
        writer.reserve_strtab();
        writer.reserve_shstrtab_section_index();
        writer.reserve_shstrtab();
        writer.reserve_section_headers();

        writer.write_file_header(&FileHeader {
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            e_type: elf::ET_EXEC,
            e_machine: machine(self.arch),
            e_entry: self.address,
            e_flags: 0,
        })?;
        writer.write_align_program_headers();
        writer.write_program_header(&ProgramHeader {
            p_type: elf::PT_LOAD,
            p_flags: elf::PF_R | elf::PF_X,
            p_offset: text.offset as u64,
            p_vaddr: self.address,
            p_paddr: self.address,
            p_filesz: self.code.len() as u64,
            p_memsz: self.code.len() as u64,
            p_align: 1,
        });
        for section in std::iter::once(&text).chain(&debug) {
            writer.pad_until(section.offset);
            writer.write(section.data);
        }
        writer.write_null_symbol();
        writer.write_symbol(&Sym {
            name: Some(symbol),
            section: Some(text.index),
            st_info: elf::STB_GLOBAL << 4 | elf::STT_FUNC,
            st_other: elf::STV_DEFAULT,
            st_shndx: 0,
            st_value: self.address,
            st_size: self.code.len() as u64,
        });
        writer.write_strtab();
        writer.write_shstrtab();
        writer.write_null_section_header();
        writer.write_section_header(&SectionHeader {
            sh_flags: u64::from(elf::SHF_ALLOC | elf::SHF_EXECINSTR),
            sh_addr: self.address,
            ..header(&text)
        });
        debug.iter().for_each(|section| writer.write_section_header(&header(section)));
        writer.write_symtab_section_header(1);
        writer.write_strtab_section_header();
        writer.write_shstrtab_section_header();
        Ok(file)
    }
}

/// Instructions lie as they lay in the kernel, whatever the file's own order.
const CODE_ALIGN: usize = 16;

fn reserve<'a>(writer: &mut Writer<'a>, name: &'a [u8], data: &'a [u8], align: usize) -> Section<'a> {
    let name = writer.add_section_name(name);
    let index = writer.reserve_section_index();
    let offset = writer.reserve(data.len(), align);
    Section { name, index, offset, data }
}

fn header(section: &Section<'_>) -> SectionHeader {
    SectionHeader {
        name: Some(section.name),
        sh_type: elf::SHT_PROGBITS,
        sh_flags: 0,
        sh_addr: 0,
        sh_offset: section.offset as u64,
        sh_size: section.data.len() as u64,
        sh_link: 0,
        sh_info: 0,
        sh_addralign: 1,
        sh_entsize: 0,
    }
}

/// The number of a machine. Readers refuse a file of none, so an unknown one is taken for the one we run on.
fn machine(arch: &str) -> u16 {
    match arch {
        "x86_64" => elf::EM_X86_64,
        "aarch64" => elf::EM_AARCH64,
        "riscv64" => elf::EM_RISCV,
        "ppc64" | "ppc64le" => elf::EM_PPC64,
        "s390x" => elf::EM_S390,
        "loongarch64" => elf::EM_LOONGARCH,
        _ if cfg!(target_arch = "aarch64") => elf::EM_AARCH64,
        _ => elf::EM_X86_64,
    }
}

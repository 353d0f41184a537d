//! Source lines of a text as DWARF 4: one unit, one function, its line table.

use afterimage_perf_data::Endian;
use gimli::write::{Address, AttributeValue, DwarfUnit, EndianVec, LineProgram, LineString, Sections};
use gimli::{Encoding, Format, LineEncoding, RunTimeEndian};
use std::collections::HashMap;

/// From here on code comes from this line, up to where the next one begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Bytes from the start of the text.
    pub(super) offset: u64,
    /// The file as the compiler was given it.
    pub(super) file: String,
    /// From 1; 0 for code that the compiler made up.
    pub(super) line: u32,
    /// From 1; 0 where it is not known.
    pub(super) column: u32,
}

const ENCODING: Encoding = Encoding { format: Format::Dwarf32, version: 4, address_size: 8 };

/// The sections of debug information that are not empty, with their names. None where there are no lines.
///
/// # Errors
/// When something does not fit into DWARF.
pub(super) fn sections(
    name: &str,
    address: u64,
    length: u64,
    lines: &[Line],
    endian: Endian,
) -> anyhow::Result<Vec<(&'static str, Vec<u8>)>> {
    let Some(first) = lines.first() else { return Ok(Vec::new()) };
    let mut dwarf = DwarfUnit::new(ENCODING);
    dwarf.unit.line_program = table(address, length, lines, first);
    let root = dwarf.unit.root();
    let function = dwarf.unit.add(root, gimli::DW_TAG_subprogram);
    let file = dwarf.strings.add(without_nul(&first.file));
    let name = dwarf.strings.add(without_nul(name));
    let unit = dwarf.unit.get_mut(root);
    unit.set(gimli::DW_AT_producer, AttributeValue::String(b"afterimage".to_vec()));
    unit.set(gimli::DW_AT_language, AttributeValue::Language(gimli::DW_LANG_C99));
    unit.set(gimli::DW_AT_name, AttributeValue::StringRef(file));
    unit.set(gimli::DW_AT_low_pc, AttributeValue::Address(Address::Constant(address)));
    unit.set(gimli::DW_AT_high_pc, AttributeValue::Udata(length));
    let function = dwarf.unit.get_mut(function);
    function.set(gimli::DW_AT_external, AttributeValue::Flag(true));
    function.set(gimli::DW_AT_name, AttributeValue::StringRef(name));
    function.set(gimli::DW_AT_low_pc, AttributeValue::Address(Address::Constant(address)));
    function.set(gimli::DW_AT_high_pc, AttributeValue::Udata(length));

    let endian = if endian == Endian::Little { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let mut sections = Sections::new(EndianVec::new(endian));
    dwarf.write(&mut sections)?;
    let mut written = Vec::new();
    sections.for_each(|id, data| {
        if !data.slice().is_empty() {
            written.push((id.name(), data.slice().to_vec()));
        }
        Ok::<(), gimli::write::Error>(())
    })?;
    Ok(written)
}

fn table(address: u64, length: u64, lines: &[Line], first: &Line) -> LineProgram {
    let string = |text: &str| LineString::String(without_nul(text));
    let folder = string(".");
    let mut table = LineProgram::new(ENCODING, LineEncoding::default(), folder, None, string(&first.file), None);
    let folder = table.default_directory();
    let mut files = HashMap::new();
    table.begin_sequence(Some(Address::Constant(address)));
    for line in lines.iter().filter(|line| line.offset < length) {
        let file = *files.entry(&line.file).or_insert_with(|| table.add_file(string(&line.file), folder, None));
        let row = table.row();
        row.address_offset = line.offset;
        row.file = file;
        row.line = line.line.into();
        row.column = line.column.into();
        table.generate_row();
    }
    table.end_sequence(length);
    table
}

fn without_nul(text: &str) -> Vec<u8> {
    // Strings of DWARF 4 end at a NUL, and an empty name ends the list of files.
    let text = text.split('\0').next().unwrap_or_default();
    if text.is_empty() { b"??".to_vec() } else { text.as_bytes().to_vec() }
}

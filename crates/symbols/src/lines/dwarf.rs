//! Source lines and inlined functions from DWARF, of an object or of its separate debug file.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{EndianReader, Reader as _, RunTimeEndian};
use object::{Object as _, ObjectSection as _};

use crate::demangle;
use crate::error::{Error, ErrorKind, damaged};
use crate::kept::KeptLines;
use crate::packed;
use crate::source::{Source, Tables};

/// The most bytes that one section of debug information may have when unpacked, and that all of an object may have together.
const MAX_SECTION: u64 = 1 << 30;
const MAX_SECTIONS: u64 = 4 << 30;

type Bytes = EndianReader<RunTimeEndian, Arc<[u8]>>;

/// A function at an address, and the line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFrame {
    /// The function's name for people, where it has one.
    pub function: Option<String>,
    /// The file, with its folder where that is known.
    pub file: Option<String>,
    /// The line, counted from 1; 0 where the compiler made the code up or it is not known.
    pub line: u32,
    /// The column, counted from 1; 0 where it is not known.
    pub column: u32,
    /// What stands in the line, where that was kept with it.
    pub text: Option<Arc<str>>,
}

/// The debug information of one object, or what was kept of it.
pub struct DwarfLines {
    held: Held,
    owner: u32,
}

enum Held {
    Sections(Box<addr2line::Context<Bytes>>),
    Kept(Arc<KeptLines>),
}

impl std::fmt::Debug for DwarfLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DwarfLines")
    }
}

impl DwarfLines {
    /// Reads the debug sections of an object; what they say is looked at when it is asked for.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] when it is no object, has no debug information or a damaged one;
    /// [`ErrorKind::Limit`] when a section is larger than 1 GiB, all are larger than 4 GiB, or one is packed more tightly than
    /// debug information can be.
    pub fn of(source: &dyn Source) -> Result<DwarfLines, Error> {
        const W: &str = "debug information";
        let tables = Tables::of(source);
        let file = object::File::parse(&tables).map_err(damaged("ELF header"))?;
        let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        if !has_lines(&file) {
            return Err(Error::new(ErrorKind::Damaged, "no debug information"));
        }
        let mut left = MAX_SECTIONS;
        let dwarf = gimli::Dwarf::load(|id| section(&file, id.name(), &mut left).map(|b| Bytes::new(b, endian)))?;
        let context = addr2line::Context::from_dwarf(dwarf).map_err(damaged(W))?;
        Ok(DwarfLines { held: Held::Sections(Box::new(context)), owner: source.owner() })
    }

    /// Lines that were kept.
    pub(crate) fn kept(lines: Arc<KeptLines>) -> DwarfLines {
        DwarfLines { held: Held::Kept(lines), owner: NOBODY }
    }

    /// Whether they came with the recording: those of an archive, or of a JIT compiler. Files that they name are not opened.
    pub fn is_kept(&self) -> bool {
        matches!(self.held, Held::Kept(_))
    }

    /// Whose word they are: the user number of the file that they stand in. That of nobody (all bits set) for files that came from
    /// elsewhere and for archives.
    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }

    /// The MD5 that a source file had when the code at an address was made of it, where that was written down (DWARF 5, section
    /// 6.2.4.1). `file` is as in [`frames`](DwarfLines::frames).
    pub(crate) fn md5_of(&self, vaddr: u64, file: &str) -> Option<[u8; 16]> {
        let Held::Sections(context) = &self.held else { return None };
        let unit = context.find_dwarf_and_unit(vaddr).skip_all_loads()?;
        let header = unit.line_program.as_ref()?.header();
        if !header.file_has_md5() {
            return None;
        }
        // Names that cannot be joined to paths are of no file that was asked for. The last part is compared first: it is cheap.
        let text = |value| unit.attr_string(value).ok()?.to_string_lossy().ok().map(Cow::into_owned);
        let named = header.file_names().iter().filter(|entry| {
            let Some(name) = text(entry.path_name()).filter(|name| file.ends_with(name.as_str())) else { return false };
            let folder = entry.directory(header).filter(|_| entry.directory_index() != 0).and_then(text);
            let unit_folder = unit.comp_dir.as_ref().and_then(|dir| dir.to_string_lossy().ok().map(Cow::into_owned));
            let joined: PathBuf = [unit_folder, folder, Some(name)].into_iter().flatten().collect();
            joined == Path::new(file)
        });
        let sums: Vec<[u8; 16]> = named.map(|entry| *entry.md5()).filter(|sum| *sum != [0; 16]).collect();
        sums.first().copied()
    }

    /// The functions at an address of the object's own address space, innermost first: what was inlined there, then the
    /// function that it was inlined into. Empty where nothing is known.
    pub fn frames(&self, vaddr: u64) -> Vec<SourceFrame> {
        let context = match &self.held {
            Held::Sections(context) => context,
            Held::Kept(lines) => return lines.frames(vaddr),
        };
        let mut frames = Vec::new();
        let Ok(mut found) = context.find_frames(vaddr).skip_all_loads() else { return frames };
        // A damaged entry ends the list; what stands before it is right.
        while let Ok(Some(frame)) = found.next() {
            let name = frame.function.as_ref().and_then(|name| name.raw_name().ok()).map(Cow::into_owned);
            let place = frame.location;
            frames.push(SourceFrame {
                function: name.map(|name| demangle(&name).into_owned()),
                file: place.as_ref().and_then(|place| place.file).map(str::to_owned),
                line: place.as_ref().and_then(|place| place.line).unwrap_or(0),
                column: place.as_ref().and_then(|place| place.column).unwrap_or(0),
                text: None,
            });
            if frames.len() >= MAX_DEPTH {
                break;
            }
        }
        frames
    }
}

impl DwarfLines {
    /// Where in a range of addresses the functions or the line may change, ascending: the beginnings of the rows of the
    /// line table. Empty for lines that were kept.
    pub(crate) fn rows(&self, range: Range<u64>) -> Vec<u64> {
        let Held::Sections(context) = &self.held else { return Vec::new() };
        let Ok(rows) = context.find_location_range(range.start, range.end) else { return Vec::new() };
        let mut starts: Vec<u64> = rows.flat_map(|(start, len, _)| [start, start.saturating_add(len)]).collect();
        starts.retain(|start| range.contains(start));
        starts.sort_unstable();
        starts.dedup();
        starts
    }
}

/// The owner of what nobody here has written.
const NOBODY: u32 = u32::MAX;

/// Deeper than any compiler inlines.
const MAX_DEPTH: usize = 256;

/// Whether an object has lines itself, so that no debug file need be looked for.
pub(crate) fn has_lines<'d>(file: &impl object::Object<'d>) -> bool {
    file.section_by_name(".debug_line").is_some_and(|section| section.size() > 0)
}

/// A section, unpacked; its length is taken from what is `left` for all.
fn section<'d>(file: &impl object::Object<'d>, name: &str, left: &mut u64) -> Result<Arc<[u8]>, Error> {
    const W: &str = "section of debug information";
    let Some(section) = file.section_by_name(name) else { return Ok(Arc::default()) };
    let most = MAX_SECTION.min(*left);
    // Before it is read. A debug file names the code sections too, without bytes.
    let range = section.compressed_file_range().map_err(damaged(W))?;
    if range.compressed_size.max(range.uncompressed_size) > most {
        return Err(Error::new(ErrorKind::Limit, W));
    }
    let bytes = packed::unpack(&section.compressed_data().map_err(damaged(W))?, most, W)?;
    *left -= bytes.len() as u64;
    Ok(bytes.into())
}

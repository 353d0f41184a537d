//! What an object has of unwind tables: the sections as they are, for who unwinds stacks.

use object::read::ReadRef;
use object::{Object as _, ObjectSection as _};

use crate::Machine;
use crate::elf::{Segment, segments_of};
use crate::error::{Error, ErrorKind, damaged};
use crate::finder::machine_of;
use crate::packed;

/// The most bytes of one section: the tables of the largest programs have some ten million.
pub(crate) const MAX_SECTION: u64 = 64 << 20;

/// A section with the address that it asks for, in the object's own address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its first address.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The unwind tables of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwindSections {
    /// What instructions the object holds.
    pub machine: Machine,
    /// `.eh_frame`, if it has some.
    pub eh_frame: Option<Placed>,
    /// `.eh_frame_hdr`, if it has some.
    pub eh_frame_hdr: Option<Placed>,
    /// `.debug_frame`, unpacked, if it or its debug file has some.
    pub debug_frame: Option<Vec<u8>>,
    /// There are more tables, which were left out: they are longer than 64 MiB, or packed more tightly than tables can be.
    pub left_out: bool,
    /// The address of `.text`; 0 without one.
    pub text: u64,
    /// The address of `.got`; 0 without one.
    pub got: u64,
    /// Where the bytes of its file are loaded to.
    pub segments: Vec<Segment>,
}

impl UnwindSections {
    /// Reads them from an object of little-endian 64-bit words; `len` is its length in bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] when it is no such object, or a header leads outside of it.
    pub(crate) fn of<'d, R: ReadRef<'d>>(data: R, len: u64) -> Result<UnwindSections, Error> {
        let file = object::File::parse(data).map_err(damaged("ELF header"))?;
        if !file.is_little_endian() || !file.is_64() {
            return Err(Error::new(ErrorKind::Damaged, "unwind tables of another form"));
        }
        let address = |name: &str| file.section_by_name(name).map_or(0, |section| section.address());
        let mut sections = UnwindSections {
            machine: machine_of(file.architecture()),
            eh_frame: None,
            eh_frame_hdr: None,
            debug_frame: None,
            left_out: false,
            text: address(".text"),
            got: address(".got"),
            segments: segments_of(data)?,
        };
        let mut beyond = |error: Error| sections.left_out |= error.kind() == ErrorKind::Limit;
        sections.eh_frame = placed(&file, ".eh_frame", len).map_err(&mut beyond).ok().flatten();
        sections.debug_frame = debug_frame(&file, len).map_err(&mut beyond).ok().flatten();
        // Without it the tables are read from their beginning: no less is found.
        sections.eh_frame_hdr = placed(&file, ".eh_frame_hdr", len).ok().flatten();
        Ok(sections)
    }

    /// The address that the byte at `offset` of the file is loaded to.
    pub fn vaddr_of_offset(&self, offset: u64) -> Option<u64> {
        let holds = |s: &&Segment| offset.checked_sub(s.offset).is_some_and(|into| into < s.file_size);
        let segment = self.segments.iter().filter(|s| s.executable).chain(&self.segments).find(holds)?;
        Some(segment.vaddr.wrapping_add(offset - segment.offset))
    }
}

/// Whether so many bytes of a file of `len` are there, and few enough to be read.
fn readable(size: u64, len: u64, what: &'static str) -> Result<bool, Error> {
    match size {
        0 => Ok(false),
        _ if size > len => Ok(false),
        _ if size > MAX_SECTION => Err(Error::new(ErrorKind::Limit, what)),
        _ => Ok(true),
    }
}

/// A section whose bytes are all there.
fn placed<'d>(file: &impl object::Object<'d>, name: &'static str, len: u64) -> Result<Option<Placed>, Error> {
    let Some(section) = file.section_by_name(name) else { return Ok(None) };
    // Debug files name the sections of the object without their bytes.
    let size = section.file_range().map_or(0, |(_, size)| size);
    if !readable(size, len, name)? {
        return Ok(None);
    }
    let bytes = section.data().map_err(damaged(name))?;
    Ok(Some(Placed { address: section.address(), bytes: bytes.to_vec() }))
}

/// `.debug_frame`, which may be packed.
fn debug_frame<'d>(file: &impl object::Object<'d>, len: u64) -> Result<Option<Vec<u8>>, Error> {
    const NAME: &str = ".debug_frame";
    let Some(section) = file.section_by_name(NAME) else { return Ok(None) };
    let range = section.compressed_file_range().map_err(damaged(NAME))?;
    if !readable(range.compressed_size, len, NAME)? {
        return Ok(None);
    }
    let packed = section.compressed_data().map_err(damaged(NAME))?;
    Ok(Some(packed::unpack(&packed, MAX_SECTION, NAME)?).filter(|bytes| !bytes.is_empty()))
}

/// The unwind tables of a vDSO, whose offsets are those of its mapping.
///
/// # Errors
/// As of any object.
pub(crate) fn of_image(image: &[u8]) -> Result<UnwindSections, Error> {
    UnwindSections::of(image, image.len() as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::vdso;

    #[test]
    fn our_own_program_has_tables() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let sections = UnwindSections::of(program.as_slice(), program.len() as u64).unwrap();
        let frames = sections.eh_frame.unwrap();
        let header = sections.eh_frame_hdr.unwrap();
        assert!(frames.bytes.len() > 1000 && header.bytes.len() > 100);
        assert_ne!((frames.address, sections.text), (0, 0));
    }

    #[test]
    fn the_vdso_has_tables() {
        let sections = vdso::own().unwrap().unwind_sections().unwrap();
        assert!(sections.eh_frame.is_some());
        assert_eq!(sections.vaddr_of_offset(0x40), Some(0x40));
    }

    #[test]
    fn what_is_cut_short_has_none_or_is_refused() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        for len in [0, 10, 64, 100, 1000, program.len() / 2] {
            if let Ok(sections) = UnwindSections::of(&program[..len], len as u64) {
                assert!(sections.debug_frame.is_none());
            }
        }
    }
}

//! The vDSO: code that the kernel maps into every process.
//!
//! All processes of one kind (64-bit ones, say) share the image, so that our own stands for theirs, on the same
//! kernel. It never was a file.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::{Error, Reason, SymbolTable, UnwindSections, unwind};

/// Largest image that is read; the real ones are one to four pages.
const MAX_IMAGE: u64 = 1 << 20;

/// The vDSO of this kernel as 64-bit processes have it.
#[derive(Debug, Clone)]
pub struct Vdso {
    /// Its symbols. Its file offsets are those of the mapping: look up `ip - map.start` with
    /// [`lookup_offset`](SymbolTable::lookup_offset).
    pub table: Arc<SymbolTable>,
    /// The length of the mapping in bytes. A mapping of another length holds another image (of 32-bit processes).
    pub len: u64,
    image: Arc<[u8]>,
}

impl Vdso {
    /// Its bytes.
    pub fn image(&self) -> &Arc<[u8]> {
        &self.image
    }

    /// Its unwind tables.
    ///
    /// # Errors
    /// When the image is not an object of little-endian 64-bit words.
    pub fn unwind_sections(&self) -> Result<UnwindSections, Error> {
        unwind::of_image(&self.image)
    }
}

/// The vDSO of our own process.
///
/// # Errors
/// [`Reason::NoVdso`] where there is none or it cannot be read.
pub fn own() -> Result<Vdso, Reason> {
    let image = read_image().ok_or(Reason::NoVdso)?;
    let table = SymbolTable::from_elf(&image).map_err(|_| Reason::NoVdso)?;
    Ok(Vdso { table: Arc::new(table), len: image.len() as u64, image: image.into() })
}

fn read_image() -> Option<Vec<u8>> {
    let maps = BufReader::new(File::open("/proc/self/maps").ok()?);
    let line = maps.lines().map_while(Result::ok).find(|line| line.ends_with("[vdso]"))?;
    let (start, rest) = line.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(rest.split(' ').next()?, 16).ok()?;
    let len = end.checked_sub(start).filter(|&len| len <= MAX_IMAGE)?;
    let mut image = vec![0; usize::try_from(len).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut image, start).ok()?;
    Some(image)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn names_the_clock() {
        let vdso = own().unwrap();
        let clock = vdso.table.iter().find(|s| s.name.contains("clock_gettime")).unwrap();
        let hit = vdso.table.lookup_offset(clock.start + 1).unwrap();
        assert_eq!((hit.name, hit.offset), (clock.name, 1));
        assert!(vdso.table.build_id().is_some());
        assert_eq!(vdso.len % 4096, 0);
    }
}

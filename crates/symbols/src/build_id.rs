//! Build ids of files, without reading the rest of them.

use std::fs::File;

use crate::source::Tables;

/// The GNU build id of an ELF file: only headers and notes are read, and the file's position stays
/// where it is. `None` when it is no ELF file or has none.
pub fn of_file(file: &File) -> Option<Vec<u8>> {
    crate::elf::build_id_of(&Tables::of(file)).ok().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_same_as_from_the_whole_file() {
        let path = std::fs::read_link("/proc/self/exe").unwrap();
        let whole = crate::SymbolTable::from_elf(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(of_file(&File::open(&path).unwrap()).as_deref(), whole.build_id());
        assert_eq!(crate::SymbolTable::from_file(&File::open(&path).unwrap()).unwrap(), whole);
        assert_eq!(of_file(&File::open("/proc/self/status").unwrap()), None);
    }
}

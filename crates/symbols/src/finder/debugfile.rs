//! Separate debug files, and copies of objects that are filed by build id.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::cache::hex;
use crate::elf::{Builder, Debuglink, build_id_of};
use crate::source::{Files, Place, Source, Tables};

/// Where debug files are looked for.
pub(super) struct DebugDirs {
    /// Folders with `.build-id/xx/yyyy.debug`, and with the paths of objects mirrored below them.
    dirs: Vec<PathBuf>,
    /// Where perf keeps whole copies, as `.build-id/xx/yyyy/elf`.
    copies: Option<PathBuf>,
}

impl DebugDirs {
    pub(super) fn usual() -> DebugDirs {
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        DebugDirs { dirs: vec!["/usr/lib/debug".into()], copies: home.map(|home| home.join(".debug")) }
    }

    pub(super) fn only(dir: PathBuf) -> DebugDirs {
        DebugDirs { dirs: vec![dir], copies: None }
    }

    /// Copies of whole objects with this build id; each still has to show that it has it.
    pub(super) fn copies(&self, build_id: &[u8]) -> Vec<PathBuf> {
        let Some((first, rest)) = split(build_id) else { return Vec::new() };
        let name = |dir: &PathBuf, tail: &str| dir.join(".build-id").join(&first).join(format!("{rest}{tail}"));
        let links = self.dirs.iter().map(|dir| name(dir, ""));
        links.chain(self.copies.iter().map(|dir| name(dir, "/elf"))).collect()
    }

    /// Where a debug file of this build id would be filed; each still has to show that it has it.
    pub(super) fn debug_files(&self, build_id: &[u8]) -> Vec<PathBuf> {
        let Some((first, rest)) = split(build_id) else { return Vec::new() };
        self.dirs.iter().map(|dir| dir.join(".build-id").join(&first).join(format!("{rest}.debug"))).collect()
    }

    /// The debug file that is filed under a build id.
    pub(super) fn by_build_id(&self, files: &dyn Files, build_id: &[u8]) -> Option<Box<dyn Source>> {
        let paths = self.debug_files(build_id);
        let mut sources = paths.iter().filter_map(|path| files.open(&Place::own(path)).ok());
        sources.find(|source| is_of(&**source, build_id))
    }

    /// Adds the symbols of the object's debug file, if there is one. A damaged one adds what could be read of it.
    pub(super) fn add_to(
        &self,
        builder: &mut Builder,
        files: &dyn Files,
        root: Option<&Path>,
        object: &Path,
        link: Option<&Debuglink>,
    ) {
        if let Some(source) = self.source(files, root, object, builder.build_id(), link) {
            let _ = builder.add_debug_file(&Tables::of(&*source));
        }
    }

    /// An object's debug file, if there is one.
    pub(super) fn source(
        &self,
        files: &dyn Files,
        root: Option<&Path>,
        object: &Path,
        build_id: &[u8],
        link: Option<&Debuglink>,
    ) -> Option<Box<dyn Source>> {
        let by_id = self.by_build_id(files, build_id);
        by_id.or_else(|| self.by_link(files, root, object, build_id, link?))
    }

    /// The file that `.gnu_debuglink` names: beside the object, in `.debug/` beside it, or mirrored below a debug
    /// folder. It is the right one if its build id is, or, without build ids, its checksum.
    fn by_link(
        &self,
        files: &dyn Files,
        root: Option<&Path>,
        object: &Path,
        build_id: &[u8],
        link: &Debuglink,
    ) -> Option<Box<dyn Source>> {
        let name = Path::new(std::ffi::OsStr::from_bytes(&link.name));
        let folder = object.parent()?;
        let mirrored = |dir: &PathBuf| dir.join(folder.strip_prefix("/").unwrap_or(folder)).join(name);
        let beside = [folder.join(name), folder.join(".debug").join(name)];
        let paths = beside.into_iter().chain(self.dirs.iter().map(mirrored)).filter(|path| path != object);
        let mut sources = paths.filter_map(|path| files.open(&Place { root, path: &path, follow: true }).ok());
        let right = |source: &dyn Source| match build_id {
            [] => checksum(source) == Some(link.crc),
            id => is_of(source, id),
        };
        sources.find(|source| right(&**source))
    }
}

fn split(build_id: &[u8]) -> Option<(String, String)> {
    let (first, rest) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    Some((hex(&[*first]), hex(rest)))
}

fn is_of(source: &dyn Source, build_id: &[u8]) -> bool {
    build_id_of(&Tables::of(source)).is_ok_and(|id| id == build_id)
}

/// CRC-32 (IEEE 802.3) of the whole file.
fn checksum(source: &dyn Source) -> Option<u32> {
    const STEP: usize = 64 * 1024;
    let mut buffer = vec![0; STEP];
    let (mut crc, mut at) = (u32::MAX, 0);
    loop {
        let got = source.read_at(&mut buffer, at).ok()?;
        let part = buffer.get(..got).filter(|part| !part.is_empty());
        let Some(part) = part else { return Some(!crc) };
        crc = part.iter().fold(crc, |crc, &byte| {
            let index = (crc ^ u32::from(byte)) & 0xff;
            TABLE.get(index as usize).copied().unwrap_or_default() ^ (crc >> 8)
        });
        at += got as u64;
    }
}

static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::source::fake::FakeFiles;

    #[test]
    fn the_known_checksum() {
        let files = FakeFiles::default().with("/x", "123456789");
        let source = files.open(&Place::own(Path::new("/x"))).unwrap();
        assert_eq!(checksum(&*source), Some(0xcbf4_3926));
    }

    #[test]
    fn filed_by_the_first_byte() {
        let dirs = DebugDirs::only("/d".into());
        assert_eq!(dirs.copies(&[0xab, 0x01, 0xff]), [PathBuf::from("/d/.build-id/ab/01ff")]);
        assert!(dirs.copies(&[0xab]).is_empty());
    }
}

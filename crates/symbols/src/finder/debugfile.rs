//! Separate debug files, and copies of objects that are filed by build id.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Candidate;
use super::refused::{Mismatch, Tried};
use crate::cache::hex;
use crate::elf::{Builder, Debuglink, build_id_of};
use crate::source::{Files, Source, Tables};

/// Where debug files are looked for.
pub(super) struct DebugDirs {
    /// Folders with `.build-id/`, and with the paths of objects mirrored below them.
    dirs: Vec<Dir>,
    /// Where perf keeps whole copies, as `.build-id/xx/yyyy/elf`.
    copies: Option<PathBuf>,
}

/// A folder, and the folder that is `/` for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dir {
    root: Option<PathBuf>,
    path: PathBuf,
}

/// Where distributions install debug files.
const USUAL: &str = "/usr/lib/debug";

impl DebugDirs {
    pub(super) fn usual() -> DebugDirs {
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        DebugDirs { dirs: vec![Dir::own(USUAL.into())], copies: home.map(|home| home.join(".debug")) }
    }

    pub(super) fn only(dir: PathBuf) -> DebugDirs {
        DebugDirs { dirs: vec![Dir::own(dir)], copies: None }
    }

    /// The same with more folders, which are asked first.
    pub(super) fn behind(mut self, first: Vec<PathBuf>) -> DebugDirs {
        self.dirs.splice(0..0, first.into_iter().map(Dir::own));
        self
    }

    /// The same, with the usual folder inside of another root.
    pub(super) fn inside(mut self, root: &Path) -> DebugDirs {
        let usual = self.dirs.iter_mut().filter(|dir| dir.path == Path::new(USUAL));
        usual.for_each(|dir| dir.root = Some(root.into()));
        self
    }

    /// Copies of whole objects with this build id; each still has to show that it has it. A folder may be laid out as
    /// distributions do (`xx/yyyy` is the object) or as perf does (`xx/yyyy/elf` is).
    pub(super) fn copies(&self, build_id: &[u8]) -> Vec<Candidate> {
        self.filed(build_id, &["", "/elf"], &["/elf"])
    }

    /// Where a debug file of this build id would be filed; each still has to show that it has it.
    pub(super) fn debug_files(&self, build_id: &[u8]) -> Vec<Candidate> {
        self.filed(build_id, &[".debug", "/debug"], &["/debug"])
    }

    /// Where perf files the list of symbols of the kernel that has this build id.
    pub(super) fn kallsyms(&self, build_id: &[u8]) -> Vec<Candidate> {
        self.filed(build_id, &["/kallsyms"], &["/kallsyms"])
    }

    fn filed(&self, build_id: &[u8], tails: &[&str], tails_of_perf: &[&str]) -> Vec<Candidate> {
        let Some((first, rest)) = split(build_id) else { return Vec::new() };
        let at = |dir: &Path, tail: &&str| dir.join(".build-id").join(&first).join(format!("{rest}{tail}"));
        let listed = self
            .dirs
            .iter()
            .flat_map(|dir| tails.iter().map(|tail| Candidate { root: dir.root.clone(), path: at(&dir.path, tail) }));
        let of_perf = self.copies.iter().flat_map(|dir| tails_of_perf.iter().map(|tail| Candidate::own(at(dir, tail))));
        listed.chain(of_perf).collect()
    }

    /// The debug file that is filed under a build id.
    pub(super) fn by_build_id(&self, files: &dyn Files, build_id: &[u8], tried: &mut Tried) -> Option<Box<dyn Source>> {
        self.debug_files(build_id).into_iter().find_map(|place| {
            let source = files.open(&place.as_place()).ok()?;
            right(&*source, build_id, &place.path, tried).then_some(source)
        })
    }

    /// Adds the symbols of the object's debug file, if there is one. A damaged one adds what could be read of it.
    pub(super) fn add_to(
        &self,
        builder: &mut Builder,
        files: &dyn Files,
        object: &Candidate,
        link: Option<&Debuglink>,
        tried: &mut Tried,
    ) {
        if let Some(source) = self.source(files, object, builder.build_id(), link, tried) {
            let _ = builder.add_debug_file(&Tables::of(&*source));
        }
    }

    /// An object's debug file, if there is one. What was refused on the way to it is of no interest then.
    pub(super) fn source(
        &self,
        files: &dyn Files,
        object: &Candidate,
        build_id: &[u8],
        link: Option<&Debuglink>,
        tried: &mut Tried,
    ) -> Option<Box<dyn Source>> {
        let before = tried.debug.len();
        let by_id = self.by_build_id(files, build_id, tried);
        let found = by_id.or_else(|| self.by_link(files, object, build_id, link?, tried));
        if found.is_some() {
            tried.debug.truncate(before);
        }
        found
    }

    /// The file that `.gnu_debuglink` names: beside the object, in `.debug/` beside it, or mirrored below a debug
    /// folder. It is the right one if its build id is, or, without build ids, its checksum.
    fn by_link(
        &self,
        files: &dyn Files,
        object: &Candidate,
        build_id: &[u8],
        link: &Debuglink,
        tried: &mut Tried,
    ) -> Option<Box<dyn Source>> {
        let name = Path::new(std::ffi::OsStr::from_bytes(&link.name));
        let folder = object.path.parent()?;
        let beside = [folder.join(name), folder.join(".debug").join(name)];
        let beside = beside.into_iter().map(|path| Candidate { root: object.root.clone(), path });
        let mirrored = self.dirs.iter().map(|dir| Candidate {
            // A debug folder of the process's own root mirrors that.
            root: dir.root.clone().or_else(|| object.root.clone().filter(|_| dir.path == Path::new(USUAL))),
            path: dir.path.join(folder.strip_prefix("/").unwrap_or(folder)).join(name),
        });
        beside.chain(mirrored).filter(|place| place.path != object.path).find_map(|place| {
            let source = files.open(&place.as_place()).ok()?;
            let is_right = match build_id {
                [] if checksum(&*source) == Some(link.crc) => true,
                [] => {
                    tried.debug_file(&place.path, build_id, Mismatch::Checksum);
                    false
                }
                id => right(&*source, id, &place.path, tried),
            };
            is_right.then_some(source)
        })
    }
}

impl Dir {
    fn own(path: PathBuf) -> Dir {
        Dir { root: None, path }
    }
}

/// Whether a file has a build id; if it has another, that is told. What is no object at all is none's debug file.
fn right(source: &dyn Source, build_id: &[u8], path: &Path, tried: &mut Tried) -> bool {
    let Ok(own) = build_id_of(&Tables::of(source)) else { return false };
    let right = own == build_id;
    if !right {
        tried.debug_file(path, build_id, Mismatch::BuildId(own));
    }
    right
}

fn split(build_id: &[u8]) -> Option<(String, String)> {
    let (first, rest) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    Some((hex(&[*first]), hex(rest)))
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
    use crate::source::Place;
    use crate::source::fake::FakeFiles;

    #[test]
    fn the_known_checksum() {
        let files = FakeFiles::default().with("/x", "123456789");
        let source = files.open(&Place::own(Path::new("/x"))).unwrap();
        assert_eq!(checksum(&*source), Some(0xcbf4_3926));
    }

    fn paths(places: Vec<Candidate>) -> Vec<String> {
        let root = |place: &Candidate| place.root.as_ref().map_or(String::new(), |root| format!("{}:", root.display()));
        places.iter().map(|place| format!("{}{}", root(place), place.path.display())).collect()
    }

    #[test]
    fn filed_by_the_first_byte() {
        let dirs = DebugDirs::only("/d".into());
        assert_eq!(paths(dirs.copies(&[0xab, 0x01, 0xff])), ["/d/.build-id/ab/01ff", "/d/.build-id/ab/01ff/elf"]);
        assert!(dirs.copies(&[0xab]).is_empty());
    }

    #[test]
    fn folders_of_the_user_are_asked_first_and_another_root_has_its_own() {
        let dirs = DebugDirs { copies: Some("/home/.debug".into()), ..DebugDirs::only(USUAL.into()) };
        let dirs = dirs.behind(vec!["/mine".into()]).inside(Path::new("/tree"));
        let expected = [
            "/mine/.build-id/ab/cd.debug",
            "/mine/.build-id/ab/cd/debug",
            "/tree:/usr/lib/debug/.build-id/ab/cd.debug",
            "/tree:/usr/lib/debug/.build-id/ab/cd/debug",
            "/home/.debug/.build-id/ab/cd/debug",
        ];
        assert_eq!(paths(dirs.debug_files(&[0xab, 0xcd])), expected);
    }
}

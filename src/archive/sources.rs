//! Which lines of source files an archive carries.
//!
//! The names of the files come from debug information, and that may be anybody's: a recording can lead to an object, or to a
//! debug file, that names a file of somebody else as its source. An archive is given away. So a line goes into it only of what
//! is a source file by its name, what the owner of the debug information could have read as well, and what is still the file
//! that was compiled, where DWARF 5 tells that. `docs/report.md` says it to users.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use afterimage_symbols::kept::LineOf;
use rustix::fs::OFlags;

use super::md5;

/// The longest source file that is read, in bytes.
const MOST: u64 = 16 << 20;

/// How the names of source files end, in small letters: of C and C++, assembler, Rust, Go, Fortran, Ada, D, Pascal, Swift, Zig, Nim,
/// Haskell, OCaml, CUDA, languages of the Java machine, and of what is compiled by way of C.
const ENDINGS: [&str; 68] = [
    "c", "h", "i", "cc", "cp", "cpp", "cxx", "c++", "hh", "hp", "hpp", "hxx", "h++", "ii", "inc", "inl", "ipp", "ixx",
    "cppm", "tcc", "tpp", "txx", "def", "x", "y", "yy", "l", "ll", "re", "rl", "m", "mm", "s", "sx", "asm", "rs", "go",
    "f", "for", "ftn", "fpp", "f77", "f90", "f95", "f03", "f08", "adb", "ads", "ada", "d", "di", "pas", "swift", "zig",
    "nim", "hs", "lhs", "ml", "mli", "cu", "cuh", "java", "kt", "scala", "vala", "pyx", "pxd", "cr",
];

/// Source files of one archive, each read once.
#[derive(Default)]
pub(super) struct Sources {
    files: HashMap<String, Result<Source, Left>>,
    taken: usize,
    left: BTreeMap<String, Left>,
}

/// A file that is a source by its name.
struct Source {
    lines: Vec<Arc<str>>,
    md5: [u8; 16],
    owner: u32,
    /// Whether its mode, and that of every folder above it, lets everybody read it.
    for_all: bool,
    taken: bool,
}

/// Why the lines of a file are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// It is not there, or may not be read.
    NotThere,
    /// Its name is not that of a source file, it is no ordinary file, not text, or too long.
    NoSource,
    /// Whoever owns the debug information could not have read it.
    NotTheirs,
    /// It is not the one that was compiled.
    Changed,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Left::NotThere => "it cannot be read",
            Left::NoSource => "not a source file",
            Left::NotTheirs => "the owner of the debug information that names it may not read it",
            Left::Changed => "changed since it was compiled",
        })
    }
}

impl Sources {
    /// What stands in a line, if it may be kept.
    pub(super) fn line(&mut self, of: &LineOf<'_>) -> Option<Arc<str>> {
        let at = usize::try_from(of.line).ok()?.checked_sub(1)?;
        let file = self.files.entry(of.file.to_owned()).or_insert_with(|| read(Path::new(of.file)));
        let source = match file {
            Ok(source) => source.may_be_taken(of).map(|()| source),
            Err(left) => Err(*left),
        };
        match source {
            Ok(source) => {
                self.taken += usize::from(!std::mem::replace(&mut source.taken, true));
                source.lines.get(at).cloned()
            }
            Err(left) => {
                if left != Left::NotThere {
                    self.left.insert(of.file.to_owned(), left);
                }
                None
            }
        }
    }

    /// How many files lines were taken of.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Files that are there and were left out, with the reason.
    pub(super) fn left(&self) -> &BTreeMap<String, Left> {
        &self.left
    }
}

impl Source {
    fn may_be_taken(&self, of: &LineOf<'_>) -> Result<(), Left> {
        if !self.for_all && self.owner != of.owner {
            return Err(Left::NotTheirs);
        }
        match of.md5 {
            Some(md5) if md5 != self.md5 => Err(Left::Changed),
            _ => Ok(()),
        }
    }
}

fn is_source(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

fn read(path: &Path) -> Result<Source, Left> {
    if !path.is_absolute() {
        return Err(Left::NotThere);
    }
    // Neither a FIFO nor a terminal is waited for.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path).map_err(|_| Left::NotThere)?;
    let meta = file.metadata().map_err(|_| Left::NotThere)?;
    // Where it really is, whatever links led there.
    let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(|_| Left::NotThere)?;
    if !meta.is_file() || meta.len() > MOST || !is_source(&real) {
        return Err(Left::NoSource);
    }
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(|_| Left::NotThere)?;
    if bytes.len() as u64 > MOST || bytes.contains(&0) {
        return Err(Left::NoSource);
    }
    Ok(Source {
        lines: String::from_utf8_lossy(&bytes).lines().map(Arc::from).collect(),
        md5: md5::of(&bytes),
        owner: meta.uid(),
        for_all: meta.mode() & 0o004 != 0 && is_reached_by_all(&real),
        taken: false,
    })
}

/// Whether everybody may go through every folder above a file.
fn is_reached_by_all(real: &Path) -> bool {
    real.ancestors().skip(1).all(|folder| fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o001 != 0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Nobody on this machine.
    const NOBODY: u32 = u32::MAX;

    struct Place {
        dir: tempfile::TempDir,
        me: u32,
    }

    impl Place {
        fn new() -> Place {
            let dir = tempfile::tempdir().unwrap();
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
            let me = fs::metadata(dir.path()).unwrap().uid();
            Place { dir, me }
        }

        fn write(&self, name: &str, mode: u32) -> String {
            let path = self.dir.path().join(name);
            fs::write(&path, "first\nsecond\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.to_str().unwrap().to_owned()
        }
    }

    fn asked(file: &str, owner: u32, md5: Option<[u8; 16]>) -> Result<Arc<str>, Left> {
        let mut sources = Sources::default();
        let line = sources.line(&LineOf { file, line: 2, md5, owner });
        assert_eq!(sources.taken(), usize::from(line.is_some()));
        line.ok_or_else(|| sources.left().get(file).copied().unwrap_or(Left::NotThere))
    }

    #[test]
    fn only_what_is_a_source_by_its_real_name() {
        let place = Place::new();
        for name in ["a.c", "b.RS", "c.s"] {
            assert_eq!(&*asked(&place.write(name, 0o644), place.me, None).unwrap(), "second", "{name}");
        }
        for name in ["shadow", "id_rsa", "key.pem", ".c", "c.conf", "x.c~"] {
            assert_eq!(asked(&place.write(name, 0o644), place.me, None), Err(Left::NoSource), "{name}");
        }
        let secret = place.write("secret", 0o644);
        let link = place.dir.path().join("link.c");
        symlink(&secret, &link).unwrap();
        assert_eq!(asked(link.to_str().unwrap(), place.me, None), Err(Left::NoSource));
        fs::write(place.dir.path().join("binary.c"), b"a\0b").unwrap();
        let binary = place.dir.path().join("binary.c");
        assert_eq!(asked(binary.to_str().unwrap(), place.me, None), Err(Left::NoSource));
        assert_eq!(asked("/dev/zero", place.me, None), Err(Left::NoSource));
        assert_eq!(asked("relative.c", place.me, None), Err(Left::NotThere));
        assert_eq!(asked("/none/there.c", place.me, None), Err(Left::NotThere));
    }

    #[test]
    fn only_what_the_owner_of_the_debug_information_could_read() {
        let place = Place::new();
        let (open, closed) = (place.write("open.c", 0o644), place.write("closed.c", 0o640));
        assert!(asked(&open, NOBODY, None).is_ok());
        assert!(asked(&closed, place.me, None).is_ok());
        assert_eq!(asked(&closed, NOBODY, None), Err(Left::NotTheirs));
        assert_eq!(asked(&closed, place.me + 1, None), Err(Left::NotTheirs));
        // A folder above it is closed.
        fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(asked(&open, NOBODY, None), Err(Left::NotTheirs));
        assert!(asked(&open, place.me, None).is_ok());
        // One that both ask for is asked about for each.
        let mut sources = Sources::default();
        let mut of = |owner| sources.line(&LineOf { file: &open, line: 1, md5: None, owner }).is_some();
        assert_eq!((of(NOBODY), of(place.me), of(NOBODY)), (false, true, false));
    }

    #[test]
    fn only_what_was_compiled() {
        let place = Place::new();
        let file = place.write("a.c", 0o644);
        assert!(asked(&file, place.me, Some(md5::of(b"first\nsecond\n"))).is_ok());
        assert_eq!(asked(&file, place.me, Some(md5::of(b"first\nother\n"))), Err(Left::Changed));
    }
}

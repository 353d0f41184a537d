//! Where bytes come from: the one trait through which objects and maps of processes are read.
//!
//! Everything here may belong to somebody else, and is read as root. So nothing is mapped (its owner could cut the
//! file short under a mapping), nothing but regular files is opened, no read waits, and paths of a process are
//! resolved inside that process's root, so that its symbolic links cannot lead out of it.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use object::read::{ReadCache, ReadCacheOps, ReadRef};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// What a path of a mapping stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathKind {
    /// An ordinary file.
    File,
    /// A file that was deleted while it was mapped: its path ends in ` (deleted)`.
    Deleted,
    /// A memory file (`memfd_create(2)`): an object that was never on disk, or code of a JIT compiler.
    Memfd,
    /// `[vdso]`.
    Vdso,
    /// `[vsyscall]`.
    Vsyscall,
    /// Anonymous memory: code there is a JIT compiler's, and a [map](crate::perfmap) may name it.
    Anonymous,
    /// A heap, a stack, a device, an object of the kernel: holds no code with names.
    Special,
}

/// What the path of an MMAP2 record or of `/proc/PID/maps` stands for.
pub fn classify(path: &[u8]) -> PathKind {
    const ANONYMOUS: [&[u8]; 5] = [b"//anon", b"/dev/zero", b"/anon_hugepage", b"[anon", b"anon_hugepage"];
    const SPECIAL: [&[u8]; 5] = [b"/SYSV", b"/dev/", b"anon_inode:", b"socket:", b"pipe:"];
    let starts = |prefixes: &[&[u8]]| prefixes.iter().any(|p| path.starts_with(p));
    match path {
        b"[vdso]" => PathKind::Vdso,
        b"[vsyscall]" => PathKind::Vsyscall,
        b"" => PathKind::Anonymous,
        _ if starts(&ANONYMOUS) => PathKind::Anonymous,
        _ if starts(&[b"/memfd:"]) => PathKind::Memfd,
        _ if starts(&[b"/dev/shm/"]) => file_kind(path),
        _ if starts(&SPECIAL) => PathKind::Special,
        [b'/', ..] => file_kind(path),
        _ => PathKind::Special,
    }
}

const DELETED: &[u8] = b" (deleted)";

fn file_kind(path: &[u8]) -> PathKind {
    if path.ends_with(DELETED) { PathKind::Deleted } else { PathKind::File }
}

/// The path without the mark of a deleted file.
pub(crate) fn plain_path(path: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(path.strip_suffix(DELETED).unwrap_or(path)))
}

/// A file to open.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The folder that is `/` for this path; `None` for our own.
    pub root: Option<&'a Path>,
    /// An absolute path.
    pub path: &'a Path,
    /// Whether the last part of the path may be a symbolic link.
    pub follow: bool,
}

impl<'a> Place<'a> {
    /// A path of our own, links followed.
    pub fn own(path: &'a Path) -> Place<'a> {
        Place { root: None, path, follow: true }
    }
}

/// Reads files and links. [`RealFiles`] does; tests bring their own.
pub trait Files: Send {
    /// Opens a regular file.
    ///
    /// # Errors
    /// As open(2) has; [`io::ErrorKind::InvalidInput`] for what is not a regular file.
    fn open(&self, place: &Place<'_>) -> io::Result<Box<dyn Source>>;

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// As readlink(2) has.
    fn read_link(&self, path: &Path) -> io::Result<PathBuf>;
}

/// Tells one state of a file from every other: device, inode, size, time of change.
pub type Identity = [u64; 5];

/// An open file.
pub trait Source {
    /// Its length in bytes; zero for files of procfs.
    fn len(&self) -> u64;

    /// Whether it says that it is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its owner's user number.
    fn owner(&self) -> u32;

    /// What tells this state of this file from others, where that is known.
    fn identity(&self) -> Option<Identity>;

    /// Reads some bytes at an offset; fewer than asked for, or none, at the end.
    ///
    /// # Errors
    /// As pread(2) has.
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// The whole of a source, whatever length it claims, unless it is longer than `limit`.
///
/// # Errors
/// When it cannot be read, and [`io::ErrorKind::FileTooLarge`].
pub fn read_all(source: &dyn Source, limit: usize) -> io::Result<Vec<u8>> {
    const STEP: usize = 64 * 1024;
    let mut bytes = Vec::new();
    loop {
        let have = bytes.len();
        bytes.resize(have + STEP, 0);
        let got = source.read_at(bytes.get_mut(have..).unwrap_or_default(), have as u64)?;
        bytes.truncate(have + got);
        if got == 0 {
            return Ok(bytes);
        }
        if bytes.len() > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

impl RealFiles {
    /// Opens a regular file.
    ///
    /// # Errors
    /// As open(2) has; [`io::ErrorKind::InvalidInput`] for what is not a regular file.
    pub fn open_file(&self, place: &Place<'_>) -> io::Result<File> {
        let file = open(place)?;
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(file)
    }
}

impl Files for RealFiles {
    fn open(&self, place: &Place<'_>) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(self.open_file(place)?))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::read_link(path)
    }
}

fn open(place: &Place<'_>) -> io::Result<File> {
    // A FIFO must not make us wait, a terminal must not become ours.
    let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    if !place.follow {
        flags |= OFlags::NOFOLLOW;
    }
    let Some(root) = place.root else {
        return Ok(File::from(rustix::fs::openat(CWD, place.path, flags, Mode::empty())?));
    };
    let dir = rustix::fs::openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(&dir, place.path, flags, Mode::empty(), inside) {
        // Kernels before 5.6, and sandboxes, have no openat2: then without the guard, and with a build id compared.
        Err(rustix::io::Errno::NOSYS) => {
            let relative = place.path.strip_prefix("/").unwrap_or(place.path);
            Ok(File::from(rustix::fs::openat(&dir, relative, flags, Mode::empty())?))
        }
        result => Ok(File::from(result?)),
    }
}

impl Source for File {
    fn len(&self) -> u64 {
        self.metadata().map_or(0, |m| m.len())
    }

    fn owner(&self) -> u32 {
        // What cannot be asked is taken for somebody else's.
        self.metadata().map_or(u32::MAX, |m| m.uid())
    }

    fn identity(&self) -> Option<Identity> {
        let m = self.metadata().ok()?;
        Some([m.dev(), m.ino(), m.len(), m.ctime().cast_unsigned_word(), m.ctime_nsec().cast_unsigned_word()])
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, to, offset)
    }
}

/// `i64::cast_unsigned`, which is newer than the oldest compiler that must build this.
trait Word {
    fn cast_unsigned_word(self) -> u64;
}

impl Word for i64 {
    fn cast_unsigned_word(self) -> u64 {
        u64::from_ne_bytes(self.to_ne_bytes())
    }
}

/// The most that the ELF reader takes of a file at once, and altogether. A file may be as long as it likes without having a byte,
/// so that its length bounds nothing.
const MOST_AT_ONCE: u64 = 1 << 30;
const MOST_OF_ONE: u64 = 6 << 30;

/// Lets the ELF reader take just the tables that it needs from a source.
pub(crate) struct Tables<'s> {
    cache: ReadCache<Reader<'s>>,
    left: Cell<u64>,
}

impl<'s> Tables<'s> {
    pub(crate) fn of(source: &'s dyn Source) -> Tables<'s> {
        Tables { cache: ReadCache::new(Reader { source, at: 0 }), left: Cell::new(MOST_OF_ONE) }
    }
}

impl<'t> ReadRef<'t> for &'t Tables<'_> {
    fn len(self) -> Result<u64, ()> {
        ReadRef::len(&self.cache)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'t [u8], ()> {
        let left = self.left.get().checked_sub(size).filter(|_| size <= MOST_AT_ONCE).ok_or(())?;
        let bytes = self.cache.read_bytes_at(offset, size)?;
        self.left.set(left);
        Ok(bytes)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'t [u8], ()> {
        self.cache.read_bytes_at_until(range, delimiter)
    }
}

struct Reader<'s> {
    source: &'s dyn Source,
    at: u64,
}

impl ReadCacheOps for Reader<'_> {
    fn len(&mut self) -> Result<u64, ()> {
        Ok(self.source.len())
    }

    fn seek(&mut self, pos: u64) -> Result<u64, ()> {
        self.at = pos;
        Ok(pos)
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, ()> {
        let got = self.source.read_at(buf, self.at).map_err(|_| ())?;
        self.at += got as u64;
        Ok(got)
    }

    fn read_exact(&mut self, mut buf: &mut [u8]) -> Result<(), ()> {
        while !buf.is_empty() {
            let got = self.read(buf)?;
            if got == 0 {
                return Err(());
            }
            buf = buf.get_mut(got..).unwrap_or_default();
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod fake {
    //! Files in memory.

    use std::collections::HashMap;
    use std::rc::Rc;

    use super::*;

    #[derive(Default, Clone)]
    pub(crate) struct FakeFiles {
        pub(crate) files: HashMap<PathBuf, (Vec<u8>, u32)>,
        pub(crate) links: HashMap<PathBuf, PathBuf>,
        pub(crate) refused: Vec<PathBuf>,
    }

    impl FakeFiles {
        pub(crate) fn with(mut self, path: &str, bytes: impl Into<Vec<u8>>) -> FakeFiles {
            self.files.insert(path.into(), (bytes.into(), 0));
            self
        }

        pub(crate) fn owned(mut self, path: &str, bytes: impl Into<Vec<u8>>, owner: u32) -> FakeFiles {
            self.files.insert(path.into(), (bytes.into(), owner));
            self
        }

        pub(crate) fn link(mut self, path: &str, to: &str) -> FakeFiles {
            self.links.insert(path.into(), to.into());
            self
        }

        pub(crate) fn refuse(mut self, path: &str) -> FakeFiles {
            self.refused.push(path.into());
            self
        }
    }

    struct FakeSource(Rc<(Vec<u8>, u32)>);

    impl Files for FakeFiles {
        fn open(&self, place: &Place<'_>) -> io::Result<Box<dyn Source>> {
            let path = match place.root {
                Some(root) => root.join(place.path.strip_prefix("/").unwrap_or(place.path)),
                None => place.path.to_path_buf(),
            };
            if self.refused.contains(&path) {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let file = self.files.get(&path).ok_or(io::ErrorKind::NotFound)?;
            Ok(Box::new(FakeSource(Rc::new(file.clone()))))
        }

        fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
            self.links.get(path).cloned().ok_or(io::ErrorKind::NotFound.into())
        }
    }

    impl Source for FakeSource {
        fn len(&self) -> u64 {
            self.0.0.len() as u64
        }

        fn owner(&self) -> u32 {
            self.0.1
        }

        fn identity(&self) -> Option<Identity> {
            None
        }

        fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
            let from = self.0.0.get(offset as usize..).unwrap_or_default();
            let len = from.len().min(to.len());
            to[..len].copy_from_slice(&from[..len]);
            Ok(len)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_by_kind() {
        let cases: [(&[u8], PathKind); 14] = [
            (b"/usr/bin/ls", PathKind::File),
            (b"/usr/bin/ls (deleted)", PathKind::Deleted),
            (b"/memfd:runc (deleted)", PathKind::Memfd),
            (b"[vdso]", PathKind::Vdso),
            (b"[vsyscall]", PathKind::Vsyscall),
            (b"//anon", PathKind::Anonymous),
            (b"[anon:v8]", PathKind::Anonymous),
            (b"", PathKind::Anonymous),
            (b"/dev/zero (deleted)", PathKind::Anonymous),
            (b"/dev/shm/lib.so (deleted)", PathKind::Deleted),
            (b"/dev/dri/card0", PathKind::Special),
            (b"[heap]", PathKind::Special),
            (b"[stack:12]", PathKind::Special),
            (b"anon_inode:[perf_event]", PathKind::Special),
        ];
        for (path, kind) in cases {
            assert_eq!(classify(path), kind, "{}", String::from_utf8_lossy(path));
        }
    }

    #[test]
    fn folders_and_devices_are_not_opened() {
        for path in ["/", "/dev/null"] {
            let error = RealFiles.open(&Place::own(Path::new(path))).err().map(|e| e.kind());
            assert_eq!(error, Some(io::ErrorKind::InvalidInput), "{path}");
        }
    }

    #[test]
    fn links_cannot_lead_out_of_a_root() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("inside"), b"inside")?;
        std::os::unix::fs::symlink("/inside", dir.path().join("link"))?;
        std::os::unix::fs::symlink("/proc/version", dir.path().join("out"))?;
        let open = |path: &str, follow| {
            let place = Place { root: Some(dir.path()), path: Path::new(path), follow };
            RealFiles.open(&place).and_then(|s| read_all(&*s, 100))
        };
        assert_eq!(open("/link", true)?, b"inside");
        assert!(open("/link", false).is_err());
        assert!(open("/out", true).is_err());
        assert!(open("/../../../../proc/version", true).is_err());
        Ok(())
    }

    /// Long, and zero wherever it is looked at.
    struct Hole(u64);

    impl Source for Hole {
        fn len(&self) -> u64 {
            self.0
        }

        fn owner(&self) -> u32 {
            0
        }

        fn identity(&self) -> Option<Identity> {
            None
        }

        fn read_at(&self, to: &mut [u8], _: u64) -> io::Result<usize> {
            to.fill(0);
            Ok(to.len())
        }
    }

    #[test]
    fn a_long_file_is_not_taken_whole() {
        let hole = Hole(u64::MAX);
        let tables = Tables::of(&hole);
        assert_eq!((&tables).read_bytes_at(5, MOST_AT_ONCE + 1), Err(()));
        const STEP: u64 = 4096;
        assert_eq!((&tables).read_bytes_at(5, STEP).map(<[u8]>::len), Ok(4096));
        tables.left.set(STEP);
        assert_eq!((&tables).read_bytes_at(0, STEP + 1), Err(()));
        assert!((&tables).read_bytes_at(0, STEP).is_ok());
        assert_eq!((&tables).read_bytes_at(0, 1), Err(()));
    }
}

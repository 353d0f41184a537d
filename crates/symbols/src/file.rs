//! The bytes of a file, mapped where that is possible.
//!
//! This is the only place that maps files. It is for a recording that the user names: hundreds of megabytes, read
//! front to back. Objects of foreign processes are never mapped but read ([`source`](crate::source)): their owners
//! could cut them short under our eyes.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::{Deref, Range};
use std::path::Path;

/// Smaller files are read: as fast, and nothing that others do to the file afterwards matters.
const MAP_FROM: u64 = 16 << 20;

/// The whole content of a file. Dereferences to its bytes.
#[derive(Debug)]
pub struct FileBytes(Inner);

#[derive(Debug)]
enum Inner {
    Mapped(memmap2::Mmap),
    Read(Vec<u8>),
}

impl FileBytes {
    /// Opens a file: mapped when it is a large regular one, otherwise (a pipe, standard input) read to its end.
    ///
    /// # Errors
    /// When the file cannot be opened, mapped or read; a folder is [`io::ErrorKind::IsADirectory`].
    pub fn open(path: &Path) -> io::Result<FileBytes> {
        FileBytes::of(File::open(path)?)
    }

    /// The bytes of a file that is open already, from its beginning where it has one.
    ///
    /// # Errors
    /// As for [`open`](FileBytes::open).
    pub fn of(mut file: File) -> io::Result<FileBytes> {
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !meta.is_file() || meta.len() < MAP_FROM {
            // Read to the end, not to the stated length: files of procfs and sysfs are regular and say that they are
            // empty.
            let mut bytes = Vec::new();
            if meta.is_file() {
                file.rewind()?;
            }
            file.read_to_end(&mut bytes)?;
            return Ok(FileBytes(Inner::Read(bytes)));
        }
        // SAFETY: the mapping is read-only and is owned by the value that is returned; the slice borrows
        // from that value, so it cannot outlive it. What would break it is somebody who changes the file while it is
        // read. Written to, its bytes may change between two reads: every reader of a recording checks each length
        // against the slice, whose own length is fixed, so that changed bytes give wrong samples and never a wrong
        // access. Cut short, the pages that are gone raise SIGBUS, which ends this process and harms no other. The
        // recorder itself only appends and rewrites sizes in the header, and a user can cut only recordings that are
        // theirs to write.
        let map = unsafe { memmap2::Mmap::map(&file) }?;
        // Advice may be refused without harm.
        let _ = map.advise(memmap2::Advice::Sequential);
        Ok(FileBytes(Inner::Mapped(map)))
    }
}

impl FileBytes {
    /// Gives back the memory of a range that is not needed any more, as far as it is mapped. Its bytes can still be had: they
    /// are read again then.
    pub fn forget(&self, range: Range<usize>) {
        let Inner::Mapped(map) = &self.0 else { return };
        let Some(len) = range.end.min(map.len()).checked_sub(range.start) else { return };
        // SAFETY: MADV_DONTNEED drops the pages of the mapping in this range. It is of a file and was never writable, so that
        // there is no change to lose: the next access, of this thread or of another that reads there meanwhile, finds the
        // page gone and has the bytes of the file again, which is what the mapping stands for; it never finds others. The
        // range is within the mapping, which lives as long as `self`. A mapping that could be written to, or one of memory
        // without a file, would break this.
        let advised = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, len) };
        // Advice may be refused without harm.
        let _ = advised;
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Mapped(map) => map,
            Inner::Read(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_was_forgotten_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let content: Vec<u8> = (0..MAP_FROM + 77).map(|at| (at / 4096) as u8 ^ at as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let bytes = FileBytes::open(&path).unwrap();
        assert!(*bytes == *content);
        for range in [0..1 << 20, 5000..9_000_000, 1 << 24..usize::MAX, 77..77, usize::MAX..usize::MAX] {
            bytes.forget(range);
            assert!(*bytes == *content);
        }
    }

    #[test]
    fn regular_empty_virtual_and_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"").unwrap();
        assert_eq!(&*FileBytes::open(&path).unwrap(), b"");
        std::fs::write(&path, b"content").unwrap();
        assert_eq!(&*FileBytes::open(&path).unwrap(), b"content");
        let mut half = File::open(&path).unwrap();
        half.seek(io::SeekFrom::Start(3)).unwrap();
        assert_eq!(&*FileBytes::of(half).unwrap(), b"content");
        let large = std::fs::File::create(&path).unwrap();
        large.set_len(MAP_FROM + 1).unwrap();
        assert_eq!(FileBytes::open(&path).unwrap().len() as u64, MAP_FROM + 1);
        assert!(!FileBytes::open(Path::new("/proc/self/status")).unwrap().is_empty());
        assert_eq!(FileBytes::open(dir.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert!(FileBytes::open(&dir.path().join("none")).is_err());
    }
}

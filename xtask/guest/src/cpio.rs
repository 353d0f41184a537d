//! The archive that files travel in, both ways: cpio in its "newc" form, which the kernel unpacks as initramfs.
//!
//! Format: `Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel. A header is the magic `070701`
//! and thirteen fields of eight hexadecimal digits; name and content are padded to four bytes.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::path::Path;

const MAGIC: &[u8] = b"070701";
const HEADER: usize = 110;
const TRAILER: &str = "TRAILER!!!";
/// The longest name that the kernel takes (PATH_MAX).
const NAME_MAX: u64 = 4096;

const TYPE: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const CHARACTERS: u32 = 0o020_000;

/// Writes an archive. Folders above an entry are made by themselves, once, with mode 755.
#[derive(Debug)]
pub struct Writer<W> {
    into: W,
    inode: u32,
    known: HashSet<String>,
}

impl<W: Write> Writer<W> {
    /// An empty archive. `into` gets many small writes.
    pub fn new(into: W) -> Writer<W> {
        Writer { into, inode: 0, known: HashSet::new() }
    }

    /// A file with the permission bits of `mode` and `size` bytes, which `content` has to give.
    ///
    /// # Errors
    /// Those of reading and writing; a size of 4 GiB and more; a content that is shorter than `size`.
    pub fn file(&mut self, path: &str, mode: u32, size: u64, content: impl Read) -> io::Result<()> {
        let size32 = u32::try_from(size).map_err(|_| invalid(format!("{path}: too large for a cpio archive")))?;
        self.header(path, FILE | (mode & 0o7777), size32, (0, 0))?;
        let copied = io::copy(&mut content.take(size), &mut self.into)?;
        if copied != size {
            return Err(invalid(format!("{path}: {copied} bytes instead of {size}")));
        }
        self.pad(size as usize)
    }

    /// A folder with the permission bits of `mode`.
    ///
    /// # Errors
    /// Those of writing.
    pub fn folder(&mut self, path: &str, mode: u32) -> io::Result<()> {
        if self.known.insert(relative(path)) { self.header(path, FOLDER | (mode & 0o7777), 0, (0, 0)) } else { Ok(()) }
    }

    /// A symbolic link to `to`.
    ///
    /// # Errors
    /// Those of writing.
    pub fn link(&mut self, path: &str, to: &str) -> io::Result<()> {
        let size = u32::try_from(to.len()).map_err(|_| invalid(format!("{path}: a link that long")))?;
        self.header(path, LINK | 0o777, size, (0, 0))?;
        self.into.write_all(to.as_bytes())?;
        self.pad(to.len())
    }

    /// A character device.
    ///
    /// # Errors
    /// Those of writing.
    pub fn characters(&mut self, path: &str, mode: u32, major: u32, minor: u32) -> io::Result<()> {
        self.header(path, CHARACTERS | (mode & 0o7777), 0, (major, minor))
    }

    /// Ends the archive and gives back what it was written into.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> io::Result<W> {
        self.raw_header(TRAILER, 0, 0, (0, 0))?;
        self.into.flush()?;
        Ok(self.into)
    }

    fn header(&mut self, path: &str, mode: u32, size: u32, device: (u32, u32)) -> io::Result<()> {
        let name = relative(path);
        if let Some((above, _)) = name.rsplit_once('/') {
            self.folder(above, 0o755)?;
        }
        self.inode += 1;
        self.raw_header(&name, mode, size, device)
    }

    fn raw_header(&mut self, name: &str, mode: u32, size: u32, (major, minor): (u32, u32)) -> io::Result<()> {
        if name.is_empty() || name.len() as u64 >= NAME_MAX || name.contains('\0') {
            return Err(invalid(format!("{name:?}: not a name for an archive")));
        }
        let links = if mode & TYPE == FOLDER { 2 } else { 1 };
        let with_end = name.len() as u32 + 1;
        let mut header = MAGIC.to_vec();
        for field in [self.inode, mode, 0, 0, links, 0, size, 0, 0, major, minor, with_end, 0] {
            header.extend(format!("{field:08x}").bytes());
        }
        self.into.write_all(&header)?;
        self.into.write_all(name.as_bytes())?;
        self.into.write_all(b"\0")?;
        self.pad(HEADER + name.len() + 1)
    }

    /// Fills up to four bytes behind something of `size` bytes that began at a multiple of four.
    fn pad(&mut self, size: usize) -> io::Result<()> {
        self.into.write_all(&[0; 3][..padding(size as u64) as usize])
    }
}

/// Names in an archive have no slash in front.
fn relative(path: &str) -> String {
    path.trim_matches('/').to_owned()
}

fn padding(size: u64) -> u64 {
    size.wrapping_neg() % 4
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// One entry that [`unpack`] met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it goes, without a slash in front. Never leads out of the folder that it is unpacked in.
    pub path: String,
    /// Whether it is a folder; else it is a file.
    pub folder: bool,
    /// Bytes of content.
    pub size: u64,
}

/// Goes through an archive and hands over its files and folders, each with its content. Links and devices are passed
/// over. Ends at the trailer; what follows it is not looked at.
///
/// # Errors
/// Those of reading, those of `each`, and an archive that is damaged, cut short, or names a path outside.
pub fn unpack(mut from: impl Read, mut each: impl FnMut(&Entry, &mut dyn Read) -> io::Result<()>) -> io::Result<()> {
    loop {
        let mut header = [0; HEADER];
        from.read_exact(&mut header)?;
        if &header[..6] != MAGIC {
            return Err(invalid("no cpio archive here".into()));
        }
        let (mode, size, length) = (field(&header, 1)?, u64::from(field(&header, 6)?), u64::from(field(&header, 11)?));
        if length > NAME_MAX {
            return Err(invalid(format!("a name of {length} bytes")));
        }
        let mut name = Vec::new();
        read_padded(&mut from, HEADER as u64, length, &mut name)?;
        name.pop();
        let path = String::from_utf8(name).map_err(|_| invalid("a name that is not UTF-8".into()))?;
        if path == TRAILER {
            return Ok(());
        }
        let mut content = (&mut from).take(size);
        let kind = mode & TYPE;
        if kind == FILE || kind == FOLDER {
            let inside = Path::new(&path).components().all(|part| matches!(part, std::path::Component::Normal(_)));
            if path.is_empty() || !inside {
                return Err(invalid(format!("{path:?} leads out of the archive")));
            }
            each(&Entry { path, folder: kind == FOLDER, size }, &mut content)?;
        }
        io::copy(&mut content, &mut io::sink())?;
        if content.limit() != 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read_padded(&mut from, size, 0, &mut Vec::new())?;
    }
}

/// Reads `size` bytes that stand behind `before` others, and the padding behind them.
fn read_padded(from: &mut impl Read, before: u64, size: u64, into: &mut Vec<u8>) -> io::Result<()> {
    from.take(size).read_to_end(into)?;
    let mut rest = [0; 3];
    from.read_exact(&mut rest[..padding(before + size) as usize])?;
    if into.len() as u64 == size { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The `index`th number of a header.
fn field(header: &[u8; HEADER], index: usize) -> io::Result<u32> {
    let digits = &header[6 + 8 * index..][..8];
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'));
    text.and_then(|text| u32::from_str_radix(text, 16).ok()).ok_or_else(|| invalid("a damaged cpio header".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn sample() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        writer.characters("/dev/console", 0o600, 5, 1).unwrap();
        writer.file("/a/b/one", 0o755, 5, &b"12345"[..]).unwrap();
        writer.file("a/two", 0o644, 0, &b""[..]).unwrap();
        writer.link("a/link", "b/one").unwrap();
        writer.folder("a/empty", 0o700).unwrap();
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<(Entry, Vec<u8>)>> {
        let mut found = Vec::new();
        unpack(bytes, |entry, content| {
            let mut all = Vec::new();
            content.read_to_end(&mut all)?;
            found.push((entry.clone(), all));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn what_was_written_is_read_again() {
        let found = read(&sample()).unwrap();
        let paths: Vec<&str> = found.iter().map(|(entry, _)| entry.path.as_str()).collect();
        assert_eq!(paths, ["dev", "a", "a/b", "a/b/one", "a/two", "a/empty"]);
        assert_eq!(found[3].1, b"12345");
        assert_eq!((found[3].0.size, found[3].0.folder, found[5].0.folder), (5, false, true));
    }

    #[test]
    fn everything_is_aligned_and_magic_stands_in_front() {
        let bytes = sample();
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.starts_with(b"07070100000001000041ed"), "the folder dev, inode 1, mode 40755");
    }

    #[test]
    fn a_content_that_is_too_short_is_refused() {
        let error = Writer::new(Vec::new()).file("f", 0o644, 9, &b"12345"[..]).unwrap_err();
        assert_eq!(error.to_string(), "f: 5 bytes instead of 9");
    }

    #[test]
    fn every_cut_is_an_error() {
        let bytes = sample();
        // The last three bytes may be padding of the trailer, without which it is whole.
        for length in 0..bytes.len() - 3 {
            assert!(read(&bytes[..length]).is_err(), "cut to {length} of {}", bytes.len());
        }
    }

    #[test]
    fn flipped_bytes_end_in_an_answer() {
        let bytes = sample();
        for at in 0..bytes.len() {
            for flip in [1u8, 0x10, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                let _ = read(&damaged);
            }
        }
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        for path in ["../x", "a/../../x", "./x"] {
            let mut writer = Writer::new(Vec::new());
            writer.file(path, 0o644, 0, &b""[..]).unwrap();
            assert!(read(&writer.finish().unwrap()).is_err(), "{path}");
        }
    }

    /// The machine's cpio is an oracle where there is one.
    #[test]
    fn the_cpio_command_lists_the_same() {
        let child = Command::new("cpio").args(["-t", "--quiet"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = child else {
            println!("SKIP the_cpio_command_lists_the_same: needs the command cpio");
            return;
        };
        child.stdin.take().unwrap().write_all(&sample()).unwrap();
        let listed = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(listed, "dev\ndev/console\na\na/b\na/b/one\na/two\na/link\na/empty\n");
    }
}

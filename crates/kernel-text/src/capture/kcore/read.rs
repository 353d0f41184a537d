//! Reading an open /proc/kcore.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::layout::{HEADER, Segments, headers_len};
use crate::capture::error::{CaptureError, CaptureErrorKind, ReadError};

const PATH: &str = "/proc/kcore";
/// The file is read at most a page at a time where holes may be.
pub(super) const PAGE: usize = 4096;

/// The open file, and what is known of the memory in it.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) file: File,
    segments: Segments,
    /// The kernel's own text, `[_stext, _etext)`, which is always there.
    text: Range<u64>,
}

impl Memory {
    /// Opens it. The descriptor is closed on exec.
    pub(super) fn open() -> Result<Memory, CaptureError> {
        let file = File::open(PATH).map_err(refused)?;
        let text = own_text(&File::open("/proc/kallsyms").map_err(refused)?)?;
        let segments = segments(&file).map_err(refused)?;
        let memory = Memory { file, segments, text };
        if memory.segments.find(memory.text.start, 2 * PAGE).is_none() {
            return Err(CaptureError::new(CaptureErrorKind::Unsupported, PATH, "the kernel's text is not in it"));
        }
        Ok(memory)
    }

    /// Whether a range is of the kernel's own text.
    pub(super) fn is_own_text(&self, addr: u64, len: usize) -> bool {
        self.text.start <= addr && addr.checked_add(len as u64).is_some_and(|end| end <= self.text.end)
    }

    /// Reads the headers anew; whether they are what they were. While memory is added or removed, what was read by the old
    /// ones may be from somewhere else.
    pub(super) fn refresh(&mut self) -> bool {
        match segments(&self.file) {
            Ok(segments) if segments == self.segments => true,
            Ok(segments) => {
                self.segments = segments;
                false
            }
            Err(_) => false,
        }
    }

    /// Fills `into` with what stands at `addr`.
    pub(super) fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<(), ReadError> {
        if self.segments.find(addr, into.len()).is_none() {
            self.refresh();
        }
        if self.is_own_text(addr, into.len()) {
            return self.at(addr, into).map_err(|e| failed(&e));
        }
        let known = [
            self.text.start.next_multiple_of(PAGE as u64),
            self.text.start.next_multiple_of(PAGE as u64) + PAGE as u64,
        ];
        let mut from = addr;
        let mut rest = into;
        while !rest.is_empty() {
            // What is asked for at once lies in one page.
            let room = PAGE - (from % PAGE as u64) as usize;
            let (piece, next) = rest.split_at_mut(room.min(rest.len()));
            let there = is_there(&mut |addr, into| self.at(addr, into), known, from, piece).map_err(|e| failed(&e))?;
            if !there {
                return Err(ReadError::NotMapped(from));
            }
            from = from.wrapping_add(piece.len() as u64);
            rest = next;
        }
        Ok(())
    }

    fn at(&self, addr: u64, into: &mut [u8]) -> io::Result<()> {
        let none = || io::Error::from_raw_os_error(libc::EFAULT);
        let at = self.segments.find(addr, into.len()).ok_or_else(none)?;
        self.file.read_exact_at(into, at)
    }
}

/// Reads a piece within a page; whether it is there.
///
/// Linux 6.1 answers a read of what is not mapped with what its buffer holds, the bytes of the read before. So something else
/// is read first: a piece that equals it is read once more after a second, different one. One that is no page's own
/// cannot equal both, and one that is equals the first both times.
fn is_there(
    read: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>,
    known: [u64; 2],
    addr: u64,
    into: &mut [u8],
) -> io::Result<bool> {
    let mut before = vec![0; into.len()];
    let [first, second] = known;
    read(first, &mut before)?;
    read(addr, into)?;
    if into != before {
        return Ok(true);
    }
    let mut again = vec![0; into.len()];
    read(second, &mut again)?;
    read(addr, into)?;
    Ok(again != before && into == before)
}

fn segments(file: &File) -> io::Result<Segments> {
    let no_elf = || io::Error::from(io::ErrorKind::InvalidData);
    let mut head = vec![0; HEADER];
    file.read_exact_at(&mut head, 0)?;
    head.resize(headers_len(&head).ok_or_else(no_elf)?, 0);
    file.read_exact_at(&mut head, 0)?;
    Segments::parse(&head).ok_or_else(no_elf)
}

/// `_stext` and `_etext` in the kernel's symbols.
fn own_text(symbols: &File) -> Result<Range<u64>, CaptureError> {
    let (mut start, mut end) = (None, None);
    for line in BufReader::new(symbols).lines() {
        let line = line.map_err(refused)?;
        let (addr, rest) = line.split_once(' ').unwrap_or_default();
        let slot = match rest.get(2..) {
            Some("_stext") => &mut start,
            Some("_etext") => &mut end,
            _ => continue,
        };
        *slot = u64::from_str_radix(addr, 16).ok().filter(|addr| *addr != 0);
        if let (Some(start), Some(end)) = (start, end) {
            return Ok(start..end);
        }
    }
    Err(CaptureError::new(CaptureErrorKind::NotPermitted, PATH, "the kernel hides where its text is"))
}

fn refused(error: io::Error) -> CaptureError {
    match error.raw_os_error() {
        Some(libc::ENOENT) => CaptureError::new(CaptureErrorKind::Unsupported, PATH, "this kernel has none"),
        // open_kcore asks for the capability first, then for lockdown.
        Some(libc::EPERM) => CaptureError::new(
            CaptureErrorKind::NotPermitted,
            PATH,
            "it takes CAP_SYS_RAWIO, and no lockdown for confidentiality",
        ),
        Some(libc::EACCES) => CaptureError::new(CaptureErrorKind::NotPermitted, PATH, error),
        _ => CaptureError::new(CaptureErrorKind::System, PATH, error),
    }
}

fn failed(error: &io::Error) -> ReadError {
    ReadError::Failed(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule of Linux 6.1: one buffer, which a read of a hole leaves as it is.
    struct Buffer {
        bytes: [u8; PAGE],
        reads: usize,
    }

    impl Buffer {
        fn read(&mut self, addr: u64, into: &mut [u8]) -> io::Result<()> {
            self.reads += 1;
            match addr {
                0x1000 => self.bytes.fill(0x11),
                0x2000 => self.bytes.fill(0x22),
                0x3000 => self.bytes.fill(0x33),
                0x4000 => self.bytes.fill(0x11),
                _ => (),
            }
            into.copy_from_slice(&self.bytes[..into.len()]);
            Ok(())
        }
    }

    fn try_at(addr: u64, len: usize, known: [u64; 2]) -> (bool, Vec<u8>, usize) {
        let mut buffer = Buffer { bytes: [0x77; PAGE], reads: 0 };
        let mut into = vec![0; len];
        let there = is_there(&mut |addr, into| buffer.read(addr, into), known, addr, &mut into).unwrap();
        (there, into, buffer.reads)
    }

    #[test]
    fn a_hole_is_not_what_was_read_before() {
        let known = [0x1000, 0x2000];
        assert_eq!(try_at(0x3000, 100, known), (true, vec![0x33; 100], 2));
        assert!(!try_at(0x9000, 100, known).0, "a hole");
        assert!(!try_at(0x9000, 1, known).0, "a hole of one byte");
        assert_eq!(
            try_at(0x4000, 100, known),
            (true, vec![0x11; 100], 4),
            "it is like what was read before, and there"
        );
        assert!(!try_at(0x4000, 100, [0x1000, 0x4000]).0, "where both are alike nothing can be told");
    }

    #[test]
    fn an_error_is_passed_on() {
        let mut fails = |addr: u64, _: &mut [u8]| if addr == 9 { Err(io::ErrorKind::Other.into()) } else { Ok(()) };
        assert!(is_there(&mut fails, [1, 2], 9, &mut [1]).is_err());
        assert!(is_there(&mut fails, [9, 2], 1, &mut [1]).is_err());
    }
}

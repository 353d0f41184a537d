//! Reading an open /proc/kcore.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::layout::{HEADER, Segments, headers_len};
use crate::capture::error::{CaptureError, CaptureErrorKind, ReadError};
use crate::capture::reader::Reader;

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
    /// The headers were others, or none, at a look since the pass began.
    moved: bool,
}

impl Memory {
    /// Opens it. The descriptor is closed on exec. The kernel's symbols are asked for by the reader, where there is one.
    pub(super) fn open(reader: Option<&Reader>) -> Result<Memory, CaptureError> {
        Memory::of(File::open(PATH).map_err(refused)?, own_text(reader)?)
    }

    /// Of an open file with the kernel's own text in it.
    pub(super) fn of(file: File, text: Range<u64>) -> Result<Memory, CaptureError> {
        let segments = segments(&file).map_err(refused)?;
        let memory = Memory { file, segments, text, moved: false };
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
        let now = segments(&self.file);
        let same = now.as_ref().is_ok_and(|now| *now == self.segments);
        if let Ok(now) = now {
            self.segments = now;
        }
        self.moved |= !same;
        same
    }

    /// A pass begins: what was read before it is not its own.
    pub(super) fn begin(&mut self) {
        self.refresh();
        self.moved = false;
    }

    /// Whether memory stood in the same places since the pass began.
    pub(super) fn stands(&mut self) -> bool {
        self.refresh();
        !self.moved
    }

    /// Fills `into` with what stands at `addr`.
    pub(super) fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<(), ReadError> {
        if self.segments.find(addr, into.len()).is_none() {
            self.refresh();
        }
        if self.is_own_text(addr, into.len()) {
            return self.at(addr, into).map_err(|e| failed(addr, &e));
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
            let there = is_there(&mut |addr, into| self.at(addr, into), known, from, piece);
            if !there.map_err(|e| failed(from, &e))? {
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

/// From `_stext` to `_etext`. A program looks two symbols up; without one the kernel writes a hundred thousand lines for them.
fn own_text(reader: Option<&Reader>) -> Result<Range<u64>, CaptureError> {
    let symbol = |name| reader.and_then(|reader| reader.symbol(name).ok());
    match symbol("_stext").zip(symbol("_etext")) {
        Some((start, end)) => Ok(start..end),
        None => in_kallsyms(&File::open("/proc/kallsyms").map_err(refused)?),
    }
}

/// The same in the text of the kernel's symbols.
fn in_kallsyms(symbols: &File) -> Result<Range<u64>, CaptureError> {
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

fn failed(addr: u64, error: &io::Error) -> ReadError {
    match error.raw_os_error() {
        Some(libc::EFAULT) => ReadError::NotMapped(addr),
        error => ReadError::Failed(error.unwrap_or(libc::EIO)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use afterimage_testkit::{Need, has};

    use super::super::layout::tests::headers;
    use super::*;

    /// The kernel's own text in made-up files, two pages that differ, and what stands behind it.
    pub(crate) const TEXT: u64 = 0xffff_ffff_8100_0000;
    pub(crate) const BEHIND: u64 = 0xffff_ffff_c000_0000;

    /// A file like /proc/kcore with its own text and these bytes at [`BEHIND`], and its memory.
    pub(crate) fn made_up(bytes: &[u8]) -> (tempfile::NamedTempFile, Memory) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), contents(bytes, 0)).unwrap();
        let memory = Memory::of(File::open(file.path()).unwrap(), TEXT..TEXT + 2 * PAGE as u64).unwrap();
        (file, memory)
    }

    /// Its contents, with everything moved by some bytes.
    fn contents(bytes: &[u8], moved: usize) -> Vec<u8> {
        let at = (PAGE + moved) as u64;
        let segments = [(1, TEXT, 2 * PAGE as u64, at), (1, BEHIND, bytes.len() as u64, at + 2 * PAGE as u64)];
        let mut file = headers(&segments);
        file.resize(PAGE + moved, 0);
        file.extend([0x11; PAGE]);
        file.extend([0x22; PAGE]);
        file.extend_from_slice(bytes);
        file
    }

    #[test]
    fn headers_that_change_within_a_pass_are_noticed_whoever_looks() {
        let text = [0x33; 100];
        let (file, mut memory) = made_up(&text);
        let mut into = [0; 100];
        memory.begin();
        memory.read(BEHIND, &mut into).unwrap();
        assert_eq!(into, text);
        assert!(memory.stands());
        // Memory was added; who looks for an address reads the headers anew, and then all seems to be as it is.
        let more = [&text[..], &[0x44; 60]].concat();
        fs::write(file.path(), contents(&more, 64)).unwrap();
        memory.read(BEHIND + 100, &mut into[..60]).unwrap();
        assert_eq!(into[..60], [0x44; 60]);
        assert!(!memory.stands(), "what was read before may have been from somewhere else");
        memory.begin();
        memory.read(BEHIND, &mut into).unwrap();
        assert!(memory.stands() && into == text);
        // No headers are no answer.
        fs::write(file.path(), b"").unwrap();
        assert!(!memory.stands());
    }

    #[test]
    fn both_ways_to_the_symbols_find_the_same_text() {
        if !has("both_ways_to_the_symbols_find_the_same_text", &[Need::Root, Need::Bpf]) {
            return;
        }
        let reader = Reader::load().unwrap();
        let by_program = reader.symbol("_stext").unwrap()..reader.symbol("_etext").unwrap();
        assert_eq!(own_text(Some(&reader)).unwrap(), by_program);
        assert_eq!(own_text(None).unwrap(), by_program);
        assert!(by_program.end - by_program.start > 1 << 20);
    }

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

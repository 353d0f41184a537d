//! Dumps of JIT compilers: `jit-PID.dump`, which has the code itself beside its name, and when it came.
//!
//! The format is that of tools/perf/Documentation/jitdump-specification.txt in the kernel tree: a header, then records, each
//! with its length and its time, in the byte order of the machine that wrote it. A process maps the first page of its dump
//! executable, so that a recording has a map record with the dump's path.
#![forbid(unsafe_code)]

use crate::Machine;

/// The four letters at the front, as a number in the byte order of the dump.
const MAGIC: u32 = 0x4a69_5444;
/// Bytes of the header that are looked at.
pub const HEADER: usize = 40;
/// Bytes at the front of each record.
const PREFIX: usize = 16;
/// Longest record that is read: one function's code and its lines.
const MAX_RECORD: usize = 64 << 20;
/// Bit 0 of the header's flags: times are the processor's own, and no clock's.
const ARCH_TIMESTAMP: u64 = 1;

/// What stands in front of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether its numbers have their highest byte first.
    pub big: bool,
    /// Bytes of the header: where the first record begins.
    pub len: u32,
    /// What instructions the code is of.
    pub machine: Machine,
    /// The process, as it knows itself.
    pub pid: u32,
    /// Whether times are ticks of the processor, which are times of no clock. Otherwise they are ns, of `CLOCK_MONOTONIC` in
    /// all compilers that are known.
    pub ticks: bool,
}

/// A record of a dump. Addresses are of the process; times are ns or ticks, as the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'d> {
    /// JIT_CODE_LOAD: code came.
    Load(Load<'d>),
    /// JIT_CODE_MOVE: code went elsewhere.
    Move {
        /// When.
        time: u64,
        /// Which code.
        index: u64,
        /// Where it was.
        from: u64,
        /// Where it is now.
        to: u64,
        /// Its bytes.
        len: u64,
    },
    /// JIT_CODE_DEBUG_INFO: lines of the code that comes next.
    Lines(Lines<'d>),
    /// JIT_CODE_UNWINDING_INFO: tables of the code that comes next.
    Unwinding {
        /// `.eh_frame_hdr` and `.eh_frame`, one behind the other.
        data: &'d [u8],
        /// How much of them is `.eh_frame_hdr`.
        header_len: u64,
    },
    /// JIT_CODE_CLOSE: no more records.
    Close,
    /// A record of another type.
    Other(u32),
}

/// JIT_CODE_LOAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load<'d> {
    /// When.
    pub time: u64,
    /// Where it is.
    pub addr: u64,
    /// Its bytes.
    pub len: u64,
    /// What moves call it by.
    pub index: u64,
    /// Its name.
    pub name: &'d [u8],
    /// The code; shorter than `len` where the dump has less of it.
    pub code: &'d [u8],
}

/// JIT_CODE_DEBUG_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines<'d> {
    /// Where the code is that they are of.
    pub addr: u64,
    /// How many there are said to be.
    pub count: u64,
    entries: &'d [u8],
    big: bool,
}

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'d> {
    /// From here on, up to the next one, code is of this line.
    pub addr: u64,
    /// The line, from 1.
    pub line: u32,
    /// The file.
    pub file: &'d [u8],
}

impl<'d> Lines<'d> {
    /// The lines in the order in which they stand; those that the record has.
    pub fn iter(&self) -> impl Iterator<Item = Line<'d>> + use<'d> {
        /// In place of a name: the same as before.
        const SAME: &[u8] = b"\xff";
        let mut bytes = Bytes { rest: self.entries, big: self.big };
        let mut left = self.count;
        let mut file: &'d [u8] = b"";
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let (addr, line, _) = (bytes.u64()?, bytes.u32()?, bytes.u32()?);
            let name = bytes.text()?;
            if name != SAME {
                file = name;
            }
            Some(Line { addr, line, file })
        })
    }
}

impl Header {
    /// Reads the header; `None` for what is no dump.
    pub fn read(dump: &[u8]) -> Option<Header> {
        let first = *dump.first_chunk::<4>()?;
        let big = match (u32::from_be_bytes(first), u32::from_le_bytes(first)) {
            (MAGIC, _) => true,
            (_, MAGIC) => false,
            _ => return None,
        };
        let mut bytes = Bytes { rest: dump.get(4..HEADER)?, big };
        let (_version, len, machine, _pad, pid) =
            (bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?);
        let (_time, flags) = (bytes.u64()?, bytes.u64()?);
        let machine = match machine {
            3 => Machine::X86,
            62 => Machine::X86_64,
            183 => Machine::Aarch64,
            _ => Machine::Other,
        };
        let ticks = flags & ARCH_TIMESTAMP != 0;
        (len as usize >= HEADER).then_some(Header { big, len, machine, pid, ticks })
    }

    /// The records of a dump or of whole records from within it, which `records` begins with. They end with the first that is
    /// cut or has a length that cannot be.
    pub fn records<'d>(&self, records: &'d [u8]) -> Records<'d> {
        Records { rest: records, big: self.big }
    }

    /// How many bytes of `records` are whole records; `None` if it begins with one that has a length which cannot be, so that
    /// nothing behind it can be read.
    pub fn whole(&self, records: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(len) = records.get(at..).and_then(|rest| record_len(rest, self.big)) {
            let Some(len) = len else { return (at > 0).then_some(at) };
            match at.checked_add(len).filter(|end| *end <= records.len()) {
                Some(end) => at = end,
                None => break,
            }
        }
        Some(at)
    }

    /// How long the record at the front of `records` says that it is, or the least that a record takes where it does not yet
    /// say so.
    pub fn first_len(&self, records: &[u8]) -> usize {
        record_len(records, self.big).flatten().unwrap_or(PREFIX)
    }

    /// The record at the front of `records` without the code in it, if it is of code that came: its length says that nothing
    /// of it is there.
    pub fn without_code(&self, record: &[u8]) -> Option<Vec<u8>> {
        let Event::Load(load) = self.records(record).next()? else { return None };
        let code = load.code.len();
        let mut bytes = record.get(..record.len().checked_sub(code)?)?.to_vec();
        let len = u32::try_from(bytes.len()).ok()?;
        let field = if self.big { len.to_be_bytes() } else { len.to_le_bytes() };
        bytes.get_mut(4..8)?.copy_from_slice(&field);
        Some(bytes)
    }
}

/// The length of the record at the front; `None` inside where it cannot be, `None` where its front is not there.
fn record_len(rest: &[u8], big: bool) -> Option<Option<usize>> {
    let mut bytes = Bytes { rest: rest.get(4..PREFIX)?, big };
    let len = bytes.u32()? as usize;
    Some((PREFIX..=MAX_RECORD).contains(&len).then_some(len))
}

/// See [`Header::records`].
#[derive(Clone, Copy, Debug)]
pub struct Records<'d> {
    rest: &'d [u8],
    big: bool,
}

impl<'d> Records<'d> {
    /// The bytes of the next record.
    pub fn next_bytes(&mut self) -> Option<&'d [u8]> {
        let len = record_len(self.rest, self.big)??;
        let (record, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(record)
    }
}

impl<'d> Iterator for Records<'d> {
    type Item = Event<'d>;

    fn next(&mut self) -> Option<Event<'d>> {
        let record = self.next_bytes()?;
        let mut bytes = Bytes { rest: record, big: self.big };
        let (kind, _, time) = (bytes.u32()?, bytes.u32()?, bytes.u64()?);
        // One whose fields do not fit into it says nothing.
        Some(event(kind, time, bytes).unwrap_or(Event::Other(kind)))
    }
}

fn event(kind: u32, time: u64, mut bytes: Bytes<'_>) -> Option<Event<'_>> {
    Some(match kind {
        0 => {
            let (_pid, _tid, _vma) = (bytes.u32()?, bytes.u32()?, bytes.u64()?);
            let (addr, len, index) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
            let name = bytes.text()?;
            let code = bytes.rest.get(..usize::try_from(len).unwrap_or(usize::MAX)).unwrap_or_default();
            Event::Load(Load { time, addr, len, index, name, code })
        }
        1 => {
            let (_pid, _tid, _vma) = (bytes.u32()?, bytes.u32()?, bytes.u64()?);
            let (from, to, len, index) = (bytes.u64()?, bytes.u64()?, bytes.u64()?, bytes.u64()?);
            Event::Move { time, index, from, to, len }
        }
        2 => {
            let (addr, count) = (bytes.u64()?, bytes.u64()?);
            Event::Lines(Lines { addr, count, entries: bytes.rest, big: bytes.big })
        }
        3 => Event::Close,
        4 => {
            let (size, header_len, _mapped) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
            let data = bytes.rest.get(..usize::try_from(size).ok()?)?;
            Event::Unwinding { data, header_len }
        }
        other => Event::Other(other),
    })
}

#[derive(Clone, Copy)]
struct Bytes<'d> {
    rest: &'d [u8],
    big: bool,
}

impl<'d> Bytes<'d> {
    fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.rest.split_first_chunk::<4>()?;
        self.rest = rest;
        Some(if self.big { u32::from_be_bytes(*word) } else { u32::from_le_bytes(*word) })
    }

    fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.rest.split_first_chunk::<8>()?;
        self.rest = rest;
        Some(if self.big { u64::from_be_bytes(*word) } else { u64::from_le_bytes(*word) })
    }

    /// Up to a NUL, which goes too.
    fn text(&mut self) -> Option<&'d [u8]> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let (text, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest.get(1..)?;
        Some(text)
    }
}

/// The number in a name `jit-NUMBER.dump`, by which a map record is known for that of a dump.
pub fn pid_of_path(path: &[u8]) -> Option<u32> {
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    let digits = name.strip_prefix(b"jit-")?.strip_suffix(b".dump")?;
    let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse().ok()
}

#[cfg(test)]
pub(crate) mod made {
    //! Dumps made by hand, in both byte orders.

    /// Writes numbers and records.
    pub(crate) struct Dump {
        pub(crate) bytes: Vec<u8>,
        pub(crate) big: bool,
    }

    impl Dump {
        pub(crate) fn new(big: bool) -> Dump {
            let mut dump = Dump { bytes: Vec::new(), big };
            [super::MAGIC, 1, 40, 62, 0, 77].iter().for_each(|word| dump.u32(*word));
            [5, 0].iter().for_each(|word| dump.u64(*word));
            dump
        }

        fn u32(&mut self, word: u32) {
            self.bytes.extend(if self.big { word.to_be_bytes() } else { word.to_le_bytes() });
        }

        fn u64(&mut self, word: u64) {
            self.bytes.extend(if self.big { word.to_be_bytes() } else { word.to_le_bytes() });
        }

        fn record(&mut self, kind: u32, time: u64, fill: impl FnOnce(&mut Dump)) {
            let mut body = Dump { bytes: Vec::new(), big: self.big };
            fill(&mut body);
            self.u32(kind);
            self.u32(16 + body.bytes.len() as u32);
            self.u64(time);
            self.bytes.extend(body.bytes);
        }

        pub(crate) fn load(&mut self, time: u64, addr: u64, index: u64, name: &str, code: &[u8]) {
            self.record(0, time, |to| {
                [77, 77].iter().for_each(|word| to.u32(*word));
                [addr, addr, code.len() as u64, index].iter().for_each(|word| to.u64(*word));
                to.bytes.extend(name.bytes().chain([0]).chain(code.iter().copied()));
            });
        }

        pub(crate) fn moved(&mut self, time: u64, index: u64, from: u64, to_addr: u64, len: u64) {
            self.record(1, time, |to| {
                [77, 77].iter().for_each(|word| to.u32(*word));
                [to_addr, from, to_addr, len, index].iter().for_each(|word| to.u64(*word));
            });
        }

        pub(crate) fn lines(&mut self, addr: u64, lines: &[(u64, u32, &[u8])]) {
            self.record(2, 0, |to| {
                [addr, lines.len() as u64].iter().for_each(|word| to.u64(*word));
                for (addr, line, file) in lines {
                    to.u64(*addr);
                    [*line, 0].iter().for_each(|word| to.u32(*word));
                    to.bytes.extend(file.iter().copied().chain([0]));
                }
            });
        }

        pub(crate) fn unwinding(&mut self, data: &[u8]) {
            self.record(4, 0, |to| {
                [data.len() as u64, 4, 0].iter().for_each(|word| to.u64(*word));
                to.bytes.extend(data);
            });
        }

        pub(crate) fn close(&mut self) {
            self.record(3, 9, |_| {});
        }
    }

    /// One of everything.
    pub(crate) fn whole(big: bool) -> Vec<u8> {
        let mut dump = Dump::new(big);
        dump.lines(0x1000, &[(0x1000, 7, b"a.js"), (0x1002, 9, b"\xff"), (0x1003, 1, b"b.js")]);
        dump.unwinding(b"hdr.frame");
        dump.load(10, 0x1000, 1, "first", &[0x90, 0x90, 0x90, 0xc3]);
        dump.moved(20, 1, 0x1000, 0x2000, 4);
        dump.close();
        dump.bytes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_of_everything_in_both_byte_orders() {
        for big in [false, true] {
            let dump = made::whole(big);
            let header = Header::read(&dump).unwrap();
            assert_eq!(header, Header { big, len: 40, machine: Machine::X86_64, pid: 77, ticks: false });
            let records = &dump[40..];
            assert_eq!(header.whole(records), Some(records.len()));
            let all: Vec<Event<'_>> = header.records(records).collect();
            let Event::Lines(lines) = all[0] else { panic!("{all:?}") };
            let shown: Vec<_> = lines.iter().map(|line| (line.addr, line.line, line.file)).collect();
            assert_eq!(shown, [(0x1000, 7, &b"a.js"[..]), (0x1002, 9, b"a.js"), (0x1003, 1, b"b.js")]);
            assert_eq!(all[1], Event::Unwinding { data: b"hdr.frame", header_len: 4 });
            let (name, code) = (&b"first"[..], &[0x90, 0x90, 0x90, 0xc3][..]);
            assert_eq!(all[2], Event::Load(Load { time: 10, addr: 0x1000, len: 4, index: 1, name, code }));
            assert_eq!(all[3], Event::Move { time: 20, index: 1, from: 0x1000, to: 0x2000, len: 4 });
            assert_eq!(all[4..], [Event::Close]);
        }
    }

    #[test]
    fn what_is_cut_is_not_read_yet() {
        let dump = made::whole(false);
        let header = Header::read(&dump).unwrap();
        let records = &dump[40..];
        let mut last = 0;
        for cut in 0..records.len() {
            let whole = header.whole(&records[..cut]).unwrap();
            assert!(whole <= cut && whole >= last);
            assert_eq!(header.whole(&records[..whole]), Some(whole));
            last = whole;
        }
        // A length that cannot be ends everything.
        assert_eq!(header.whole(&[0; 16]), None);
        assert_eq!(Header::read(b"ELF"), None);
    }

    #[test]
    fn code_can_be_left_out() {
        for big in [false, true] {
            let mut dump = made::Dump::new(big);
            dump.load(10, 0x1000, 1, "first", &[0xc3; 100]);
            let header = Header::read(&dump.bytes).unwrap();
            let less = header.without_code(&dump.bytes[40..]).unwrap();
            assert_eq!(less.len() + 100, dump.bytes.len() - 40);
            let Some(Event::Load(load)) = header.records(&less).next() else { panic!("{less:?}") };
            assert_eq!((load.len, load.name, load.code), (100, &b"first"[..], &b""[..]));
            assert_eq!(header.whole(&less), Some(less.len()));
        }
    }

    #[test]
    fn dumps_are_known_by_their_names() {
        let of = |path: &str| pid_of_path(path.as_bytes());
        assert_eq!(of("/root/.debug/jit/java-jit-20240101.XX/jit-4711.dump"), Some(4711));
        assert_eq!(of("jit-1.dump"), Some(1));
        for other in
            ["/tmp/jit-.dump", "/tmp/jit-x.dump", "/tmp/jit-+1.dump", "/tmp/ajit-1.dump", "/tmp/jit-1.dump.old"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..150, to in any::<u8>()) {
            crate::fuzzing::jitdump(&bytes);
            let mut dump = made::whole(at % 2 == 0);
            if let Some(byte) = dump.get_mut(at) {
                *byte = to;
            }
            crate::fuzzing::jitdump(&dump);
        }
    }
}

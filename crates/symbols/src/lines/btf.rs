//! Source lines of BPF code: `struct bpf_line_info` and the strings of BTF (linux/bpf.h, Documentation/bpf/btf.rst).
//!
//! ```text
//!   bpf_line_info    insn_off │ file_name_off │ line_off │ line_col      one record where another line begins
//!   jited_line_info  the address of the machine code of that record
//!   BTF strings      …\0file.bpf.c\0    sum += i;\0…                     the line's own text is among them
//! ```
//!
//! The addresses are those that the kernel gave the functions when it was asked. Lines are looked up by function and
//! offset, so that a copy of the code that lay elsewhere is as good.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, ErrorKind, damaged};

/// `BTF_MAGIC` (linux/btf.h).
const MAGIC: u16 = 0xeb9f;
/// Bytes of `struct btf_header` up to the end of `str_len`.
const HEADER: usize = 24;
/// Bytes of `struct bpf_line_info` that this code knows; later kernels may append to it.
const RECORD: usize = 16;
/// Bits of `line_col` that hold the column (`BPF_LINE_INFO_LINE_COL`).
const COLUMN_BITS: u32 = 10;

/// What the kernel tells of one program's lines (`struct bpf_prog_info`), as it stands in a recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct BpfParts<'a> {
    /// Where each function's machine code begins (`jited_ksyms`); the main function first.
    pub addresses: &'a [u64],
    /// Bytes of each function's machine code (`jited_func_lens`).
    pub lengths: &'a [u32],
    /// The records of `struct bpf_line_info`.
    pub records: &'a [u8],
    /// Bytes of one such record (`line_info_rec_size`).
    pub record_len: u32,
    /// The address of the machine code of each record (`jited_line_info`).
    pub natives: &'a [u64],
    /// Whether the records are big-endian. BTF says its own byte order.
    pub big_endian: bool,
    /// The program's types, where they are known: without them a line has a number, but neither file nor text.
    pub btf: Option<&'a [u8]>,
}

/// Where in the source some BPF code comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpfLine<'l> {
    /// The file as the compiler was given it; empty where it is not known.
    pub file: Cow<'l, str>,
    /// The line, counted from 1; 0 where the compiler made the code up.
    pub line: u32,
    /// The column, counted from 1; 0 where it is not known.
    pub column: u32,
    /// The text of the line, as the program carries it, with its indent.
    pub text: Cow<'l, str>,
    /// The first BPF instruction of the line here, counted from the start of the program after the verifier's rewriting.
    pub insn: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    function: u32,
    /// Bytes from the function's start.
    offset: u32,
    insn: u32,
    file: u32,
    text: u32,
    line_col: u32,
}

/// The lines of one program.
#[derive(Clone, Debug, Default)]
pub struct BpfLines {
    /// By function and offset; of several at one place the last one is that of the code there.
    entries: Vec<Entry>,
    lengths: Vec<u32>,
    /// Functions by address.
    functions: Vec<(u64, u32)>,
    strings: Vec<u8>,
}

impl BpfLines {
    /// Reads the lines of a program. One without line info has none, which is no error. Records whose address lies in
    /// none of the functions are left out.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] when there are records and their size is none, or the BTF's header or strings make no sense.
    pub fn new(parts: &BpfParts<'_>) -> Result<BpfLines, Error> {
        let mut functions: Vec<(u64, u32)> = parts.addresses.iter().copied().zip(0u32..).collect();
        functions.retain(|(address, _)| *address != 0);
        functions.sort_unstable();
        let mut lines =
            BpfLines { entries: Vec::new(), lengths: parts.lengths.to_vec(), functions, strings: Vec::new() };
        if parts.records.is_empty() {
            return Ok(lines);
        }
        let size = usize::try_from(parts.record_len).unwrap_or(usize::MAX);
        if size < RECORD {
            return Err(Error::new(ErrorKind::Damaged, "size of BPF line records"));
        }
        if let Some(btf) = parts.btf {
            lines.strings = strings(btf)?.to_vec();
        }
        let records = parts.records.chunks_exact(size).zip(parts.natives);
        lines.entries = records.filter_map(|(record, native)| lines.entry(parts, record, *native)).collect();
        lines.entries.sort_by_key(|entry| (entry.function, entry.offset, entry.insn));
        Ok(lines)
    }

    fn entry(&self, parts: &BpfParts<'_>, record: &[u8], native: u64) -> Option<Entry> {
        let (function, offset) = self.function_at(native)?;
        let mut words = record.chunks_exact(4).filter_map(|b| b.try_into().ok()).map(|b| match parts.big_endian {
            true => u32::from_be_bytes(b),
            false => u32::from_le_bytes(b),
        });
        Some(Entry {
            function: u32::try_from(function).ok()?,
            offset: u32::try_from(offset).ok()?,
            insn: words.next()?,
            file: words.next()?,
            text: words.next()?,
            line_col: words.next()?,
        })
    }

    /// How many functions the program has.
    pub fn functions(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The function (0 is the main one) whose machine code lay at `address` when the kernel was asked, and how many bytes
    /// into it the address is.
    pub fn function_at(&self, address: u64) -> Option<(usize, u64)> {
        let next = self.functions.partition_point(|(start, _)| *start <= address);
        let (start, function) = self.functions.get(next.checked_sub(1)?)?;
        let (function, offset) = (*function as usize, address - start);
        self.lengths.get(function).filter(|len| offset < u64::from(**len)).map(|_| (function, offset))
    }

    /// The line of the code that lies `offset` bytes into a function. `None` before the function's first line (the entry
    /// that the kernel puts in front), behind its end, and where nothing is known.
    pub fn at(&self, function: usize, offset: u64) -> Option<BpfLine<'_>> {
        if self.lengths.get(function).is_none_or(|len| offset >= u64::from(*len)) {
            return None;
        }
        let of = self.of(function);
        let next = of.partition_point(|entry| u64::from(entry.offset) <= offset);
        of.get(next.checked_sub(1)?).map(|entry| self.line(entry))
    }

    /// Where lines begin in a function, in bytes from its start, ascending.
    pub fn starts(&self, function: usize) -> impl Iterator<Item = (u64, BpfLine<'_>)> {
        let of = self.of(function);
        let last_here =
            |at: usize| of.get(at + 1).is_none_or(|next| of.get(at).is_none_or(|e| e.offset != next.offset));
        let chosen = (0..of.len()).filter(move |at| last_here(*at)).filter_map(|at| of.get(at));
        chosen.map(|entry| (u64::from(entry.offset), self.line(entry)))
    }

    /// The BPF instructions that the code from one line's begin up to the next one's was made from, where `offset` bytes
    /// into the function lie in that code. The end is `None` for the last line of a function.
    pub fn insns_at(&self, function: usize, offset: u64) -> Option<(u32, Option<u32>)> {
        let of = self.of(function);
        let next = of.partition_point(|entry| u64::from(entry.offset) <= offset);
        let here = of.get(next.checked_sub(1)?)?;
        // Instructions of lines that have no code of their own come with the next code.
        let first = of.iter().find(|entry| entry.offset == here.offset).unwrap_or(here);
        Some((first.insn, of.get(next).map(|entry| entry.insn)))
    }

    fn of(&self, function: usize) -> &[Entry] {
        let Range { start, end } = match u32::try_from(function) {
            Ok(function) => {
                let start = self.entries.partition_point(|entry| entry.function < function);
                start..self.entries.partition_point(|entry| entry.function <= function)
            }
            Err(_) => 0..0,
        };
        self.entries.get(start..end).unwrap_or_default()
    }

    fn line(&self, entry: &Entry) -> BpfLine<'_> {
        BpfLine {
            file: self.string(entry.file),
            line: entry.line_col >> COLUMN_BITS,
            column: entry.line_col & ((1 << COLUMN_BITS) - 1),
            text: self.string(entry.text),
            insn: entry.insn,
        }
    }

    fn string(&self, offset: u32) -> Cow<'_, str> {
        let tail = usize::try_from(offset).ok().and_then(|at| self.strings.get(at..)).unwrap_or_default();
        let end = tail.iter().position(|byte| *byte == 0).unwrap_or(tail.len());
        String::from_utf8_lossy(tail.get(..end).unwrap_or_default())
    }
}

/// The strings of BTF: `struct btf_header` is magic u16, version u8, flags u8, then as u32 hdr_len, type_off, type_len,
/// str_off, str_len; the offsets count from the header's end.
fn strings(btf: &[u8]) -> Result<&[u8], Error> {
    const W: &str = "BTF header";
    let bad = || Error::new(ErrorKind::Damaged, W);
    let header = btf.get(..HEADER).ok_or_else(bad)?;
    let magic: [u8; 2] = header.get(..2).and_then(|b| b.try_into().ok()).ok_or_else(bad)?;
    let big = match (u16::from_le_bytes(magic), u16::from_be_bytes(magic)) {
        (MAGIC, _) => false,
        (_, MAGIC) => true,
        _ => return Err(Error::new(ErrorKind::Damaged, "magic of BTF")),
    };
    let word = |at: usize| {
        let bytes: [u8; 4] = header.get(at..).and_then(|b| b.get(..4)).and_then(|b| b.try_into().ok())?;
        usize::try_from(if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }).ok()
    };
    let range = || {
        let start = word(4)?.checked_add(word(16)?)?;
        Some(start..start.checked_add(word(20)?)?)
    };
    range().and_then(|range| btf.get(range)).ok_or("the strings lie outside").map_err(damaged(W))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// BTF of no types with these strings, which begin with an empty one.
    fn btf(strings: &[&str], big: bool) -> (Vec<u8>, Vec<u32>) {
        let mut text = vec![0u8];
        let at = strings.iter().map(|s| {
            let at = text.len() as u32;
            text.extend(s.as_bytes());
            text.push(0);
            at
        });
        let at: Vec<u32> = at.collect();
        let word = |w: u32| if big { w.to_be_bytes() } else { w.to_le_bytes() };
        let magic = if big { MAGIC.to_be_bytes() } else { MAGIC.to_le_bytes() };
        let mut out = [&magic[..], &[1, 0]].concat();
        [HEADER as u32, 0, 0, 0, text.len() as u32].into_iter().for_each(|w| out.extend(word(w)));
        out.extend(text);
        (out, at)
    }

    fn records(rows: &[[u32; 4]]) -> Vec<u8> {
        rows.iter().flatten().flat_map(|w| w.to_le_bytes()).collect()
    }

    const MAIN: u64 = 0xffff_ffff_c000_1000;
    const SUB: u64 = 0xffff_ffff_c000_0800;

    /// A main function of 64 bytes, and one of 32 bytes that lies before it.
    fn made(big: bool) -> BpfLines {
        let (btf, at) = btf(&["prog.bpf.c", "\tint x = 1;", "\treturn x;", "\tsum += i;"], big);
        let col = |line: u32, column: u32| line << 10 | column;
        let rows = [
            [0, at[0], at[1], col(10, 6)],
            [3, at[0], at[2], col(11, 2)],
            [4, at[0], at[3], col(20, 9)],
            [6, at[0], at[3], col(20, 6)],
        ];
        let natives = [MAIN + 11, MAIN + 30, SUB + 4, SUB + 4];
        let parts = BpfParts {
            addresses: &[MAIN, SUB],
            lengths: &[64, 32],
            records: &records(&rows),
            record_len: 16,
            natives: &natives,
            big_endian: false,
            btf: Some(&btf),
        };
        BpfLines::new(&parts).unwrap()
    }

    #[test]
    fn a_line_holds_until_the_next_one() {
        for big in [false, true] {
            let lines = made(big);
            let at = |function, offset| lines.at(function, offset).map(|l| (l.line, l.column, l.text.into_owned()));
            assert_eq!(at(0, 10), None, "the entry that the kernel made");
            assert_eq!(at(0, 11), Some((10, 6, "\tint x = 1;".into())));
            assert_eq!(at(0, 29), Some((10, 6, "\tint x = 1;".into())));
            assert_eq!(at(0, 63), Some((11, 2, "\treturn x;".into())));
            assert_eq!(at(0, 64), None, "behind the function");
            assert_eq!(at(1, 31), Some((20, 6, "\tsum += i;".into())), "the last of two at one place");
            assert_eq!(at(2, 0), None);
            assert_eq!(lines.at(0, 20).unwrap().file, "prog.bpf.c");
            let starts: Vec<_> = lines.starts(1).map(|(at, line)| (at, line.insn)).collect();
            assert_eq!(starts, [(4, 6)]);
            assert_eq!(lines.insns_at(0, 12), Some((0, Some(3))));
            assert_eq!(lines.insns_at(0, 40), Some((3, None)));
            assert_eq!(lines.insns_at(1, 12), Some((4, None)));
        }
    }

    #[test]
    fn a_function_ends_where_its_length_says() {
        let lines = made(false);
        assert_eq!(lines.function_at(MAIN), Some((0, 0)));
        assert_eq!(lines.function_at(SUB + 31), Some((1, 31)));
        assert_eq!(lines.function_at(SUB + 32), None);
        assert_eq!(lines.function_at(SUB - 1), None);
        assert_eq!(lines.functions(), 2);
    }

    #[test]
    fn without_types_there_are_numbers() {
        let rows = records(&[[0, 1, 2, 7 << 10 | 3]]);
        let parts = BpfParts {
            addresses: &[MAIN],
            lengths: &[8],
            records: &rows,
            record_len: 16,
            natives: &[MAIN],
            ..BpfParts::default()
        };
        let line = BpfLines::new(&parts).unwrap();
        let line = line.at(0, 3).unwrap();
        assert_eq!((line.line, line.column, &*line.file, &*line.text), (7, 3, "", ""));
        assert!(BpfLines::new(&BpfParts::default()).unwrap().is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let rows = records(&[[0, 1, 2, 3]]);
        let parts = BpfParts { records: &rows, record_len: 12, ..BpfParts::default() };
        assert_eq!(BpfLines::new(&parts).unwrap_err().to_string(), "size of BPF line records");
        let (whole, _) = btf(&["text"], false);
        let new = |btf| BpfLines::new(&BpfParts { btf: Some(btf), record_len: 16, ..parts });
        assert!(new(&whole).is_ok());
        for len in 0..whole.len() {
            assert_eq!(new(&whole[..len]).unwrap_err().kind(), ErrorKind::Damaged, "{len} bytes");
        }
        let mut other = whole.clone();
        other[0] ^= 1;
        assert_eq!(new(&other).unwrap_err().to_string(), "magic of BTF");
    }
}

//! Objects that are cut, flipped or made up: an error or a table, never a panic, never memory by a stated size.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod made;

use afterimage_symbols::source::RealFiles;
use afterimage_symbols::{ErrorKind, Finder, Request, SymbolTable};
use afterimage_testkit::{Need, has};
use proptest::prelude::*;

/// A small object that is always at hand: the vDSO of this process.
fn vdso() -> Vec<u8> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
    let (start, rest) = line.split_once('-').unwrap();
    let start = u64::from_str_radix(start, 16).unwrap();
    let end = u64::from_str_radix(rest.split(' ').next().unwrap(), 16).unwrap();
    let mut image = vec![0; (end - start) as usize];
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut image, start).unwrap();
    image
}

/// Uses everything that a table offers.
fn exercise(table: &SymbolTable) {
    let mut named = 0;
    for symbol in table.iter() {
        named += usize::from(table.lookup_vaddr(symbol.start).is_some());
        let _ = afterimage_symbols::demangle(symbol.name);
    }
    for address in [0, 1, 0x1000, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        named +=
            usize::from(table.lookup_vaddr(address).is_some()) + usize::from(table.lookup_offset(address).is_some());
    }
    assert_eq!(SymbolTable::decode(&table.encode()).as_ref(), Some(table), "{named}");
}

fn cuts_and_flips(whole: &[u8]) {
    exercise(&SymbolTable::from_elf(whole).unwrap());
    let mut errors = 0;
    for cut in (0..200).map(|i| whole.len() * i / 200) {
        match SymbolTable::from_elf(&whole[..cut]) {
            Ok(table) => exercise(&table),
            Err(error) => errors += usize::from(!error.to_string().is_empty()),
        }
    }
    assert!(errors > 20, "{errors} of 200 cuts were noticed");
    // Every byte of the header and of the section headers, and bytes all over.
    let sections = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
    let heads = (0..64).chain(sections..whole.len().min(sections + 4096));
    for at in heads.chain((0..400).map(|i| whole.len() * i / 400)) {
        for change in [0x01, 0x80, 0xff] {
            let mut bytes = whole.to_vec();
            bytes[at] ^= change;
            if let Ok(table) = SymbolTable::from_elf(&bytes) {
                exercise(&table);
            }
        }
    }
}

#[test]
fn the_vdso_cut_and_flipped() {
    cuts_and_flips(&vdso());
}

#[test]
fn a_program_cut_and_flipped() {
    if !has("a_program_cut_and_flipped", &[Need::Cc]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program =
        made::compile(dir.path(), "victim", "int puts(const char*); int main(void) { return puts(\"\"); }", &[]);
    cuts_and_flips(&std::fs::read(program).unwrap());
}

#[test]
fn what_is_no_elf_says_so() {
    for bytes in [&b""[..], b"\x7f", b"#!/bin/sh\n", b"\x7fELF\x09\x01", b"MZ"] {
        assert_eq!(SymbolTable::from_elf(bytes).unwrap_err().kind(), ErrorKind::NotElf);
    }
    assert_eq!(SymbolTable::from_elf(b"\x7fELF\x02\x01").unwrap_err().kind(), ErrorKind::Damaged);
}

/// An object of one symbol table over one string table.
fn with_tables(symbols: &[(u32, u64)], strings: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 64];
    let put = |out: &mut Vec<u8>, at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(&mut out, 0, &[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    put(&mut out, 16, &[3, 0, 62, 0, 1, 0, 0, 0]);
    put(&mut out, 52, &[64, 0, 56, 0, 0, 0, 64, 0, 3, 0, 2, 0]);
    let symbols_at = out.len() as u64;
    for &(name, value) in symbols {
        out.extend(name.to_le_bytes());
        out.extend([0x12, 0, 0xf1, 0xff]); // a global function, absolute
        out.extend(value.to_le_bytes());
        out.extend(1u64.to_le_bytes());
    }
    let strings_at = out.len() as u64;
    out.extend(strings);
    out.resize(out.len().next_multiple_of(8), 0);
    let sections_at = out.len() as u64;
    let mut section = |kind: u32, offset: u64, size: u64, link: u32, entry: u64| {
        out.extend([0u32, kind].map(u32::to_le_bytes).concat());
        out.extend([0u64, 0, offset, size].map(u64::to_le_bytes).concat());
        out.extend([link, 0].map(u32::to_le_bytes).concat());
        out.extend([1, entry].map(u64::to_le_bytes).concat());
    };
    section(0, 0, 0, 0, 0);
    section(2, symbols_at, strings_at - symbols_at, 2, 24);
    section(3, strings_at, strings.len() as u64, 0, 0);
    put(&mut out, 40, &sections_at.to_le_bytes());
    out
}

#[test]
fn names_that_share_one_huge_string_hit_a_limit() {
    let mut strings = vec![b'x'; 1 << 20];
    strings.push(0);
    let fine = with_tables(&[(1, 0x1000)], &strings);
    assert_eq!(SymbolTable::from_elf(&fine).unwrap().lookup_vaddr(0x1000).unwrap().name.len(), (1 << 20) - 1);
    let symbols: Vec<(u32, u64)> = (0..100_000).map(|i| (i % 1000 + 1, u64::from(i))).collect();
    assert_eq!(SymbolTable::from_elf(&with_tables(&symbols, &strings)).unwrap_err().kind(), ErrorKind::Limit);
    // Without an end a string is no name.
    let endless = with_tables(&[(0, 1), (1, 2)], b"abc");
    assert!(SymbolTable::from_elf(&endless).unwrap().is_empty());
}

/// An object of one packed section, which says that it has `stated` bytes. `method`: 1 zlib, 2 zstd (elf(5), `ELFCOMPRESS_*`).
fn with_packed(name: &str, method: u32, stated: u64, packed: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 64];
    let put = |out: &mut Vec<u8>, at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(&mut out, 0, &[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    put(&mut out, 16, &[3, 0, 62, 0, 1, 0, 0, 0]);
    put(&mut out, 52, &[64, 0, 56, 0, 0, 0, 64, 0, 3, 0, 2, 0]);
    let section_at = out.len() as u64;
    out.extend([method, 0].map(u32::to_le_bytes).concat());
    out.extend([stated, 1].map(u64::to_le_bytes).concat());
    out.extend(packed);
    let names_at = out.len() as u64;
    out.extend(format!("\0{name}\0.shstrtab\0").as_bytes());
    let end = out.len() as u64;
    out.resize(out.len().next_multiple_of(8), 0);
    let sections_at = out.len() as u64;
    let mut section = |name: usize, kind: u32, flags: u64, from: u64, to: u64| {
        out.extend([name as u32, kind].map(u32::to_le_bytes).concat());
        out.extend([flags, 0, from, to - from].map(u64::to_le_bytes).concat());
        out.extend([0u64, 1, 0].map(u64::to_le_bytes).concat());
    };
    section(0, 0, 0, 0, 0);
    section(1, 1, 0x800, section_at, names_at);
    section(name.len() + 2, 3, 0, names_at, end);
    put(&mut out, 40, &sections_at.to_le_bytes());
    out
}

/// However tightly bytes are packed, and whatever length they are said to have: a reason, and nothing that is allocated by it.
#[test]
fn what_is_packed_too_tightly_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("packed");
    let opened = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let request = Request { path: path.as_os_str().as_encoded_bytes(), build_id: None, live: None };
        Finder::with(Box::new(RealFiles), None).debug_dir(dir.path()).file(&request).unwrap()
    };
    const LONG: usize = 40 << 20;
    let zeros = vec![0; LONG];
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut zlib, &zeros).unwrap();
    for (method, packed) in [(1, zlib.finish().unwrap()), (2, zstd::bulk::compress(&zeros, 3).unwrap())] {
        for stated in [LONG as u64, 1 << 30, 1 << 40, u64::MAX] {
            let frames = opened(&with_packed(".debug_frame", method, stated, &packed)).unwind_sections().unwrap();
            assert!(frames.debug_frame.is_none() && frames.left_out, "{method} {stated}");
            let lines = opened(&with_packed(".debug_line", method, stated, &packed)).lines();
            assert_eq!(lines.unwrap_err().kind(), ErrorKind::Limit, "{method} {stated}");
        }
        // A length that is too small helps nobody either.
        let frames = opened(&with_packed(".debug_frame", method, 100, &packed)).unwind_sections().unwrap();
        assert!(frames.debug_frame.is_none() && !frames.left_out);
        assert!(opened(&with_packed(".debug_line", method, 100, &packed)).lines().is_err());
    }
    let frames = zstd::bulk::compress(&[7; 1000], 3).unwrap();
    let right = opened(&with_packed(".debug_frame", 2, 1000, &frames)).unwind_sections().unwrap();
    assert_eq!((right.debug_frame, right.left_out), (Some(vec![7; 1000]), false));
}

/// A file may be longer than any memory without having a byte on disk.
#[test]
fn sections_of_a_file_with_a_hole_are_not_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hole");
    const LEN: u64 = 3 << 30;
    for name in [".debug_line", ".debug_frame", ".eh_frame"] {
        let mut bytes = with_packed(name, 1, 10, &[0; 10]);
        let sections_at = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        // Not packed, and nearly as long as the file.
        bytes[sections_at + 64 + 8..sections_at + 64 + 16].fill(0);
        bytes[sections_at + 64 + 32..sections_at + 64 + 40].copy_from_slice(&(LEN - 64).to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(LEN).unwrap();
        let request = Request { path: path.as_os_str().as_encoded_bytes(), build_id: None, live: None };
        let file = Finder::with(Box::new(RealFiles), None).debug_dir(dir.path()).file(&request).unwrap();
        match name {
            ".debug_line" => assert_eq!(file.lines().unwrap_err().kind(), ErrorKind::Limit),
            _ => assert!(file.unwind_sections().unwrap().left_out),
        }
    }
}

proptest! {
    #[test]
    fn bytes_behind_an_elf_header(class in 1u8..=2, order in 1u8..=2, bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut object = vec![0x7f, b'E', b'L', b'F', class, order, 1];
        object.extend(bytes);
        if let Ok(table) = SymbolTable::from_elf(&object) {
            exercise(&table);
        }
    }

    #[test]
    fn symbols_anywhere(
        symbols in prop::collection::vec((0u32..40, prop_oneof![0u64..64, any::<u64>()]), 0..40),
        strings in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        if let Ok(table) = SymbolTable::from_elf(&with_tables(&symbols, &strings)) {
            exercise(&table);
        }
    }

    #[test]
    fn many_changes_at_once(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
        let mut image = vdso();
        let len = image.len();
        for (at, value) in changes {
            image[at.index(len)] = value;
        }
        if let Ok(table) = SymbolTable::from_elf(&image) {
            exercise(&table);
        }
    }

    #[test]
    fn any_kallsyms(text in "([0-9a-f]{0,17} ?[tTdD]? ?[a-z_$]{0,9}(\t\\[[a-z_]{0,12}\\])?\n){0,20}") {
        let table = afterimage_symbols::KernelTable::parse(text.as_bytes());
        for start in table.starts() {
            let hit = table.lookup(start);
            prop_assert!(hit.is_some_and(|h| h.start == start && h.offset == 0));
        }
        let bytes = table.encode();
        prop_assert_eq!(afterimage_symbols::KernelTable::decode(&bytes), Some(table));
    }
}

//! What the fuzz target does with its input. Here so that a plain test can replay its corpus; no part of the API.

use crate::{Arch, Code, DEEPEST, Modules, Registers, Section, Sections, StackCopy, StackEnd, Table, Walker};

/// Tables of which everything mapped is.
struct One(Table);

impl Modules for One {
    fn table(&mut self, address: u64) -> Result<(&mut Table, u64), StackEnd> {
        match address {
            0x1000..0x1_0000 => Ok((&mut self.0, address)),
            _ => Err(StackEnd::NoMapping),
        }
    }
}

/// Code that is the same bytes everywhere.
struct Same(Vec<u8>);

impl Code for Same {
    fn read(&self, _: u64, to: &mut [u8]) -> bool {
        to.iter_mut().zip(&self.0).for_each(|(to, from)| *to = *from);
        self.0.len() >= to.len()
    }
}

/// An input: flags (1: ARM, 2: a header, 4: code that signal handlers return to), the lengths of `.eh_frame`, its header and
/// `.debug_frame` as little-endian u16, then 24 or 33 registers, these sections, and the stack.
struct Input<'a> {
    flags: u8,
    registers: Vec<u64>,
    sections: [&'a [u8]; 3],
    stack: &'a [u8],
}

/// The addresses of `.eh_frame` and its header.
pub const PLACES: [u64; 2] = [0x2_0000, 0x1_8000];

impl<'a> Input<'a> {
    fn parse(data: &'a [u8]) -> Option<Input<'a>> {
        let (&[flags, ref lengths @ ..], mut rest) = data.split_first_chunk::<7>()?;
        let count = if flags & 1 == 0 { 24 } else { 33 };
        let mut take = |len: usize| {
            let (head, tail) = rest.split_at(len.min(rest.len()));
            rest = tail;
            head
        };
        let words = take(8 * count).chunks_exact(8);
        let registers = words.filter_map(|word| word.try_into().ok()).map(u64::from_le_bytes).collect();
        let mut lens = lengths.chunks_exact(2).map(|len| len.iter().rev().fold(0, |all, b| all << 8 | usize::from(*b)));
        let mut section = || take(lens.next().unwrap_or(0));
        let sections = [section(), section(), section()];
        Some(Input { flags, registers, sections, stack: rest })
    }
}

/// Walks a stack by tables, both made of the input, twice.
///
/// Beside "no panic, an end" it asserts that what was remembered changes nothing, and that frames are counted.
pub fn walk(data: &[u8]) {
    let Some(input) = Input::parse(data) else { return };
    let arch = if input.flags & 1 == 0 { Arch::X86_64 } else { Arch::Aarch64 };
    // On x86-64 bits 12 to 15 are of segments, which have no number here.
    let Some(registers) = Registers::of_sample(arch, u64::MAX, input.registers) else { return };
    let [frames, header, debug] = input.sections.map(<[u8]>::to_vec);
    let [frames_at, header_at] = PLACES;
    let sections = Sections {
        eh_frame: Some(Section { address: frames_at, bytes: frames }),
        eh_frame_hdr: (input.flags & 2 != 0).then_some(Section { address: header_at, bytes: header }),
        debug_frame: Some(debug),
        text: 0x1000,
        got: 0x3_0000,
        left_out: false,
    };
    let code = match input.flags & 4 {
        0 => Vec::new(),
        _ => vec![0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05],
    };
    let mut modules = One(Table::new(arch, sections, Box::new(Same(code))));
    let stack = StackCopy { start: registers.sp(), bytes: input.stack };
    let mut walker = Walker::new();
    let mut once = || {
        let mut frames = Vec::new();
        let end = walker.walk(&registers, &stack, &mut modules, |address| frames.push(address));
        (frames, end)
    };
    let (first, second) = (once(), once());
    assert_eq!(first, second, "what is remembered differs");
    assert!(!first.0.is_empty() && first.0.len() <= DEEPEST, "{} frames", first.0.len());
    assert!(first.1 != StackEnd::TooDeep || first.0.len() == DEEPEST, "ended at {} frames", first.0.len());
}

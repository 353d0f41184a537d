//! Tables made by gimli's writer, stacks made word by word.
#![allow(dead_code, reason = "each test file uses its part")]

use afterimage_unwind::{Arch, Code, Modules, Registers, Section, Sections, StackCopy, StackEnd, Table, Walker};
use gimli::write::{Address, CallFrameInstruction, CommonInformationEntry, DebugFrame, EhFrame, EndianVec};
use gimli::write::{FrameDescriptionEntry, FrameTable};
use gimli::{Encoding, Format, LittleEndian, Register};

pub(crate) type Rows = Vec<(u32, CallFrameInstruction)>;

/// A function: its first address, its length, and what changes at which offset.
pub(crate) struct Function {
    pub(crate) start: u64,
    pub(crate) len: u32,
    pub(crate) signal: bool,
    pub(crate) rows: Rows,
}

pub(crate) fn function(start: u64, rows: Rows) -> Function {
    Function { start, len: 0x100, signal: false, rows }
}

/// The number of a register of x86-64 in tables.
pub(crate) const RBX: Register = Register(3);
pub(crate) const RBP: Register = Register(6);
pub(crate) const RSP: Register = Register(7);
pub(crate) const R10: Register = Register(10);
pub(crate) const RIP: Register = Register(16);

fn table(arch: Arch, version: u16, functions: &[Function]) -> FrameTable {
    let mut table = FrameTable::default();
    let encoding = Encoding { format: Format::Dwarf32, version, address_size: 8 };
    for function in functions {
        let (ra, first) = match arch {
            Arch::X86_64 => (RIP, vec![CallFrameInstruction::Cfa(RSP, 8), CallFrameInstruction::Offset(RIP, -8)]),
            Arch::Aarch64 => (Register(30), vec![CallFrameInstruction::Cfa(Register(31), 0)]),
        };
        let mut cie = CommonInformationEntry::new(encoding, 1, -8, ra);
        cie.signal_trampoline = function.signal;
        first.into_iter().for_each(|instruction| cie.add_instruction(instruction));
        let cie = table.add_cie(cie);
        let mut fde = FrameDescriptionEntry::new(Address::Constant(function.start), function.len);
        function.rows.iter().for_each(|(offset, row)| fde.add_instruction(*offset, row.clone()));
        table.add_fde(cie, fde);
    }
    table
}

pub(crate) fn eh_frame(arch: Arch, functions: &[Function]) -> Vec<u8> {
    let mut section = EhFrame::from(EndianVec::new(LittleEndian));
    table(arch, 1, functions).write_eh_frame(&mut section).unwrap();
    section.0.into_vec()
}

pub(crate) fn debug_frame(arch: Arch, functions: &[Function]) -> Vec<u8> {
    let mut section = DebugFrame::from(EndianVec::new(LittleEndian));
    table(arch, 4, functions).write_debug_frame(&mut section).unwrap();
    section.0.into_vec()
}

/// `.eh_frame` at 0x20000 and no more.
pub(crate) fn only_frames(bytes: Vec<u8>) -> Sections {
    Sections { eh_frame: Some(Section { address: 0x2_0000, bytes }), ..Sections::default() }
}

/// A file that is mapped from 0x1000 to 0x10000 in the process, where its addresses are what they are.
pub(crate) struct File(pub(crate) Table);

impl File {
    pub(crate) fn new(arch: Arch, sections: Sections) -> File {
        File::with_code(arch, sections, ())
    }

    pub(crate) fn with_code(arch: Arch, sections: Sections, code: impl Code + 'static) -> File {
        File(Table::new(arch, sections, Box::new(code)))
    }

    pub(crate) fn of(functions: &[Function]) -> File {
        File::new(Arch::X86_64, only_frames(eh_frame(Arch::X86_64, functions)))
    }
}

impl Modules for File {
    fn table(&mut self, address: u64) -> Result<(&mut Table, u64), StackEnd> {
        match address {
            0x1000..0x1_0000 => Ok((&mut self.0, address)),
            _ => Err(StackEnd::NoMapping),
        }
    }
}

/// Where made-up stacks begin.
pub(crate) const SP: u64 = 0x7fff_0000;

/// Registers of x86-64: ip, bp, bx, r10.
pub(crate) fn registers(ip: u64, bp: u64, bx: u64, r10: u64) -> Registers {
    // bx bp sp ip r10.
    let mask = 1 << 1 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 18;
    Registers::of_sample(Arch::X86_64, mask, [bx, bp, SP, ip, r10]).unwrap()
}

/// The frames of a stack of words, and how it ended.
pub(crate) fn walked(file: &mut File, registers: &Registers, words: &[u64]) -> (Vec<u64>, StackEnd) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let stack = StackCopy { start: registers.sp(), bytes: &bytes };
    let mut frames = Vec::new();
    let end = Walker::new().walk(registers, &stack, file, |address| frames.push(address));
    (frames, end)
}

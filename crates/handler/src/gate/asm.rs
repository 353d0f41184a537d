//! Instructions of the kernel's programs, with jumps to places that are not known yet (uapi/linux/bpf.h).

use std::os::fd::RawFd;

/// A register, 0 to 10.
pub(crate) type Reg = u8;

/// Bits of an instruction's code.
pub(crate) mod code {
    /// Move a value or a register.
    pub(crate) const MOV: u8 = 0xb0;
    pub(crate) const ADD: u8 = 0x00;
    pub(crate) const SUB: u8 = 0x10;
    pub(crate) const MUL: u8 = 0x20;
    pub(crate) const OR: u8 = 0x40;
    pub(crate) const AND: u8 = 0x50;
    pub(crate) const LSH: u8 = 0x60;
    pub(crate) const RSH: u8 = 0x70;
    pub(crate) const MOD: u8 = 0x90;
    pub(crate) const XOR: u8 = 0xa0;

    /// Sizes of a load or store.
    pub(crate) const W: u8 = 0x00;
    pub(crate) const B: u8 = 0x10;
    pub(crate) const DW: u8 = 0x18;

    pub(super) const ALU64: u8 = 0x07;
    pub(super) const ALU32: u8 = 0x04;
    pub(super) const JMP: u8 = 0x05;
    pub(super) const FROM_REGISTER: u8 = 0x08;
    pub(super) const LOAD: u8 = 0x61;
    pub(super) const STORE: u8 = 0x63;
    pub(super) const LOAD_IMM64: u8 = 0x18;
    pub(super) const CALL: u8 = 0x85;
    pub(super) const EXIT: u8 = 0x95;
    pub(super) const JA: u8 = 0x05;
}

/// When a jump is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Test {
    Equal = 0x10,
    Greater = 0x20,
    AtLeast = 0x30,
    /// Some bits are in both.
    Bits = 0x40,
    Unequal = 0x50,
    Less = 0xa0,
    AtMost = 0xb0,
}

/// One instruction (struct bpf_insn).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Insn {
    pub(crate) code: u8,
    pub(crate) dst: Reg,
    pub(crate) src: Reg,
    pub(crate) off: i16,
    pub(crate) imm: i32,
}

/// A place that is jumped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

#[derive(Debug, Default)]
pub(crate) struct Assembler {
    insns: Vec<Insn>,
    labels: Vec<Option<usize>>,
    /// Instructions that jump, and where to.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label means the next instruction.
    pub(crate) fn bind(&mut self, label: Label) {
        // A jump to the instruction behind it is none.
        let here = self.insns.len();
        let last = self.jumps.last().copied();
        let needless = last.filter(|&(at, to)| at + 1 == here && to == label && self.insns[at].code == code::JA);
        if let Some((at, _)) = needless {
            self.jumps.pop();
            self.insns.pop();
            // Whatever meant the end of the code before still does.
            self.labels.iter_mut().filter(|place| **place == Some(here)).for_each(|place| *place = Some(at));
        }
        self.labels[label.0] = Some(self.insns.len());
    }

    fn push(&mut self, code: u8, dst: Reg, src: Reg, off: i16, imm: i32) {
        self.insns.push(Insn { code, dst, src, off, imm });
    }

    /// `dst op= imm`, in 64 bits.
    pub(crate) fn alu(&mut self, op: u8, dst: Reg, imm: i32) {
        self.push(op | code::ALU64, dst, 0, 0, imm);
    }

    /// `dst op= src`, in 64 bits.
    pub(crate) fn alu_reg(&mut self, op: u8, dst: Reg, src: Reg) {
        self.push(op | code::ALU64 | code::FROM_REGISTER, dst, src, 0, 0);
    }

    /// `dst = src`, the low half of it.
    pub(crate) fn low_half(&mut self, dst: Reg, src: Reg) {
        self.push(code::MOV | code::ALU32 | code::FROM_REGISTER, dst, src, 0, 0);
    }

    /// `dst = value`.
    pub(crate) fn constant(&mut self, dst: Reg, value: u64) {
        match i32::try_from(value) {
            Ok(imm) => self.alu(code::MOV, dst, imm),
            Err(_) => self.wide(dst, 0, value as u32 as i32, (value >> 32) as u32 as i32),
        }
    }

    /// `dst` = the map of a descriptor (BPF_PSEUDO_MAP_FD).
    pub(crate) fn map(&mut self, dst: Reg, fd: RawFd) {
        self.wide(dst, 1, fd, 0);
    }

    fn wide(&mut self, dst: Reg, src: Reg, low: i32, high: i32) {
        self.push(code::LOAD_IMM64, dst, src, 0, low);
        self.push(0, 0, 0, 0, high);
    }

    /// `dst = *(base + off)`.
    pub(crate) fn load(&mut self, size: u8, dst: Reg, base: Reg, off: i16) {
        self.push(code::LOAD | size, dst, base, off, 0);
    }

    /// `*(base + off) = src`.
    pub(crate) fn store(&mut self, size: u8, base: Reg, off: i16, src: Reg) {
        self.push(code::STORE | size, base, src, off, 0);
    }

    /// Calls a helper by its number.
    pub(crate) fn call(&mut self, helper: i32) {
        self.push(code::CALL, 0, 0, 0, helper);
    }

    /// Calls a function of the kernel by its BTF id (BPF_PSEUDO_KFUNC_CALL).
    pub(crate) fn call_kernel(&mut self, id: i32) {
        self.push(code::CALL, 0, 2, 0, id);
    }

    pub(crate) fn exit(&mut self) {
        self.push(code::EXIT, 0, 0, 0, 0);
    }

    pub(crate) fn jump(&mut self, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(code::JA, 0, 0, 0, 0);
    }

    /// Jumps when `dst test value`. Values that fit no instruction go through `scratch`.
    pub(crate) fn jump_if(&mut self, test: Test, dst: Reg, value: u64, scratch: Reg, to: Label) {
        match i32::try_from(value) {
            Ok(imm) => {
                self.jumps.push((self.insns.len(), to));
                self.push(test as u8 | code::JMP, dst, 0, 0, imm);
            }
            Err(_) => {
                self.constant(scratch, value);
                self.jump_if_reg(test, dst, scratch, to);
            }
        }
    }

    /// Jumps when `dst test src`.
    pub(crate) fn jump_if_reg(&mut self, test: Test, dst: Reg, src: Reg, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(test as u8 | code::JMP | code::FROM_REGISTER, dst, src, 0, 0);
    }

    pub(crate) fn len(&self) -> usize {
        self.insns.len()
    }

    /// The instructions with their jumps; `None` when one is longer than an instruction can say, or goes nowhere.
    pub(crate) fn finish(mut self) -> Option<Vec<Insn>> {
        for (at, Label(to)) in self.jumps {
            let distance = self.labels[to]?.checked_sub(at + 1)?;
            self.insns[at].off = i16::try_from(distance).ok()?;
        }
        Some(self.insns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_to_the_next_instruction_are_left_out() {
        let mut asm = Assembler::default();
        let (a, b) = (asm.label(), asm.label());
        asm.jump_if(Test::Equal, 1, 5, 2, b);
        asm.jump(a);
        asm.bind(a);
        asm.bind(b);
        asm.exit();
        let insns = asm.finish().unwrap();
        assert_eq!(insns.len(), 2);
        assert_eq!((insns[0].code, insns[0].off, insns[0].imm), (0x15, 0, 5));
    }

    #[test]
    fn wide_values_take_two() {
        let mut asm = Assembler::default();
        asm.constant(1, 0x1122_3344_5566_7788);
        asm.constant(2, 0x7fff_ffff);
        asm.constant(3, 0xffff_ffff);
        let insns = asm.finish().unwrap();
        assert_eq!(insns.len(), 5);
        assert_eq!((insns[0].imm, insns[1].imm), (0x5566_7788, 0x1122_3344));
        assert_eq!((insns[3].imm, insns[4].imm), (-1, 0));
    }

    #[test]
    fn a_label_without_a_place_is_an_error() {
        let mut asm = Assembler::default();
        let label = asm.label();
        asm.jump(label);
        assert_eq!(asm.finish(), None);
    }
}

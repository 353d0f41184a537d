//! Instructions of BPF as they stand in an object file (linux/bpf.h, struct bpf_insn).

/// Bytes of an instruction; one that loads 64 bits takes two.
pub(super) const SIZE: usize = 8;

/// Classes, the low three bits of the code.
pub(super) mod class {
    pub(crate) const LDX: u8 = 1;
    pub(crate) const ST: u8 = 2;
    pub(crate) const STX: u8 = 3;
    pub(crate) const ALU: u8 = 4;
    pub(crate) const JMP: u8 = 5;
    pub(crate) const JMP32: u8 = 6;
    pub(crate) const ALU64: u8 = 7;
}

/// Loads 64 bits from the instruction itself and the next.
pub(super) const LOAD_64: u8 = 0x18;
/// Calls a function.
pub(super) const CALL: u8 = 0x85;
/// Returns.
pub(super) const EXIT: u8 = 0x95;
/// A call whose target is a function of the object.
pub(super) const PSEUDO_CALL: u8 = 1;

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Insn {
    pub(super) code: u8,
    pub(super) dst: u8,
    pub(super) src: u8,
    pub(super) off: i16,
    pub(super) imm: i32,
}

impl Insn {
    /// The instructions of a section; a rest that is no whole one is left out.
    pub(super) fn all(section: &[u8]) -> Vec<Insn> {
        let one = |bytes: &[u8]| Insn {
            code: bytes[0],
            dst: bytes[1] & 15,
            src: bytes[1] >> 4,
            off: i16::from_le_bytes([bytes[2], bytes[3]]),
            imm: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        };
        section.chunks_exact(SIZE).map(one).collect()
    }

    pub(super) fn class(self) -> u8 {
        self.code & 7
    }

    /// Whether a store is an atomic operation.
    pub(super) fn is_atomic(self) -> bool {
        self.code & 0xe0 == 0xc0
    }

    /// What an arithmetic or jump instruction does.
    pub(super) fn operation(self) -> u8 {
        self.code & 0xf0
    }

    /// Whether the second operand is a register.
    pub(super) fn by_register(self) -> bool {
        self.code & 8 != 0
    }

    /// How many places it takes.
    pub(super) fn places(self) -> usize {
        if self.code == LOAD_64 { 2 } else { 1 }
    }
}

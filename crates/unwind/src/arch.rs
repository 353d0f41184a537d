//! Registers of a sample under the numbers that unwind tables give them.

/// What kind of CPU a stack is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// x86-64. Register numbers: System V ABI, AMD64 supplement, figure 3.36.
    X86_64,
    /// 64-bit ARM. Register numbers: DWARF for the Arm 64-bit Architecture (AADWARF64), section 4.1.
    Aarch64,
}

/// Registers with a number of their own: 0 to 15 on x86-64, 0 to 31 on 64-bit ARM.
const COUNT: usize = 32;

/// The bits of an address of a process without what pointer authentication puts above them: 48-bit addresses.
const ADDRESS_BITS: u64 = (1 << 48) - 1;

impl Arch {
    /// The stack pointer.
    pub(crate) fn sp(self) -> u8 {
        match self {
            Arch::X86_64 => 7,
            Arch::Aarch64 => 31,
        }
    }

    /// The frame pointer, where code keeps one.
    pub(crate) fn fp(self) -> u8 {
        match self {
            Arch::X86_64 => 6,
            Arch::Aarch64 => 29,
        }
    }

    /// A code address without the signature that 64-bit ARM can put into it.
    pub(crate) fn code(self, address: u64) -> u64 {
        match self {
            Arch::X86_64 => address,
            Arch::Aarch64 => address & ADDRESS_BITS,
        }
    }

    /// The number in unwind tables of the register with a bit of `sample_regs_user` (asm/perf_regs.h).
    fn of_bit(self, bit: u32) -> Named {
        // In the order of the bits: ax bx cx dx si di bp sp.
        const X86: [u8; 8] = [0, 3, 2, 1, 4, 5, 6, 7];
        match (self, bit) {
            (Arch::X86_64, 0..8) => X86.get(bit as usize).map_or(Named::Other, |number| Named::Number(*number)),
            (Arch::X86_64, 8) => Named::Pc,
            (Arch::X86_64, 16..24) => Named::Number(bit as u8 - 8),
            (Arch::Aarch64, 0..32) => Named::Number(bit as u8),
            (Arch::Aarch64, 32) => Named::Pc,
            _ => Named::Other,
        }
    }
}

enum Named {
    Number(u8),
    Pc,
    Other,
}

/// The registers of one frame. What is not known any more is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    arch: Arch,
    values: [u64; COUNT],
    known: u32,
    pub(crate) pc: u64,
}

impl Registers {
    /// The registers of a sample: `mask` is `sample_regs_user` of its event, `values` are in the order of its bits. `None`
    /// without a program counter or a stack pointer.
    pub fn of_sample(arch: Arch, mask: u64, values: impl IntoIterator<Item = u64>) -> Option<Registers> {
        let mut registers = Registers { arch, values: [0; COUNT], known: 0, pc: 0 };
        let mut pc = None;
        let bits = (0..u64::BITS).filter(|bit| mask >> bit & 1 == 1);
        for (bit, value) in bits.zip(values) {
            match arch.of_bit(bit) {
                Named::Number(number) => registers.set(number, value),
                Named::Pc => pc = Some(value),
                Named::Other => {}
            }
        }
        registers.pc = pc?;
        registers.get(arch.sp())?;
        Some(registers)
    }

    /// What kind of CPU they are of.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The program counter.
    pub fn pc(&self) -> u64 {
        self.pc
    }

    /// The stack pointer; 0 if it is not known.
    pub fn sp(&self) -> u64 {
        self.get(self.arch.sp()).unwrap_or(0)
    }

    /// The stack pointer, if it is known.
    #[inline]
    pub(crate) fn sp_if_known(&self) -> Option<u64> {
        self.get(self.arch.sp())
    }

    #[inline]
    pub(crate) fn get(&self, number: u8) -> Option<u64> {
        let known = number < 32 && self.known >> number & 1 == 1;
        self.values.get(usize::from(number)).copied().filter(|_| known)
    }

    #[inline]
    pub(crate) fn set(&mut self, number: u8, value: u64) {
        if let Some(place) = self.values.get_mut(usize::from(number)) {
            *place = value;
            self.known |= 1 << number;
        }
    }

    #[inline]
    pub(crate) fn forget(&mut self, number: u8) {
        if number < 32 {
            self.known &= !(1 << number);
        }
    }

    pub(crate) fn forget_all(&mut self) {
        self.known = 0;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn registers_go_by_the_numbers_of_tables() {
        // The mask that perf asks for: all but ds, es, fs, gs.
        let mask = 0xff_0fff;
        let registers = Registers::of_sample(Arch::X86_64, mask, 100..).unwrap();
        let numbers = [0, 3, 2, 1, 4, 5, 6, 7].map(|number| registers.get(number).unwrap());
        assert_eq!(numbers, [100, 101, 102, 103, 104, 105, 106, 107]);
        assert_eq!(registers.pc(), 108);
        assert_eq!((registers.get(8), registers.get(15)), (Some(112), Some(119)));
        assert_eq!(registers.get(16), None);
        let arm = Registers::of_sample(Arch::Aarch64, (1 << 33) - 1, 0..).unwrap();
        assert_eq!((arm.get(29), arm.get(30), arm.sp(), arm.pc()), (Some(29), Some(30), 31, 32));
    }

    #[test]
    fn without_place_or_stack_there_is_nothing_to_unwind() {
        assert_eq!(Registers::of_sample(Arch::X86_64, 0x100, [1]), None);
        assert_eq!(Registers::of_sample(Arch::X86_64, 0x80, [1]), None);
        assert_eq!(Registers::of_sample(Arch::X86_64, 0x180, [1]), None);
        assert!(Registers::of_sample(Arch::X86_64, 0x180, [1, 2]).is_some());
    }
}

//! The names of registers by their bit in `sample_regs_user` and `sample_regs_intr` (asm/perf_regs.h of each architecture).

use std::borrow::Cow;

/// An architecture, as far as its registers are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registers {
    /// x86 of 32 and 64 bits.
    X86,
    /// ARM of 32 bits.
    Arm,
    /// ARM of 64 bits.
    Arm64,
    /// RISC-V.
    Riscv,
    /// POWER.
    Powerpc,
    /// IBM Z.
    S390,
    /// MIPS.
    Mips,
    /// LoongArch.
    Loongarch,
    /// Another one.
    Unknown,
}

const X86: [&str; 24] = [
    "AX", "BX", "CX", "DX", "SI", "DI", "BP", "SP", "IP", "FLAGS", "CS", "SS", "DS", "ES", "FS", "GS", "R8", "R9",
    "R10", "R11", "R12", "R13", "R14", "R15",
];

/// Halves of the vector registers begin at this bit, two a register.
const X86_XMM0: u32 = 32;

const ARM: [&str; 16] =
    ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "fp", "ip", "sp", "lr", "pc"];

const RISCV: [&str; 32] = [
    "pc", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "s2",
    "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];

/// Those behind r0 to r31.
const POWERPC: [&str; 27] = [
    "nip", "msr", "orig_r3", "ctr", "link", "xer", "ccr", "softe", "trap", "dar", "dsisr", "sier", "mmcra", "mmcr0",
    "mmcr1", "mmcr2", "mmcr3", "sier2", "sier3", "pmc1", "pmc2", "pmc3", "pmc4", "pmc5", "pmc6", "sdar", "siar",
];

impl Registers {
    /// The registers of a machine by its name (`uname -m`, the ARCH section of a recording).
    pub fn of(machine: &str) -> Self {
        let starts = |names: &[&str]| names.iter().any(|name| machine.starts_with(name));
        match machine {
            "aarch64" | "arm64" => Registers::Arm64,
            "i386" | "i486" | "i586" | "i686" => Registers::X86,
            _ if starts(&["x86"]) => Registers::X86,
            _ if starts(&["arm", "sa110"]) => Registers::Arm,
            _ if starts(&["riscv"]) => Registers::Riscv,
            _ if starts(&["ppc", "powerpc"]) => Registers::Powerpc,
            _ if starts(&["s390"]) => Registers::S390,
            _ if starts(&["mips"]) => Registers::Mips,
            _ if starts(&["loongarch"]) => Registers::Loongarch,
            _ => Registers::Unknown,
        }
    }

    /// The name of the register with this bit, as perf writes it; `None` where there is none.
    pub fn name(self, bit: u32) -> Option<Cow<'static, str>> {
        let of = |names: &'static [&'static str], first: u32| {
            names.get(bit.checked_sub(first)? as usize).map(|name| Cow::Borrowed(*name))
        };
        let numbered = |prefix: &str, number: u32| Some(Cow::Owned(format!("{prefix}{number}")));
        match (self, bit) {
            (Registers::X86, X86_XMM0..64) => numbered("XMM", (bit - X86_XMM0) / 2),
            (Registers::X86, _) => of(&X86, 0),
            (Registers::Arm, _) => of(&ARM, 0),
            (Registers::Arm64, 0..=29) => numbered("x", bit),
            (Registers::Arm64, 46) => Some("vg".into()),
            (Registers::Arm64, _) => of(&["lr", "sp", "pc"], 30),
            (Registers::Riscv, _) => of(&RISCV, 0),
            (Registers::Powerpc, 0..=31) => numbered("r", bit),
            (Registers::Powerpc, _) => of(&POWERPC, 32),
            (Registers::S390, 0..=15) => numbered("R", bit),
            (Registers::S390, 16..=31) => numbered("FP", bit - 16),
            (Registers::S390, _) => of(&["MASK", "PC"], 32),
            (Registers::Mips | Registers::Loongarch, 0) => Some("PC".into()),
            // Two are the kernel's own.
            (Registers::Mips, 1..=25 | 28..=31) => numbered("$", bit),
            (Registers::Loongarch, 1..=31) => numbered("%r", bit),
            (Registers::Mips | Registers::Loongarch | Registers::Unknown, _) => None,
        }
    }

    /// The bits of a mask with the names of their registers, from the lowest: the order of the values in a sample.
    pub fn of_mask(self, mask: u64) -> impl Iterator<Item = Cow<'static, str>> {
        let bits = (0..64).filter(move |bit| mask >> bit & 1 != 0);
        bits.map(move |bit| self.name(bit).unwrap_or(Cow::Borrowed("unknown")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_their_registers() {
        for (machine, mask, names) in [
            ("x86_64", 0xff_0fff, "AX BX CX DX SI DI BP SP IP FLAGS CS SS R8 R9 R10 R11 R12 R13 R14 R15"),
            ("i686", 1 << 8 | 1 << 32 | 1 << 33 | 1 << 63, "IP XMM0 XMM0 XMM15"),
            ("armv7l", 0xf800, "fp ip sp lr pc"),
            ("aarch64", 1 << 46 | 0xf << 29 | 1, "x0 x29 lr sp pc vg"),
            ("riscv64", 1 | 1 << 31, "pc t6"),
            ("ppc64le", 1 << 31 | 3 << 32 | 3 << 57, "r31 nip msr sdar siar"),
            ("ppc64", 1 << 59, "unknown"),
            ("s390x", 1 | 1 << 16 | 3 << 32, "R0 FP0 MASK PC"),
            ("mips64", 3 | 1 << 26, "PC $1 unknown"),
            ("loongarch64", 3, "PC %r1"),
            ("vax", 1, "unknown"),
        ] {
            let got: Vec<_> = Registers::of(machine).of_mask(mask).collect();
            assert_eq!(got.join(" "), names, "{machine}");
        }
    }
}

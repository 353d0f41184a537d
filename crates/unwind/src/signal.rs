//! Where signal handlers return to: a few instructions that ask the kernel to put back the registers that it saved on the
//! stack. Not every C library has tables for them, and those of 64-bit ARM lead past the interrupted function.

use crate::arch::Arch;
use crate::rule::{Cfa, Get, Part, Rule};
use crate::table::Code;

/// The most bytes that tell such code.
pub(crate) const LEN: usize = 9;

/// Whether code is `mov $15, %rax; syscall` (rt_sigreturn), in either form, or `mov x8, #139; svc #0`.
pub(crate) fn is_return(arch: Arch, code: &[u8]) -> bool {
    let forms: &[&[u8]] = match arch {
        Arch::X86_64 => &[&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]],
        Arch::Aarch64 => &[&[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4]],
    };
    forms.iter().any(|form| code.starts_with(form))
}

/// The code at an address, if it is what signal handlers return to: whoever has the tables of a file alone needs it beside them.
pub fn return_code(arch: Arch, code: &dyn Code, address: u64) -> Option<Vec<u8>> {
    let mut bytes = [0; LEN];
    (code.read(address, &mut bytes) && is_return(arch, &bytes)).then(|| bytes.to_vec())
}

/// What the kernel saved, by `struct ucontext` (asm/ucontext.h, asm/sigcontext.h) at the stack pointer; on ARM behind a
/// `struct siginfo` of 128 bytes.
pub(crate) fn rule(arch: Arch) -> Rule {
    let saved: Vec<(u8, Get)> = match arch {
        Arch::X86_64 => {
            // r8 to r15, then di, si, bp, bx, dx, ax, cx, sp.
            let order: [u8; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7];
            order.into_iter().zip(0_i64..).map(|(number, nth)| (number, Get::At(40 + 8 * nth))).collect()
        }
        Arch::Aarch64 => (0..32).map(|number| (number, Get::At(312 + 8 * i64::from(number)))).collect(),
    };
    let caller = match arch {
        Arch::X86_64 => Get::At(168),
        Arch::Aarch64 => Get::At(568),
    };
    Rule { frame: Cfa::Register(arch.sp(), 0), caller, saved: saved.into(), signal: true, part: Part::Frames }
}

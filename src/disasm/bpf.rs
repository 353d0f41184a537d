//! BPF instructions as text, in the form of the kernel's own listing (bpftool's `dump xlated`): `r1 = *(u64 *)(r6 +8)`.
//!
//! The encoding is that of linux/bpf.h and Documentation/bpf/standardization/instruction-set.rst: 8 bytes, an opcode, two
//! registers, a 16-bit offset, a 32-bit immediate; a 64-bit load takes a second slot for the upper half.

/// One slot of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Insn {
    pub(crate) code: u8,
    pub(crate) dst: u8,
    pub(crate) src: u8,
    pub(crate) off: i16,
    pub(crate) imm: i32,
}

/// Class, the low three bits of an opcode.
mod class {
    pub(super) const LD: u8 = 0;
    pub(super) const LDX: u8 = 1;
    pub(super) const ST: u8 = 2;
    pub(super) const STX: u8 = 3;
    pub(super) const ALU: u8 = 4;
    pub(super) const JMP: u8 = 5;
    pub(super) const JMP32: u8 = 6;
    pub(super) const ALU64: u8 = 7;
}

/// `BPF_LD | BPF_IMM | BPF_DW`.
const LOAD_64: u8 = 0x18;
/// The bit that says that the operand is a register.
const BY_REGISTER: u8 = 8;
/// In the source register of a call: a function of the program.
const OWN_FUNCTION: u8 = 1;
/// In the source register of a call: a kernel function by its BTF id.
const KERNEL_FUNCTION: u8 = 2;

impl Insn {
    /// The slot in eight bytes of that byte order; the halves of the registers' byte change places with it.
    pub(crate) fn parse(bytes: [u8; 8], big_endian: bool) -> Insn {
        let [code, regs, o0, o1, i0, i1, i2, i3] = bytes;
        let (low, high) = (regs & 15, regs >> 4);
        if big_endian {
            let (off, imm) = (i16::from_be_bytes([o0, o1]), i32::from_be_bytes([i0, i1, i2, i3]));
            Insn { code, dst: high, src: low, off, imm }
        } else {
            let (off, imm) = (i16::from_le_bytes([o0, o1]), i32::from_le_bytes([i0, i1, i2, i3]));
            Insn { code, dst: low, src: high, off, imm }
        }
    }

    /// Whether the next slot is the upper half of this one's number.
    pub(crate) fn is_double(self) -> bool {
        self.code == LOAD_64
    }

    fn class(self) -> u8 {
        self.code & 7
    }

    fn by_register(self) -> bool {
        self.code & BY_REGISTER != 0
    }
}

/// All slots of some code. A tail of less than eight bytes is left out.
pub(crate) fn parse(code: &[u8], big_endian: bool) -> Vec<Insn> {
    code.chunks_exact(8).filter_map(|b| b.try_into().ok()).map(|b| Insn::parse(b, big_endian)).collect()
}

/// The text of an instruction; `next` is the slot behind it. `function` names a function of the program by its number.
pub(crate) fn text(insn: Insn, next: Option<Insn>, function: &dyn Fn(u32) -> Option<String>) -> String {
    let known = match insn.class() {
        class::ALU | class::ALU64 => arithmetic(insn),
        class::JMP | class::JMP32 => jump(insn, function),
        class::LDX => load(insn),
        class::ST => store(insn),
        class::STX => store_register(insn),
        class::LD => legacy_load(insn, next),
        _ => None,
    };
    known.unwrap_or_else(|| {
        let Insn { code, dst, src, off, imm } = insn;
        format!("(bad) code {code:#04x} dst r{dst} src r{src} off {off} imm {imm:#x}")
    })
}

fn register(insn: Insn, number: u8) -> String {
    let letter = if matches!(insn.class(), class::ALU | class::JMP32) { 'w' } else { 'r' };
    format!("{letter}{number}")
}

fn arithmetic(insn: Insn) -> Option<String> {
    let (dst, src) = (register(insn, insn.dst), register(insn, insn.src));
    let wide = insn.class() == class::ALU64;
    let operand = || if insn.by_register() { src.clone() } else { insn.imm.to_string() };
    let signed = insn.off == 1;
    Some(match insn.code >> 4 {
        0x0 => format!("{dst} += {}", operand()),
        0x1 => format!("{dst} -= {}", operand()),
        0x2 => format!("{dst} *= {}", operand()),
        0x3 => format!("{dst} {}/= {}", if signed { "s" } else { "" }, operand()),
        0x4 => format!("{dst} |= {}", operand()),
        0x5 => format!("{dst} &= {}", operand()),
        0x6 => format!("{dst} <<= {}", operand()),
        0x7 => format!("{dst} >>= {}", operand()),
        0x8 => format!("{dst} = -{dst}"),
        0x9 => format!("{dst} {}%= {}", if signed { "s" } else { "" }, operand()),
        0xa => format!("{dst} ^= {}", operand()),
        0xb if insn.by_register() && matches!(insn.off, 8 | 16 | 32) => format!("{dst} = (s{}){src}", insn.off),
        0xb => format!("{dst} = {}", operand()),
        0xc => format!("{dst} s>>= {}", operand()),
        0xd => {
            // Byte orders name the whole register.
            let order = match (wide, insn.by_register()) {
                (true, _) => "bswap",
                (false, true) => "be",
                (false, false) => "le",
            };
            format!("r{} = {order}{} r{}", insn.dst, insn.imm, insn.dst)
        }
        _ => return None,
    })
}

fn jump(insn: Insn, function: &dyn Fn(u32) -> Option<String>) -> Option<String> {
    let wide = insn.class() == class::JMP;
    let relation = match insn.code >> 4 {
        0x0 if wide => return Some(format!("goto pc{:+}", insn.off)),
        0x0 => return Some(format!("goto pc{:+}", insn.imm)),
        0x8 if wide => return Some(call(insn, function)),
        0x9 if wide => return Some("exit".to_owned()),
        0x1 => "==",
        0x2 => ">",
        0x3 => ">=",
        0x4 => "&",
        0x5 => "!=",
        0x6 => "s>",
        0x7 => "s>=",
        0xa => "<",
        0xb => "<=",
        0xc => "s<",
        0xd => "s<=",
        0xe if wide => return Some(format!("may_goto pc{:+}", insn.off)),
        _ => return None,
    };
    let dst = register(insn, insn.dst);
    let operand = if insn.by_register() { register(insn, insn.src) } else { format!("{:#x}", insn.imm) };
    Some(format!("if {dst} {relation} {operand} goto pc{:+}", insn.off))
}

fn call(insn: Insn, function: &dyn Fn(u32) -> Option<String>) -> String {
    match insn.src {
        // The kernel leaves the distance in the offset, and the function's number in the immediate.
        OWN_FUNCTION => match u32::try_from(insn.imm).ok().and_then(function) {
            Some(name) => format!("call pc{:+}#{name}", insn.off),
            None => format!("call pc{:+}", insn.imm),
        },
        KERNEL_FUNCTION => format!("call kernel-function#{}", insn.imm),
        _ => format!("call #{}", insn.imm),
    }
}

fn size(code: u8) -> Option<&'static str> {
    Some(match code & 0x18 {
        0x00 => "u32",
        0x08 => "u16",
        0x10 => "u8",
        _ => "u64",
    })
}

/// The upper three bits of an opcode that loads or stores.
mod mode {
    pub(super) const IMM: u8 = 0x00;
    pub(super) const ABS: u8 = 0x20;
    pub(super) const IND: u8 = 0x40;
    pub(super) const MEM: u8 = 0x60;
    pub(super) const SIGNED: u8 = 0x80;
    pub(super) const ATOMIC: u8 = 0xc0;
    /// Loads that may fault, as the verifier marks them.
    pub(super) const PROBE: u8 = 0x20;
    pub(super) const PROBE_SIGNED: u8 = 0x40;
    pub(super) const ALL: u8 = 0xe0;
}

fn load(insn: Insn) -> Option<String> {
    let size = size(insn.code)?;
    let size = match insn.code & mode::ALL {
        mode::MEM | mode::PROBE => size.to_owned(),
        mode::SIGNED | mode::PROBE_SIGNED => size.replacen('u', "s", 1),
        _ => return None,
    };
    Some(format!("r{} = *({size} *)(r{} {:+})", insn.dst, insn.src, insn.off))
}

fn store(insn: Insn) -> Option<String> {
    match insn.code & mode::ALL {
        mode::MEM => Some(format!("*({} *)(r{} {:+}) = {}", size(insn.code)?, insn.dst, insn.off, insn.imm)),
        // The verifier puts it where speculation has to stop.
        mode::ATOMIC => Some("nospec".to_owned()),
        _ => None,
    }
}

fn store_register(insn: Insn) -> Option<String> {
    let Insn { dst, src, off, .. } = insn;
    let size = size(insn.code)?;
    match insn.code & mode::ALL {
        mode::MEM => Some(format!("*({size} *)(r{dst} {off:+}) = r{src}")),
        mode::ATOMIC => atomic(insn, size),
        _ => None,
    }
}

fn atomic(insn: Insn, size: &str) -> Option<String> {
    const FETCH: i32 = 1;
    let Insn { dst, src, off, imm, .. } = insn;
    let place = format!("({size} *)(r{dst} {off:+})");
    let prefix = if size == "u64" { "atomic64" } else { "atomic" };
    let (sign, word) = match imm & !FETCH {
        0x00 => ("+=", "add"),
        0x40 => ("|=", "or"),
        0x50 => ("&=", "and"),
        0xa0 => ("^=", "xor"),
        0xe0 if imm & FETCH != 0 => return Some(format!("r{src} = {prefix}_xchg({place}, r{src})")),
        0xf0 if imm & FETCH != 0 => return Some(format!("r0 = {prefix}_cmpxchg({place}, r0, r{src})")),
        0x100 if imm & FETCH == 0 => return Some(format!("r{dst} = load_acquire(({size} *)(r{src} {off:+}))")),
        0x110 if imm & FETCH == 0 => return Some(format!("store_release({place}, r{src})")),
        _ => return None,
    };
    Some(match imm & FETCH {
        0 => format!("lock *{place} {sign} r{src}"),
        _ => format!("r{src} = {prefix}_fetch_{word}({place}, r{src})"),
    })
}

fn legacy_load(insn: Insn, next: Option<Insn>) -> Option<String> {
    let size = size(insn.code)?;
    match insn.code & mode::ALL {
        mode::IMM if insn.is_double() => {
            let high = next.map_or(0, |next| next.imm);
            let value = u64::from(insn.imm as u32) | u64::from(high as u32) << 32;
            Some(format!("r{} = {value:#x}", insn.dst))
        }
        mode::ABS => Some(format!("r0 = *({size} *)skb[{}]", insn.imm)),
        mode::IND => Some(format!("r0 = *({size} *)skb[r{} + {}]", insn.src, insn.imm)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> String {
        text(Insn { code, dst, src, off, imm }, None, &|n| Some(format!("f{n}")))
    }

    #[test]
    fn every_form_that_programs_are_made_of() {
        let cases = [
            (print(0xb7, 0, 0, 0, -5), "r0 = -5"),
            (print(0xbf, 6, 1, 0, 0), "r6 = r1"),
            (print(0xbf, 6, 1, 8, 0), "r6 = (s8)r1"),
            (print(0xbc, 6, 1, 0, 0), "w6 = w1"),
            (print(0x07, 1, 0, 0, 31), "r1 += 31"),
            (print(0x0f, 6, 0, 0, 0), "r6 += r0"),
            (print(0xc7, 3, 0, 0, 3), "r3 s>>= 3"),
            (print(0x87, 3, 0, 0, 0), "r3 = -r3"),
            (print(0x37, 3, 0, 1, 2), "r3 s/= 2"),
            (print(0xdc, 2, 0, 0, 16), "r2 = be16 r2"),
            (print(0xd7, 2, 0, 0, 64), "r2 = bswap64 r2"),
            (print(0x79, 1, 6, 8, 0), "r1 = *(u64 *)(r6 +8)"),
            (print(0x91, 1, 6, -1, 0), "r1 = *(s8 *)(r6 -1)"),
            (print(0x61, 1, 6, 0, 0), "r1 = *(u32 *)(r6 +0)"),
            (print(0x71, 1, 6, 0, 0), "r1 = *(u8 *)(r6 +0)"),
            (print(0x7b, 10, 1, -8, 0), "*(u64 *)(r10 -8) = r1"),
            (print(0x62, 10, 0, -4, 7), "*(u32 *)(r10 -4) = 7"),
            (print(0xdb, 1, 2, 0, 0), "lock *(u64 *)(r1 +0) += r2"),
            (print(0xc3, 1, 2, 4, 1), "r2 = atomic_fetch_add((u32 *)(r1 +4), r2)"),
            (print(0xdb, 1, 2, 0, 0xf1), "r0 = atomic64_cmpxchg((u64 *)(r1 +0), r0, r2)"),
            (print(0x30, 0, 0, 0, 14), "r0 = *(u8 *)skb[14]"),
            (print(0x48, 0, 6, 0, 14), "r0 = *(u16 *)skb[r6 + 14]"),
            (print(0x05, 0, 0, -3, 0), "goto pc-3"),
            (print(0x55, 1, 0, -4, 0), "if r1 != 0x0 goto pc-4"),
            (print(0x1e, 1, 2, 4, 0), "if w1 == w2 goto pc+4"),
            (print(0xc5, 1, 0, 4, -1), "if r1 s< 0xffffffff goto pc+4"),
            (print(0x85, 0, 1, 5, 2), "call pc+5#f2"),
            (print(0x85, 0, 0, 0, 12), "call #12"),
            (print(0x95, 0, 0, 0, 0), "exit"),
            (print(0xff, 1, 2, 3, 4), "(bad) code 0xff dst r1 src r2 off 3 imm 0x4"),
        ];
        for (got, expected) in cases {
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn a_number_of_64_bits_takes_two_slots() {
        let code = [0x18, 1, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 0xef, 0xcd, 0xab, 0x89];
        let insns = parse(&code, false);
        assert_eq!(text(insns[0], insns.get(1).copied(), &|_| None), "r1 = 0x89abcdef12345678");
        assert!(insns[0].is_double() && !insns[1].is_double());
        assert_eq!(parse(&code[..15], false).len(), 1);
    }

    #[test]
    fn every_opcode_has_a_text() {
        for code in 0..=u8::MAX {
            for big in [false, true] {
                let insn = Insn::parse([code, 0xf1, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff], big);
                assert!(!text(insn, None, &|_| None).is_empty());
            }
        }
    }
}

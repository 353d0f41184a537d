//! BPF instructions, put together by hand (linux/bpf.h, Documentation/bpf/standardization/instruction-set.rst).

/// One instruction as the kernel takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Insn {
    code: u8,
    /// Destination in the low, source in the high half.
    regs: u8,
    off: i16,
    imm: i32,
}

const MOV_IMM: u8 = 0xb7;
const MOV_REG: u8 = 0xbf;
const ADD_IMM: u8 = 0x07;
const ADD_REG: u8 = 0x0f;
const MUL_IMM: u8 = 0x27;
const JNE_IMM: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const LD_IMM64: u8 = 0x18;
/// In the source register of a call: a function of this program.
const PSEUDO_CALL: u8 = 1;
/// In the source register of a 64-bit load: the descriptor of a map.
const PSEUDO_MAP_FD: u8 = 1;
/// The helper `bpf_tail_call(ctx, map, index)`.
const HELPER_TAIL_CALL: i32 = 12;

const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, regs: dst | src << 4, off, imm }
}

/// A program: functions one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Code {
    /// Main function first.
    pub(crate) insns: Vec<Insn>,
    /// Where each function begins, in instructions, and its name.
    pub(crate) functions: Vec<(u32, String)>,
}

/// What a program of two subprograms does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'a> {
    /// Names begin with it.
    pub(crate) prefix: &'a str,
    /// The number in names and in constants, so that no two programs have a tag in common.
    pub(crate) n: u64,
    /// Rounds of the second subprogram; the first takes three times as many.
    pub(crate) turns: i32,
    /// What the main function returns.
    pub(crate) verdict: i32,
}

impl Shape<'_> {
    fn name(&self, part: &str) -> String {
        format!("{}_{}_{part}", self.prefix, self.n)
    }

    /// Two numbers that no other program has: what it is for in the upper bits, its number below.
    fn constants(&self) -> [i32; 2] {
        let kind = self.prefix.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let even = kind << 25 | (self.n as u32 & 0xff_ffff) << 1;
        [even as i32, (even | 1) as i32]
    }
}

/// Main calls `left`, which takes three quarters of the time, and `right`.
pub(crate) fn two_subprograms(shape: &Shape<'_>) -> Code {
    let mut code = Code::default();
    let [even, odd] = shape.constants();
    code.begin(shape.name("main"));
    code.push(insn(MOV_IMM, 6, 0, 0, even));
    code.push(insn(MOV_IMM, 1, 0, 0, shape.turns.saturating_mul(3)));
    let left = code.push(insn(CALL, 0, PSEUDO_CALL, 0, 0));
    code.push(insn(ADD_REG, 6, 0, 0, 0));
    code.push(insn(MOV_IMM, 1, 0, 0, shape.turns));
    let right = code.push(insn(CALL, 0, PSEUDO_CALL, 0, 0));
    code.push(insn(MOV_IMM, 0, 0, 0, shape.verdict));
    code.push(insn(EXIT, 0, 0, 0, 0));
    code.rounds(left, shape.name("left"), even);
    code.rounds(right, shape.name("right"), odd);
    code
}

/// A program whose one jump goes where entry 0 of the program array `map` says. The index is a constant, so that the
/// kernel makes it a direct jump and patches it when the entry changes.
pub(crate) fn tail_caller(shape: &Shape<'_>, map: i32) -> Code {
    let mut code = Code::default();
    code.begin(shape.name("caller"));
    code.push(insn(MOV_REG, 6, 1, 0, 0));
    code.push(insn(LD_IMM64, 2, PSEUDO_MAP_FD, 0, map));
    code.push(insn(0, 0, 0, 0, 0));
    code.push(insn(MOV_IMM, 3, 0, 0, 0));
    code.push(insn(CALL, 0, 0, 0, HELPER_TAIL_CALL));
    code.push(insn(MOV_IMM, 6, 0, 0, shape.constants()[0]));
    code.push(insn(MOV_IMM, 0, 0, 0, shape.verdict));
    code.push(insn(EXIT, 0, 0, 0, 0));
    code
}

impl Code {
    fn begin(&mut self, name: String) {
        self.functions.push((self.insns.len() as u32, name));
    }

    fn push(&mut self, insn: Insn) -> usize {
        self.insns.push(insn);
        self.insns.len() - 1
    }

    /// A function of as many rounds as its argument says, called at `call`.
    fn rounds(&mut self, call: usize, name: String, constant: i32) {
        self.insns[call].imm = (self.insns.len() - call - 1) as i32;
        self.begin(name);
        self.push(insn(MOV_IMM, 0, 0, 0, constant));
        let top = self.push(insn(MUL_IMM, 0, 0, 0, 31));
        self.push(insn(ADD_IMM, 0, 0, 0, constant));
        self.push(insn(ADD_IMM, 1, 0, 0, -1));
        let jump = self.insns.len();
        self.push(insn(JNE_IMM, 1, 0, top as i16 - jump as i16 - 1, 0));
        self.push(insn(EXIT, 0, 0, 0, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_functions_are_alike() {
        let mut seen = std::collections::BTreeSet::new();
        for prefix in ["load_bpf", "load_xdp", "load_tail", "load_fentry"] {
            for n in 0..1000 {
                let code = two_subprograms(&Shape { prefix, n, turns: 1, verdict: 0 });
                let mut ends: Vec<usize> = code.functions[1..].iter().map(|(at, _)| *at as usize).collect();
                ends.push(code.insns.len());
                for ((at, _), end) in code.functions.iter().zip(ends) {
                    assert!(seen.insert(format!("{:?}", &code.insns[*at as usize..end])), "{prefix} {n}");
                }
            }
        }
    }

    #[test]
    fn calls_and_jumps_reach_what_they_mean() {
        let code = two_subprograms(&Shape { prefix: "load", n: 7, turns: 1, verdict: 0 });
        let starts: Vec<u32> = code.functions.iter().map(|(at, _)| *at).collect();
        let names: Vec<&str> = code.functions.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["load_7_main", "load_7_left", "load_7_right"]);
        let calls = code.insns.iter().enumerate().filter(|(_, i)| i.code == CALL);
        let targets: Vec<u32> = calls.map(|(at, i)| (at as i32 + 1 + i.imm) as u32).collect();
        assert_eq!(targets, starts[1..]);
        for (at, jump) in code.insns.iter().enumerate().filter(|(_, i)| i.code == JNE_IMM) {
            let target = (at as i64 + 1 + i64::from(jump.off)) as usize;
            assert_eq!(code.insns[target].code, MUL_IMM);
        }
        assert_eq!(size_of::<Insn>(), 8);
    }
}

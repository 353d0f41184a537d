//! Which instructions a program can reach, and what is known there of its registers.
//!
//! Values are followed as far as they are constant: immediate ones, sums of them, and what is read from read-only data,
//! whose contents are final when the object is loaded. A branch on such values goes one way only, as it does for the
//! kernel's verifier. Functions are entered with what their callers agree on.

use std::collections::BTreeMap;

use object::SectionIndex;

use super::code::{Code, Site, Target};
use super::insn::{CALL, EXIT, Insn, LOAD_64, PSEUDO_CALL, class};

/// bpf_tail_call.
const TAIL_CALL: i32 = 12;

/// What is known of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Unknown,
    Constant(u64),
    /// Points into data.
    Data(SectionIndex, u64),
}

/// Read-only data by section.
pub(super) type Data = BTreeMap<usize, Vec<u8>>;

/// r0 to r10.
pub(super) type Registers = [Value; 11];

const NOTHING: Registers = [Value::Unknown; 11];

/// Instructions that can be reached, with the registers before each.
#[derive(Debug, Default)]
pub(super) struct Reached {
    pub(super) at: BTreeMap<(usize, usize), Registers>,
}

impl Reached {
    /// Everything reachable from the beginning of a program, with these contents of read-only data by section.
    pub(super) fn from(code: &Code, data: &Data, program: Site) -> Reached {
        let mut walk = Walk { code, data, reached: Reached::default(), work: Vec::new() };
        walk.enter(program, NOTHING);
        while let Some(site) = walk.work.pop() {
            walk.step(site);
        }
        walk.reached
    }

    /// The places, in the order of the code.
    pub(super) fn sites(&self) -> impl Iterator<Item = (Site, &Registers)> {
        self.at.iter().map(|(&(section, number), registers)| ((SectionIndex(section), number), registers))
    }
}

struct Walk<'a> {
    code: &'a Code,
    data: &'a Data,
    reached: Reached,
    work: Vec<Site>,
}

impl Walk<'_> {
    /// Notes that a place is reached with these registers.
    fn enter(&mut self, site: Site, registers: Registers) {
        if self.code.insn(site).is_none() {
            return;
        }
        let key = (site.0.0, site.1);
        match self.reached.at.get_mut(&key) {
            None => {
                self.reached.at.insert(key, registers);
            }
            Some(known) => {
                let before = *known;
                for (known, new) in known.iter_mut().zip(registers) {
                    if *known != new {
                        *known = Value::Unknown;
                    }
                }
                if *known == before {
                    return;
                }
            }
        }
        self.work.push(site);
    }

    fn step(&mut self, site: Site) {
        let (section, number) = site;
        let Some(insn) = self.code.insn(site) else { return };
        let Some(mut registers) = self.reached.at.get(&(section.0, number)).copied() else { return };
        let next = (section, number + insn.places());
        match insn.class() {
            class::JMP | class::JMP32 if insn.code == CALL => {
                self.call(site, insn, &registers);
                registers[..6].fill(Value::Unknown);
                self.enter(next, registers);
            }
            class::JMP if insn.code == EXIT => {}
            class::JMP | class::JMP32 => self.jump(site, insn, registers),
            class::STX if insn.is_atomic() => {
                // The old value may come back in the source or in r0, and a load in the destination.
                for register in [0, insn.src, insn.dst] {
                    if let Some(register) = registers.get_mut(register as usize) {
                        *register = Value::Unknown;
                    }
                }
                self.enter(next, registers);
            }
            _ => {
                if let (LOAD_64, Some(Target::Function(callback))) = (insn.code, self.code.target(site)) {
                    // Given to a helper that calls it.
                    self.enter(*callback, NOTHING);
                }
                let value = self.value(site, insn, &registers);
                if let (Some(register), Some(value)) = (registers.get_mut(insn.dst as usize), value) {
                    *register = value;
                }
                self.enter(next, registers);
            }
        }
    }

    fn call(&mut self, site: Site, insn: Insn, registers: &Registers) {
        let (section, number) = site;
        let target = match self.code.target(site) {
            Some(Target::Function(site)) => Some(*site),
            Some(_) => None,
            None if insn.src == PSEUDO_CALL => {
                (number + 1).checked_add_signed(insn.imm as isize).map(|number| (section, number))
            }
            None => None,
        };
        if let Some(target) = target {
            let mut entered = NOTHING;
            entered[1..6].copy_from_slice(&registers[1..6]);
            self.enter(target, entered);
        }
        if insn.src == 0 && insn.imm == TAIL_CALL {
            self.code.in_maps.iter().for_each(|&program| self.enter(program, NOTHING));
        }
    }

    fn jump(&mut self, (section, number): Site, insn: Insn, registers: Registers) {
        const ALWAYS: u8 = 0;
        let far = insn.class() == class::JMP32 && insn.operation() == ALWAYS;
        let distance = if far { insn.imm as isize } else { isize::from(insn.off) };
        let there = (number + 1).checked_add_signed(distance);
        let taken = if insn.operation() == ALWAYS { Some(true) } else { decide(insn, &registers) };
        if let Some(there) = there.filter(|_| taken != Some(false)) {
            self.enter((section, there), registers);
        }
        if taken != Some(true) {
            self.enter((section, number + 1), registers);
        }
    }

    /// What the instruction leaves in its destination; `None` when it has none.
    fn value(&self, site: Site, insn: Insn, registers: &Registers) -> Option<Value> {
        let of = |register: u8| registers.get(register as usize).copied().unwrap_or(Value::Unknown);
        match insn.class() {
            class::STX | class::ST => None,
            _ if self.code.is_rewritten(site) => Some(Value::Unknown),
            class::LDX => Some(self.load(insn, of(insn.src))),
            class::ALU | class::ALU64 => Some(compute(insn, of(insn.dst), of(insn.src))),
            _ if insn.code == LOAD_64 => Some(self.load_64(site, insn)),
            _ => Some(Value::Unknown),
        }
    }

    fn load_64(&self, site: Site, insn: Insn) -> Value {
        let high = self.code.insn((site.0, site.1 + 1)).map_or(0, |next| next.imm);
        match self.code.target(site) {
            None if insn.src == 0 => Value::Constant(u64::from(insn.imm as u32) | u64::from(high as u32) << 32),
            Some(Target::Data(section, offset)) => Value::Data(*section, *offset),
            _ => Value::Unknown,
        }
    }

    /// A read of memory: known from read-only data.
    fn load(&self, insn: Insn, from: Value) -> Value {
        const PLAIN: u8 = 0x60;
        let bytes = match insn.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        };
        let (Value::Data(section, offset), PLAIN) = (from, insn.code & 0xe0) else { return Value::Unknown };
        let read = || {
            let at = usize::try_from(offset.checked_add_signed(i64::from(insn.off))?).ok()?;
            let data = self.data.get(&section.0)?.get(at..at.checked_add(bytes)?)?;
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(data);
            Some(Value::Constant(u64::from_le_bytes(word)))
        };
        read().unwrap_or(Value::Unknown)
    }
}

fn compute(insn: Insn, left: Value, right: Value) -> Value {
    const MOVE: u8 = 0xb0;
    const ADD: u8 = 0x00;
    let right = if insn.by_register() { right } else { Value::Constant(insn.imm as i64 as u64) };
    let wide = insn.class() == class::ALU64;
    // With an offset these are signed divisions and moves that widen.
    if insn.off != 0 {
        return Value::Unknown;
    }
    match (left, right) {
        (_, Value::Data(..)) if insn.operation() == MOVE && wide => right,
        (_, Value::Constant(value)) if insn.operation() == MOVE => {
            Value::Constant(if wide { value } else { u64::from(value as u32) })
        }
        (Value::Data(section, offset), Value::Constant(by)) if insn.operation() == ADD && wide => {
            Value::Data(section, offset.wrapping_add(by))
        }
        (Value::Constant(left), Value::Constant(right)) if wide => {
            arithmetic(insn.operation(), left, right, 64).map_or(Value::Unknown, Value::Constant)
        }
        (Value::Constant(left), Value::Constant(right)) => {
            let (left, right) = (u64::from(left as u32), u64::from(right as u32));
            let result = arithmetic(insn.operation(), left, right, 32);
            result.map_or(Value::Unknown, |value| Value::Constant(u64::from(value as u32)))
        }
        _ => Value::Unknown,
    }
}

fn arithmetic(operation: u8, left: u64, right: u64, bits: u32) -> Option<u64> {
    let shift = (right as u32) & (bits - 1);
    Some(match operation {
        0x00 => left.wrapping_add(right),
        0x10 => left.wrapping_sub(right),
        0x20 => left.wrapping_mul(right),
        0x30 => left.checked_div(right).unwrap_or(0),
        0x40 => left | right,
        0x50 => left & right,
        0x60 => left << shift,
        0x70 => left >> shift,
        0x80 => left.wrapping_neg(),
        0x90 => left.checked_rem(right).unwrap_or(left),
        0xa0 => left ^ right,
        0xc0 if bits == 64 => (left as i64 >> shift) as u64,
        0xc0 => (left as i32 >> shift) as u64,
        _ => return None,
    })
}

/// Whether a conditional jump is taken, where both sides are known.
fn decide(insn: Insn, registers: &Registers) -> Option<bool> {
    let of = |register: u8| match registers.get(register as usize) {
        Some(Value::Constant(value)) => Some(*value),
        _ => None,
    };
    let left = of(insn.dst)?;
    let right = if insn.by_register() { of(insn.src)? } else { insn.imm as i64 as u64 };
    let wide = insn.class() == class::JMP;
    let (left, right) = if wide { (left, right) } else { (u64::from(left as u32), u64::from(right as u32)) };
    let (a, b) = if wide { (left as i64, right as i64) } else { (i64::from(left as i32), i64::from(right as i32)) };
    Some(match insn.operation() {
        0x10 => left == right,
        0x20 => left > right,
        0x30 => left >= right,
        0x40 => left & right != 0,
        0x50 => left != right,
        0x60 => a > b,
        0x70 => a >= b,
        0xa0 => left < right,
        0xb0 => left <= right,
        0xc0 => a < b,
        0xd0 => a <= b,
        _ => return None,
    })
}

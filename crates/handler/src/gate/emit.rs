//! From conditions to instructions.
//!
//! ```text
//! r1-r5  values at hand     r6  context     r7  the kernel's sample     r8  its flags     r9  state of this CPU
//! fp-4   this CPU           fp-24 .. fp-8   name of the task            below fp-40       values that wait
//! ```
//! Every jump goes forward.

use std::mem::offset_of;
use std::os::fd::RawFd;

use super::asm::{Assembler, Insn, Label, Reg, Test, code};
use super::ast::{Op, Relation};
use super::fields::Field;
use super::fold::{Cond, max};
use super::kernel::{Layout, Member};
use super::ranges::Ranges;
use super::tree::Value;
use crate::skeleton::builtins::types::ai_cpu;
use crate::{Error, ErrorKind, Mechanism, Result};

/// Instructions of a gate.
pub(crate) const INSNS_MAX: usize = 4096;
/// AI_FILTERED.
const FILTERED: i32 = 1;
/// AI_PAIRS - 1.
const PAIR_MASK: i32 = 63;
const FP: Reg = 10;
const CPU_AT: i16 = -4;
/// Where the name of the task begins.
pub(crate) const COMM_AT: i16 = -24;
/// The highest of the values that wait.
const WAITING_AT: i16 = -40;
/// As many values as the rest of the stack holds.
const WAITING_MAX: i16 = 32;

/// Numbers of helpers (uapi/linux/bpf.h).
mod helper {
    pub(super) const MAP_LOOKUP: i32 = 1;
    pub(super) const KTIME_GET_NS: i32 = 5;
    pub(super) const SMP_PROCESSOR_ID: i32 = 8;
    pub(super) const TAIL_CALL: i32 = 12;
    pub(super) const PID_TGID: i32 = 14;
    pub(super) const UID_GID: i32 = 15;
    pub(super) const CURRENT_TASK: i32 = 35;
    pub(super) const CGROUP_ID: i32 = 80;
    pub(super) const PROBE_READ_KERNEL: i32 = 113;
    pub(super) const ANCESTOR_CGROUP_ID: i32 = 123;
    pub(super) const CURRENT_TASK_BTF: i32 = 158;
}

/// The registers in a program's context (asm/ptrace.h), and what follows them (uapi/linux/bpf_perf_event.h).
mod context {
    #[cfg(target_arch = "x86_64")]
    pub(super) const WORDS: [i16; 3] = [16, 17, 21];
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) const WORDS: [i16; 3] = [32, 33, 34];

    pub(super) const IP: i16 = WORDS[0] * 8;
    /// What tells user space from the kernel: cs, or pstate.
    pub(super) const MODE: i16 = WORDS[1] * 8;
    pub(super) const PERIOD: i16 = WORDS[2] * 8;
}

/// Bits of a sample's flags (uapi/linux/perf_event.h).
mod has {
    pub(super) const IP: u64 = 1 << 0;
    pub(super) const TID: u64 = 1 << 1;
    pub(super) const TIME: u64 = 1 << 2;
    pub(super) const ADDR: u64 = 1 << 3;
}

/// What a program is made for.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) mechanism: Mechanism,
    /// The maps ai_cpus and ai_slots.
    pub(crate) cpus: RawFd,
    pub(crate) slots: RawFd,
}

/// Compiles a condition.
pub(crate) fn program(cond: &Cond, around: Surroundings<'_>) -> Result<Vec<Insn>> {
    let mut emitter = Emitter { asm: Assembler::default(), around, waiting: 0 };
    emitter.program(cond)?;
    let too_large = || {
        let what = format!("it would be a program of more than {INSNS_MAX} instructions");
        Error::new(ErrorKind::Options, "compiling the gate", what)
    };
    if emitter.asm.len() > INSNS_MAX {
        return Err(too_large());
    }
    emitter.asm.finish().ok_or_else(too_large)
}

pub(super) struct Emitter<'a> {
    pub(super) asm: Assembler,
    around: Surroundings<'a>,
    /// Values on the stack.
    waiting: i16,
}

impl Emitter<'_> {
    fn program(&mut self, cond: &Cond) -> Result<()> {
        let (pass, open, reject) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.enter(cond, open)?;
        self.cond(cond, pass, reject, pass)?;
        // The kernel refuses code that nothing leads to.
        if *cond != Cond::Const(false) {
            self.asm.bind(pass);
            self.go_on();
        }
        // No handler, and no state of this CPU: the sample chains.
        self.asm.bind(open);
        self.asm.constant(0, 1);
        self.asm.exit();
        if *cond != Cond::Const(true) {
            self.asm.bind(reject);
            self.asm.load(code::W, 1, 9, offset_of!(ai_cpu, flags) as i16);
            self.asm.alu(code::OR, 1, FILTERED);
            self.asm.store(code::W, 9, offset_of!(ai_cpu, flags) as i16, 1);
            self.asm.constant(0, 0);
            self.asm.exit();
        }
        Ok(())
    }

    /// Runs the slot behind the gate's own. The slot is a value of the moment: a constant would be patched into the code.
    fn go_on(&mut self) {
        let asm = &mut self.asm;
        asm.load(code::W, 3, 9, offset_of!(ai_cpu, generation) as i16);
        asm.alu(code::AND, 3, PAIR_MASK);
        asm.alu(code::LSH, 3, 1);
        asm.alu(code::ADD, 3, 1);
        asm.alu_reg(code::MOV, 1, 6);
        asm.map(2, self.around.slots);
        asm.call(helper::TAIL_CALL);
    }

    /// Fetches what the whole condition needs.
    fn enter(&mut self, cond: &Cond, open: Label) -> Result<()> {
        let asm = &mut self.asm;
        asm.alu_reg(code::MOV, 6, 1);
        asm.call(helper::SMP_PROCESSOR_ID);
        asm.store(code::W, FP, CPU_AT, 0);
        asm.map(1, self.around.cpus);
        asm.alu_reg(code::MOV, 2, FP);
        asm.alu(code::ADD, 2, CPU_AT.into());
        asm.call(helper::MAP_LOOKUP);
        asm.jump_if(Test::Equal, 0, 0, 2, open);
        asm.alu_reg(code::MOV, 9, 0);
        let of_sample = [Field::Pid, Field::Tid, Field::Ip, Field::Addr, Field::Time];
        let layout = self.around.layout;
        if self.around.mechanism == Mechanism::Kfuncs && of_sample.into_iter().any(|field| uses(cond, field)) {
            asm.alu_reg(code::MOV, 1, 6);
            asm.call_kernel(layout.cast()?);
            asm.load(code::DW, 7, 0, layout.offset(Member::ContextData)?);
            asm.load(code::DW, 8, 7, layout.offset(Member::SampleFlags)?);
        }
        if has_comm(cond) {
            let at = layout.offset(Member::TaskComm)?;
            asm.call(helper::CURRENT_TASK_BTF);
            for word in [0, 8] {
                asm.load(code::DW, 1, 0, at + word);
                asm.store(code::DW, FP, COMM_AT + word, 1);
            }
        }
        Ok(())
    }

    /// Goes to `yes` or to `no`, of which `next` is bound behind this.
    pub(super) fn cond(&mut self, cond: &Cond, yes: Label, no: Label, next: Label) -> Result<()> {
        match cond {
            Cond::Const(value) => {
                self.asm.jump(if *value { yes } else { no });
                Ok(())
            }
            Cond::All(parts) => self.each(parts, true, yes, no, next),
            Cond::Any(parts) => self.each(parts, false, yes, no, next),
            Cond::In(value, ranges) => {
                self.value(value)?;
                self.within(ranges, max(value), yes, no, next);
                Ok(())
            }
            Cond::Compare(relation, a, b) => {
                self.both(a, b)?;
                let test = match relation {
                    Relation::Equal | Relation::Like => Test::Equal,
                    Relation::Unequal | Relation::Unlike => Test::Unequal,
                    Relation::Less => Test::Less,
                    Relation::AtMost => Test::AtMost,
                    Relation::Greater => Test::Greater,
                    Relation::AtLeast => Test::AtLeast,
                };
                self.asm.jump_if_reg(test, 1, 2, yes);
                self.asm.jump(no);
                Ok(())
            }
            Cond::Comm(glob, true) => {
                self.comm(glob, yes, no);
                Ok(())
            }
            Cond::Comm(glob, false) => {
                self.comm(glob, no, yes);
                Ok(())
            }
        }
    }

    fn each(&mut self, parts: &[Cond], all: bool, yes: Label, no: Label, next: Label) -> Result<()> {
        let Some((last, rest)) = parts.split_last() else { return Ok(()) };
        for part in rest {
            let on = self.asm.label();
            let (yes, no) = if all { (on, no) } else { (yes, on) };
            self.cond(part, yes, no, on)?;
            self.asm.bind(on);
        }
        self.cond(last, yes, no, next)
    }

    /// Whether r1 is in a set: a tree of comparisons.
    fn within(&mut self, ranges: &Ranges, max: u64, yes: Label, no: Label, next: Label) {
        let rest = ranges.complement(max);
        // `pid != 1` is shorter as what it is not.
        let (list, yes, no) =
            if rest.as_slice().len() < ranges.as_slice().len() { (&rest, no, yes) } else { (ranges, yes, no) };
        self.search(list.as_slice(), (0, max), yes, no, next);
    }

    /// `known` is what r1 can be at this point.
    fn search(&mut self, list: &[(u64, u64)], known: (u64, u64), yes: Label, no: Label, next: Label) {
        let (low, high) = known;
        match list {
            [] => self.asm.jump(no),
            &[(first, last)] if first <= low && last >= high => self.asm.jump(yes),
            &[(first, last)] if first == last => self.branch(Test::Equal, first, yes, no, next),
            &[(first, last)] if first <= low => self.branch(Test::AtMost, last, yes, no, next),
            &[(first, last)] if last >= high => self.branch(Test::AtLeast, first, yes, no, next),
            &[(first, last)] => {
                self.asm.jump_if(Test::Less, 1, first, 2, no);
                self.branch(Test::AtMost, last, yes, no, next);
            }
            list => {
                let middle = list.len() / 2;
                let (first, last) = list[middle];
                let left = self.asm.label();
                self.asm.jump_if(Test::Less, 1, first, 2, left);
                self.asm.jump_if(Test::AtMost, 1, last, 2, yes);
                self.search(&list[middle + 1..], (last.saturating_add(1), high), yes, no, left);
                self.asm.bind(left);
                self.search(&list[..middle], (low, first.saturating_sub(1)), yes, no, next);
            }
        }
    }

    fn branch(&mut self, test: Test, value: u64, yes: Label, no: Label, next: Label) {
        let inverse = match test {
            Test::Equal => Test::Unequal,
            Test::AtMost => Test::Greater,
            Test::AtLeast => Test::Less,
            // The others are not asked for here.
            test => test,
        };
        if next == yes && inverse != test {
            self.asm.jump_if(inverse, 1, value, 2, no);
            self.asm.jump(yes);
        } else {
            self.asm.jump_if(test, 1, value, 2, yes);
            self.asm.jump(no);
        }
    }

    /// r1 = the value.
    fn value(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::Number(number) => self.asm.constant(1, *number),
            Value::Field(field) => self.field(*field)?,
            Value::Ancestor(level) => {
                self.asm.constant(1, (*level).into());
                self.asm.call(helper::ANCESTOR_CGROUP_ID);
                self.asm.alu_reg(code::MOV, 1, 0);
            }
            Value::Lot(of) => self.lot(*of),
            Value::Arithmetic(op, a, b) => {
                self.both(a, b)?;
                let op = match op {
                    Op::Add => code::ADD,
                    Op::Subtract => code::SUB,
                    Op::Multiply => code::MUL,
                    Op::Remainder => code::MOD,
                    Op::And => code::AND,
                };
                self.asm.alu_reg(op, 1, 2);
            }
        }
        Ok(())
    }

    /// r1 and r2 = the two values.
    fn both(&mut self, a: &Value, b: &Value) -> Result<()> {
        self.value(a)?;
        if let Value::Number(number) = b {
            self.asm.constant(2, *number);
            return Ok(());
        }
        if self.waiting >= WAITING_MAX {
            return Err(Error::new(ErrorKind::Options, "compiling the gate", "too many values wait for each other"));
        }
        let at = WAITING_AT - 8 * self.waiting;
        self.asm.store(code::DW, FP, at, 1);
        self.waiting += 1;
        self.value(b)?;
        self.waiting -= 1;
        self.asm.alu_reg(code::MOV, 2, 1);
        self.asm.load(code::DW, 1, FP, at);
        Ok(())
    }

    fn lot(&mut self, of: u32) {
        let asm = &mut self.asm;
        asm.load(code::DW, 1, 9, offset_of!(ai_cpu, seq) as i16);
        for factor in super::tree::SPREAD {
            asm.constant(2, factor);
            asm.alu_reg(code::MUL, 1, 2);
            asm.alu_reg(code::MOV, 2, 1);
            asm.alu(code::RSH, 2, 32);
            asm.alu_reg(code::XOR, 1, 2);
        }
        asm.low_half(1, 1);
        asm.constant(2, of.into());
        asm.alu_reg(code::MUL, 1, 2);
        asm.alu(code::RSH, 1, 32);
    }

    fn field(&mut self, field: Field) -> Result<()> {
        match field {
            Field::Pid => self.of_sample(has::TID, (code::W, Member::SamplePid), |e| {
                e.asm.call(helper::PID_TGID);
                e.asm.alu_reg(code::MOV, 1, 0);
                e.asm.alu(code::RSH, 1, 32);
            }),
            Field::Tid => self.of_sample(has::TID, (code::W, Member::SampleTid), |e| {
                e.asm.call(helper::PID_TGID);
                e.asm.low_half(1, 0);
            }),
            Field::Ip => self.of_sample(has::IP, (code::DW, Member::SampleIp), |e| {
                e.asm.load(code::DW, 1, 6, context::IP);
            }),
            Field::Time => self.of_sample(has::TIME, (code::DW, Member::SampleTime), |e| {
                e.asm.call(helper::KTIME_GET_NS);
                e.asm.alu_reg(code::MOV, 1, 0);
            }),
            Field::Addr => self.addr(),
            Field::Cpu => {
                self.asm.load(code::W, 1, FP, CPU_AT);
                Ok(())
            }
            Field::Period => {
                self.asm.load(code::DW, 1, 6, context::PERIOD);
                Ok(())
            }
            Field::User => {
                self.mode();
                Ok(())
            }
            Field::Cgroup => {
                self.asm.call(helper::CGROUP_ID);
                self.asm.alu_reg(code::MOV, 1, 0);
                Ok(())
            }
            Field::Uid => {
                self.asm.call(helper::UID_GID);
                self.asm.low_half(1, 0);
                Ok(())
            }
            Field::Ppid => self.parent(),
            Field::Nspid => self.own_pid(),
        }
    }

    /// r1 = what the sample has, where it has it, else what `other` finds.
    fn of_sample(&mut self, flag: u64, (size, member): (u8, Member), other: fn(&mut Self)) -> Result<()> {
        if self.around.mechanism == Mechanism::Plain {
            other(self);
            return Ok(());
        }
        let at = self.around.layout.offset(member)?;
        let (there, end) = (self.asm.label(), self.asm.label());
        self.asm.jump_if(Test::Bits, 8, flag, 2, there);
        other(self);
        self.asm.jump(end);
        self.asm.bind(there);
        self.asm.load(size, 1, 7, at);
        self.asm.bind(end);
        Ok(())
    }

    /// r1 = 1 for user space, else 0.
    fn mode(&mut self) {
        let end = self.asm.label();
        self.asm.load(code::DW, 1, 6, context::MODE);
        if cfg!(target_arch = "x86_64") {
            // The ring in cs is not 0.
            self.asm.alu(code::AND, 1, 3);
            self.asm.jump_if(Test::Equal, 1, 0, 2, end);
            self.asm.constant(1, 1);
        } else {
            // The exception level in pstate is 0.
            let user = self.asm.label();
            self.asm.alu(code::AND, 1, 15);
            self.asm.jump_if(Test::Equal, 1, 0, 2, user);
            self.asm.constant(1, 0);
            self.asm.jump(end);
            self.asm.bind(user);
            self.asm.constant(1, 1);
        }
        self.asm.bind(end);
    }

    /// r1 = the address, 0 where the sample has none: then the field holds whatever was there before.
    fn addr(&mut self) -> Result<()> {
        if self.around.mechanism == Mechanism::Kfuncs {
            return self.of_sample(has::ADDR, (code::DW, Member::SampleAddr), |e| e.asm.constant(1, 0));
        }
        // The context is, for all that programs are not told, the kernel's own.
        let layout = self.around.layout;
        let (data, flags) = (layout.offset(Member::ContextData)?, layout.offset(Member::SampleFlags)?);
        let addr = layout.offset(Member::SampleAddr)?;
        self.asm.alu_reg(code::MOV, 3, 6);
        let (sample, end) = (self.read_at(3, data)?, self.asm.label());
        self.asm.load(code::DW, 3, FP, sample);
        self.read_at(3, flags)?;
        self.asm.load(code::DW, 2, FP, sample);
        self.asm.constant(1, 0);
        let there = self.asm.label();
        self.asm.jump_if(Test::Bits, 2, has::ADDR, 3, there);
        self.asm.jump(end);
        self.asm.bind(there);
        self.asm.alu_reg(code::MOV, 3, 6);
        self.read_at(3, data)?;
        self.asm.load(code::DW, 3, FP, sample);
        self.read_at(3, addr)?;
        self.asm.load(code::DW, 1, FP, sample);
        self.asm.bind(end);
        Ok(())
    }

    /// r1 = task->real_parent->tgid.
    fn parent(&mut self) -> Result<()> {
        let layout = self.around.layout;
        let (parent, tgid) = (layout.offset(Member::TaskParent)?, layout.offset(Member::TaskTgid)?);
        self.asm.call(helper::CURRENT_TASK);
        let at = self.read_at(0, parent)?;
        self.asm.load(code::DW, 3, FP, at);
        self.read_at(3, tgid)?;
        self.asm.load(code::W, 1, FP, at);
        Ok(())
    }

    /// r1 = the number of task->signal->pids[PIDTYPE_TGID] in the namespace that it was made in.
    fn own_pid(&mut self) -> Result<()> {
        /// PIDTYPE_TGID (include/linux/pid_types.h).
        const TGID: i16 = 1;
        let layout = self.around.layout;
        let (signal, pids) = (layout.offset(Member::TaskSignal)?, layout.offset(Member::SignalPids)? + 8 * TGID);
        let (level, numbers) = (layout.offset(Member::PidLevel)?, layout.offset(Member::PidNumbers)?);
        let number = layout.offset(Member::NumberNr)?;
        let missing = || Error::new(ErrorKind::Unsupported, "loading the gate", "this kernel has no struct upid");
        let size = layout.number_size.ok_or_else(missing)?;
        self.asm.call(helper::CURRENT_TASK);
        let at = self.read_at(0, signal)?;
        self.asm.load(code::DW, 3, FP, at);
        self.read_at(3, pids)?;
        self.asm.load(code::DW, 3, FP, at);
        self.asm.store(code::DW, FP, at - 8, 3);
        self.read_at(3, level)?;
        self.asm.load(code::W, 2, FP, at);
        self.asm.alu(code::MUL, 2, size);
        self.asm.load(code::DW, 3, FP, at - 8);
        self.asm.alu_reg(code::ADD, 3, 2);
        self.read_at(3, numbers + number)?;
        self.asm.load(code::W, 1, FP, at);
        Ok(())
    }

    /// Reads eight bytes of kernel memory at `base + off` to the returned place on the stack, zeros where that faults.
    fn read_at(&mut self, base: Reg, off: i16) -> Result<i16> {
        let at = WAITING_AT - 8 * self.waiting;
        if self.waiting + 1 >= WAITING_MAX {
            return Err(Error::new(ErrorKind::Options, "compiling the gate", "too many values wait for each other"));
        }
        if base != 3 {
            self.asm.alu_reg(code::MOV, 3, base);
        }
        self.asm.alu(code::ADD, 3, off.into());
        self.asm.alu_reg(code::MOV, 1, FP);
        self.asm.alu(code::ADD, 1, at.into());
        self.asm.constant(2, 8);
        self.asm.call(helper::PROBE_READ_KERNEL);
        Ok(at)
    }
}

/// Whether a field decides.
pub(crate) fn uses(cond: &Cond, field: Field) -> bool {
    fn of(value: &Value, field: Field) -> bool {
        match value {
            Value::Field(have) => *have == field,
            Value::Arithmetic(_, a, b) => of(a, field) || of(b, field),
            Value::Number(_) | Value::Ancestor(_) | Value::Lot(_) => false,
        }
    }
    match cond {
        Cond::All(parts) | Cond::Any(parts) => parts.iter().any(|part| uses(part, field)),
        Cond::In(value, _) => of(value, field),
        Cond::Compare(_, a, b) => of(a, field) || of(b, field),
        Cond::Const(_) | Cond::Comm(..) => false,
    }
}

fn has_comm(cond: &Cond) -> bool {
    match cond {
        Cond::All(parts) | Cond::Any(parts) => parts.iter().any(has_comm),
        Cond::Comm(..) => true,
        Cond::Const(_) | Cond::In(..) | Cond::Compare(..) => false,
    }
}

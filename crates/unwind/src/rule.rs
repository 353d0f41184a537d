//! How to get from the registers of a frame to those of its caller.

use gimli::{CfaRule, Register, RegisterRule, UnwindTableRow};

use crate::arch::{Arch, Registers};
use crate::end::StackEnd;
use crate::expression;
use crate::stack::{Miss, StackCopy};

/// What holds in a range of code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    pub(crate) frame: Cfa,
    /// Where the frame is left to.
    pub(crate) caller: Get,
    /// Registers that the frame changed, by number; all others are the caller's still.
    pub(crate) saved: Box<[(u8, Get)]>,
    /// The code is where a signal handler returns to: the kernel made the frame.
    pub(crate) signal: bool,
    /// Whose bytes the expressions are among.
    pub(crate) part: Part,
}

/// The tables of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// `.eh_frame`
    Frames,
    /// `.debug_frame`
    Debug,
}

/// How to find the frame: the stack pointer before the call (CFA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cfa {
    Register(u8, i64),
    Expression(Span),
}

/// How to get a value of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Get {
    /// There is none.
    Undefined,
    /// It is what it was.
    Same,
    /// At so many bytes from the frame.
    At(i64),
    /// The frame and so many bytes.
    Is(i64),
    Register(u8),
    /// At the address that an expression gives.
    AtExpression(Span),
    Expression(Span),
    Constant(u64),
}

/// Bytes of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) from: usize,
    pub(crate) len: usize,
}

/// The registers of an architecture that are followed.
fn followed(arch: Arch, register: Register) -> Option<u8> {
    let count = match arch {
        Arch::X86_64 => 16,
        Arch::Aarch64 => 32,
    };
    u8::try_from(register.0).ok().filter(|number| *number < count)
}

impl Rule {
    /// The rule of a row; `ra` is the column of the return address. `None` where it needs registers that no sample has.
    pub(crate) fn of(row: &UnwindTableRow<usize>, ra: Register, signal: bool, arch: Arch, part: Part) -> Option<Rule> {
        let frame = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(followed(arch, *register)?, *offset),
            CfaRule::Expression(expression) => {
                Cfa::Expression(Span { from: expression.offset, len: expression.length })
            }
        };
        // gimli keeps no difference between a register that is said to be lost and one that nothing is said of. On x86-64
        // the return address is always on the stack, so that it is the former; on ARM it is in a register until saved.
        let mut caller = match arch {
            Arch::X86_64 => Get::Undefined,
            Arch::Aarch64 => Get::Same,
        };
        let mut saved = Vec::new();
        for (register, rule) in row.registers() {
            let get = Get::of(rule, arch);
            if *register == ra {
                caller = get;
            }
            if let (Some(number), true) = (followed(arch, *register), get != Get::Same) {
                saved.push((number, get));
            }
        }
        saved.sort_unstable_by_key(|(number, _)| *number);
        Some(Rule { frame, caller, saved: saved.into(), signal, part })
    }

    /// Makes the registers `now` those of the caller. `tables` are the bytes of the rule's part; `exact` says that the frame was
    /// left by no call: its return address may still be in its register.
    ///
    /// # Errors
    /// Why there is no caller; what the registers are then is of no use.
    pub(crate) fn to_caller(
        &self,
        now: &mut Registers,
        stack: &StackCopy<'_>,
        tables: &[u8],
        exact: bool,
    ) -> Result<(), StackEnd> {
        let inner = *now;
        let arch = inner.arch();
        let frame = match self.frame {
            Cfa::Register(number, offset) => inner.get(number).ok_or(StackEnd::BadFrame)?.wrapping_add(offset as u64),
            Cfa::Expression(span) => expression::value(span, tables, None, &inner, stack).map_err(end_of)?,
        };
        let of = Frame { frame, now: &inner, stack, tables };
        let pc = match self.caller {
            Get::Undefined => return Err(StackEnd::Complete),
            // A frame that called another one has lost the register.
            Get::Same if !exact => return Err(StackEnd::Complete),
            Get::Same => inner.get(LINK).ok_or(StackEnd::BadFrame)?,
            get => of.get(get).map_err(end_of)?,
        };
        now.set(arch.sp(), frame);
        if arch == Arch::Aarch64 && !self.signal {
            now.set(LINK, pc);
        }
        for (number, get) in &self.saved {
            match of.get(*get) {
                Ok(value) => now.set(*number, value),
                Err(_) => now.forget(*number),
            }
        }
        now.pc = arch.code(pc);
        if now.pc == inner.pc && now.sp() == inner.sp() {
            return Err(StackEnd::BadFrame);
        }
        if now.pc == 0 { Err(StackEnd::Complete) } else { Ok(()) }
    }
}

/// The link register of 64-bit ARM.
const LINK: u8 = 30;

fn end_of(miss: Miss) -> StackEnd {
    match miss {
        Miss::Behind => StackEnd::Truncated,
        Miss::Elsewhere => StackEnd::BadFrame,
    }
}

impl Get {
    fn of(rule: &RegisterRule<usize>, arch: Arch) -> Get {
        match rule {
            RegisterRule::SameValue => Get::Same,
            RegisterRule::Offset(offset) => Get::At(*offset),
            RegisterRule::ValOffset(offset) => Get::Is(*offset),
            RegisterRule::Register(register) => followed(arch, *register).map_or(Get::Undefined, Get::Register),
            RegisterRule::Expression(e) => Get::AtExpression(Span { from: e.offset, len: e.length }),
            RegisterRule::ValExpression(e) => Get::Expression(Span { from: e.offset, len: e.length }),
            RegisterRule::Constant(value) => Get::Constant(*value),
            _ => Get::Undefined,
        }
    }
}

/// What values are found by.
struct Frame<'a> {
    frame: u64,
    now: &'a Registers,
    stack: &'a StackCopy<'a>,
    tables: &'a [u8],
}

impl Frame<'_> {
    #[inline]
    fn get(&self, get: Get) -> Result<u64, Miss> {
        let expression = |span| expression::value(span, self.tables, Some(self.frame), self.now, self.stack);
        match get {
            Get::Undefined | Get::Same => Err(Miss::Elsewhere),
            Get::At(offset) => self.stack.word(self.frame.wrapping_add(offset as u64)),
            Get::Is(offset) => Ok(self.frame.wrapping_add(offset as u64)),
            Get::Register(number) => self.now.get(number).ok_or(Miss::Elsewhere),
            Get::AtExpression(span) => self.stack.word(expression(span)?),
            Get::Expression(span) => expression(span),
            Get::Constant(value) => Ok(value),
        }
    }
}

/// How far above the stack pointer a frame pointer can be believed to lead to a frame, in bytes.
const FARTHEST: u64 = 0x4000;

/// Makes the registers `now` those of the caller by the frame pointer, for code that its file's tables do not cover. Both kinds
/// of CPU keep the caller's frame pointer where it points, and the return address behind that.
///
/// # Errors
/// Why there is no caller: the outermost frame has a frame pointer of 0.
pub(crate) fn by_frame_pointer(now: &mut Registers, stack: &StackCopy<'_>) -> Result<(), StackEnd> {
    let arch = now.arch();
    let pointer = now.get(arch.fp()).ok_or(StackEnd::NoTables)?;
    if pointer == 0 {
        return Err(StackEnd::Complete);
    }
    if pointer.checked_sub(now.sp()).is_none_or(|above| above > FARTHEST) {
        return Err(StackEnd::NoTables);
    }
    let outer = stack.word(pointer).map_err(end_of)?;
    let pc = arch.code(stack.word(pointer.wrapping_add(8)).map_err(end_of)?);
    if pc == 0 {
        return Err(StackEnd::Complete);
    }
    // Nothing is known of what that code did to the others.
    now.forget_all();
    now.set(arch.fp(), outer);
    now.set(arch.sp(), pointer.wrapping_add(16));
    now.pc = pc;
    Ok(())
}

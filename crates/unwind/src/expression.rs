//! Values that a table describes by a small program (DWARF 5, section 2.5).

use gimli::{Encoding, EndianSlice, Evaluation, EvaluationResult, Format, LittleEndian, Location, Value};

use crate::arch::Registers;
use crate::rule::Span;
use crate::stack::{Miss, StackCopy};

/// Real ones have a dozen operations.
const MOST_OPERATIONS: u32 = 100;

const ENCODING: Encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 4 };

/// What the expression at `span` of `tables` comes to; `first` lies on its stack before it begins. It sees the registers
/// and the copied stack.
pub(crate) fn value(
    span: Span,
    tables: &[u8],
    first: Option<u64>,
    now: &Registers,
    stack: &StackCopy<'_>,
) -> Result<u64, Miss> {
    let bytes = tables.get(span.from..).and_then(|rest| rest.get(..span.len)).ok_or(Miss::Elsewhere)?;
    let mut evaluation = Evaluation::new(EndianSlice::new(bytes, LittleEndian), ENCODING);
    evaluation.set_max_iterations(MOST_OPERATIONS);
    if let Some(first) = first {
        evaluation.set_initial_value(first);
    }
    let mut next = evaluation.evaluate();
    loop {
        next = match next.map_err(|_| Miss::Elsewhere)? {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let number = u8::try_from(register.0).map_err(|_| Miss::Elsewhere)?;
                // On x86-64 the number of the return address stands for where the code is.
                let known = match number {
                    16 if now.arch() == crate::Arch::X86_64 => Some(now.pc),
                    number => now.get(number),
                };
                evaluation.resume_with_register(Value::Generic(known.ok_or(Miss::Elsewhere)?))
            }
            EvaluationResult::RequiresMemory { address, size, .. } => {
                evaluation.resume_with_memory(Value::Generic(stack.read(address, size)?))
            }
            _ => return Err(Miss::Elsewhere),
        };
    }
    match evaluation.as_result() {
        [piece] => match piece.location {
            Location::Address { address } => Ok(address),
            Location::Value { value } => value.to_u64(u64::MAX).map_err(|_| Miss::Elsewhere),
            _ => Err(Miss::Elsewhere),
        },
        _ => Err(Miss::Elsewhere),
    }
}

//! From frame to frame.

use gimli::UnwindContext;

use crate::arch::Registers;
use crate::end::StackEnd;
use crate::rule::by_frame_pointer;
use crate::stack::StackCopy;
use crate::table::Table;

/// The most frames that a walk takes: as many as the longest copy of a stack has room for, of sixteen bytes each.
pub const DEEPEST: usize = 4096;

/// What a process has mapped.
pub trait Modules {
    /// The tables of what is mapped at an address, and the address in the file's own address space.
    ///
    /// # Errors
    /// Why there are none.
    fn table(&mut self, address: u64) -> Result<(&mut Table, u64), StackEnd>;
}

/// Walks stacks. Holds what reading a table needs, so that it is allocated once.
pub struct Walker {
    context: UnwindContext<usize>,
}

impl std::fmt::Debug for Walker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Walker")
    }
}

impl Default for Walker {
    fn default() -> Self {
        Walker::new()
    }
}

impl Walker {
    /// A walker that has walked nothing yet.
    pub fn new() -> Walker {
        Walker { context: UnwindContext::new() }
    }

    /// Calls `visit` with the address of each frame, innermost first. That of a frame which was left by a call is of the
    /// last byte of the call, that of one which was interrupted is where it goes on: each lies in its own function.
    pub fn walk(
        &mut self,
        start: &Registers,
        stack: &StackCopy<'_>,
        modules: &mut impl Modules,
        mut visit: impl FnMut(u64),
    ) -> StackEnd {
        let mut now = *start;
        // Nothing was called from the innermost frame, nor from one that a signal interrupted.
        let mut exact = true;
        let mut climb = Climb { may_fall: true };
        for _ in 0..DEEPEST {
            let at = if exact { now.pc } else { now.pc.wrapping_sub(1) };
            let (table, address) = match modules.table(at) {
                Ok(found) => found,
                Err(end) => {
                    visit(at);
                    return end;
                }
            };
            let rule = table.rule(address, exact, &mut self.context);
            let signal = rule.is_some_and(|rule| table.is_signal(rule));
            // Handlers return to it: no call of its own stands before it.
            visit(if signal { now.pc } else { at });
            let below = now.sp();
            let gone = match rule {
                Some(rule) => table.to_caller(rule, &mut now, stack, exact),
                None => by_frame_pointer(&mut now, stack).map_err(|end| table.without(end)),
            };
            let Err(end) = gone.and_then(|()| climb.step(below, now.sp_if_known(), exact, signal)) else {
                exact = signal;
                continue;
            };
            return end;
        }
        StackEnd::TooDeep
    }
}

/// Whether frames go up: a caller's frame lies above that of what it called. Tables that say otherwise would lead round and
/// round in the copied stack.
struct Climb {
    /// A signal handler may have run on a stack of its own, above the one that was interrupted. What the copy has is of that
    /// stack, so that nothing can be read below it, and it happens once.
    may_fall: bool,
}

impl Climb {
    #[inline]
    fn step(&mut self, below: u64, above: Option<u64>, exact: bool, signal: bool) -> Result<(), StackEnd> {
        let above = above.ok_or(StackEnd::BadFrame)?;
        // Where nothing was called yet the return address may be in a register, and nothing on the stack.
        let level = exact && !signal && above == below;
        if above > below || level || signal && std::mem::take(&mut self.may_fall) {
            return Ok(());
        }
        Err(StackEnd::Downwards)
    }
}

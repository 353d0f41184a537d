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
            let caller = match rule {
                Some(rule) => table.caller_of(rule, &now, stack, exact),
                None => by_frame_pointer(&now, stack),
            };
            now = match caller {
                Ok(caller) => caller,
                Err(end) => return end,
            };
            exact = signal;
        }
        StackEnd::TooDeep
    }
}

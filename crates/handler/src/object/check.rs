//! What a program must not do in the place of a handler, although the kernel would load it.

use std::fmt;

use super::code::{Code, Place, Site, Target};
use super::flow::{Reached, Registers, Value};
use super::insn::CALL;
use super::limits::Limits;
use crate::EventConfig;

/// Numbers of helpers (linux/bpf.h).
mod helper {
    pub(crate) const GET_STACKID: i32 = 27;
    pub(crate) const GET_STACK: i32 = 67;
    pub(crate) const GET_TASK_STACK: i32 = 141;
}

/// BPF_F_USER_STACK and BPF_F_USER_BUILD_ID.
const USER_STACK: u64 = 1 << 8;
const USER_BUILD_ID: u64 = 1 << 11;

/// Prefix of the symbols by which accessors of the public header say that they need the prepared sample.
const NEEDS: &str = "ai_needs_";
/// The function that gives the prepared sample.
const CAST: &str = "bpf_cast_to_kern_ctx";

/// Why a program is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// `bpf_get_task_stack` overwrites the call chain of the sample, and the record goes out damaged.
    TaskStack,
    /// `bpf_get_stack` of the user's half cuts the call chain of the sample to its own buffer.
    ShortUserStack,
    /// An LRU map can dead-lock a CPU when the event interrupts one of its users.
    LruMap,
    /// The registers of a precise sample are not where it was taken, and cannot be unwound.
    PreciseUnwind,
    /// The kernel does not show programs the sample that it has prepared.
    NoContext,
    /// The kernel does not take the program in a slot.
    NoTailCall,
}

/// One thing that is wrong with a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule.
    pub rule: Rule,
    /// Where in its source.
    pub place: Place,
    /// What is wrong, and what to do instead.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// Everything that is wrong with the reachable code of a program, in the order of the code.
pub(super) fn check(
    code: &Code,
    reached: &Reached,
    is_lru: &dyn Fn(&str) -> bool,
    events: &[EventConfig],
    limits: &Limits,
) -> Vec<Refusal> {
    let mut refusals: Vec<Refusal> = Vec::new();
    let mut refuse =
        |rule, site: Site, reason: String| refusals.push(Refusal { rule, place: code.place(site), reason });
    let callchain = events.iter().any(|event| event.callchain);
    let precise = events.iter().any(|event| !event.may_unwind());
    for (site, registers) in reached.sites() {
        let Some(insn) = code.insn(site) else { continue };
        match code.target(site) {
            Some(Target::Map(map)) if is_lru(map) => refuse(Rule::LruMap, site, lru(map)),
            Some(Target::Kernel(name)) if !limits.context => {
                if let Some(what) = name.strip_prefix(NEEDS) {
                    refuse(Rule::NoContext, site, no_context(&format!("ai_{what}()")));
                } else if insn.code == CALL && name == CAST {
                    refuse(Rule::NoContext, site, no_context(&format!("{CAST}()")));
                }
            }
            _ => {}
        }
        if insn.code != CALL || insn.src != 0 {
            continue;
        }
        let unwinds = matches!(insn.imm, helper::GET_STACK | helper::GET_STACKID);
        if unwinds && precise {
            refuse(Rule::PreciseUnwind, site, PRECISE.to_owned());
        }
        match insn.imm {
            helper::GET_TASK_STACK if callchain => refuse(Rule::TaskStack, site, TASK_STACK.to_owned()),
            helper::GET_STACK if callchain => {
                if let Some(reason) = user_stack(registers, limits, limits.longest(events)) {
                    refuse(Rule::ShortUserStack, site, reason);
                }
            }
            _ => {}
        }
    }
    refusals
}

const TASK_STACK: &str = "bpf_get_task_stack() would write over the call chain of the sample, and the kernel would then \
                          write past the end of its record; take the sample's own with ai_callchain(), or record \
                          with --no-callchain";

const PRECISE: &str = "a stack cannot be unwound from the registers of a precise sample, which are not those of the \
                       place; record with -g, whose call chains are taken in time, or drop the p modifier";

fn lru(map: &str) -> String {
    format!(
        "{map} evicts by age (LRU), which takes a lock that the sampled code may hold; use a hash or an array, and let \
         user space or the handler itself remove what is old"
    )
}

fn no_context(what: &str) -> String {
    format!(
        "{what} needs Linux 6.2 or later: this kernel shows a program of its sample only registers, period and address"
    )
}

/// Whether a call may be one of bpf_get_stack for the user's half.
pub(super) fn walks_user_stack(code: &Code, site: Site, registers: &Registers) -> bool {
    let insn = code.insn(site);
    let called = insn.is_some_and(|insn| insn.code == CALL && insn.src == 0 && insn.imm == helper::GET_STACK);
    called && !matches!(registers[4], Value::Constant(flags) if flags & USER_STACK == 0)
}

/// What is wrong with the size and flags of a bpf_get_stack on an event whose call chains may have `longest` words.
///
/// For the user's half the kernel cuts the chain of the sample (`trace->nr`) to what the buffer has room for, beginning
/// behind the kernel's part, and to kernel.perf_event_max_stack words in any case, markers included.
fn user_stack(registers: &Registers, limits: &Limits, longest: u32) -> Option<String> {
    let (flags, flags_known) = match registers[4] {
        Value::Constant(flags) if flags & USER_STACK == 0 => return None,
        Value::Constant(flags) => (flags, true),
        _ => (USER_STACK, false),
    };
    const INSTEAD: &str = "take the sample's own with ai_callchain(), or record with --no-callchain";
    if longest > limits.max_stack {
        let most = limits.max_stack;
        return Some(format!(
            "bpf_get_stack() of the user's stack would cut the call chain of the sample to {most} words \
             (kernel.perf_event_max_stack), and with its markers it may have {longest} here; {INSTEAD}"
        ));
    }
    let word = if flags & USER_BUILD_ID == 0 { 8 } else { 32 };
    let least = u64::from(longest) * word;
    let what = match registers[3] {
        Value::Constant(size) if size >= least => return None,
        Value::Constant(size) => format!("a buffer of {size} bytes"),
        _ => "a buffer of no constant size".to_owned(),
    };
    let which = if flags_known { "" } else { ", with flags that are no constant and may have BPF_F_USER_STACK," };
    Some(format!(
        "bpf_get_stack() of the user's stack into {what}{which} would cut the call chain of the sample; give it at least \
         {least} bytes, {INSTEAD}"
    ))
}

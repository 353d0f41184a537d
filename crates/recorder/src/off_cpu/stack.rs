//! Stacks of threads that leave a CPU, or wake another one, without what leads from the scheduler to the program that took them.
//!
//! ```text
//!   program, tracepoint, __schedule, schedule, schedule_timeout │ pipe_read, vfs_read, … │ user part
//!   ──────────────────────── left out ───────────────────────── │ where it waits
//! ```

use std::collections::HashMap;
use std::ops::Range;

use afterimage_perf_data::context;
use afterimage_symbols::KernelTable;

/// The scheduler's own functions that lead to a switch. What calls them is where a thread waits.
const SCHEDULER: [&str; 17] = [
    "__schedule",
    "__schedule_loop",
    "schedule",
    "schedule_idle",
    "schedule_preempt_disabled",
    "schedule_timeout",
    "schedule_timeout_interruptible",
    "schedule_timeout_killable",
    "schedule_timeout_uninterruptible",
    "schedule_hrtimeout",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
    "preempt_schedule",
    "preempt_schedule_common",
    "preempt_schedule_irq",
    "preempt_schedule_notrace",
    "__cond_resched",
];

/// The functions that wake a thread. What calls them is who does.
const WAKING: [&str; 16] = [
    "try_to_wake_up",
    "wake_up_process",
    "wake_up_state",
    "default_wake_function",
    "autoremove_wake_function",
    "ep_autoremove_wake_function",
    "woken_wake_function",
    "pollwake",
    "wake_up_q",
    "__wake_up",
    "__wake_up_common",
    "__wake_up_common_lock",
    "__wake_up_sync",
    "__wake_up_sync_key",
    "__wake_up_locked",
    "__wake_up_locked_key",
];

/// The scheduler is found within so many frames, or is not looked for any more.
const DEEPEST: usize = 16;

/// Tells which addresses are the scheduler's.
pub(super) struct Trim {
    table: Option<KernelTable>,
    known: HashMap<u64, bool>,
}

impl Trim {
    /// By the running kernel's symbols. Where they are hidden, stacks stay whole.
    pub(super) fn running() -> Trim {
        Trim { table: KernelTable::running().ok(), known: HashMap::new() }
    }

    /// Where a function of the kernel is; empty where that is not known.
    pub(super) fn function(&self, name: &str) -> Range<u64> {
        let Some(table) = &self.table else { return 0..0 };
        let start = table.starts().find(|start| table.lookup(*start).is_some_and(|hit| hit.name == name));
        start.and_then(|start| table.extent(start)).unwrap_or(0..0)
    }

    fn is_scheduler(&mut self, addr: u64) -> bool {
        let Some(table) = &self.table else { return false };
        *self.known.entry(addr).or_insert_with(|| {
            // A return address may be the first byte of what follows.
            table.lookup(addr.wrapping_sub(1)).is_some_and(|hit| {
                // A part that the compiler split off is called `name.part.0`.
                let name = hit.name.split('.').next().unwrap_or(hit.name);
                SCHEDULER.contains(&name) || WAKING.contains(&name)
            })
        })
    }

    /// A stack from where the thread waits on.
    pub(super) fn chain(&mut self, chain: &[u64]) -> Vec<u64> {
        let [context::KERNEL, rest @ ..] = chain else { return chain.to_vec() };
        let kernel = rest.iter().position(|word| context::is_marker(*word)).unwrap_or(rest.len());
        let (kernel, user) = rest.split_at(kernel);
        let first = kernel.iter().take(DEEPEST).position(|addr| self.is_scheduler(*addr));
        let skipped = first
            .map_or(0, |first| first + kernel.iter().skip(first).take_while(|addr| self.is_scheduler(**addr)).count());
        let mut out = Vec::with_capacity(chain.len());
        match kernel.get(skipped..) {
            Some([]) | None => (),
            Some(kernel) => {
                out.push(context::KERNEL);
                out.extend_from_slice(kernel);
            }
        }
        out.extend_from_slice(user);
        out
    }
}

/// The innermost address of a stack; 0 without one.
pub(super) fn innermost(chain: &[u64]) -> u64 {
    chain.iter().copied().find(|word| !context::is_marker(*word)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 0xffff_ffff_8100_0000;

    fn trim() -> Trim {
        let names = ["_stext", "__traceiter_sched_switch", "__schedule", "schedule", "pipe_read", "vfs_read", "_etext"];
        let lines = (0..).zip(names).map(|(nth, name)| format!("{:x} t {name}\n", K + nth * 0x100));
        Trim { table: Some(KernelTable::parse(lines.collect::<String>().as_bytes())), known: HashMap::new() }
    }

    fn at(nth: u64) -> u64 {
        K + nth * 0x100 + 5
    }

    #[test]
    fn a_stack_begins_where_the_thread_waits() {
        let whole = [context::KERNEL, at(1), at(2), at(3), at(4), at(5), context::USER, 7, 8];
        let seen = trim().chain(&whole);
        assert_eq!(seen, [context::KERNEL, at(4), at(5), context::USER, 7, 8]);
        assert_eq!(innermost(&seen), at(4));
    }

    #[test]
    fn one_without_the_scheduler_stays_as_it_is() {
        for whole in [&[][..], &[context::USER, 7], &[context::KERNEL, at(4), at(5), context::USER, 7]] {
            assert_eq!(trim().chain(whole), whole);
        }
        let only = [context::KERNEL, at(2), at(3), context::USER, 7];
        assert_eq!(trim().chain(&only), [context::USER, 7]);
        let mut hidden = Trim { table: None, known: HashMap::new() };
        assert_eq!(hidden.chain(&only), only);
        assert_eq!((innermost(&[]), innermost(&[context::USER, 7])), (0, 7));
    }
}

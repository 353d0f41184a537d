//! `--view`: events that answer a question, by tracepoints that stock kernels have, and how to read them.

use clap::ValueEnum;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Which locks of the kernel are fought over, and where
    Locks,
    /// Which addresses fault, and where
    Faults,
    /// Which requests go to block devices, and who makes them
    Io,
    /// Who wakes whom
    Wakeups,
}

impl View {
    /// The events, as `-e` takes them.
    pub(super) fn events(self) -> &'static str {
        match self {
            View::Locks => "lock:contention_begin,lock:contention_end",
            // The code that faults is known of the first alone, the address of the others.
            View::Faults if cfg!(target_arch = "x86_64") => {
                "page-faults,exceptions:page_fault_user,exceptions:page_fault_kernel"
            }
            View::Faults => "page-faults",
            View::Io => "block:block_rq_issue,block:block_rq_complete",
            View::Wakeups => "sched:sched_waking",
        }
    }

    /// What to sort a report by.
    pub(super) fn sort(self) -> &'static str {
        match self {
            View::Locks => "comm,sym,lock_addr",
            View::Faults if cfg!(target_arch = "x86_64") => "comm,sym,address",
            View::Faults => "comm,sym",
            View::Io => "comm,dev,rwbs,bytes",
            View::Wakeups => "comm,sched_waking.comm",
        }
    }
}

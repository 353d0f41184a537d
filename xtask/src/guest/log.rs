//! What a kernel says in its log when something is wrong.

/// Something wrong with the kernel of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) kind: Kind,
    /// The line that told.
    pub(crate) line: String,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Panic,
    Oops,
    SoftLockup,
    HardLockup,
    RcuStall,
    HungTask,
}

impl Kind {
    /// As it stands in a sentence about a guest.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Kind::Panic => "panic: the kernel gave up",
            Kind::Oops => "oops: the kernel made a mistake",
            Kind::SoftLockup => "soft lock-up: a CPU ran kernel code without a break",
            Kind::HardLockup => "hard lock-up: a CPU ran with interrupts off for too long",
            Kind::RcuStall => "RCU stall: a CPU or task held up the kernel for too long",
            Kind::HungTask => "hung task: a task waited in the kernel for too long",
        }
    }
}

/// Part of a line, and what it means. The texts are those of the kernel's `kernel/watchdog*.c`, `kernel/hung_task.c`,
/// `kernel/rcu/tree_stall.h`, `kernel/rcu/tree_exp.h`, `kernel/panic.c`, `mm/fault.c` and `arch/x86/kernel/dumpstack.c`.
const SIGNS: &[(&str, Kind)] = &[
    ("BUG: soft lockup", Kind::SoftLockup),
    ("hard LOCKUP on cpu", Kind::HardLockup),
    ("detected stalls on CPUs/tasks", Kind::RcuStall),
    ("self-detected stall on CPU", Kind::RcuStall),
    ("detected expedited stalls on CPUs/tasks", Kind::RcuStall),
    ("INFO: task ", Kind::HungTask),
    ("Oops: ", Kind::Oops),
    ("BUG: ", Kind::Oops),
    ("general protection fault", Kind::Oops),
    ("Kernel panic - not syncing", Kind::Panic),
];

/// Looks at the log line by line, as it grows.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    unfinished: String,
    found: Option<Trouble>,
    /// Warnings with a stack (`WARN_ON`): no reason to end a guest, but to be told.
    pub(crate) warnings: usize,
}

impl Watch {
    /// Takes what was added to the log.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.unfinished.push_str(&String::from_utf8_lossy(bytes));
        while let Some(end) = self.unfinished.find('\n') {
            let line: String = self.unfinished.drain(..=end).collect();
            self.look_at(line.trim_end());
        }
    }

    /// What is wrong. A lock-up or stall ends in a panic, since guests are started so; what came first is the cause.
    pub(crate) fn trouble(&self) -> Option<&Trouble> {
        self.found.as_ref()
    }

    fn look_at(&mut self, line: &str) {
        let text = without_time(line);
        if text.starts_with("WARNING: CPU: ") {
            self.warnings += 1;
        }
        let Some(kind) = sign(text) else { return };
        if self.found.is_none() {
            self.found = Some(Trouble { kind, line: text.to_owned() });
        }
    }
}

fn sign(text: &str) -> Option<Kind> {
    let (_, kind) = SIGNS.iter().find(|(sign, _)| text.contains(sign))?;
    if *kind == Kind::HungTask && !text.contains(" blocked for more than ") { None } else { Some(*kind) }
}

/// A line of the log without `[   12.345678] `, and without the caller that some kernels add: `[T1]`.
fn without_time(line: &str) -> &str {
    let mut text = line;
    for _ in 0..2 {
        match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((inside, rest)) if inside.trim().starts_with(|c: char| c.is_ascii_digit() || "TC".contains(c)) => {
                text = rest.trim_start();
            }
            _ => break,
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(log: &str) -> Option<(Kind, String)> {
        let mut watch = Watch::default();
        // In pieces, as it arrives.
        log.as_bytes().chunks(7).for_each(|piece| watch.push(piece));
        watch.trouble().map(|trouble| (trouble.kind, trouble.line.clone()))
    }

    #[test]
    fn the_first_cause_counts() {
        let log = "[   30.112233] watchdog: BUG: soft lockup - CPU#1 stuck for 31s! [guest-init:77]\r\n\
            [   30.112300] Kernel panic - not syncing: softlockup: hung tasks\r\n";
        let line = "watchdog: BUG: soft lockup - CPU#1 stuck for 31s! [guest-init:77]";
        assert_eq!(look(log), Some((Kind::SoftLockup, line.into())));
    }

    #[test]
    fn every_kind_is_told() {
        for (line, kind) in [
            ("[    2.0] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100\n", Kind::Panic),
            ("[    2.0][  T1] Kernel panic - not syncing: sysrq triggered crash\n", Kind::Panic),
            ("[   61.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n", Kind::RcuStall),
            ("[   61.0] rcu: INFO: rcu_preempt self-detected stall on CPU\n", Kind::RcuStall),
            ("[   61.0] rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... }\n", Kind::RcuStall),
            ("[   61.0] NMI watchdog: Watchdog detected hard LOCKUP on cpu 1\n", Kind::HardLockup),
            ("[  121.0] INFO: task kworker/0:1:10 blocked for more than 120 seconds.\n", Kind::HungTask),
            ("[    5.0] BUG: kernel NULL pointer dereference, address: 0000000000000000\n", Kind::Oops),
            ("[    5.0] Oops: 0002 [#1] PREEMPT SMP\n", Kind::Oops),
            ("[    5.0] general protection fault, probably for non-canonical address: 0000 [#1]\n", Kind::Oops),
        ] {
            assert_eq!(look(line).map(|(kind, _)| kind), Some(kind), "{line}");
        }
    }

    #[test]
    fn a_common_log_is_fine() {
        let log = "[    0.000000] Linux version 6.1.0-57-cloud-amd64\n[    0.5] rcu: Hierarchical SRCU implementation.\n\
            [    1.0] INFO: task scheduling is fine\n[    1.1] watchdog: Delayed init of the lockup detector\n\
            [    1.2] x86/cpu: SGX disabled\n";
        assert_eq!(look(log), None);
    }

    #[test]
    fn warnings_are_counted() {
        let mut watch = Watch::default();
        watch.push(b"[    3.0] WARNING: CPU: 1 PID: 70 at kernel/events/core.c:1 x+0x1/0x2\n");
        assert_eq!((watch.warnings, watch.trouble()), (1, None));
    }
}

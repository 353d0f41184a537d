//! Where events count.

use std::io;

use afterimage_perf_data::{Attr, AttrFlags};

use crate::facts::Facts;

/// Where events count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Whatever runs on these CPUs.
    Cpus(Vec<u32>),
    /// These threads.
    Tasks {
        /// Thread ids.
        tids: Vec<u32>,
        /// CPUs where rings are made. None: each thread's event follows it over all CPUs and has one ring, which an
        /// inherited event cannot have.
        cpus: Vec<u32>,
        /// Threads and processes that they start later, too.
        inherit: bool,
    },
    /// A command that waits for its exec, which enables the events.
    Command {
        /// Its process id.
        pid: u32,
        /// CPUs where rings are made, as for tasks.
        cpus: Vec<u32>,
        /// Threads and processes that it starts, too.
        inherit: bool,
    },
}

impl Target {
    /// Whether it follows tasks rather than CPUs.
    pub fn is_task(&self) -> bool {
        !matches!(self, Target::Cpus(_))
    }

    /// Every (thread id or -1, CPU or -1) where an event is opened.
    pub(super) fn places(&self) -> Vec<(i32, i32)> {
        let number = |n: &u32| i32::try_from(*n).unwrap_or(i32::MAX);
        match self {
            Target::Cpus(cpus) => cpus.iter().map(|cpu| (-1, number(cpu))).collect(),
            Target::Tasks { tids, cpus, .. } if cpus.is_empty() => tids.iter().map(|tid| (number(tid), -1)).collect(),
            Target::Command { pid, cpus, .. } if cpus.is_empty() => vec![(number(pid), -1)],
            Target::Tasks { tids, cpus, .. } => {
                cpus.iter().flat_map(|cpu| tids.iter().map(move |tid| (number(tid), number(cpu)))).collect()
            }
            Target::Command { pid, cpus, .. } => cpus.iter().map(|cpu| (number(pid), number(cpu))).collect(),
        }
    }

    /// Sets the attr's flags for this target. A group's members start and stop with their leader.
    pub(super) fn mark(&self, attr: &mut Attr, member: bool) {
        attr.flags.set(AttrFlags::DISABLED, !member);
        let on_exec = matches!(self, Target::Command { .. }) && !member;
        attr.flags.set(AttrFlags::ENABLE_ON_EXEC, on_exec);
        let inherits = match self {
            Target::Cpus(_) => false,
            Target::Tasks { inherit, .. } | Target::Command { inherit, .. } => *inherit,
        };
        attr.flags.set(AttrFlags::INHERIT, inherits);
    }
}

/// The threads of all these processes, ascending, each once.
///
/// Threads come and go while they are listed, so each process is listed until two lists in a row are equal.
///
/// # Errors
/// NotFound when one of them does not exist.
pub fn threads_of(facts: &Facts, pids: &[u32]) -> io::Result<Vec<u32>> {
    const TRIES: usize = 8;
    let mut all = Vec::new();
    for &pid in pids {
        let mut list = facts.threads(pid)?;
        for _ in 0..TRIES {
            let again = facts.threads(pid)?;
            if again == list {
                break;
            }
            list = again;
        }
        all.extend(list);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

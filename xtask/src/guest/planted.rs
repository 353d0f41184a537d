//! Faults on purpose, each of which has to be reported as what it is.

use super::suite::PLANTED;
use guest::plan::Run;
use std::time::Duration;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Planted {
    /// The kernel panics
    Panic,
    /// A module writes to where nothing is: an oops
    Oops,
    /// A module keeps one CPU for itself: a soft lock-up
    Lockup,
    /// A module keeps one CPU for itself, with interrupts off: an RCU stall, since the kernel's own look for such CPUs
    /// wants a counter unit, which no emulated machine has
    Stall,
    /// A module keeps all CPUs, with interrupts off: nothing in the guest can notice
    Stuck,
    /// A module sleeps and is never woken: a hung task
    Hung,
    /// A test fails
    Fail,
    /// A test never ends
    Hang,
    /// The plan names a file that was not packed
    Missing,
}

impl Planted {
    /// What the guest runs. `tests` is the executable with tests that fail or never end.
    pub(crate) fn run(self, tests: &str) -> Run {
        let words: &[&str] = match self {
            Planted::Panic => &["/init", "fault", "panic"],
            Planted::Oops => &["/init", "fault", "oops"],
            Planted::Lockup => &["/init", "fault", "lockup"],
            Planted::Stall => &["/init", "fault", "stall"],
            Planted::Stuck => &["/init", "fault", "stuck"],
            Planted::Hung => &["/init", "fault", "hung"],
            Planted::Fail => &[tests, "--ignored", "--exact", "fails"],
            Planted::Hang => &[tests, "--ignored", "--exact", "never_ends"],
            Planted::Missing => &["/guest/this-was-not-packed"],
        };
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let limit = if self == Planted::Hang { Duration::from_secs(5) } else { Duration::from_secs(300) };
        Run { name: PLANTED.name(), limit, folder: "/tmp".into(), words }
    }
}

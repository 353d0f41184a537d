//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::load::kprobe::Place;
use crate::load::pace::{Life, Pace, now};
use crate::load::static_key::Key;

/// Makes kernel text come and go, and says what came when.
///
/// Prints one JSON line an object, with times by CLOCK_MONOTONIC, and a summary as the last line. Exit codes: 0 done,
/// 1 failed, 2 wrong usage, 77 not available on this kernel.
#[derive(Debug, Parser)]
#[command(name = "load")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) kind: Kind,
}

/// What every kind has.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// How many objects [default: 100, or as many as fit in --seconds]
    #[arg(long)]
    pub(crate) count: Option<u64>,
    /// Make no object after that many seconds
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// At most that many objects in a second; of hot programs, so many turns
    #[arg(long)]
    pub(crate) rate: Option<u32>,
    /// How long each lives: closed (at once), a time such as 100us or 10ms, or hot (bpf, cbpf, xdp, fentry, kprobe:
    /// some live until --seconds are over, 1 if not given, and run all the time)
    #[arg(long, default_value = "closed")]
    pub(crate) life: Life,
    /// The number of the first object
    #[arg(long, default_value_t = 0)]
    pub(crate) first: u64,
    /// Write the lines to this file
    #[arg(long)]
    pub(crate) log: Option<PathBuf>,
}

impl Common {
    /// When to make which object.
    pub(crate) fn pace(&self) -> Pace {
        Pace::new(self.first, self.count, self.seconds, self.rate)
    }

    /// The numbers of the hot objects, so many when the user does not say; they run by turns.
    pub(crate) fn hot_numbers(&self, default: u64) -> impl Iterator<Item = u64> + use<> {
        let first = self.first;
        (0..self.count.unwrap_or(default)).map(move |at| first.wrapping_add(at))
    }

    /// Until when hot objects run that are ready now, by [`now`].
    pub(crate) fn hot_end(&self) -> u64 {
        now().saturating_add((self.seconds.unwrap_or(1.0) * 1e9) as u64)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Kind {
    /// Programs with two subprograms, each with a name and tag of its own
    Bpf {
        #[command(flatten)]
        common: Common,
        /// Do not ask for id, tag and addresses: the shortest life there is
        #[arg(long)]
        no_info: bool,
    },
    /// Classic socket filters, which the kernel compiles and tells nobody of
    Cbpf {
        #[command(flatten)]
        common: Common,
    },
    /// XDP programs attached to an interface, in the generic way that every interface has
    Xdp {
        #[command(flatten)]
        common: Common,
        /// The interface
        #[arg(long, default_value = "lo")]
        interface: String,
    },
    /// Programs at function entries, by trampolines
    Fentry {
        #[command(flatten)]
        common: Common,
    },
    /// Structures of functions that the kernel calls, each by a trampoline
    StructOps {
        #[command(flatten)]
        common: Common,
    },
    /// Probes in functions: a patched instruction and a slot for what stood there
    Kprobe {
        #[command(flatten)]
        common: Common,
        /// Only probes at function entries (which use ftrace) or only inside of functions
        #[arg(long, value_enum, default_value = "any")]
        place: Place,
    },
    /// A jump of a running program patched to another program, over and over; --life is the time between two patches
    TailCall {
        #[command(flatten)]
        common: Common,
    },
    /// Branches of the kernel patched by switching a static key on and off
    StaticKey {
        #[command(flatten)]
        common: Common,
        /// Which key
        #[arg(long, value_enum, default_value = "page-faults")]
        key: Key,
    },
    /// A kernel module loaded and removed
    Module {
        #[command(flatten)]
        common: Common,
        /// The module's file
        #[arg(long)]
        module: PathBuf,
        /// Milliseconds that its function afterimage_load_spin runs in each life
        #[arg(long, default_value_t = 0)]
        spin: u32,
        /// Milliseconds that its function afterimage_load_init_spin, text of the initialisation, runs
        #[arg(long, default_value_t = 0)]
        init_spin: u32,
    },
    /// Processes that use a known share of their CPU time in each function
    Busy {
        /// CPU time of each process
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// How many processes
        #[arg(long, default_value_t = 1)]
        processes: u32,
        /// Write the lines to this file
        #[arg(long)]
        log: Option<PathBuf>,
    },
}

//! What was counted, with names.

use std::time::Duration;

use afterimage_profile::Frame;

/// What was counted since the last time it was read out.
#[derive(Clone, Debug)]
pub struct Readout {
    /// When sampling began, ns of CLOCK_MONOTONIC.
    pub begun_ns: u64,
    /// From when, since sampling began.
    pub from: Duration,
    /// Until when.
    pub to: Duration,
    /// Sampling has ended; there will be no other.
    pub last: bool,
    /// By sampling event.
    pub events: Vec<EventRows>,
}

/// The rows of one event, the largest first.
#[derive(Clone, Debug)]
pub struct EventRows {
    /// The event's name.
    pub name: String,
    /// Its rows. No two have equal keys; but addresses that differ may have equal names.
    pub rows: Vec<Row>,
}

/// One key and its samples. Of the key those fields are set that were asked for.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The thread's name.
    pub comm: Option<String>,
    /// The process; also where only its addresses were asked for.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// The cgroup's number, and its path where one was found.
    pub cgroup: Option<(u64, Option<String>)>,
    /// The address that was hit.
    pub ip: Option<At>,
    /// What the label says.
    pub label: Option<Labelled>,
    /// The kernel part of the stack, innermost first.
    pub kernel: Vec<At>,
    /// The user part, innermost first.
    pub user: Vec<At>,
    /// How many samples.
    pub samples: u64,
    /// Their sum, or the largest of them; of a histogram the sum.
    pub value: u64,
    /// Of a histogram: the buckets that are not empty, ascending, with how many samples are in each.
    pub buckets: Vec<(u32, u64)>,
}

/// A label of samples.
#[derive(Clone, Debug, PartialEq)]
pub enum Labelled {
    /// The handler gave them none.
    Not,
    /// By the types of the handler's object.
    Value {
        /// As people read it.
        text: String,
        /// As JSON.
        json: serde_json::Value,
    },
    /// There is one, which cannot be shown for this reason.
    Unreadable(String),
}

/// An address with its name.
#[derive(Clone, Debug)]
pub struct At {
    /// As it was sampled.
    pub addr: u64,
    /// What is there; of a return address, what made the call.
    pub frame: Frame,
}

//! What the kernel does: perf_event_open, rings, ioctls, sysfs and procfs facts, probes.
//!
//! - [`spec`]: events by perf's names, as attrs. [`config`]: what every event of ours carries besides.
//! - [`open`]: events on CPUs or tasks, the rings they share, what is said when the kernel refuses.
//! - [`sideband`]: the events that tell of maps, processes and kernel text.
//! - [`ring`]: records out of a ring. [`child`]: a command that waits for its exec.
//! - [`facts`], [`caps`], [`probe`]: what this kernel and these privileges allow.
//! - [`sys`]: the one place with perf system calls; all `unsafe` code of perf is there and in [`child`].

pub mod caps;
pub mod cgroup;
pub mod child;
pub mod config;
pub mod facts;
pub mod open;
pub mod probe;
pub mod ring;
pub mod sideband;
pub mod spec;
pub mod sys;

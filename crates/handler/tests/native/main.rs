//! Handlers on this machine's kernel: real events, real rings, real programs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod by;
mod context;
mod count;
mod exact;
mod gate;
mod kernel_faults;
mod object;
mod off_cpu;
mod probe;
mod reach;
mod rings;
mod stub;
mod support;
mod swap;

//! The load generators: what they say is what the kernel's own records say.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bpf;
mod hooks;
mod others;
mod support;

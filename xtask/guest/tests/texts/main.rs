//! Recordings keep the text that comes and goes: what is in them is what the load generators put into the kernel.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod comes;
mod fentry;
mod guests;
mod killed;
mod lossy;
mod storm;
mod support;
mod symbols;
mod ways;

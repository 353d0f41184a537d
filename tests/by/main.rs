//! Acceptance of `record --by`: what is counted in the kernel, against known programs and against recordings.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod controlled;
mod exact;
mod forms;
mod helper;
mod labels;
mod refused;
mod shares;

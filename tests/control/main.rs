//! Acceptance of live control: real recordings, changed by the real commands while they run.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../record/helper.rs"]
#[allow(dead_code, reason = "what the tests of record use, too")]
mod helper;
mod objects;
mod owner;
mod session;
mod sockets;
mod swap;

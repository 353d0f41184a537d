//! `annotate`: to the letter on recordings made by hand, against objdump on user code, and whole on this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod freed;
mod hot;
mod kernel;
mod listing;
#[path = "../common/made.rs"]
mod made;
mod made_by_hand;
mod programs;
mod user;

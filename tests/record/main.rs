//! Acceptance of `record`: real recordings of this machine, compared with stock perf, with known programs, and with
//! themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod audit;
mod born;
mod chained;
#[path = "../common/mod.rs"]
mod common;
mod control;
mod counted;
mod elsewhere;
mod ends;
mod every_way;
mod examples;
mod full_disk;
mod gate;
mod helper;
mod killed;
mod nobody;
mod objects;
mod off_cpu;
mod perf_reads;
mod pipe;
mod probes;
mod small_ring;
mod split;
mod two;
mod views;

//! Recordings that are read away from where they were made: names from copies of the recorded machine's files, and from
//! none but the right ones.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/made.rs"]
mod made;

mod archive;
mod debuginfod;
mod files;
mod kernel;

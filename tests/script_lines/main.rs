//! `script` and `report --stats` against perf, on recordings of every kind: foreign ones, those that perf makes here in each
//! of its modes, and ones made by hand for the fields that this machine's events do not have.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod chains;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod fields;
mod foreign;
mod hand;
mod json;
mod languages;
mod modes;
mod registers;
mod unwound;

//! What handlers from objects write: values and labels, shown by the types that their BTF describes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/made.rs"]
mod made;
mod made_by_hand;
mod recorded;
#[path = "../../crates/perf-data/tests/common/types.rs"]
#[allow(dead_code, unreachable_pub, reason = "made for another crate's tests")]
mod types;

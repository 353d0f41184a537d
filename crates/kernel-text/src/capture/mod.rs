//! Ways to read kernel text from the running kernel.

pub mod by_id;

//! Jobs for developers.
fn main() {}

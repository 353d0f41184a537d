//! A sampling profiler for Linux with a program on every sample.
fn main() {}

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| afterimage_symbols::fuzzing::cgroup_names(data));

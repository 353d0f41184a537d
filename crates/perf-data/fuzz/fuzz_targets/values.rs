#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| afterimage_perf_data::fuzzing::values(data));

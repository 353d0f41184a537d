#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| afterimage_unwind::fuzzing::walk(data));

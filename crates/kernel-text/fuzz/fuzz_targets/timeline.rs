#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| afterimage_kernel_text::fuzzing::timeline(data));

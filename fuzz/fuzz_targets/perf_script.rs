//! The text of `perf script`.
#![no_main]

#[path = "../exercise/perf_script.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));

//! A file of a run directory.
#![no_main]

#[path = "../exercise/run_directory.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));

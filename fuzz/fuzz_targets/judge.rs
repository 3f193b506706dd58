//! Any bytes as a field.
#![no_main]

#[path = "../exercise/judge.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));

//! Any bytes as a history.
#![no_main]

#[path = "../exercise/history.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));

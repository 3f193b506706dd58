//! Any bytes as a key.
#![no_main]

#[path = "../exercise/row_of_key.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));

//! Any arguments for the random functions.
#![no_main]

#[path = "../exercise/random.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));

//! Answers of a catalog.
#![no_main]

#[path = "../exercise/catalog.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));

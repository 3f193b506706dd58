//! A tar archive.
#![no_main]

#[path = "../exercise/bundle.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));

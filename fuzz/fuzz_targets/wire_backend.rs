//! Any bytes as what a server sends.
#![no_main]

#[path = "../exercise/wire_backend.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));

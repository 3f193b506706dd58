//! Any text as a script: compile it, walk through it.
#![no_main]

#[path = "../exercise/script.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));

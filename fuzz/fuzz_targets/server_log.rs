//! A server's log.
#![no_main]

#[path = "../exercise/server_log.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));

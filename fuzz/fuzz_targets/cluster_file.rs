//! A cluster file.
#![no_main]

#[path = "../exercise/cluster_file.rs"]
mod exercise;

libfuzzer_sys::fuzz_target!(|data: &[u8]| exercise::exercise(data));

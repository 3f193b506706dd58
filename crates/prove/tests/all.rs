//! All tests of this crate in one program; `scripts/test` runs each module as a suite of its own.

mod local;

mod faults;
mod fuzz_corpus;
mod hermitage;
mod promises;
mod servers;
mod workload;

//! All tests of this crate in one program; `scripts/test` runs each module as a suite of its own.

#![allow(clippy::duplicate_mod, reason = "the fuzz target brings the server of recordings along")]

mod recorded;

mod entry;
mod fuzz_corpus;
mod hash;
mod manual;
mod placement;
mod profiles;
mod profiles_sql;

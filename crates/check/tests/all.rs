//! All tests of this crate in one program; `scripts/test` runs each module as a suite of its own.

mod database;
mod database_manual;
mod manual;

//! What the tests of every crate share; nothing of it is part of the program.
//!
//! - A test that cannot run on this host calls [`skip()`], and nothing else: `scripts/test` counts what was skipped, and its
//!   strict mode accepts only what `scripts/test-expected` names. What is lacking is found by the probes in [`needs`], which use programs of
//!   the system and no code of ours: a skip that asks the code under test would hide that very code's failure.
//! - [`is_thorough`] is true in a run with the time of `make test-all`; [`in_turn`] else leaves one of several ways.
//! - [`again()`] runs a test in a separate process.
//! - [`on_each`] runs one test on each of several things at once, as every PostgreSQL found.
//! - [`wait_for`] waits for a condition, never for a time, and fails with a message when it does not come.
//! - [`Running`] and [`Stop`] end processes and threads when a test fails, so that a failure does not become a hang.

mod again;
mod each;
mod guard;
mod later;
pub mod needs;
mod skip;
mod wait;

pub use again::again;
pub use each::on_each;
pub use guard::{Running, Stop};
pub use later::{in_turn, is_thorough};
pub use skip::{Lack, skip};
pub use wait::{PATIENCE, value_of, wait_for};

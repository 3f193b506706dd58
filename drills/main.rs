//! Drills: conditions provoked for real on this machine, watched and explained by the command as a user would. The rule must fire; on the
//! same ground in health it must be silent. `make drills` runs all of them and prints a table; the quick ones are part of `make test`, the
//! others are marked `#[ignore]` with the reason.
//!
//! Nothing here waits for a time: a drill explains the directory that is being written again and again until its rules have fired.

mod capacity;
mod catalogue;
mod checkpoints;
mod clients;
mod commits;
mod disk;
mod filesystem;
mod ground;
mod island;
mod network;
mod nodes;
#[allow(dead_code, reason = "what it counts is for others")]
#[path = "../crates/pgfathom/tests/support/relay.rs"]
mod relay;
mod sessions;
mod standby;
#[path = "../crates/pgfathom/tests/support/mod.rs"]
mod support;
mod sys;
mod vacuum;
mod wal;

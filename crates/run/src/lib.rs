//! Drive: scripts, schedules, sessions, workers.
//!
//! The way through this crate: [`drive`] starts workers, each an [`engine`] with a [`schedule`]; every session executes [`client`],
//! which runs transactions of a [`workload`] and counts them in a [`tally`]. It names no benchmark.

pub mod audit;
mod backoff;
pub mod client;
pub mod control;
pub mod dial;
pub mod drive;
pub mod engine;
pub mod null_server;
pub mod pooler;
pub mod random;
pub mod recovery;
pub mod responder;
pub mod routing;
pub mod schedule;
pub mod script;
pub mod statement;
mod statement_spec;
mod sys;
pub mod tally;
pub mod terminals;
pub mod verdict;
pub mod workload;

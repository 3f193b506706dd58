//! Promises: what a database must keep, and the rows that show when it did not.
//!
//! - [`check`]: which isolation levels a history refutes, with the shortest proof.
//! - [`client`], [`outcome`]: what the end of a transaction was worth.
//! - [`conditions`]: the consistency conditions of a benchmark, in one snapshot.
//! - [`fault`]: what is done to a cluster meanwhile, and how it is undone.
//! - [`hermitage`]: scripted interleavings that name an isolation level, on one server and on clusters.
//! - [`history`]: what sessions did and saw, in memory, in a file, in Elle's notation.
//! - [`promise`]: from what was seen to what became of a promise.
//! - [`simulate`]: histories that keep a promise, made from a seed.
//! - [`talk`]: a session that tells all the server says.

pub mod check;
pub mod client;
pub mod conditions;
pub mod fault;
pub mod hermitage;
pub mod history;
pub mod live;
pub mod outcome;
pub mod promise;
pub mod session;
pub mod simulate;
mod sys;

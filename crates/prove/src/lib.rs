//! Tests of promises: what a database must keep, and the rows that show a violation.
//!
//! - [`check`]: which isolation levels a history refutes, with the shortest proof.
//! - [`client`]: a session that returns everything the server sends; [`outcome`]: whether a transaction was committed.
//! - [`conditions`]: the consistency conditions of a benchmark, checked in one snapshot.
//! - [`conformance`]: the claims of an engine's profile, compared with a live cluster.
//! - [`fault`]: faults that are injected into a cluster, and how they are undone.
//! - [`hermitage`]: scripted interleavings that show an isolation level, on one server and on clusters.
//! - [`history`]: the operations of sessions and their results, in memory, in a file, in Elle's notation.
//! - [`promise`]: from observations to the verdict on a promise.
//! - [`simulate`]: histories that keep a promise, made from a seed.

pub mod check;
pub mod client;
pub mod conditions;
pub mod conformance;
pub mod fault;
pub mod hermitage;
pub mod history;
pub mod live;
pub mod outcome;
pub mod promise;
pub mod session;
pub mod simulate;
mod sys;

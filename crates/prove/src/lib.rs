//! Promises: what a database must keep, and the rows that show when it did not.
//!
//! - [`check`]: which isolation levels a history refutes, with the shortest proof.
//! - [`hermitage`]: scripted interleavings that name an isolation level, on one server and on clusters.
//! - [`history`]: what sessions did and saw, in memory, in a file, in Elle's notation.
//! - [`simulate`]: histories that keep a promise, made from a seed.
//! - [`talk`]: a session that tells all the server says.
//! - [`tpcc`]: the books of TPC-C, the consistency conditions of its clause 3.3.2 and two of our own.

pub mod check;
pub mod hermitage;
pub mod history;
pub mod simulate;
pub mod talk;
pub mod tpcc;

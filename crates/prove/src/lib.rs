//! Promises: what a database must keep, and the rows that show when it did not.
//!
//! - [`check`]: which isolation levels a history refutes, with the shortest proof.
//! - [`history`]: what sessions did and saw, in memory, in a file, in Elle's notation.
//! - [`simulate`]: histories that keep a promise, made from a seed.
//! - [`tpcc`]: the books of TPC-C, the consistency conditions of its clause 3.3.2 and two of our own.

pub mod check;
pub mod history;
pub mod simulate;
pub mod tpcc;

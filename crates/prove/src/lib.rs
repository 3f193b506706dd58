//! Promises: what a database must keep, and the rows that show when it did not.
//!
//! - [`tpcc`]: the books of TPC-C, the consistency conditions of its clause 3.3.2 and two of our own.

pub mod tpcc;

//! The benchmarks. Each is one folder: its tables, their content, and what runs do with them.
//!
//! The traits that a benchmark implements belong to the crates that use them. This crate depends on those, so that none
//! of them names a benchmark.

pub mod chbench;
pub mod conditions;
pub mod dataset;
pub mod documents;
pub mod driving;
pub mod replay;
pub mod request;
pub mod tpcb;
pub mod tpcc;
pub mod ycsb;

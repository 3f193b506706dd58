//! CH-benCHmark (Cole et al., "The mixed workload CH-benCHmark", DBTest 2011): the transactions of TPC-C and 22 analytic queries after TPC-H,
//! at the same time on the same tables.
//!
//! The tables are those of TPC-C, and what the queries need besides: suppliers, nations and regions.

mod content;
mod dataset;
pub mod queries;
pub mod run;

pub use dataset::{ChBenchTables, DATASET};

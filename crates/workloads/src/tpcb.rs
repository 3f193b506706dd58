//! TPC-B as `pgbench` plays it: four tables, whose balances a transaction changes together.
//!
//! Tables, columns, fillers and keys are those that `pgbench -i` makes, so `pgbench` itself runs on what was loaded here.

mod audit;
pub mod conditions;
mod dataset;
pub mod run;
pub mod schema;

pub use dataset::{DATASET, Tpcb};

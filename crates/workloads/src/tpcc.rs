//! TPC-C: nine tables of a wholesaler, five transactions at terminals.

pub mod conditions;
mod dataset;
pub mod family;
mod found;
pub mod orders;
mod rows;
pub mod run;
mod schema;

pub use dataset::{DATASET, Tpcc};
pub(crate) use found::find_named;
pub use found::{TpccDataset, find};
pub use schema::TPCC;

//! YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010): one table of keys and values.

pub mod dataset;
mod family;
mod history;
pub mod homes;
pub mod mixes;
mod registration;
pub mod replay;
pub mod run;
pub mod writer;

pub use family::YcsbFamily;
pub use registration::DATASET;

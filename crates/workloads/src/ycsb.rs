//! YCSB (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010): one table of keys and values.

pub mod dataset;
mod family;
mod generator;
mod history;
mod homes;
mod keyed;
pub mod mixes;
mod registration;
pub mod replay;
pub mod run;
mod writer;

pub use family::YcsbFamily;
pub use generator::GENERATOR;
pub use keyed::keyed;
pub use mixes::DEMO;
pub use registration::DATASET;

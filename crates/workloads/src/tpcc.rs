//! TPC-C: nine tables of a wholesaler, five transactions at terminals.

pub mod orders;

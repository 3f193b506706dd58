//! CH-benCHmark (Cole et al., "The mixed workload CH-benCHmark", DBTest 2011): the transactions of TPC-C and 22 analytic queries after TPC-H,
//! at the same time on the same tables.
//!
//! The tables are those of `load tpcc`. What the queries need besides, suppliers, nations and regions, are three small tables that a run makes
//! in the schema `chbench` if they are not there.

pub mod queries;
pub mod run;
pub mod tables;

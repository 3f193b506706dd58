//! A workload that is ready to be driven.

use run::terminals::Users;
use run::workload::Mix as Mixed;
use workloads::driving::{Announced, Benchmark, ServerAudit};

/// A workload that is ready to be driven.
#[derive(Debug)]
pub(crate) struct Assembled {
    /// The mix.
    pub mix: Mixed<Benchmark>,
    /// A name for the run: the workloads', joined.
    pub name: String,
    /// The datasets it works on, as the run directory names them.
    pub datasets: Vec<record::model::Dataset>,
    /// What its benchmarks compare with the server, each with the place of its first item.
    pub audits: Vec<(usize, Box<dyn ServerAudit>)>,
    /// What reports its end to the ledgers.
    pub writers: Vec<Box<dyn Announced>>,
    /// It uses pgbench's own tables.
    pub uses_pgbench_tables: bool,
    /// The users whose pace it follows, where a benchmark has some.
    pub users: Option<Users>,
    /// Where each session enters, where the workload decides that.
    pub connects: Option<run::routing::Connects>,
    /// Its sessions plan each execution.
    pub plans_each: bool,
    /// `:scale` of its scripts, if it has any.
    pub scale: Option<i64>,
}

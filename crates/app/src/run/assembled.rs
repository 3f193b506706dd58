//! A workload that is ready to be driven.

use crate::failure::Failure;
use run::client::SessionRecord;
use run::drive::DriveError;
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
    pub writers: Entries,
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

/// The entries of a run in ledgers. Unless it begins, they are removed: an entry without an end is taken for a killed run, and makes `verify` accept
/// more.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    announced: Vec<Box<dyn Announced>>,
    has_begun: bool,
}

impl Entries {
    /// Adds one.
    pub(super) fn push(&mut self, announced: Box<dyn Announced>) {
        self.announced.push(announced);
    }

    /// From now on transactions may be started.
    pub(super) fn set_begun(&mut self) {
        self.has_begun = true;
    }

    /// Passes on what came of driving: a run that failed before its first transaction has not begun.
    pub(super) fn driven<T>(&mut self, result: Result<T, DriveError>) -> Result<T, DriveError> {
        self.has_begun = !result.as_ref().is_err_and(DriveError::is_before_begin);
        result
    }

    /// Reports how far each session came.
    ///
    /// # Errors
    /// When a ledger cannot be written.
    pub(super) fn finish(&mut self, sessions: &[SessionRecord]) -> Result<(), Failure> {
        for announced in std::mem::take(&mut self.announced) {
            announced.finish(sessions)?;
        }
        Ok(())
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        if !self.has_begun {
            for announced in std::mem::take(&mut self.announced) {
                // The failure that ended the run is reported.
                let _ = announced.withdraw();
            }
        }
    }
}

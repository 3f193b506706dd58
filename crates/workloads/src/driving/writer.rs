//! Runs that are entered in the ledgers of their dataset before their first write, so that a verification can replay them.

use std::fmt::Debug;

use engines::Cluster;
use load::ledger::Dataset;
use postgres::Client;
use run::client::SessionRecord;
use run::workload::Item;

use super::{Benchmark, Refusal};

/// The run that a workload writes in.
#[derive(Clone, Copy, Debug)]
pub struct InMix<'a> {
    /// The items of its mix.
    pub items: &'a [Item],
    /// The first one of the workload.
    pub first: usize,
    /// The seed of the run.
    pub seed: u64,
}

/// A workload that writes, before it is announced.
pub trait Announces: Debug {
    /// What it writes into.
    fn dataset(&self) -> &Dataset;

    /// Enters the run in the ledgers of `cluster`. Gives the workload as it is driven then.
    ///
    /// # Errors
    /// When a ledger cannot be written, or another run is in the way.
    fn announce(
        self: Box<Self>,
        run: InMix<'_>,
        cluster: &Cluster,
        client: &mut Client,
    ) -> Result<(Benchmark, Box<dyn Announced>), Refusal>;
}

/// A run that has been entered in the ledgers.
pub trait Announced: Debug {
    /// Reports to the ledgers how far each session came.
    ///
    /// # Errors
    /// When a ledger cannot be written.
    fn finish(self: Box<Self>, sessions: &[SessionRecord]) -> Result<(), Refusal>;
}

//! Runs on loaded documents: how they are registered in the ledgers before their first write.

use engines::Cluster;
use load::ledger::Dataset;
use postgres::Client;

use super::replay::WriterSpec;
use super::run::{DocumentsRun, NAME, first_insert};
use crate::driving::{Announces, Entered, InMix, LedgerEntry, Refusal};

/// A workload that writes, before it is entered.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) workload: DocumentsRun,
    pub(super) dataset: Dataset,
}

impl Announces for Writing {
    fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    fn announce(
        self: Box<Self>,
        run: InMix<'_>,
        cluster: &Cluster,
        _: &mut Client,
    ) -> Result<LedgerEntry, Refusal> {
        let Writing { mut workload, .. } = *self;
        let entered = Entered::new(cluster, NAME, WriterSpec::new(run, &workload))?;
        workload.draws.first_insert = first_insert(entered.run_no);
        Ok(LedgerEntry { workload: Some(workload.into()), announced: Some(Box::new(entered)) })
    }
}

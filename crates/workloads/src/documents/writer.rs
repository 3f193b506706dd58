//! Runs on documents that were loaded: how they are entered in the ledgers before their first write.

use engines::Cluster;
use load::ledger::Dataset;
use postgres::Client;

use super::replay::WriterSpec;
use super::run::{DocumentsRun, NAME};
use crate::driving::{Announces, Entered, InMix, LedgerEntry, Refusal};

/// A run inserts fewer documents than this power of two; a load makes fewer, too.
pub(super) const INSERTED_BITS: u32 = 40;

/// The first number that a run of the ledger inserts: each has a range of its own, so two runs at once never insert the same document.
pub(super) fn first_insert(run_no: u16) -> u64 {
    u64::from(run_no) << INSERTED_BITS
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_ledger_insert_into_ranges_of_their_own() {
        let (first, second) = (first_insert(1), first_insert(2));
        assert!(first > 1_000_000_000_000 && second - first > 1_000_000_000_000);
        let last = first_insert(load::ledger::RUN_NO_MAX as u16) + (1 << INSERTED_BITS);
        assert!(i64::try_from(last).is_ok(), "doc_id is a bigint");
    }
}

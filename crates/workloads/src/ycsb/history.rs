//! What runs have written, for verification: the ledger's writers, replayed, in the form `load::verify` requests.

use std::sync::Arc;

use data::ycsb::{Table, Version};
use engines::Cluster;
use load::dataset::Dataset;
use load::history::{Expect, VersionJudgement, WriterHistory};

use super::dataset::NAME;
use super::replay::{History, RowVerdict, VersionVerdict, WriterSpec};
use crate::driving::Refusal;
use crate::replay::{Recorded, ReplayError, Writer};

/// The replayed history of one dataset.
#[derive(Debug)]
struct Replayed(History);

/// Replays all runs that wrote into the dataset of a cluster, through whatever node; `None` when there is no dataset or no run wrote into
/// it.
///
/// # Errors
/// When the ledger cannot be read, or a run was recorded in a form this program does not know.
pub(super) fn replay(cluster: &Cluster) -> Result<Option<Arc<dyn crate::replay::Replayed>>, Refusal> {
    let Some(Recorded { dataset, writers }) = Recorded::read(cluster, NAME)? else { return Ok(None) };
    let writers = writers
        .into_iter()
        .map(|writer| {
            let Writer { run, epoch, spec, transactions } = writer;
            let spec = serde_json::from_str::<WriterSpec>(&spec)
                .map_err(|error| ReplayError::Damaged { run, what: error.to_string() })?;
            Ok(Writer { run, epoch, spec, transactions })
        })
        .collect::<Result<Vec<_>, ReplayError>>();
    let table = Table::new(dataset.spec.clone());
    let history = writers.and_then(|writers| History::replay(&table, dataset.rows, writers));
    let history = history.map_err(|error| Refusal::new(error.to_string()))?;
    Ok(Some(Arc::new(OfYcsb(Arc::new(Replayed(history))))))
}

/// The history, for the dataset that a database holds.
#[derive(Debug)]
struct OfYcsb(Arc<Replayed>);

impl crate::replay::Replayed for OfYcsb {
    fn after(&self, found: &dyn Dataset) -> Option<Box<dyn Dataset>> {
        found.after(Arc::clone(&self.0) as Arc<dyn WriterHistory>)
    }
}

impl WriterHistory for Replayed {
    fn wrote_row(&self, row: u64) -> bool {
        self.0.wrote_row(row)
    }

    fn expects_row(&self, row: u64) -> Expect {
        match self.0.expects_row(row) {
            RowVerdict::Present => Expect::Present,
            RowVerdict::Absent => Expect::Absent,
            RowVerdict::Either => Expect::Either,
        }
    }

    fn rows_end(&self) -> u64 {
        self.0.rows_end()
    }

    fn judge_version(&self, row: u64, column: usize, version: Version) -> VersionJudgement {
        match self.0.judge(row, column, version) {
            VersionVerdict::Acceptable => VersionJudgement::Acceptable,
            VersionVerdict::Stale { latest } => VersionJudgement::Stale { latest },
            VersionVerdict::Foreign => VersionJudgement::UnknownWriter,
            VersionVerdict::NotJudgeable(why) => VersionJudgement::NotJudgeable { why },
        }
    }
}

//! What runs have written, for verification: the ledger's writers, replayed, in the form `load::verify` requests.

use std::sync::Arc;

use data::ycsb::{Table, Version};
use engines::Cluster;
use load::LoadError;
use load::history::{Expect, VersionJudgement, WriterHistory};
use load::writers::Registry;

use super::dataset::NAME;
use super::replay::{History, ReplayError, RowVerdict, VersionVerdict, Writer, WriterSpec};
use crate::driving::Refusal;

/// The replayed history of one dataset.
#[derive(Debug)]
struct Replayed(History);

/// Replays all runs that wrote into the dataset of a cluster, through whatever node; `None` when there is no dataset or no run wrote into
/// it.
///
/// # Errors
/// When the ledger cannot be read, or a run was recorded in a form this program does not know.
pub(super) fn replay(cluster: &Cluster) -> Result<Option<Arc<dyn WriterHistory>>, Refusal> {
    let mut registry = match Registry::open(cluster, NAME) {
        Ok(Some(registry)) => registry,
        // A node that cannot be reached is reported by the verification itself.
        Ok(None) | Err(LoadError::Connect(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let dataset = registry.dataset().clone();
    let writers = registry.writers()?;
    if writers.is_empty() || dataset.rows == 0 {
        return Ok(None);
    }
    let times = registry.times()?;
    let writers = writers
        .into_iter()
        .map(|writer| {
            let run = writer.run_no;
            let spec: WriterSpec = serde_json::from_str(&writer.spec)
                .map_err(|error| ReplayError::Damaged { run, what: error.to_string() })?;
            let transactions = writer.finished.then_some(writer.transactions);
            Ok(Writer { run, epoch: epoch(&times, run), spec, transactions })
        })
        .collect::<Result<Vec<Writer>, ReplayError>>();
    let table = Table::new(dataset.spec.clone());
    let history = writers.and_then(|writers| History::replay(&table, dataset.rows, writers));
    let history = history.map_err(|error| Refusal::new(error.to_string()))?;
    Ok(Some(Arc::new(Replayed(history))))
}

/// Runs that overlapped in time share an epoch, so that neither makes the other's writes stale; a run without an end is never
/// known to have come first.
fn epoch(times: &[(u16, i64, Option<i64>)], run: u16) -> u32 {
    let mut finished: Vec<(i64, i64, u16)> =
        times.iter().filter_map(|&(run, start, end)| Some((start, end?, run))).collect();
    finished.sort_unstable();
    let mut epoch = 0;
    let mut latest_end = i64::MIN;
    for (start, end, number) in finished {
        if start > latest_end {
            epoch += 1;
        }
        latest_end = latest_end.max(end);
        if number == run {
            return epoch;
        }
    }
    u32::MAX
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

#[cfg(test)]
mod tests {
    use super::epoch;

    #[test]
    fn runs_that_overlap_share_an_epoch() {
        let times =
            [(1, 0, Some(10)), (2, 11, Some(20)), (3, 15, Some(30)), (4, 31, None), (5, 40, Some(50))];
        let epochs: Vec<u32> = (1..=5).map(|run| epoch(&times, run)).collect();
        assert_eq!(epochs, [1, 2, 2, u32::MAX, 3]);
    }
}

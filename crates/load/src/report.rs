//! What a load came to.

use crate::ledger::{ChunkTotals, Dataset};
use crate::wal::NodeWal;

/// How a load ended when it did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every row, key and statistic is there.
    Complete,
    /// It was there before; nothing was done.
    AlreadyComplete,
    /// The user stopped it; what is committed stays, and the same command continues.
    Interrupted,
    /// A stop rule ended it, see [`LoadReport::reason`]; what is committed stays, and the same command continues.
    Stopped,
    /// This load's segment is there, those of others are not yet; the last load makes keys and statistics.
    SegmentComplete,
}

impl Outcome {
    /// Whether something is left to do.
    pub fn is_partial(self) -> bool {
        !matches!(self, Outcome::Complete | Outcome::AlreadyComplete)
    }
}

/// What a load did on one node of a cluster.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// Rows committed there by this load.
    pub rows: u64,
    /// What its ledger sums up to.
    pub totals: ChunkTotals,
}

/// What a load did.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadReport {
    /// How it ended.
    pub outcome: Outcome,
    /// The dataset as the ledger has it.
    pub dataset: Dataset,
    /// What is in the ledger at the end.
    pub totals: ChunkTotals,
    /// Chunks (or leaves) the dataset consists of.
    pub chunks_total: u64,
    /// Rows committed by this load.
    pub rows: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Chunks committed by this load.
    pub chunks: u64,
    /// Length of the copy phase.
    pub seconds: f64,
    /// `rows` / `seconds`.
    pub rows_per_s: f64,
    /// `bytes` / `seconds`.
    pub bytes_per_s: f64,
    /// CPU time of this process in the copy phase, user and system.
    pub client_cpu_us: u64,
    /// Chunks begun again after an error.
    pub retries: u64,
    /// Time spent on primary keys.
    pub index_seconds: f64,
    /// Time spent on statistics.
    pub analyze_seconds: f64,
    /// All of it, from the first connection to the last.
    pub total_seconds: f64,
    /// WAL that the servers wrote during the load, for all sessions; `None` when one of them did not answer.
    pub wal_bytes: Option<u64>,
    /// The same by node; empty for one server.
    pub wal: Vec<NodeWal>,
    /// Tables without indexes.
    pub table_bytes_on_disk: u64,
    /// Their indexes.
    pub index_bytes_on_disk: u64,
    /// The nodes of a cluster; empty for a single server.
    pub nodes: Vec<NodeReport>,
    /// The stop rule that ended it.
    pub reason: Option<String>,
}

impl LoadReport {
    /// Bytes on disk per row of the dataset, tables and indexes together; `None` while there are no rows.
    pub fn bytes_per_row_on_disk(&self) -> Option<f64> {
        let bytes = self.table_bytes_on_disk + self.index_bytes_on_disk;
        (self.totals.rows > 0).then(|| bytes as f64 / self.totals.rows as f64)
    }

    /// How to go on after a load that did not do everything.
    pub fn advice(&self) -> Option<String> {
        let safe =
            format!("{} of {} chunks are committed, and nothing else", self.totals.chunks, self.chunks_total);
        match self.outcome {
            Outcome::Complete | Outcome::AlreadyComplete => None,
            Outcome::Interrupted => Some(format!("{safe}; run the same command again to continue")),
            Outcome::Stopped => {
                let reason = self.reason.as_deref().unwrap_or("a stop rule ended the load");
                Some(format!("{reason}: {safe}; run the same command again to continue"))
            }
            Outcome::SegmentComplete => Some(format!(
                "this segment is complete ({safe}); the load of the last segment creates keys and statistics"
            )),
        }
    }
}

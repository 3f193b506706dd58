//! How fast it went: `pgfathom.progress`, one row per loader, node and interval.
//!
//! Rows count one interval and are not running totals, so the rows of several loaders add up, and a rate is a sum over time:
//!
//! ```sql
//! select date_trunc('hour', at) as hour, node, sum(rows) as rows, round(sum(bytes) / 3600 / 1e6) as mb_per_s
//! from pgfathom.progress group by 1, 2 order by 1, 2;
//! ```

use std::time::Duration;

use postgres::GenericClient;

use super::sql;
use crate::error::LoadError;

/// How often a loader writes a row per node; it writes one more at its end.
pub(crate) const HISTORY_INTERVAL: Duration = Duration::from_secs(60);

/// One row as the loader appends it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct HistoryRow<'a> {
    pub(crate) dataset: i32,
    pub(crate) node: &'a str,
    /// A random number of the loading process.
    pub(crate) loader: i64,
    /// Length of the interval.
    pub(crate) interval: Duration,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Streams that were connected at the end of the interval.
    pub(crate) streams: usize,
}

/// Appends a row.
pub(crate) fn append_history(client: &mut impl GenericClient, row: &HistoryRow<'_>) -> Result<(), LoadError> {
    let inserted = client.execute(
        "insert into pgfathom.progress (dataset, node, loader, seconds, rows, bytes, streams)
         values ($1, $2, $3, $4, $5, $6, $7)",
        &[
            &row.dataset,
            &row.node,
            &row.loader,
            &row.interval.as_secs_f64(),
            &(row.rows as i64),
            &(row.bytes as i64),
            &(row.streams as i32),
        ],
    );
    sql("writing pgfathom.progress", inserted).map(|_| ())
}

/// One bucket of the history.
#[derive(Clone, PartialEq, Debug)]
pub struct HistoryPoint {
    /// Start of the bucket in microseconds since 1970, by the server's clock.
    pub at_us: i64,
    /// The node.
    pub node: String,
    /// Rows committed.
    pub rows: u64,
    /// Bytes of their values.
    pub bytes: u64,
}

/// The history of a dataset in this server's ledger, in buckets of this length, oldest first. Buckets without rows are left out.
///
/// # Errors
/// When the query fails.
pub fn history(
    client: &mut impl GenericClient,
    dataset: i32,
    bucket: Duration,
) -> Result<Vec<HistoryPoint>, LoadError> {
    let bucket_us = i64::try_from(bucket.as_micros()).unwrap_or(i64::MAX).max(1);
    let rows = client.query(
        "select (extract(epoch from at) * 1000000)::bigint / $2 * $2, node, sum(rows)::bigint, sum(bytes)::bigint
         from pgfathom.progress where dataset = $1 group by 1, 2 having sum(rows) > 0 order by 1, 2",
        &[&dataset, &bucket_us],
    );
    let rows = sql("reading pgfathom.progress", rows)?;
    let count = |value: i64| value.unsigned_abs();
    Ok(rows
        .iter()
        .map(|row| HistoryPoint {
            at_us: row.get(0),
            node: row.get(1),
            rows: count(row.get(2)),
            bytes: count(row.get(3)),
        })
        .collect())
}

//! Chunks on their way through an entry node: `pgfathom.pending`.
//!
//! With `--via connect` one transaction of the entry node writes to several nodes, and their commits are not one: postgres_fdw commits
//! on the other nodes first, then here. So a chunk is noted here, in a transaction of its own, before its first row is sent, and the note
//! goes away in the transaction that records the chunk. A note without a chunk says: there may be rows of it on other nodes.

use postgres::{Client, GenericClient};

use super::sql;
use crate::error::LoadError;

/// Notes that a chunk may come to be there in part.
pub(crate) fn note_pending_sql(dataset: i32, chunk: u64) -> String {
    format!(
        "insert into pgfathom.pending (dataset, chunk) values ({dataset}, {chunk}) on conflict do nothing"
    )
}

/// Removes the note, in the transaction that records the chunk.
pub(crate) fn settle_pending_sql(dataset: i32, chunk: u64) -> String {
    format!("delete from pgfathom.pending where dataset = {dataset} and chunk = {chunk}")
}

/// The chunks that may be there in part.
pub(crate) fn pending_chunks(client: &mut Client, dataset: i32) -> Result<Vec<u64>, LoadError> {
    let rows =
        client.query("select chunk from pgfathom.pending where dataset = $1 order by chunk", &[&dataset]);
    let damaged = LoadError::DamagedLedger { table: "pending", column: "chunk" };
    let rows = sql("reading pgfathom.pending", rows)?;
    let chunks: Result<Vec<u64>, _> = rows.iter().map(|row| u64::try_from(row.get::<_, i64>(0))).collect();
    chunks.map_err(|_| damaged)
}

/// Removes the note of a chunk of which nothing is left.
pub(crate) fn settle_pending(
    client: &mut impl GenericClient,
    dataset: i32,
    chunk: u64,
) -> Result<(), LoadError> {
    let deleted = client.batch_execute(&settle_pending_sql(dataset, chunk));
    sql("writing pgfathom.pending", deleted)
}

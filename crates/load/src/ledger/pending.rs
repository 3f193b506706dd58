//! Chunks on their way through an entry node: `pgfathom.pending`.
//!
//! With `--via connect` one transaction of the entry node writes to several nodes, which do not commit atomically: postgres_fdw commits
//! on the other nodes first, then here. So a chunk is noted here, in a separate transaction, before its first row is sent, and the note
//! goes away in the transaction that records the chunk. A note without a chunk means that other nodes may hold rows of it.

use postgres::GenericClient;

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

/// Removes the notes of chunks that are in the ledger: of loaders that lost a race and noted what was done already.
pub(crate) fn forget_pending(client: &mut impl GenericClient, dataset: i32) -> Result<(), LoadError> {
    let deleted = client.execute(
        "delete from pgfathom.pending p where dataset = $1
         and exists (select from pgfathom.chunk c where c.dataset = p.dataset and c.chunk = p.chunk)",
        &[&dataset],
    );
    sql("writing pgfathom.pending", deleted).map(|_| ())
}

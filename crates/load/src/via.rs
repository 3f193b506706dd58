//! `--via connect`: all rows go into the parent table on the entry node, which forwards those of other nodes. It is what an application without
//! knowledge of the placement does, and the control against which loading straight to the owners is measured.
//!
//! **Equally exact**, although a transaction here writes to several nodes, which do not commit atomically. `postgres_fdw` commits on
//! the other nodes first and here last (`pgfdw_xact_callback` in `contrib/postgres_fdw/connection.c`); a session that ends in between leaves rows on some
//! nodes and no ledger row. So:
//!
//! 1. Before the first row of a chunk is sent, the chunk is noted in `pgfathom.pending` on the entry node, in a separate transaction.
//! 2. The transaction that loads the chunk takes the advisory lock on it, inserts its ledger row, and removes the note.
//! 3. Who finds a note that it did not write, and no ledger row, and gets the lock, knows: the transaction that wrote it is over, and rows of the
//!    chunk may be on any node. It deletes the chunk's keys from every leaf, where the leaf is, each under a lock that waits for writers
//!    ([`repair`]), and loads the chunk anew.
//!
//! The lock of step 2 is released after the other nodes have committed or rolled back, so step 3 never meets a live transaction of a live
//! entry node. After a crash of the entry node, its sessions on other nodes may still be at their commits: hence the lock in step 3, which
//! waits for them.
//!
//! Deleting scans a leaf once per chunk in doubt, as there is no index yet: at most one chunk per stream that was killed.

use std::collections::BTreeMap;

use connect::control::Control;

use crate::dataset::{Numbers, Placement};
use crate::dispatch::Task;
use crate::error::LoadError;
use crate::job::{Job, PartEnd, Rows};
use crate::ledger::{self, Claim, qualified};
use crate::node_sessions;
use crate::pace::Pace;
use crate::shard;
use crate::stream::{ChunkError, Stream, copy_command};

/// How often deleting what is in doubt is tried, when leaves move or servers go away.
const REPAIR_ATTEMPTS: u32 = 5;

/// Notes that a chunk is about to be loaded. `true`: it was noted before, so it may be there in part.
pub(crate) fn note(stream: &mut Stream<'_>, dataset: i32, chunk: u64) -> Result<bool, ChunkError> {
    Ok(stream.session().execute(&ledger::note_pending_sql(dataset, chunk))?.rows == Some(0))
}

/// Sends the rows of a chunk, in their own order, and commits.
pub(crate) fn send(
    job: &Job<'_>,
    stream: &mut Stream<'_>,
    dataset: i32,
    claim: &Claim,
) -> Result<PartEnd, ChunkError> {
    let (chunk, count) = (claim.chunk, claim.rows);
    let mut pace = Pace::new(count);
    for (number, rows) in job.work.content.segments(job.chunks.range(chunk)) {
        let table = &job.work.content.tables()[number];
        let parent = qualified(&job.work.dataset.schema_name, table.name);
        stream.session().begin_copy(&copy_command(&parent, table, ""))?;
        stream.send_rows(Numbers::range(rows), &mut pace)?;
        stream.flush(&mut pace)?;
        stream.session().end_copy()?;
    }
    stream.session().settle(0)?;
    stream.session().execute(&ledger::settle_pending_sql(dataset, chunk))?;
    stream.session().execute(&claim.commit_sql(pace.bytes(), None))?;
    Ok(PartEnd::Loaded(count))
}

/// Deletes whatever is there of a chunk that an earlier attempt may have left in part.
pub(crate) fn repair(
    job: &Job<'_>,
    stream: &Stream<'_>,
    rows: &Rows<'_>,
    task: &Task,
) -> Result<(), ChunkError> {
    let (content, leaves) = (job.work.content, job.work.leaves);
    let segments = content.segments(job.chunks.range(task.chunk));
    let mut doubtful: BTreeMap<u16, Doubtful> = BTreeMap::new();
    for &leaf in task.leaves.iter().filter(|leaf| rows.count(**leaf) > 0) {
        let table = leaves.table(usize::from(leaf));
        let of_table = segments.iter().filter(|(number, _)| *number == table);
        let conditions: Option<Vec<String>> =
            of_table.map(|(_, segment)| content.condition(table, segment)).collect();
        let rows = match (conditions, content.tables()[table].placement) {
            (None, Placement::Hash { column, kind }) => {
                let keys = rows.numbers(leaf).map(|row| content.key(row)).collect();
                Doubtful::Keys { column, kind, keys }
            }
            (conditions, _) => Doubtful::Rows(
                conditions.expect("rows that are not placed by hash have a condition").join(" or "),
            ),
        };
        doubtful.insert(leaf, rows);
    }
    let mut attempts = 0;
    loop {
        attempts += 1;
        match delete(job, &doubtful) {
            Ok(deleted) => {
                let message = format!(
                    "chunk {} was loaded in part through the entry node: {deleted} rows of it were deleted, and it is loaded again",
                    task.chunk
                );
                stream.report(record::event::NOTE, message, None);
                return Ok(());
            }
            Err(error) if attempts < REPAIR_ATTEMPTS && (error.is_connection_lost() || is_moving(&error)) => {
                if !stream.pause(shard::LOOK / 10) {
                    return Err(ChunkError::Stopped);
                }
            }
            Err(error) => return Err(ChunkError::Failed(Box::new(error))),
        }
    }
}

/// Whether a leaf was not where the catalog had just shown it.
fn is_moving(error: &LoadError) -> bool {
    let gone = error.sqlstate().is_some_and(|state| matches!(&state.0, b"42P01" | b"42809"));
    gone || matches!(error.innermost(), LoadError::Placement { .. })
}

/// Which rows of a leaf are in doubt.
enum Doubtful {
    /// Those for which this holds.
    Rows(String),
    /// Those with these placement keys.
    Keys { column: &'static str, kind: &'static str, keys: Vec<String> },
}

/// Deletes these rows from the leaves where they are. Returns how many there were.
fn delete(job: &Job<'_>, doubtful: &BTreeMap<u16, Doubtful>) -> Result<u64, LoadError> {
    let mut controls: Vec<Control> = Vec::with_capacity(job.nodes.len());
    let mut found = Vec::with_capacity(job.nodes.len());
    for place in job.nodes {
        let mut control = node_sessions::connect(&place.spec).map_err(|error| error.at(&place.name))?;
        let partitions = shard::partitions(&mut *control, job.work.dataset, job.work.content.tables())
            .map_err(|error| error.at(&place.name))?;
        controls.push(control);
        found.push((place.name.as_str(), partitions));
    }
    let tables = job.work.content.tables();
    let mut owned = shard::ownership(&found, &shard::divided_names(job.work.dataset, tables))?;
    // The copies that other nodes have of a whole table are none of the entry node's business.
    owned[0].extend(shard::whole(job.work.dataset, tables));
    let mut deleted = 0;
    for ((control, place), owned) in controls.iter_mut().zip(job.nodes).zip(&owned) {
        for (leaf, attachment) in owned {
            let Some(doubtful) = doubtful.get(leaf) else { continue };
            let relation =
                attachment.as_ref().map_or_else(|| job.work.leaf(*leaf), |known| known.relation.clone());
            let table = job.work.table_of(*leaf);
            let failed = |source| {
                LoadError::sql(format!("deleting uncertain rows of {}", table.name), source).at(&place.name)
            };
            let mut transaction = control.transaction().map_err(failed)?;
            transaction
                .batch_execute(&format!("lock table only {relation} in share row exclusive mode"))
                .map_err(failed)?;
            let delete = format!("delete from only {relation} where");
            deleted += match doubtful {
                Doubtful::Keys { column, kind, keys } => {
                    let sql = format!("{delete} {column} = any($1::text[]::{kind}[])");
                    transaction.execute(&sql, &[keys]).map_err(failed)?
                }
                Doubtful::Rows(condition) => {
                    transaction.execute(&format!("{delete} {condition}"), &[]).map_err(failed)?
                }
            };
            transaction.commit().map_err(failed)?;
        }
    }
    Ok(deleted)
}

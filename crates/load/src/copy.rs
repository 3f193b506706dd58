//! Method `copy`: chunks of row numbers, any number of streams, one transaction per chunk.
//!
//! ```text
//! begin; insert the ledger row; copy into leaf 0; copy into leaf 1; ... ; commit
//! ```
//!
//! **Exact.** The ledger row and the rows are one transaction. A kill, a crash or a lost connection at any moment leaves both or
//! neither; if the answer to `commit` is lost, the next attempt finds the ledger row and knows. Two loaders on one dataset do
//! no harm: the insert of the second waits for the first and then inserts nothing.
//! Commits wait for the WAL like anybody's: one wait per 96 MB costs nothing, and what the user has seen as safe stays safe.
//!
//! **Free of deadlocks by construction.** A transaction takes its locks in one order: its own ledger row, a share lock on the dataset's
//! row, then leaf tables in ascending order. The ledger row is the only lock that two loaders can want at the same time, and who waits
//! for it holds nothing yet that another could want. The locks on leaf tables (row exclusive) do not exclude each other, there is no
//! unique index yet through which inserts could wait for each other, and commands that do exclude loaders (primary keys, `--restart`)
//! first wait until no chunk is in flight.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::LoadError;
use crate::ledger::Claim;
use crate::options::StopLevel;
use crate::plan::{ChunkSet, Chunks, ROW_VALUE_BYTES};
use crate::route::Buckets;
use crate::stream::{ChunkError, Pace, Stream, Work, copy_command};

/// The chunks that are still to be loaded, handed out once each.
#[derive(Debug)]
pub(crate) struct Queue {
    chunks: Chunks,
    done: ChunkSet,
    next: AtomicU64,
}

impl Queue {
    pub(crate) fn new(chunks: Chunks, done: ChunkSet) -> Queue {
        Queue { chunks, done, next: AtomicU64::new(0) }
    }

    fn take(&self) -> Option<u64> {
        loop {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.chunks.count() {
                return None;
            }
            if !self.done.contains(chunk) {
                return Some(chunk);
            }
        }
    }
}

/// Loads all chunks of the queue with all streams; returns when none is left, the stop was noticed, or with the first error.
pub(crate) fn run(work: &Work<'_>, queue: &Queue) -> Result<(), LoadError> {
    let first_error = Mutex::new(None);
    std::thread::scope(|scope| {
        for index in 0..work.counters.streams.len() {
            let first_error = &first_error;
            scope.spawn(move || {
                let mut stream = Stream::new(work, index);
                if let Err(error) = run_stream(&mut stream, queue) {
                    work.failed.store(true, Ordering::Relaxed);
                    first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
                stream.finish();
            });
        }
    });
    first_error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Loads chunk after chunk.
fn run_stream(stream: &mut Stream<'_>, queue: &Queue) -> Result<(), LoadError> {
    let work = stream.work;
    let mut buckets = Buckets::new(work.route);
    let commands: Vec<String> = work.leaves().iter().map(|leaf| copy_command(leaf, "")).collect();
    // The first connection before the first chunk: what is wrong with it is told before any work.
    while stream.connect()?
        && work.stop_level() == StopLevel::Run
        && let Some(chunk) = queue.take()
    {
        loop {
            match load_chunk(stream, &mut buckets, &commands, queue.chunks, chunk) {
                Ok(rows) => {
                    stream.committed(rows);
                    break;
                }
                Err(error) => {
                    let again = stream.recover(error, &format!("loading chunk {chunk}"))?;
                    if !again || !stream.connect()? {
                        return Ok(());
                    }
                }
            }
        }
    }
    Ok(())
}

/// One chunk, one transaction. Returns its rows, whoever loaded them.
fn load_chunk(
    stream: &mut Stream<'_>,
    buckets: &mut Buckets,
    commands: &[String],
    chunks: Chunks,
    chunk: u64,
) -> Result<u64, ChunkError> {
    let range = chunks.range(chunk);
    let rows = range.end - range.start;
    let claim = Claim {
        dataset: stream.work.dataset.id,
        chunk,
        first_row: range.start,
        rows,
        bytes: rows * ROW_VALUE_BYTES,
        checksum: buckets.fill(&stream.work.table, range),
        stream: stream.index,
    };
    let claimed = stream.session().execute(&format!("begin; {}", claim.insert_sql()))?;
    if claimed.rows == Some(0) {
        // Somebody else has loaded it, or we have and never heard of it.
        stream.session().execute("rollback")?;
        return Ok(rows);
    }
    let mut pace = Pace::new(rows);
    for (leaf, command) in commands.iter().enumerate() {
        if buckets.is_empty(leaf) {
            continue;
        }
        stream.session().begin_copy(command)?;
        stream.send_rows(buckets.rows(leaf), &mut pace)?;
        stream.flush(&mut pace)?;
        stream.session().end_copy()?;
    }
    // Every COPY has to be known to be good before the commit: on a failed transaction it would roll back without an error.
    stream.session().settle(0)?;
    stream.session().execute("commit")?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_hands_out_what_is_missing_once() {
        let chunks = Chunks::of_length(95, 10);
        let mut done = ChunkSet::new(10);
        done.insert(0);
        done.insert(4);
        done.insert(9);
        let queue = Queue::new(chunks, done);
        let taken: Vec<u64> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(taken, [1, 2, 3, 5, 6, 7, 8]);
        assert_eq!(queue.take(), None);
    }
}

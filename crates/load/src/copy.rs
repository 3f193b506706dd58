//! Method `copy`: chunks of row numbers, any number of streams, one transaction per chunk (and node).
//!
//! ```text
//! begin; lock the chunk; insert the ledger row; copy into leaf 0; copy into leaf 1; ... ; commit
//! ```
//!
//! **Exact.** The ledger row and the rows are one transaction. A kill, a crash or a lost connection at any moment leaves both or
//! neither; if the answer to `commit` is lost, the next attempt finds the ledger row and knows.
//! Commits wait for the WAL as usual: one wait per 96 MB costs nothing, and what the user has seen as safe stays safe.
//!
//! **Many loaders** share the chunks of a dataset. A chunk belongs to the session that gets an advisory lock on it, which ends with the transaction,
//! however that ends. No loader waits for it: a chunk that another loader has in its hands is set aside and looked at again when nothing else is left.
//! A chunk that another loader has completed since costs one round trip and no hashing.
//!
//! **On a sharded cluster** a transaction loads the part of a chunk that belongs to one node, see [`crate::dispatch`], and looks, under lock, whether the
//! leaves are still there, see [`crate::shard`].
//!
//! **Free of deadlocks by construction.** A transaction takes its locks in one order: the advisory lock on its chunk (which it only tries), its own
//! ledger row, a share lock on the dataset's row, the parent table, then leaf tables in ascending order. The locks on leaf tables
//! (row exclusive) do not exclude each other, there is no unique index yet through which inserts could wait for each other, and commands
//! that do exclude loaders (primary keys, `--restart`) first wait until no chunk is in flight. No transaction spans two nodes, but for
//! those of `--via connect`, which all take the same way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use engines::lock::Key;

use crate::contention::Contention;
use crate::dispatch::{Dispatcher, Next, Task};
use crate::error::LoadError;
use crate::job::{Job, PartEnd, Replan, Rows};
use crate::ledger::{Claim, lock};
use crate::options::StopLevel;
use crate::pace::Pace;
use crate::route::Buckets;
use crate::session::SessionError;
use crate::shard;
use crate::stream::{ChunkError, Stream, copy_command};
use crate::via;

/// How long a stream without work waits before it looks again, unless it is woken.
const IDLE_WAIT: Duration = Duration::from_millis(100);

/// Loads everything the dispatcher has with all streams; returns when nothing is left, the stop was noticed, or with the first error.
pub(crate) fn run(job: &Job<'_>, replan: &mut Replan<'_>) -> Result<(), LoadError> {
    let first_error = Mutex::new(None);
    let fail = |error| {
        job.work.failed.store(true, Ordering::Relaxed);
        first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    };
    let count = job.work.counters.streams.len();
    let at_work = AtomicUsize::new(count);
    std::thread::scope(|scope| {
        let streams: Vec<_> = (0..count)
            .map(|index| {
                let (fail, at_work) = (&fail, &at_work);
                scope.spawn(move || {
                    let _left = Left(at_work, job.dispatcher);
                    let node = index % job.places.len();
                    let place = &job.entries[index % job.entries.len()];
                    let mut stream =
                        Stream::at(job.work, index, &place.spec, &place.name).entering(job.entries_of(node));
                    if let Err(error) = run_stream(job, &mut stream, node) {
                        fail(error.at(&place.name));
                    }
                    stream.finish();
                })
            })
            .collect();
        loop {
            let seen = job.dispatcher.seen();
            if at_work.load(Ordering::Acquire) == 0 {
                break;
            }
            if job.dispatcher.is_stale()
                && job.work.stop_level() == StopLevel::Run
                && let Err(error) = job.follow(replan)
            {
                fail(error);
            }
            job.dispatcher.wait(seen, IDLE_WAIT);
        }
        for stream in streams {
            stream.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    first_error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Reports that a stream has ended, also when it ends by a panic.
struct Left<'a>(&'a AtomicUsize, &'a Dispatcher);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
        self.1.wake();
    }
}

/// Loads part after part of one node.
fn run_stream(job: &Job<'_>, stream: &mut Stream<'_>, node: usize) -> Result<(), LoadError> {
    let work = job.work;
    let mut buckets = Buckets::new(work.leaves);
    let mut contended: HashMap<u64, Contention> = HashMap::new();
    let name = |chunk: u64| match job.places[node].name.as_str() {
        "" => format!("loading chunk {chunk}"),
        name => format!("loading chunk {chunk} into {name}"),
    };
    // The first connection before the first chunk: what is wrong with it is reported before any work.
    while stream.connect()? && work.stop_level() == StopLevel::Run {
        let task = match job.dispatcher.next(node, Instant::now()) {
            Next::Task(task) => task,
            Next::Wait(seen) => {
                work.set_idle(node, job.dispatcher.todo()[node] == 0);
                job.dispatcher.wait(seen, IDLE_WAIT);
                continue;
            }
            Next::End => break,
        };
        work.set_idle(node, false);
        let chunk = task.chunk;
        let end = loop {
            match load_part(job, stream, &mut buckets, node, &task) {
                Ok(end) => break end,
                Err(error) => {
                    let again =
                        stream.recover(error, &name(chunk)).and_then(|again| Ok(again && stream.connect()?));
                    if !matches!(again, Ok(true)) {
                        job.dispatcher.end(node, chunk, Some(&[]));
                        return again.map(|_| ());
                    }
                }
            }
        };
        let dispatcher = job.dispatcher;
        match end {
            PartEnd::Loaded(rows) => {
                stream.committed(rows);
                dispatcher.end(node, chunk, Some(&task.leaves));
            }
            PartEnd::There => {
                let range = job.chunks.range(chunk);
                let leaves = work.content.leaves_of(range.clone(), work.leaves);
                let leaves = leaves.map_or(work.leaves.count(), |leaves| leaves.len()).max(1);
                let share = work.content.count(range) * task.leaves.len().min(leaves) as u64 / leaves as u64;
                stream.found(share);
                dispatcher.end(node, chunk, Some(&task.leaves));
            }
            PartEnd::Busy => {
                dispatcher.set_aside(node, chunk, Instant::now());
                let key = Key::One(lock::chunk(job.places[node].dataset, chunk));
                let wait = || Contention::begin("a chunk", key);
                stream.refuse_non_loader(contended.entry(chunk).or_insert_with(wait))?;
            }
            PartEnd::Stale => {
                dispatcher.end(node, chunk, Some(&[]));
                dispatcher.set_stale();
            }
        }
    }
    work.set_idle(node, true);
    Ok(())
}

/// The statements that begin a part: the lock on the chunk (one row when it is ours), ledger rows that have all of it, and those that have some of
/// it. The lock comes first: no other session can change what is seen after it.
fn claim_sql(dataset: i32, task: &Task, in_parts: bool) -> String {
    let (chunk, key) = (task.chunk, lock::chunk(dataset, task.chunk));
    let leaves: Vec<String> = task.leaves.iter().map(u16::to_string).collect();
    let (all, some) = match in_parts {
        true => {
            let listed = format!("'{{{}}}'::smallint[]", leaves.join(","));
            (format!(" and (leaves is null or leaves @> {listed})"), format!(" and leaves && {listed}"))
        }
        false => (String::new(), String::new()),
    };
    let found = format!("select from pgfathom.chunk where dataset = {dataset} and chunk = {chunk}");
    format!(
        "begin; select from (select pg_try_advisory_xact_lock({key}) as ours) as l where ours; {found}{all} limit 1; {found}{some} limit 1"
    )
}

/// One part, one transaction.
fn load_part(
    job: &Job<'_>,
    stream: &mut Stream<'_>,
    buckets: &mut Buckets,
    node: usize,
    task: &Task,
) -> Result<PartEnd, ChunkError> {
    let (work, dataset) = (job.work, job.places[node].dataset);
    let in_parts = job.in_parts(node);
    let doubtful = job.by_entry(node) && via::note(stream, dataset, task.chunk)?;
    let mut claim = claim_sql(dataset, task, in_parts);
    if job.layout.unlogged {
        claim.push_str(&format!("; select from pgfathom.unlogged where dataset = {dataset}"));
    }
    let [ours, all, some, intact] = stream.session().execute(&claim)?.counts;
    if let Some(end) = end_of_claim(ours, all, some) {
        stream.session().execute("rollback")?;
        return Ok(end);
    }
    if job.layout.unlogged && intact == 0 {
        return Err(ChunkError::Emptied);
    }
    let range = job.chunks.range(task.chunk);
    let rows = match &task.sorted {
        Some(sorted) => Rows::Shared(sorted),
        None => {
            buckets.fill(work.content, range.clone());
            job.dispatcher.share(node, task.chunk, |leaves| buckets.sorted(leaves));
            Rows::Own(buckets)
        }
    };
    let count: u64 = task.leaves.iter().map(|leaf| rows.count(*leaf)).sum();
    let claim = Claim {
        dataset,
        chunk: task.chunk,
        first_row: work.content.first_row(&range),
        rows: count,
        bytes: task.leaves.iter().map(|leaf| rows.bytes(*leaf)).sum(),
        checksum: task.leaves.iter().map(|leaf| rows.checksum(*leaf)).fold(0, u64::wrapping_add),
        stream: stream.index,
    };
    if let Some(end) = enter(stream, &claim, task, in_parts)? {
        stream.session().execute("rollback")?;
        return Ok(end);
    }
    if job.by_entry(node) {
        if doubtful {
            via::repair(job, stream, &rows, task)?;
        }
        return via::send(job, stream, dataset, &claim);
    }
    let mut pace = Pace::new(count);
    for &leaf in task.leaves.iter().filter(|leaf| rows.count(**leaf) > 0) {
        stream.session().begin_copy(&copy_command(&job.target(task, leaf), work.table_of(leaf), ""))?;
        stream.send_rows(rows.numbers(leaf), &mut pace)?;
        stream.flush(&mut pace)?;
        stream.session().end_copy()?;
    }
    // Every COPY has to be known to be good before the commit: on a failed transaction it would roll back without an error.
    stream.session().settle(0)?;
    let leaf = task.leaves.first().copied().filter(|_| in_parts);
    stream.session().execute(&claim.commit_sql(pace.bytes(), leaf))?;
    Ok(PartEnd::Loaded(count))
}

/// Why a part is not loaded now; `None`: it is ours to load.
fn end_of_claim(ours: u64, all: u64, some: u64) -> Option<PartEnd> {
    match (ours, all, some) {
        (0, ..) => Some(PartEnd::Busy),
        (_, 0, 0) => None,
        (_, 0, _) => Some(PartEnd::Stale),
        _ => Some(PartEnd::There),
    }
}

/// Inserts the ledger row of a chunk or a part; `Some`: it is not ours to load after all.
fn enter(
    stream: &mut Stream<'_>,
    claim: &Claim,
    task: &Task,
    in_parts: bool,
) -> Result<Option<PartEnd>, ChunkError> {
    if in_parts {
        return Ok(if hold(stream, claim, task)? { None } else { Some(PartEnd::Stale) });
    }
    // An older pgfathom, which does not take the lock, may have been faster.
    let is_new = stream.session().execute(&claim.insert_sql())?.rows != Some(0);
    Ok(if is_new { None } else { Some(PartEnd::There) })
}

/// Inserts the ledger row of a part, and keeps its leaves where they are; `false`: the plan is not true any more.
fn hold(stream: &mut Stream<'_>, claim: &Claim, task: &Task) -> Result<bool, ChunkError> {
    // A table that every node has whole is no node's partition.
    let attachments = task.leaves.iter().filter_map(|leaf| task.owned.get(leaf)?.as_ref());
    let divided = attachments.clone().count() as u64;
    let hold = if divided > 0 { shard::hold_sql(attachments, true) } else { String::new() };
    match stream.session().execute(&format!("{}; {hold}", claim.insert_leaves_sql(&task.leaves))) {
        Ok(held) => Ok(held.counts[..2] == [1, divided]),
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether the error means that a leaf is not a table here any more: no such table, or one of another kind.
pub(crate) fn is_gone(error: &SessionError) -> bool {
    matches!(error, SessionError::Server(error) if matches!(&error.sqlstate.0, b"42P01" | b"42809"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_chunk_is_locked_before_the_ledger_is_read() {
        let task = Task { chunk: 7, leaves: Arc::new([1, 4]), owned: Arc::default(), sorted: None };
        let key = lock::chunk(3, 7);
        let whole = claim_sql(3, &task, false);
        let of_chunk = "select from pgfathom.chunk where dataset = 3 and chunk = 7";
        assert_eq!(
            whole,
            format!(
                "begin; select from (select pg_try_advisory_xact_lock({key}) as ours) as l where ours; {of_chunk} limit 1; {of_chunk} limit 1"
            )
        );
        let part = claim_sql(3, &task, true);
        assert!(part.contains("(leaves is null or leaves @> '{1,4}'::smallint[])"), "{part}");
        assert!(part.ends_with("leaves && '{1,4}'::smallint[] limit 1"), "{part}");
    }
}

//! Method `freeze`: leaf by leaf, each truncated, filled and frozen in one transaction.
//!
//! ```text
//! begin; insert the ledger row; truncate leaf; copy into leaf (freeze); fill in the ledger row; commit
//! ```
//!
//! PostgreSQL freezes rows as it writes them when the table was truncated in the same transaction (`CopyFrom` in
//! `src/backend/commands/copyfrom.c`): no vacuum has to read and write the table again to freeze it, and with
//! `wal_level = minimal` the rows are not written to the WAL at all. The price is that a leaf is one transaction of one connection: a
//! killed load repeats the leaves that were in flight, and a table without partitions is filled by one stream. A crash of the
//! server itself also leaves the files of those leaves behind, which no server process knows any more (as after any crash in
//! the middle of a transaction that made new files).
//!
//! **Waves.** Which rows belong to a leaf is known only after hashing all keys, as a hash cannot be run backwards. If every leaf did
//! that by itself, a table of P partitions would cost P hashes per row: 70 partitions 5 us, several times the price of making the
//! row. So the streams work through the leaves in waves, one leaf per stream, and share one pass over the row numbers: the stream that has
//! nothing to send takes the next block of row numbers, hashes it and hands each stream the rows of its leaf. That is P/j hashes per
//! row, spread over j streams. More leaves at once would cost fewer hashes and a larger loss when the load is killed.
//!
//! A leaf gets its blocks in order, so the rows of a leaf are in ascending order of row number, on either way of hashing.
//!
//! **Two loaders** on one dataset share the leaves: a leaf is claimed with an advisory lock that no loader waits for. Waiting could hold
//! up a wave that in turn holds up the other loader's.
//!
//! **On a cluster** a wave has leaves of all nodes, each filled by a stream of its node, and still one pass over the row numbers serves them
//! all. A leaf that has moved is noticed under the lock of its transaction ([`crate::shard`]) and planned anew after the wave.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engines::lock::Key;

use crate::contention::Contention;
use crate::copy::is_gone;
use crate::dataset::{Dataset, Leaves};
use crate::dispatch::{Attachment, Owned};
use crate::error::LoadError;
use crate::job::{Job, Replan};
use crate::ledger::{Claim, lock};
use crate::options::StopLevel;
use crate::pace::Pace;
use crate::route::{Buckets, Sorted};
use crate::session::SessionError;
use crate::shard;
use crate::stream::{ChunkError, Stream, copy_command};

/// Row numbers that are hashed in one go: some milliseconds of work.
const BLOCK_ROWS: u64 = 1 << 16;

/// Blocks that may be hashed ahead of the slowest stream. Bounds the memory of a wave: 4 bytes per row of them.
const BLOCKS_AHEAD_MAX: u64 = 16;

/// A stream that waits for others looks this often whether it shall stop.
const STOP_LOOK: Duration = Duration::from_millis(100);

/// The pause before leaves that another loader works on are looked at again.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Where a stream's leaf stands in its wave.
///
/// | state | next | when |
/// |---|---|---|
/// | `Claiming` | `Live` | the leaf is claimed, truncated and its COPY is open |
/// | `Claiming` | `Over` | the leaf is loaded already, busy, or claiming failed |
/// | `Live` | `Over` | its last block is sent, or the stream has failed or stopped |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SlotState {
    /// No block is hashed while any slot is in this state: its rows would be lost.
    Claiming,
    /// Gets blocks.
    Live,
    /// Gets nothing any more.
    Over,
}

#[derive(Debug)]
struct Slot {
    state: SlotState,
    /// Its rows of blocks, by block number.
    batches: BTreeMap<u64, Arc<Sorted>>,
    /// The block it needs next.
    next: u64,
}

#[derive(Debug)]
struct Board {
    slots: Vec<Slot>,
    /// The block to be hashed next.
    next_block: u64,
}

/// One pass over all row numbers for the leaves of some streams.
#[derive(Debug)]
struct Wave<'a> {
    dataset: &'a dyn Dataset,
    leaves: Leaves,
    rows: u64,
    /// The slots of each leaf that takes part: several where several nodes are filled with it.
    slots_of: Vec<Vec<u16>>,
    board: Mutex<Board>,
    changed: Condvar,
}

impl<'a> Wave<'a> {
    fn new(dataset: &'a dyn Dataset, leaves: Leaves, chosen: &[usize]) -> Wave<'a> {
        let mut slots_of = vec![Vec::new(); leaves.count()];
        for (slot, &leaf) in chosen.iter().enumerate() {
            slots_of[leaf].push(slot as u16);
        }
        let slot = |_| Slot { state: SlotState::Claiming, batches: BTreeMap::new(), next: 0 };
        let board = Mutex::new(Board { slots: chosen.iter().map(slot).collect(), next_block: 0 });
        Wave { dataset, leaves, rows: dataset.numbers(), slots_of, board, changed: Condvar::new() }
    }

    fn blocks(&self) -> u64 {
        self.rows.div_ceil(BLOCK_ROWS)
    }

    /// A panic of another stream leaves nothing half done here: every change of the board is one assignment or insertion.
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, slot: usize, state: SlotState) {
        let mut board = self.board();
        board.slots[slot].state = state;
        board.slots[slot].batches.clear();
        self.changed.notify_all();
    }

    /// The rows of a slot in its next block, hashing blocks for everybody while there is none. `None` after the last
    /// block, or when `give_up` is true.
    fn next(&self, slot: usize, give_up: &dyn Fn() -> bool) -> Option<Arc<Sorted>> {
        let mut board = self.board();
        loop {
            let wanted = board.slots[slot].next;
            if let Some(batch) = board.slots[slot].batches.remove(&wanted) {
                board.slots[slot].next += 1;
                self.changed.notify_all();
                return Some(batch);
            }
            if wanted == self.blocks() || give_up() {
                return None;
            }
            let claiming = board.slots.iter().any(|slot| slot.state == SlotState::Claiming);
            let live = board.slots.iter().filter(|slot| slot.state == SlotState::Live);
            let slowest = live.map(|slot| slot.next).min().unwrap_or(0);
            let block = board.next_block;
            if claiming || block == self.blocks() || block >= slowest + BLOCKS_AHEAD_MAX {
                let waited = self.changed.wait_timeout(board, STOP_LOOK);
                board = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            board.next_block += 1;
            drop(board);
            let batches = self.hash(block);
            board = self.board();
            for (leaf, batch) in batches {
                for &slot in &self.slots_of[leaf] {
                    let slot = &mut board.slots[usize::from(slot)];
                    if slot.state == SlotState::Live {
                        slot.batches.insert(block, batch.clone());
                    }
                }
            }
            self.changed.notify_all();
        }
    }

    /// Sorts the rows of a block by leaf, for the leaves that take part.
    fn hash(&self, block: u64) -> Vec<(usize, Arc<Sorted>)> {
        let first = block * BLOCK_ROWS;
        let mut buckets = Buckets::new(self.leaves);
        buckets.fill(self.dataset, first..self.rows.min(first + BLOCK_ROWS));
        (0..self.slots_of.len())
            .filter(|leaf| !self.slots_of[*leaf].is_empty())
            .map(|leaf| (leaf, Arc::new(buckets.sorted(&[leaf as u16]))))
            .collect()
    }
}

/// Ends a slot whatever happens to its thread, so that no other slot waits for it.
struct SlotGuard<'a> {
    wave: &'a Wave<'a>,
    slot: usize,
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        self.wave.set(self.slot, SlotState::Over);
    }
}

/// What became of a leaf in a wave.
#[derive(Debug)]
enum LeafEnd {
    /// It is in the ledger, with this many rows sent by us.
    Loaded(u64),
    /// Another loader has put it there.
    There,
    /// Another loader works on it, or another session has it locked.
    Busy,
    /// It is not on this node any more.
    Moved,
}

/// A leaf that a stream fills in a wave.
#[derive(Clone, Debug)]
struct Slotted {
    node: usize,
    leaf: usize,
    owned: Arc<Owned>,
}

/// Loads leaves until none is left or the stop is noticed.
pub(crate) fn run(job: &Job<'_>, replan: &mut Replan<'_>) -> Result<(), LoadError> {
    let work = job.work;
    let nodes = job.places.len();
    let mut streams: Vec<Stream<'_>> = (0..work.counters.streams.len())
        .map(|index| {
            let place = &job.places[index % nodes];
            Stream::at(work, index, &place.spec, &place.name)
        })
        .collect();
    let plan = || -> Vec<VecDeque<usize>> {
        (0..nodes)
            .map(|node| job.dispatcher.chunks(node).iter().map(|leaf| *leaf as usize).collect())
            .collect()
    };
    let mut todo = plan();
    let mut result = Ok(());
    let mut contended: HashMap<usize, Contention> = HashMap::new();
    while result.is_ok() && work.stop_level() == StopLevel::Run {
        if job.dispatcher.is_stale() {
            result = job.follow(replan);
            todo = plan();
            continue;
        }
        let owned = job.dispatcher.owned();
        // Each stream takes a leaf of its node, if there is one.
        let (mut chosen, mut workers) = (Vec::new(), Vec::new());
        for (index, stream) in streams.iter_mut().enumerate() {
            let node = index % nodes;
            work.set_idle(node, todo[node].is_empty());
            if let Some(leaf) = todo[node].pop_front() {
                chosen.push(Slotted { node, leaf, owned: Arc::clone(&owned[node]) });
                workers.push(stream);
            }
        }
        if chosen.is_empty() {
            break;
        }
        let ends = load_wave(job, workers, &chosen);
        let mut all_busy = true;
        for (Slotted { node, leaf, .. }, end) in chosen.into_iter().zip(ends) {
            all_busy &= matches!(end, Ok(LeafEnd::Busy));
            match end {
                Ok(LeafEnd::Loaded(_) | LeafEnd::There) => job.dispatcher.end_leaf(node, leaf as u64),
                Ok(LeafEnd::Busy) => {
                    let key = Key::One(lock::leaf(job.places[node].dataset, leaf as u64));
                    let wait = contended.entry(leaf).or_insert_with(|| Contention::begin("a partition", key));
                    if let Some(stream) = streams.get(node) {
                        result = result.and(stream.refuse_non_loader(wait));
                    }
                    todo[node].push_back(leaf);
                }
                Ok(LeafEnd::Moved) => job.dispatcher.set_stale(),
                Err(LeafFailure::Again) => todo[node].push_front(leaf),
                Err(LeafFailure::Stopped) => {}
                Err(LeafFailure::Failed(error)) => result = result.and(Err(error.at(&job.places[node].name))),
            }
        }
        if all_busy && let Some(stream) = streams.first() {
            stream.pause(BUSY_PAUSE);
        }
    }
    streams.into_iter().for_each(Stream::finish);
    result
}

/// Loads these leaves at the same time, each through its stream.
fn load_wave(
    job: &Job<'_>,
    workers: Vec<&mut Stream<'_>>,
    chosen: &[Slotted],
) -> Vec<Result<LeafEnd, LeafFailure>> {
    let leaves: Vec<usize> = chosen.iter().map(|slotted| slotted.leaf).collect();
    let wave = Wave::new(job.work.content, job.work.leaves, &leaves);
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .zip(chosen)
            .enumerate()
            .map(|(slot, (stream, slotted))| {
                let wave = &wave;
                scope.spawn(move || run_leaf(job, stream, wave, slot, slotted))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Why a leaf is not loaded.
#[derive(Debug)]
enum LeafFailure {
    /// A later wave shall try it again.
    Again,
    /// The stop was noticed.
    Stopped,
    /// The load is over.
    Failed(LoadError),
}

fn run_leaf(
    job: &Job<'_>,
    stream: &mut Stream<'_>,
    wave: &Wave<'_>,
    slot: usize,
    slotted: &Slotted,
) -> Result<LeafEnd, LeafFailure> {
    let _guard = SlotGuard { wave, slot };
    let failed = |stream: &Stream<'_>, error| {
        stream.work.failed.store(true, Ordering::Relaxed);
        LeafFailure::Failed(error)
    };
    match stream.connect() {
        Ok(true) => {}
        Ok(false) => return Err(LeafFailure::Stopped),
        Err(error) => return Err(failed(stream, error)),
    }
    match load_leaf(job, stream, wave, slot, slotted) {
        Ok(end) => {
            match end {
                LeafEnd::Loaded(rows) => stream.committed(rows),
                LeafEnd::There => stream.found(stream.work.share_of(slotted.leaf as u16)),
                LeafEnd::Busy | LeafEnd::Moved => {}
            }
            Ok(end)
        }
        Err(error) => {
            // The others shall not wait while this stream rolls back.
            wave.set(slot, SlotState::Over);
            match stream.recover(error, &format!("loading leaf {}", slotted.leaf)) {
                Ok(true) => Err(LeafFailure::Again),
                Ok(false) => Err(LeafFailure::Stopped),
                Err(error) => Err(failed(stream, error)),
            }
        }
    }
}

/// The statement that claims a leaf: 1 row when it is ours now.
fn claim_sql(claim: &Claim) -> String {
    let key = lock::leaf(claim.dataset, claim.chunk);
    format!("begin; {}", claim.insert_where_sql(&format!("pg_try_advisory_xact_lock({key})")))
}

/// Locks where the leaf is attached; gives the end of the attempt if that is impossible now.
fn lock_attachment(stream: &mut Stream<'_>, attachment: &Attachment) -> Result<Option<LeafEnd>, ChunkError> {
    // The other streams of the wave wait for this one, and one of them may have what the holder of the lock waits for on its node.
    let hold = shard::hold_sql(std::iter::once(attachment), false);
    Ok(match stream.session().execute(&hold) {
        Ok(held) if held.rows == Some(1) => None,
        Ok(_) => Some(LeafEnd::Moved),
        Err(error) if is_gone(&error) => Some(LeafEnd::Moved),
        Err(SessionError::Server(error)) if &error.sqlstate.0 == b"55P03" => Some(LeafEnd::Busy),
        Err(error) => return Err(error.into()),
    })
}

/// One leaf, one transaction.
fn load_leaf(
    job: &Job<'_>,
    stream: &mut Stream<'_>,
    wave: &Wave<'_>,
    slot: usize,
    slotted: &Slotted,
) -> Result<LeafEnd, ChunkError> {
    let (work, leaf, dataset) = (stream.work, slotted.leaf, job.places[slotted.node].dataset);
    let mut claim = Claim {
        dataset,
        chunk: leaf as u64,
        first_row: 0,
        rows: 0,
        bytes: 0,
        checksum: 0,
        stream: stream.index,
    };
    if stream.session().execute(&claim_sql(&claim))?.rows != Some(1) {
        let found = stream
            .session()
            .execute(&format!("select from pgfathom.chunk where dataset = {dataset} and chunk = {leaf}"))?;
        stream.session().execute("rollback")?;
        return Ok(if found.rows == Some(1) { LeafEnd::There } else { LeafEnd::Busy });
    }
    if job.layout.unlogged {
        let intact = format!("select from pgfathom.unlogged where dataset = {dataset}");
        if stream.session().execute(&intact)?.rows != Some(1) {
            return Err(ChunkError::Emptied);
        }
    }
    let attachment = slotted.owned.get(&(leaf as u16)).and_then(Option::as_ref);
    if let Some(attachment) = attachment
        && let Some(end) = lock_attachment(stream, attachment)?
    {
        stream.session().execute("rollback")?;
        return Ok(end);
    }
    let number = leaf as u16;
    let name = attachment.map_or_else(|| work.leaf(number), |attachment| attachment.relation.clone());
    stream.session().execute(&format!("truncate table only {name}"))?;
    stream.session().begin_copy(&copy_command(&name, work.table_of(number), ", freeze"))?;
    wave.set(slot, SlotState::Live);

    // The leaf's share is not known before the end; it only guesses how long the rest takes.
    let mut pace = Pace::new(work.share_of(number));
    let give_up = || work.stop_level() == StopLevel::Now;
    while let Some(batch) = wave.next(slot, &give_up) {
        claim.rows += batch.len();
        claim.bytes += batch.bytes(number);
        claim.checksum = claim.checksum.wrapping_add(batch.checksum(number));
        stream.send_rows(batch.rows(number), &mut pace)?;
    }
    if give_up() {
        return Err(ChunkError::Stopped);
    }
    stream.flush(&mut pace)?;
    stream.session().end_copy()?;
    stream.session().settle(0)?;
    stream.session().execute(&Claim { bytes: claim.bytes + pace.bytes(), ..claim }.update_sql())?;
    stream.session().execute("commit")?;
    Ok(LeafEnd::Loaded(claim.rows))
}

#[cfg(test)]
mod tests;

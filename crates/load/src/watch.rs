//! Runs beside the load: one thread and one connection per node, which writes the history, checks whether partitions have moved, and
//! applies the stop rules. It waits for no stream and no stream waits for it: a node that hangs delays only its own watcher.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use connect::ConnSpec;
use connect::control::Control;
use record::number;

use crate::dataset::Table;
use crate::dispatch::{Dispatcher, Owned};
use crate::error::LoadError;
use crate::ledger::{self, Dataset, HISTORY_INTERVAL, HistoryRow};
use crate::node_sessions::{self, NodeSession};
use crate::options::{Deadline, Stop, StopLevel};
use crate::progress::Counters;
use crate::shard;
use crate::space::Disks;

/// How often a watcher looks at the clock.
const CLOCK_LOOK: Duration = Duration::from_millis(100);

/// How often the free space is looked at. A disk that takes 2 GB/s loses as much in that time.
const SPACE_LOOK: Duration = Duration::from_secs(1);

/// How often the slots of subscribers are looked at. A chunk in flight per stream is all that is written in that time.
const SLOT_LOOK: Duration = Duration::from_secs(1);

/// A node pauses when less than this share of `max_slot_wal_keep_size` is left to one of its slots; beyond that the slot is lost, and with it the
/// subscription.
const SLOT_PAUSE_SHARE: f64 = 0.5;

/// It goes on when this share is left again.
const SLOT_RESUME_SHARE: f64 = 0.75;

/// What the history calls a server that has no other name.
const ALONE: &str = "single";

/// A node that is watched.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) spec: ConnSpec,
    pub(crate) dataset: Dataset,
    /// How its disks are watched, when a rule is about them.
    pub(crate) disks: Option<Disks>,
}

/// What watchers watch.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    pub(crate) sites: &'a [Site],
    pub(crate) tables: &'a [Table],
    pub(crate) counters: &'a Counters,
    pub(crate) dispatcher: &'a Dispatcher,
    /// Leaves can move from node to node.
    pub(crate) follow: bool,
    /// Subscribers read the WAL that the load writes, although it holds nothing for them.
    pub(crate) subscribed: bool,
    pub(crate) keep_free_bytes: Option<u64>,
    pub(crate) deadline: Option<(Instant, String)>,
    pub(crate) stop: &'a Stop,
    /// Rows are being loaded.
    pub(crate) copying: AtomicBool,
    over: Mutex<bool>,
    ended: Condvar,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        sites: &'a [Site],
        tables: &'a [Table],
        counters: &'a Counters,
        dispatcher: &'a Dispatcher,
        stop: &'a Stop,
    ) -> Watch<'a> {
        Watch {
            sites,
            tables,
            counters,
            dispatcher,
            follow: false,
            subscribed: false,
            keep_free_bytes: None,
            deadline: None,
            stop,
            copying: AtomicBool::new(true),
            over: Mutex::new(false),
            ended: Condvar::new(),
        }
    }

    /// Watches while `work` is done. Before it returns, what is left of the history is written.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            let loader = crate::schema::random_token();
            for node in 0..self.sites.len() {
                scope.spawn(move || Watcher::new(self, node, loader).run());
            }
            let over = Over(self);
            let result = work();
            drop(over);
            result
        })
    }

    /// Waits a moment; `true` when the load is over.
    fn wait(&self) -> bool {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ended.wait_timeout_while(over, CLOCK_LOOK, |over| !*over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Ends the watchers, also when the work ends by a panic.
struct Over<'a, 'b>(&'a Watch<'b>);

impl Drop for Over<'_, '_> {
    fn drop(&mut self) {
        *self.0.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.ended.notify_all();
    }
}

struct Watcher<'a> {
    watch: &'a Watch<'a>,
    node: usize,
    loader: i64,
    control: Option<Control>,
    /// The last attempt to connect failed.
    away: bool,
    /// Rows that are in the history.
    written: u64,
    since: Instant,
}

impl<'a> Watcher<'a> {
    fn new(watch: &'a Watch<'a>, node: usize, loader: i64) -> Watcher<'a> {
        Watcher { watch, node, loader, control: None, away: false, written: 0, since: Instant::now() }
    }

    fn site(&self) -> &'a Site {
        &self.watch.sites[self.node]
    }

    fn run(mut self) {
        let begun = Instant::now();
        let (mut next_history, mut next_look) = (begun + HISTORY_INTERVAL, begun + shard::LOOK);
        let (mut next_space, mut next_slots) = (begun + SPACE_LOOK, begun + SLOT_LOOK);
        while !self.watch.wait() {
            let now = Instant::now();
            if let Some((deadline, written)) = &self.watch.deadline
                && now >= *deadline
                && self.watch.stop.level() == StopLevel::Run
            {
                self.watch.stop.request_because(format!("the deadline has passed ({written})"));
            }
            if now >= next_look {
                next_look = now + shard::LOOK;
                self.look();
            }
            if now >= next_space {
                next_space = now + SPACE_LOOK;
                self.space();
            }
            if now >= next_slots {
                next_slots = now + SLOT_LOOK;
                self.slots();
            }
            if now >= next_history {
                next_history += HISTORY_INTERVAL;
                self.history();
            }
        }
        // The load does not wait for a server that is away.
        if !self.away {
            self.history();
        }
    }

    /// Does something on the connection. A server that cannot be reached now is tried again next time; the streams report what is
    /// wrong with it.
    fn ask<T>(&mut self, question: impl FnOnce(&mut Control) -> Result<T, LoadError>) -> Option<T> {
        if self.control.as_ref().is_none_or(|control| control.is_closed()) {
            self.control = node_sessions::connect(&self.site().spec).ok();
            self.away = self.control.is_none();
        }
        let answer = question(self.control.as_mut()?);
        if answer.as_ref().is_err_and(LoadError::is_connection_lost) {
            self.control = None;
        }
        answer.ok()
    }

    /// Whether the node's own leaves are those of the plan.
    fn look(&mut self) {
        let watch = self.watch;
        if !watch.follow || !watch.copying.load(Ordering::Relaxed) || watch.dispatcher.is_stale() {
            return;
        }
        let dataset = &self.site().dataset;
        let Some(partitions) = self.ask(|control| {
            shard::within(control, shard::LOCK_LIMIT, |client| {
                shard::partitions(client, dataset, watch.tables)
            })
        }) else {
            return;
        };
        let found: Owned = partitions
            .into_iter()
            .filter(|partition| partition.local)
            .map(|partition| (partition.leaf, Some(partition.attachment)))
            .collect();
        // Tables that every node has whole do not move.
        let is_found = |owned: &Arc<Owned>| {
            let divided = owned.iter().filter(|(_, attachment)| attachment.is_some());
            divided.eq(found.iter())
        };
        if watch.dispatcher.owned().get(self.node).is_some_and(|owned| !is_found(owned)) {
            watch.dispatcher.set_stale();
        }
    }

    /// Whether subscribers keep up with the WAL: a slot that falls behind by `max_slot_wal_keep_size` is lost.
    fn slots(&mut self) {
        let watch = self.watch;
        if !watch.subscribed || !watch.copying.load(Ordering::Relaxed) {
            return;
        }
        let share = self.ask(|control| {
            let row = control.query_one(
                "select min(safe_wal_size / (pg_size_bytes(current_setting('max_slot_wal_keep_size')) + 1.0))::float8
                 from pg_replication_slots where slot_type = 'logical' and database = current_database()",
                &[],
            );
            row.map(|row| row.get::<_, Option<f64>>(0)).map_err(|source| LoadError::sql("reading the slots", source))
        });
        // Without a limit no slot is ever lost.
        let Some(Some(share)) = share else { return };
        if share < SLOT_PAUSE_SHARE {
            watch.dispatcher.set_paused(self.node, true);
        } else if share > SLOT_RESUME_SHARE {
            watch.dispatcher.set_paused(self.node, false);
        }
    }

    /// Whether enough space is free.
    fn space(&mut self) {
        let site = self.site();
        let (Some(keep), Some(disks)) = (self.watch.keep_free_bytes, &site.disks) else { return };
        let Some(free) = self.ask(|control| disks.least_free(control)) else { return };
        if free.bytes < keep {
            self.watch.stop.request_because(too_little(&site.name, &free.directory, free.bytes, keep));
        }
    }

    /// Writes what was committed on this node since the last time.
    fn history(&mut self) {
        let (watch, site) = (self.watch, self.site());
        let rows = match watch.counters.nodes.len() {
            0 => watch.counters.committed_rows(),
            nodes if self.node < nodes => watch.counters.committed_on(self.node),
            _ => 0,
        };
        let new = rows - self.written;
        if new == 0 && !watch.copying.load(Ordering::Relaxed) {
            return;
        }
        let row = HistoryRow {
            dataset: site.dataset.id,
            node: if site.name.is_empty() { ALONE } else { &site.name },
            loader: self.loader,
            interval: self.since.elapsed(),
            rows: new,
            bytes: new * watch.counters.row_bytes,
            streams: watch.counters.connected_to(self.node),
        };
        if self.ask(|control| ledger::append_history(&mut **control, &row)).is_some() {
            self.written = rows;
            self.since = Instant::now();
        }
    }
}

/// Why a load ends for want of space.
pub(crate) fn too_little(node: &str, directory: &str, free_bytes: u64, keep_bytes: u64) -> String {
    let place = if node.is_empty() { directory.to_owned() } else { format!("{directory} of {node}") };
    format!(
        "only {} are free on the disk of {place}, but --keep-free requires {}",
        number::bytes(free_bytes as f64),
        number::bytes(keep_bytes as f64)
    )
}

/// Refuses a load that has not begun on a node where too little is free already, or where it is unknown. One that has begun continues or stops
/// by itself: it may have nothing left to write.
pub(crate) fn check_disks(
    member: &mut NodeSession,
    dataset: &str,
    tablespaces: &[String],
    keep_free_bytes: u64,
) -> Result<(), LoadError> {
    let disks = Disks::of_new(&mut member.control, tablespaces).map_err(unwatchable(&member.name))?;
    let free = disks.least_free(&mut member.control)?;
    if free.bytes >= keep_free_bytes || ledger::find_dataset(&mut *member.control, dataset)?.is_some() {
        return Ok(());
    }
    Err(LoadError::Option {
        flag: "--keep-free",
        problem: too_little(&member.name, &free.directory, free.bytes, keep_free_bytes),
        hint: "free some space, name another tablespace, or require less; nothing was created".to_owned(),
    })
}

fn unwatchable(name: &str) -> impl Fn(LoadError) -> LoadError {
    let node = if name.is_empty() { "the server".to_owned() } else { name.to_owned() };
    move |error| LoadError::Unwatchable { node: node.clone(), source: Box::new(error) }
}

/// Finds the disks of a node and refuses to begin when too little is free already, or when it is unknown.
pub(crate) fn disks(
    member: &mut NodeSession,
    dataset: &Dataset,
    tables: &[Table],
    keep_free_bytes: u64,
    stop: &Stop,
) -> Result<Disks, LoadError> {
    let disks = Disks::find(&mut member.control, dataset, tables).map_err(unwatchable(&member.name))?;
    let free = disks.least_free(&mut member.control)?;
    if free.bytes < keep_free_bytes {
        stop.request_because(too_little(&member.name, &free.directory, free.bytes, keep_free_bytes));
    }
    Ok(disks)
}

/// When a load has to end, by this machine's clock, and how to call that. A point in time is read by the server, in its time zone and any of its
/// notations, and becomes a duration by its clock: no other clock has to be right.
pub(crate) fn deadline(
    control: &mut Control,
    deadline: &Deadline,
    started: Instant,
) -> Result<(Instant, String), LoadError> {
    let text = match deadline {
        Deadline::After(duration) => {
            return Ok((
                started + *duration,
                format!("{} after the start", number::duration(duration.as_secs_f64())),
            ));
        }
        Deadline::At(text) => text,
    };
    let option = |problem: String| {
        LoadError::Option {
        flag: "--deadline",
        problem,
        hint: "write a duration (36h, 2d), or a time as the server reads it: '2026-01-03 18:00', 'tomorrow 06:00'".to_owned(),
    }
    };
    let row = control.query_one(
        "select extract(epoch from $1::text::timestamptz - clock_timestamp())::float8, ($1::text::timestamptz)::text",
        &[text],
    );
    let row = match row {
        Ok(row) => row,
        Err(error) if error.code().is_some_and(|code| code.code().starts_with("22")) => {
            return Err(option(format!("\"{text}\" is neither a duration nor a time")));
        }
        Err(source) => return Err(LoadError::sql("reading the deadline", source)),
    };
    let (seconds, written): (f64, String) = (row.get(0), row.get(1));
    match Duration::try_from_secs_f64(seconds) {
        Ok(left) => Ok((Instant::now() + left, written)),
        Err(_) => Err(option(format!("{written} is in the past"))),
    }
}

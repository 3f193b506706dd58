//! After the rows: primary keys and statistics.
//!
//! Each leaf gets its key by a connection of its own, several at once. Then the key of the partitioned table adopts the leaves'
//! (`DefineIndex` in `src/backend/commands/indexcmds.c` attaches an index of the same definition whose constraint is of the same kind
//! instead of building one), so that nothing is built twice and a killed load goes on with the leaf that is missing.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use connect::ConnSpec;
use postgres::Client;

use crate::dataset::Table;
use crate::error::LoadError;
use crate::ledger::{Dataset, lock, qualified, quoted};
use crate::options::{Stop, StopLevel};
use crate::progress::TICK;
use crate::stream::SESSION_SETTINGS;

/// `maintenance_work_mem` of a session that builds a key, unless the server grants more already. Sorting 10^8 keys in memory of this size
/// takes two passes; the default of 64 MB takes more.
const MAINTENANCE_WORK_MEM: &str = "256MB";

/// How often another pgfathom that is building keys is asked whether it is through.
const LOCK_LOOK: Duration = Duration::from_millis(200);

/// The pause before a lost server is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// How keys and statistics are made.
pub(crate) struct Finish<'a> {
    pub(crate) spec: &'a ConnSpec,
    pub(crate) dataset: &'a Dataset,
    pub(crate) tables: &'a [Table],
    /// Connections at once.
    pub(crate) streams: usize,
    pub(crate) tablespace: Option<&'a str>,
    pub(crate) stop: &'a Stop,
    pub(crate) reconnect_limit: Duration,
}

/// Takes the lock under which keys and statistics are made, for the life of this connection. `Ok(false)`: the stop was noticed.
pub(crate) fn lock(client: &mut Client, stop: &Stop) -> Result<bool, LoadError> {
    loop {
        if try_lock(client)? {
            return Ok(true);
        }
        if stop.level() > StopLevel::Run {
            return Ok(false);
        }
        std::thread::sleep(LOCK_LOOK);
    }
}

/// Takes it if nobody has it.
pub(crate) fn try_lock(client: &mut Client) -> Result<bool, LoadError> {
    client
        .query_one("select pg_try_advisory_lock($1, $2)", &[&lock::CLASS, &lock::FINISH])
        .map(|row| row.get(0))
        .map_err(|source| LoadError::sql("waiting for another pgfathom that builds keys", source))
}

/// Gives it back.
pub(crate) fn unlock(client: &mut Client) -> Result<(), LoadError> {
    client
        .execute("select pg_advisory_unlock($1, $2)", &[&lock::CLASS, &lock::FINISH])
        .map(|_| ())
        .map_err(|source| LoadError::sql("waiting for another pgfathom that builds keys", source))
}

/// Whether a table of the dataset has its primary key.
fn has_key(client: &mut Client, dataset: &Dataset, table: &str) -> Result<bool, LoadError> {
    client
        .query_one(
            "select exists (select from pg_index i join pg_class c on c.oid = i.indrelid
             join pg_namespace n on n.oid = c.relnamespace
             where n.nspname = $1 and c.relname = $2 and i.indisprimary and i.indisvalid)",
            &[&dataset.schema_name, &table],
        )
        .map(|row| row.get(0))
        .map_err(|source| LoadError::sql("looking for primary keys", source))
}

/// The tablespace of a table; `None`: that of the database.
fn tablespace_of(client: &mut Client, dataset: &Dataset, table: &str) -> Result<Option<String>, LoadError> {
    let row = client.query_opt(
        "select t.spcname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
         join pg_tablespace t on t.oid = c.reltablespace where n.nspname = $1 and c.relname = $2",
        &[&dataset.schema_name, &table],
    );
    let row = row.map_err(|source| LoadError::sql("looking for the table's tablespace", source))?;
    Ok(row.map(|row| row.get(0)))
}

/// Settings of a session that builds: those of every session of a load, and more memory.
fn prepare_session(client: &mut Client) -> Result<(), LoadError> {
    let settings = format!(
        "{SESSION_SETTINGS};
         select set_config('maintenance_work_mem', '{MAINTENANCE_WORK_MEM}', false)
         where pg_size_bytes(current_setting('maintenance_work_mem')) < pg_size_bytes('{MAINTENANCE_WORK_MEM}')"
    );
    client.batch_execute(&settings).map_err(|source| LoadError::sql("setting up the session", source))
}

/// Remembers which server process works for us.
pub(crate) fn note_pid(client: &mut Client, pid: &AtomicI32) -> Result<(), LoadError> {
    let row = client.query_one("select pg_backend_pid()", &[]);
    let row = row.map_err(|source| LoadError::sql("setting up the session", source))?;
    pid.store(row.get(0), Ordering::Relaxed);
    Ok(())
}

impl Finish<'_> {
    /// Builds every key that is missing. `tick` is called about once a second with the percentage. `Ok(false)`: the stop was noticed;
    /// keys that were complete stay.
    pub(crate) fn keys(&self, tick: &mut dyn FnMut(f64)) -> Result<bool, LoadError> {
        if !self.keys_of(&self.leaves(), tick)? {
            return Ok(false);
        }
        let parents = self.tables.iter().filter_map(|table| Some((table.name, table.key_of_parent()?)));
        for (name, key) in parents.filter(|_| self.dataset.partitions > 1) {
            let give_up = || self.stop.level() > StopLevel::Run;
            self.persist(&give_up, &mut |client| self.add_key(client, name, key))?;
        }
        Ok(self.stop.level() == StopLevel::Run)
    }

    /// All leaf tables.
    fn leaves(&self) -> Vec<String> {
        crate::dataset::leaf_names(self.tables, self.dataset.partitions)
    }

    /// The key of a leaf.
    fn key_of(&self, leaf: &str) -> Option<&'static str> {
        let is_leaf = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit());
        let of = |table: &&Table| {
            let rest = leaf.strip_prefix(table.name);
            rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix("_p").is_some_and(is_leaf))
        };
        self.tables.iter().find(of)?.key
    }

    /// The same for these leaves, without the partitioned table's own.
    pub(crate) fn keys_of(&self, leaves: &[String], tick: &mut dyn FnMut(f64)) -> Result<bool, LoadError> {
        if leaves.is_empty() {
            return Ok(true);
        }
        let workers = self.streams.clamp(1, leaves.len());
        let next = AtomicUsize::new(0);
        let built = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let pids: Vec<AtomicI32> = (0..workers).map(|_| AtomicI32::new(0)).collect();
        let (done, results) = channel();
        let mut outcome = Ok(true);
        std::thread::scope(|scope| {
            for pid in &pids {
                let (done, next, built, failed) = (done.clone(), &next, &built, &failed);
                scope.spawn(move || {
                    let give_up = || failed.load(Ordering::Relaxed) || self.stop.level() > StopLevel::Run;
                    // The leaf in hand survives the connection.
                    let mut leaf = None;
                    let result = self.persist(&give_up, &mut |client| {
                        note_pid(client, pid)?;
                        while !give_up() {
                            leaf = leaf.or_else(|| leaves.get(next.fetch_add(1, Ordering::Relaxed)));
                            let Some(name) = leaf else { break };
                            if let Some(key) = self.key_of(name) {
                                self.add_key(client, name, key)?;
                            }
                            leaf = None;
                            built.fetch_add(1, Ordering::Relaxed);
                        }
                        // Nothing of ours is left to be cancelled.
                        pid.store(0, Ordering::Relaxed);
                        Ok(())
                    });
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    // The receiver lives until every worker has answered.
                    let _ = done.send(result);
                });
            }
            outcome = self.watch(&results, workers, &pids, &failed, &mut |client| {
                tick(percent(client, self.dataset, built.load(Ordering::Relaxed), leaves));
            });
        });
        Ok(outcome? && self.stop.level() == StopLevel::Run)
    }

    /// Gathers statistics of the table and its leaves. `Ok(false)`: the stop was noticed.
    pub(crate) fn statistics(&self, tick: &mut dyn FnMut()) -> Result<bool, LoadError> {
        let tables: Vec<String> = self.tables.iter().map(|table| table.name.to_owned()).collect();
        self.statistics_of(&tables, tick)
    }

    /// The same for these tables, one after the other.
    pub(crate) fn statistics_of(&self, tables: &[String], tick: &mut dyn FnMut()) -> Result<bool, LoadError> {
        if tables.is_empty() {
            return Ok(true);
        }
        let pid = AtomicI32::new(0);
        let failed = AtomicBool::new(false);
        let (done, results) = channel();
        let mut outcome = Ok(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let give_up = || self.stop.level() > StopLevel::Run;
                let names: Vec<String> =
                    tables.iter().map(|table| qualified(&self.dataset.schema_name, table)).collect();
                let sql = format!("analyze {}", names.join(", "));
                let result = self.persist(&give_up, &mut |client| {
                    note_pid(client, &pid)?;
                    client
                        .batch_execute(&sql)
                        .map_err(|source| LoadError::sql("gathering statistics", source))
                });
                // The receiver lives until the worker has answered.
                let _ = done.send(result);
            });
            outcome = self.watch(&results, 1, std::slice::from_ref(&pid), &failed, &mut |_| tick());
        });
        Ok(outcome? && self.stop.level() == StopLevel::Run)
    }

    /// Waits for `workers` results, ticking; cancels what the workers' sessions are at when the stop is noticed or one of them has failed.
    pub(crate) fn watch(
        &self,
        results: &std::sync::mpsc::Receiver<Result<(), LoadError>>,
        workers: usize,
        pids: &[AtomicI32],
        failed: &AtomicBool,
        tick: &mut dyn FnMut(Option<&mut Client>),
    ) -> Result<bool, LoadError> {
        // Without this connection there is no percentage, and a stop waits for the builds; nothing else depends on it.
        let mut side = crate::connections::control(self.spec).ok();
        let mut first_error = None;
        let mut left = workers;
        while left > 0 {
            match results.recv_timeout(TICK) {
                Ok(result) => {
                    left -= 1;
                    if let Err(error) = result {
                        first_error.get_or_insert(error);
                    }
                    continue;
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if side.as_ref().is_none_or(|side| side.is_closed()) {
                side = crate::connections::control(self.spec).ok();
            }
            if let Some(side) = &mut side
                && (self.stop.level() > StopLevel::Run || failed.load(Ordering::Relaxed))
            {
                for pid in pids {
                    let pid = pid.load(Ordering::Relaxed);
                    // A session that has just ended is not there to be cancelled, which is as good.
                    let _ = side.execute("select pg_cancel_backend($1) where $1 <> 0", &[&pid]);
                }
            }
            tick(side.as_deref_mut());
        }
        match first_error {
            // The cancellation came from us.
            Some(_) if self.stop.level() > StopLevel::Run => Ok(false),
            Some(error) => Err(error),
            None => Ok(self.stop.level() == StopLevel::Run),
        }
    }

    /// Runs `work` on a connection of its own, again when the server is lost and comes back within the limit.
    pub(crate) fn persist(
        &self,
        give_up: &dyn Fn() -> bool,
        work: &mut dyn FnMut(&mut Client) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let mut lost_at: Option<Instant> = None;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let result = crate::connections::control(self.spec).and_then(|mut client| {
                prepare_session(&mut client)?;
                work(&mut client)
            });
            let Err(error) = result else { return Ok(()) };
            // The first connection is not a lost one.
            if !error.is_connection_lost() || give_up() {
                return Err(error);
            }
            let waited = lost_at.get_or_insert_with(Instant::now).elapsed();
            if waited >= self.reconnect_limit {
                return Err(LoadError::ServerLost { waited, attempts, source: Box::new(error) });
            }
            std::thread::sleep(RECONNECT_PAUSE);
        }
    }

    fn add_key(&self, client: &mut Client, table: &str, key: &str) -> Result<(), LoadError> {
        if has_key(client, self.dataset, table)? {
            return Ok(());
        }
        // An index lies where its table lies, whoever has put it there.
        let tablespace = match self.tablespace {
            Some(name) => Some(name.to_owned()),
            None => tablespace_of(client, self.dataset, table)?,
        };
        let tablespace = tablespace.map(|name| format!(" using index tablespace {}", quoted(&name)));
        let sql = format!(
            "alter table {} add primary key ({key}){}",
            qualified(&self.dataset.schema_name, table),
            tablespace.unwrap_or_default()
        );
        match client.batch_execute(&sql) {
            // Another loader, whose lock a restart of the server has lost, was faster.
            Err(_) if !client.is_closed() && has_key(client, self.dataset, table)? => Ok(()),
            result => result
                .map_err(|source| LoadError::sql(format!("building the primary key of {table}"), source)),
        }
    }
}

/// The share of the server's work on one index by what `pg_stat_progress_create_index` calls its phase: scanning the table takes about
/// half of the time, sorting a tenth, writing the tree the rest.
const PROGRESS: &str = "
select coalesce(sum(case
    when phase like '%scanning table%' and blocks_total > 0 then 0.5 * blocks_done / blocks_total
    when phase like '%sorting%' then 0.55
    when phase like '%loading tuples%' and tuples_total > 0 then 0.6 + 0.4 * tuples_done / tuples_total
    else 0 end), 0)::float8
from pg_stat_progress_create_index p join pg_class c on c.oid = p.relid join pg_namespace n on n.oid = c.relnamespace
where p.datname = current_database() and n.nspname = $1 and c.relname = any($2)";

/// How much of all keys is built.
fn percent(client: Option<&mut Client>, dataset: &Dataset, built: usize, leaves: &[String]) -> f64 {
    // A server without this view gives whole leaves only.
    let under_way = client
        .and_then(|client| client.query_one(PROGRESS, &[&dataset.schema_name, &leaves]).ok())
        .map_or(0.0, |row| row.get::<_, f64>(0));
    (100.0 * (built as f64 + under_way) / leaves.len() as f64).min(100.0)
}

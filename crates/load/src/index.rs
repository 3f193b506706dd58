//! The end of a load: primary keys and statistics.
//!
//! The key of each leaf is built over a separate connection, several at once. Then the key of the partitioned table adopts the leaves'
//! (`DefineIndex` in `src/backend/commands/indexcmds.c` attaches an index of the same definition whose constraint is of the same kind
//! instead of building one), so that nothing is built twice, and a killed load continues with the missing leaf.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use connect::ConnSpec;
use postgres::Client;

use crate::dataset::{ForeignKey, Table};
use crate::error::LoadError;
use crate::ledger::{Dataset, lock, qualified, quoted};
use crate::options::{Stop, StopLevel};
use crate::progress::{LoadEvent, TICK};
use crate::stream::SESSION_SETTINGS;

/// `maintenance_work_mem` of a session that builds a key, unless the server grants more already. Sorting 10^8 keys in memory of this size
/// takes two passes; the default of 64 MB takes more.
const MAINTENANCE_WORK_MEM: &str = "256MB";

/// The pause before a lost server is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// Characters of the server's message in a report.
const MESSAGE_CHARS: usize = 160;

/// How keys and statistics are made.
pub(crate) struct Finish<'a> {
    pub(crate) spec: &'a ConnSpec,
    pub(crate) dataset: &'a Dataset,
    pub(crate) tables: &'a [Table],
    /// Connections at once.
    pub(crate) streams: usize,
    pub(crate) foreign_keys: &'a [ForeignKey],
    pub(crate) stop: &'a Stop,
    pub(crate) reconnect_limit: Duration,
    /// Reports servers that are lost and come back: every connection at work meets the same loss, and one of them is enough.
    pub(crate) events: &'a Mutex<Sender<LoadEvent>>,
    pub(crate) is_lost: &'a AtomicBool,
}

/// Takes the lock under which keys and statistics are made, for the life of this connection, if it is free.
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
        let give_up = || self.stop.level() > StopLevel::Run;
        for table in self.tables.iter().filter(|table| table.is_divided(self.dataset.partitions)) {
            self.persist(&give_up, &mut |client| {
                if let Some(key) = table.key_of_parent() {
                    self.add_key(client, table.name, key)?;
                }
                self.add_index(client, table, table.name)
            })?;
        }
        Ok(self.stop.level() == StopLevel::Run)
    }

    /// Adds the foreign keys that are missing, one after the other. `Ok(false)`: the stop was noticed.
    pub(crate) fn references(&self, tick: &mut dyn FnMut()) -> Result<bool, LoadError> {
        let keys: Vec<&ForeignKey> = self.foreign_keys.iter().collect();
        self.each(1, &keys, &|client, key| self.add_reference(client, key), &mut |_, _| tick())
    }

    /// All leaf tables.
    fn leaves(&self) -> Vec<String> {
        crate::dataset::leaf_names(self.tables, self.dataset.partitions)
    }

    /// The table of a leaf, or of itself.
    fn table_of(&self, leaf: &str) -> Option<&Table> {
        let is_leaf = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit());
        let of = |table: &&Table| {
            let rest = leaf.strip_prefix(table.name);
            rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix("_p").is_some_and(is_leaf))
        };
        self.tables.iter().find(of)
    }

    /// The largest first, so that none of several connections begins with the longest work at the end.
    fn by_size<'n>(&self, names: &'n [String]) -> Vec<&'n String> {
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_by_key(|name| std::cmp::Reverse(self.table_of(name).map_or(0, |table| table.rows)));
        sorted
    }

    /// The same for these leaves, without the partitioned table's own.
    pub(crate) fn keys_of(&self, leaves: &[String], tick: &mut dyn FnMut(f64)) -> Result<bool, LoadError> {
        let build = |client: &mut Client, name: &String| {
            let Some(table) = self.table_of(name) else { return Ok(()) };
            if let Some(key) = table.key {
                self.add_key(client, name, key)?;
            }
            self.add_index(client, table, name)
        };
        self.each(self.streams, &self.by_size(leaves), &build, &mut |client, built| {
            tick(percent(client, self.dataset, built, leaves));
        })
    }

    /// Gathers statistics of the tables and their leaves. `Ok(false)`: the stop was noticed.
    pub(crate) fn statistics(&self, tick: &mut dyn FnMut()) -> Result<bool, LoadError> {
        let tables: Vec<String> = self.tables.iter().map(|table| table.name.to_owned()).collect();
        self.statistics_of(&tables, tick)
    }

    /// The same for these tables.
    pub(crate) fn statistics_of(&self, tables: &[String], tick: &mut dyn FnMut()) -> Result<bool, LoadError> {
        let analyze = |client: &mut Client, name: &String| {
            let sql = format!("analyze {}", qualified(&self.dataset.schema_name, name));
            client.batch_execute(&sql).map_err(|source| LoadError::sql("gathering statistics", source))
        };
        self.each(self.streams, &self.by_size(tables), &analyze, &mut |_, _| tick())
    }

    /// Does something with each of these, with at most so many connections at once; `tick` receives how many are done. `Ok(false)`: the stop was
    /// noticed.
    fn each<T: Sync>(
        &self,
        workers: usize,
        items: &[&T],
        work: &(dyn Fn(&mut Client, &T) -> Result<(), LoadError> + Sync),
        tick: &mut dyn FnMut(Option<&mut Client>, usize),
    ) -> Result<bool, LoadError> {
        if items.is_empty() {
            return Ok(true);
        }
        let workers = workers.clamp(1, items.len());
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let failed = AtomicBool::new(false);
        let pids: Vec<AtomicI32> = (0..workers).map(|_| AtomicI32::new(0)).collect();
        let (sender, results) = channel();
        let mut outcome = Ok(true);
        std::thread::scope(|scope| {
            for pid in &pids {
                let (sender, next, done, failed) = (sender.clone(), &next, &done, &failed);
                scope.spawn(move || {
                    let give_up = || failed.load(Ordering::Relaxed) || self.stop.level() > StopLevel::Run;
                    // The item in hand survives the connection.
                    let mut item = None;
                    let result = self.persist(&give_up, &mut |client| {
                        note_pid(client, pid)?;
                        while !give_up() {
                            item = item.or_else(|| items.get(next.fetch_add(1, Ordering::Relaxed)));
                            let Some(now) = item else { break };
                            work(client, now)?;
                            item = None;
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        // Nothing of ours is left to be cancelled.
                        pid.store(0, Ordering::Relaxed);
                        Ok(())
                    });
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    // The receiver lives until every worker has answered.
                    let _ = sender.send(result);
                });
            }
            outcome = self.watch(&results, workers, &pids, &failed, &mut |client| {
                tick(client, done.load(Ordering::Relaxed));
            });
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

    fn report(&self, kind: &'static str, message: String, duration: Option<Duration>) {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        // A coordinator that is gone needs no report.
        let _ = events.send(LoadEvent { kind, message, duration });
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
            let Err(error) = result else {
                if let Some(lost_at) = lost_at.filter(|_| self.is_lost.swap(false, Ordering::Relaxed)) {
                    let message = "making keys and statistics: the server answers again".to_owned();
                    self.report(record::event::RECONNECT, message, Some(lost_at.elapsed()));
                }
                return Ok(());
            };
            // The first connection is not a lost one.
            if !error.is_connection_lost() || give_up() {
                return Err(error);
            }
            if !self.is_lost.swap(true, Ordering::Relaxed) {
                let reason = record::escape::one_line(&error.reason(), MESSAGE_CHARS);
                let message = format!(
                    "making keys and statistics: the server, or one that it needs, does not answer ({reason}); trying again, for up to {} s",
                    self.reconnect_limit.as_secs()
                );
                self.report(record::event::ERROR, message, None);
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
        let tablespace = self.index_tablespace(client, table)?;
        let sql = format!(
            "alter table {} add primary key ({key}){}",
            qualified(&self.dataset.schema_name, table),
            tablespace.map(|name| format!(" using index{name}")).unwrap_or_default()
        );
        match client.batch_execute(&sql) {
            // Another loader, whose lock a restart of the server has lost, was faster.
            Err(_) if !client.is_closed() && has_key(client, self.dataset, table)? => Ok(()),
            result => result
                .map_err(|source| LoadError::sql(format!("building the primary key of {table}"), source)),
        }
    }

    /// The clause that puts an index into the tablespace of its table.
    fn index_tablespace(&self, client: &mut Client, table: &str) -> Result<Option<String>, LoadError> {
        let tablespace = tablespace_of(client, self.dataset, table)?;
        Ok(tablespace.map(|name| format!(" tablespace {}", quoted(&name))))
    }

    /// Adds the further index of a table to it or one of its leaves.
    fn add_index(&self, client: &mut Client, table: &Table, leaf: &str) -> Result<(), LoadError> {
        let Some((index, columns)) = table.index else { return Ok(()) };
        let name = format!("{index}{}", leaf.strip_prefix(table.name).unwrap_or_default());
        let relation = qualified(&self.dataset.schema_name, leaf);
        let sql = format!(
            "create index {name} on {relation} ({columns}){}",
            self.index_tablespace(client, leaf)?.unwrap_or_default()
        );
        let there = format!(
            "select exists (select from pg_index i join pg_class c on c.oid = i.indexrelid
             where i.indrelid = $1::text::regclass and c.relname = '{name}' and i.indisvalid)"
        );
        ensure(client, &there, &relation, &sql, &format!("the index {name}"))
    }

    fn add_reference(&self, client: &mut Client, key: &ForeignKey) -> Result<(), LoadError> {
        let ForeignKey { table, name, columns, referred } = key;
        let relation = qualified(&self.dataset.schema_name, table);
        let sql = format!(
            "alter table {relation} add constraint {name} foreign key ({columns}) references {}",
            qualified(&self.dataset.schema_name, referred)
        );
        let there = format!(
            "select exists (select from pg_constraint where conrelid = $1::text::regclass and conname = '{name}' and convalidated)"
        );
        ensure(client, &there, &relation, &sql, &format!("the foreign key {name}"))
    }
}

/// Runs `sql` unless `there` finds that what it makes is there already.
fn ensure(client: &mut Client, there: &str, table: &str, sql: &str, what: &str) -> Result<(), LoadError> {
    let is_there = |client: &mut Client| {
        client
            .query_one(there, &[&table])
            .map(|row| row.get::<_, bool>(0))
            .map_err(|source| LoadError::sql(format!("looking for {what}"), source))
    };
    if is_there(client)? {
        return Ok(());
    }
    match client.batch_execute(sql) {
        // Another loader was faster.
        Err(_) if !client.is_closed() && is_there(client)? => Ok(()),
        result => result.map_err(|source| LoadError::sql(format!("building {what}"), source)),
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

//! Keys, indexes and statistics of tables that are complete, while other tables still load.
//!
//! Building an index locks its table, so a table is built when the last chunk of its group is committed and nobody writes into it any more. Builders
//! are threads with a connection each: half as many as there are streams while those still load, as many as streams afterwards. What exists
//! already is left alone, so a killed load goes on with what is missing; and two loaders that build the same index do no harm, as the
//! second waits for the first and then finds it there.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use data::tpcc::Table;
use postgres::Client;

use super::TpccDataset;
use super::fill::Share;
use super::plan::{Completion, Group};
use super::schema::{FOREIGN_KEYS, index, primary_key};
use crate::error::LoadError;
use crate::index::{Finish, note_pid};
use crate::ledger::{qualified, quoted};
use crate::options::StopLevel;

/// How often a builder looks whether a table is complete.
const LOOK: Duration = Duration::from_millis(20);

/// Tables in the order in which they are built: as their groups are loaded, and the one that takes longest first.
const ORDER: [Table; 9] = [
    Table::Item,
    Table::OrderLine,
    Table::Orders,
    Table::NewOrder,
    Table::Stock,
    Table::Customer,
    Table::History,
    Table::District,
    Table::Warehouse,
];

/// What builders know.
pub(crate) struct Builders<'a> {
    pub(crate) finish: &'a Finish<'a>,
    pub(crate) found: &'a TpccDataset,
    /// Which tables are this node's.
    pub(super) share: Share<'a>,
    pub(crate) completion: &'a Completion,
    /// Streams still load.
    pub(crate) loading: &'a AtomicBool,
    /// A stream or a builder has failed for good.
    pub(crate) failed: &'a AtomicBool,
    /// Tables that are finished.
    pub(crate) built: AtomicUsize,
}

impl Builders<'_> {
    fn give_up(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.finish.stop.level() > StopLevel::Run
    }

    /// Builds everything. Returns when all is there, `Ok(false)` when there is no use in going on: the stop was noticed, or a stream
    /// has ended without loading everything.
    pub(crate) fn run(&self) -> Result<bool, LoadError> {
        let workers = self.finish.streams.clamp(1, ORDER.len());
        let while_loading = workers.div_ceil(2);
        let next = AtomicUsize::new(0);
        let pids: Vec<AtomicI32> = (0..workers).map(|_| AtomicI32::new(0)).collect();
        let (done, results) = channel();
        let outcome = std::thread::scope(|scope| {
            for (worker, pid) in pids.iter().enumerate() {
                let (done, next) = (done.clone(), &next);
                scope.spawn(move || {
                    let result =
                        if self.wait(|| worker < while_loading || !self.loading.load(Ordering::Acquire)) {
                            self.build(next, pid)
                        } else {
                            Ok(())
                        };
                    self.failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    // The receiver lives until every worker has answered.
                    let _ = done.send(result);
                });
            }
            self.finish.watch(&results, workers, &pids, self.failed, &mut |_| {})
        });
        Ok(outcome? && self.built.load(Ordering::Relaxed) == ORDER.len())
    }

    /// Waits until `ready`; `false` when it will never be.
    fn wait(&self, ready: impl Fn() -> bool) -> bool {
        loop {
            if self.give_up() {
                return false;
            }
            // In this order: the last commit comes before the streams' end.
            let loading = self.loading.load(Ordering::Acquire);
            if ready() {
                return true;
            }
            if !loading {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// One builder: table after table.
    fn build(&self, next: &AtomicUsize, pid: &AtomicI32) -> Result<(), LoadError> {
        // The table in hand survives the connection.
        let mut table = None;
        loop {
            table = table.or_else(|| ORDER.get(next.fetch_add(1, Ordering::Relaxed)).copied());
            let Some(name) = table else { return Ok(()) };
            if !self.wait(|| self.completion.is_complete(Group::of(name))) {
                return Ok(());
            }
            self.finish.persist(&|| self.give_up(), &mut |client| {
                note_pid(client, pid)?;
                let built = self.build_table(client, name);
                // Nothing of ours is left to be cancelled.
                pid.store(0, Ordering::Relaxed);
                built
            })?;
            self.built.fetch_add(1, Ordering::Relaxed);
            table = None;
        }
    }

    /// Keys, index and statistics of this node's rows of a table. Statistics are gathered of leaves alone: `analyze` of the partitioned table would
    /// read samples of every other node's leaves through foreign tables.
    fn build_table(&self, client: &mut Client, table: Table) -> Result<(), LoadError> {
        self.share
            .tables(table)
            .iter()
            .try_for_each(|(name, suffix)| self.build_leaf(client, table, name, suffix))
    }

    fn build_leaf(
        &self,
        client: &mut Client,
        table: Table,
        own: &str,
        suffix: &str,
    ) -> Result<(), LoadError> {
        let qualified_name = qualified(&self.found.dataset.schema_name, own);
        let tablespace = self.finish.tablespace.map(quoted);
        if let Some(columns) = primary_key(table) {
            let place = tablespace.as_deref().map(|name| format!(" using index tablespace {name}"));
            let key = format!(
                "alter table {qualified_name} add primary key ({columns}){}",
                place.unwrap_or_default()
            );
            let there = "select exists (select from pg_index where indrelid = $1::text::regclass and indisprimary and indisvalid)";
            self.ensure(client, there, &qualified_name, &key, &format!("the primary key of {own}"))?;
        }
        if let Some((name, columns)) = index(table) {
            let place = tablespace.as_deref().map(|name| format!(" tablespace {name}"));
            let name = format!("{name}{suffix}");
            let sql =
                format!("create index {name} on {qualified_name} ({columns}){}", place.unwrap_or_default());
            let there = format!(
                "select exists (select from pg_index i join pg_class c on c.oid = i.indexrelid
                 where i.indrelid = $1::text::regclass and c.relname = '{name}' and i.indisvalid)"
            );
            self.ensure(client, &there, &qualified_name, &sql, &format!("the index {name}"))?;
        }
        client
            .batch_execute(&format!("analyze {qualified_name}"))
            .map_err(|source| LoadError::sql(format!("gathering statistics of {own}"), source))
    }

    /// Adds the foreign keys that are missing.
    pub(crate) fn foreign_keys(&self, client: &mut Client) -> Result<(), LoadError> {
        for (table, name, columns, referred) in FOREIGN_KEYS {
            let qualified_name = self.qualified(table);
            let sql = format!(
                "alter table {qualified_name} add constraint {name} foreign key ({columns}) references {}",
                self.qualified(referred)
            );
            let there = format!(
                "select exists (select from pg_constraint where conrelid = $1::text::regclass and conname = '{name}' and convalidated)"
            );
            self.ensure(client, &there, &qualified_name, &sql, &format!("the foreign key {name}"))?;
        }
        Ok(())
    }

    /// Runs `sql` unless `there` says that what it makes is there already.
    fn ensure(
        &self,
        client: &mut Client,
        there: &str,
        table: &str,
        sql: &str,
        what: &str,
    ) -> Result<(), LoadError> {
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

    fn qualified(&self, table: Table) -> String {
        qualified(&self.found.dataset.schema_name, table.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_built_after_its_group() {
        let mut tables = ORDER;
        tables.sort();
        assert_eq!(tables, Table::ALL);
        let groups: Vec<usize> = ORDER.iter().map(|table| Group::of(*table) as usize).collect();
        assert!(groups.is_sorted(), "no builder waits for a later group while an earlier table is ready");
    }
}

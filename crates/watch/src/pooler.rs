//! The collector of a pooler before a node: its pools, from the administration console of pgbouncer.
//!
//! A server sees of a pool that is too small only few sessions, all of them in use: the clients wait in the pooler. The console is found where the node itself
//! is reached through a pooler, where a pgbouncer of this host has the node among its databases, or it is named.

mod found;

use crate::board::Board;
use crate::collect::{Batch, Collect, Place, Recorded, Tick};
use crate::sql::json::{count, text};
use connect::ConnSpec;
use connect::control::{self, Control};
use postgres::SimpleQueryMessage;
use record::watched::Pool;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The database of the console.
pub const CONSOLE: &str = "pgbouncer";
/// The first look for a pooler is repeated after this time: the node has not answered yet.
const SOON_US: u64 = 1_000_000;
/// Later ones, and attempts after an error.
const RETRY_US: u64 = 30_000_000;
/// How long the console may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// What is lost without it.
const LOST: &str = "how many clients wait for a connection of a pool, and for how long";

/// Samples the pools before one node.
#[derive(Debug)]
pub struct Pools {
    node: String,
    spec: ConnSpec,
    /// The console, if the user names it.
    named: Option<ConnSpec>,
    board: Arc<Board>,
    recorded: Recorded,
    console: Option<Console>,
    due_us: u64,
}

/// An open console.
#[derive(Debug)]
struct Console {
    control: Control,
    /// Where it is.
    name: String,
    /// The databases of the pooler that are on this node, with the size of their pools.
    databases: BTreeMap<String, Option<u64>>,
    /// The totals of each database at the last look, and when that was.
    before: BTreeMap<String, Totals>,
    last_us: Option<u64>,
}

/// What pgbouncer counts for a database.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    transactions: u64,
    queries: u64,
    transaction_us: u64,
    query_us: u64,
    wait_us: u64,
}

impl Totals {
    fn of(row: &Value) -> Totals {
        let total = |name: &str| count(row, name).unwrap_or(0);
        Totals {
            transactions: total("total_xact_count"),
            queries: total("total_query_count"),
            transaction_us: total("total_xact_time"),
            query_us: total("total_query_time"),
            wait_us: total("total_wait_time"),
        }
    }
}

/// How to find out which databases of a pooler are on the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Belongs {
    /// The node is reached by this one of them.
    Through,
    /// The node listens on this port.
    AtPort(u16),
}

impl Pools {
    /// A collector for the poolers before the node at `spec`; `named` is the console, if it is known.
    pub fn new(node: &str, spec: &ConnSpec, named: Option<ConnSpec>, board: Arc<Board>) -> Pools {
        Pools {
            node: node.to_string(),
            spec: spec.clone(),
            named,
            board,
            recorded: Recorded::default(),
            console: None,
            due_us: 0,
        }
    }

    fn port(&self) -> u16 {
        self.spec.hosts.first().map_or(0, |host| host.port)
    }

    /// Looks for a console, and opens it.
    fn open(&mut self, tick: &Tick, batch: &mut Batch) {
        let state = self.board.node(&self.node).unwrap_or_default();
        if self.named.is_none() && !state.is_up {
            self.due_us = tick.now_us + SOON_US;
            return;
        }
        self.due_us = tick.now_us + RETRY_US;
        let (consoles, belongs) = match &self.named {
            Some(named) => (vec![named.clone()], Belongs::AtPort(self.port())),
            None if state.is_pooled => (vec![self.spec.clone().with_dbname(CONSOLE)], Belongs::Through),
            None if state.is_local => (found::here(&self.spec, self.port()), Belongs::AtPort(self.port())),
            None => (vec![], Belongs::Through),
        };
        let mut why = None;
        for spec in consoles {
            match Console::open(&spec, &self.spec.dbname, belongs) {
                Ok(console) => {
                    self.recorded.found(batch, tick.now_us, &Place::Node(self.node.clone()), "pools");
                    self.console = Some(console);
                    return;
                }
                Err(error) => why = why.or(Some(error)),
            }
        }
        if let Some(why) = why {
            let why = format!(
                "there is a pgbouncer, and its console cannot be read: {why}; add our role to stats_users in pgbouncer.ini, or name the console: \
                 --pooler 'host=... port=... user=...'"
            );
            self.recorded.missing(batch, tick.now_us, self.place().missing("pools", why, LOST));
        }
    }
}

impl Collect for Pools {
    fn place(&self) -> Place {
        Place::Node(self.node.clone())
    }

    fn part(&self) -> &'static str {
        "pools"
    }

    fn tick(&mut self, tick: &Tick, batch: &mut Batch) {
        if self.console.is_none() && tick.now_us >= self.due_us {
            self.open(tick, batch);
        }
        let Some(console) = &mut self.console else { return };
        if let Err(error) = console.read(&self.node, tick, batch) {
            self.console = None;
            self.due_us = tick.now_us + SOON_US;
            let why = format!("the connection to the console of pgbouncer was lost: {error}");
            self.recorded.missing(batch, tick.now_us, self.place().missing("pools", why, LOST));
        }
    }
}

impl Console {
    fn open(spec: &ConnSpec, database: &str, belongs: Belongs) -> Result<Console, String> {
        let mut spec = spec.clone().with_application_name(crate::sql::session::APPLICATION_NAME);
        spec.connect_timeout.get_or_insert(PATIENCE);
        let mut control = control::console(&spec).map_err(|error| error.to_string())?;
        control.set_patience(PATIENCE);
        let name = spec.clone().with_only_host(control.host_index()).describe();
        let rows = rows(&mut control, "SHOW DATABASES").map_err(|error| error.to_string())?;
        let databases = on_node(&rows, database, belongs);
        if databases.is_empty() {
            return Err(format!("none of the databases of the pooler at {} is on this node", control.host()));
        }
        Ok(Console { control, name, databases, before: BTreeMap::new(), last_us: None })
    }

    /// One look at all pools.
    fn read(&mut self, node: &str, tick: &Tick, batch: &mut Batch) -> Result<(), postgres::Error> {
        let pools = rows(&mut self.control, "SHOW POOLS")?;
        let totals = rows(&mut self.control, "SHOW STATS")?;
        let now_us = tick.clock.now_us();
        let interval_us = self.last_us.map_or(0, |last| now_us.saturating_sub(last));
        let mut counted: BTreeMap<String, (Totals, Totals)> = BTreeMap::new();
        for row in &totals {
            let (name, now) = (text(row, "database"), Totals::of(row));
            if let Some(before) = self.before.insert(name.clone(), now) {
                counted.insert(name, (before, now));
            }
        }
        self.last_us = Some(now_us);
        let mut done: BTreeSet<String> = BTreeSet::new();
        for row in &pools {
            let database = text(row, "database");
            let Some(size) = self.databases.get(&database) else { continue };
            // What is counted for the whole database stands in its first pool.
            let counts = Some(&database)
                .filter(|name| done.insert((*name).clone()))
                .and_then(|name| counted.get(name));
            let line = pool(row, *size, counts);
            batch.counted(
                now_us,
                interval_us,
                Pool { node: node.to_string(), pooler: self.name.clone(), database, ..line },
            );
        }
        Ok(())
    }
}

/// A row of SHOW POOLS as a line, with what its database has counted since the last look.
fn pool(row: &Value, size: Option<u64>, counts: Option<&(Totals, Totals)>) -> Pool {
    let free = ["sv_idle", "sv_used", "sv_tested"].iter().filter_map(|name| count(row, name)).sum();
    // A total that fell was reset.
    let since = |of: fn(&Totals) -> u64| counts.and_then(|(before, now)| of(now).checked_sub(of(before)));
    let seconds = count(row, "maxwait");
    Pool {
        user: text(row, "user"),
        pool_mode: text(row, "pool_mode"),
        clients_active: count(row, "cl_active"),
        clients_waiting: count(row, "cl_waiting"),
        max_wait_us: seconds.map(|seconds| seconds * 1_000_000 + count(row, "maxwait_us").unwrap_or(0)),
        servers_active: count(row, "sv_active"),
        servers_free: Some(free),
        size,
        transactions: since(|totals| totals.transactions),
        queries: since(|totals| totals.queries),
        transaction_us: since(|totals| totals.transaction_us),
        query_us: since(|totals| totals.query_us),
        wait_us: since(|totals| totals.wait_us),
        ..Pool::default()
    }
}

/// The databases of a pooler that are on the node, with the size of their pools. One host has one server at a port, so the port decides; the console itself is
/// no database.
fn on_node(rows: &[Value], database: &str, belongs: Belongs) -> BTreeMap<String, Option<u64>> {
    let place = |row: &Value| (text(row, "host"), text(row, "port"));
    let entry = rows.iter().find(|row| text(row, "name") == database).map(place);
    let is_here = |row: &&Value| match belongs {
        Belongs::AtPort(port) => text(row, "port") == port.to_string(),
        Belongs::Through => entry.as_ref().is_none_or(|entry| place(row) == *entry),
    };
    rows.iter()
        .filter(|row| text(row, "name") != CONSOLE)
        .filter(is_here)
        .map(|row| (text(row, "name"), count(row, "pool_size")))
        .collect()
}

/// The rows of a command of the console, by the names of their columns: they differ between versions.
fn rows(control: &mut Control, command: &str) -> Result<Vec<Value>, postgres::Error> {
    let answer = control.outside()?.simple_query(command)?;
    let rows = answer.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let fields = row.columns().iter().enumerate();
            let object: Map<String, Value> = fields
                .map(|(at, column)| {
                    let value = row.get(at).map_or(Value::Null, |text| Value::String(text.to_string()));
                    (column.name().to_string(), value)
                })
                .collect();
            Some(Value::Object(object))
        }
        _ => None,
    });
    Ok(rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pool_has_what_its_database_counts_and_a_reset_counts_nothing() {
        let row = json!({"database": "cart", "user": "app", "cl_active": "3", "cl_waiting": "37", "sv_active": "3", "sv_idle": "0", "sv_used": "1",
            "sv_tested": "0", "maxwait": "1", "maxwait_us": "250", "pool_mode": "transaction"});
        let before = Totals::of(
            &json!({"total_xact_count": "10", "total_query_count": "40", "total_xact_time": "900", "total_query_time": "80"}),
        );
        let now = Totals::of(
            &json!({"total_xact_count": "16", "total_query_count": "60", "total_xact_time": "1900", "total_query_time": "10"}),
        );
        let line = pool(&row, Some(3), Some(&(before, now)));
        assert_eq!(
            (line.clients_waiting, line.servers_free, line.max_wait_us),
            (Some(37), Some(1), Some(1_000_250))
        );
        assert_eq!((line.transactions, line.transaction_us, line.query_us), (Some(6), Some(1000), None));
        assert_eq!(pool(&row, None, None).transactions, None);
    }

    #[test]
    fn databases_of_other_servers_are_left_out() {
        let row = |name: &str, host: &str, port: &str| json!({"name": name, "host": host, "port": port, "pool_size": "20"});
        let rows = [
            row("cart", "10.0.0.1", "5432"),
            row("shop", "10.0.0.1", "5432"),
            row("old", "10.0.0.2", "5433"),
            row(CONSOLE, "", "6432"),
        ];
        let names = |belongs| on_node(&rows, "cart", belongs).into_keys().collect::<Vec<_>>().join(" ");
        assert_eq!(names(Belongs::Through), "cart shop");
        assert_eq!(names(Belongs::AtPort(5433)), "old");
        assert_eq!(on_node(&rows, "cart", Belongs::AtPort(5433))["old"], Some(20));
    }
}

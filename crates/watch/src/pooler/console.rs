//! The administration console of one pooler: how it is opened, what it shows, and why it cannot be read.

use super::log::{Log, Refusals};
use super::{CONSOLE, Origin, PATIENCE};
use crate::collect::{Batch, Tick};
use crate::sql::json::{count, text};
use connect::control::{self, Control};
use connect::{ConnSpec, ConnectError};
use postgres::SimpleQueryMessage;
use record::watched::{Pool, Pooler};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// An open console.
#[derive(Debug)]
pub(super) struct Console {
    control: Control,
    /// The host and port of the pooler.
    place: String,
    /// The connection to it.
    name: String,
    /// The databases of the pooler that are on this node, with the size of their pools.
    databases: BTreeMap<String, Size>,
    /// The totals of each database at the last look, and when that was.
    before: BTreeMap<String, Totals>,
    last_us: Option<u64>,
    config: Config,
    log: Option<Log>,
}

/// What SHOW CONFIG has of the pooler as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Config {
    default_pool_size: Option<u64>,
    max_client_conn: Option<u64>,
    log: Option<String>,
}

/// All clients of the pooler, and those that it sent away.
#[derive(Clone, Debug, Default)]
struct Clients {
    open: Option<u64>,
    most: Option<u64>,
    refused: Option<Refusals>,
}

/// How many connections a pool of a database may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Size {
    connections: Option<u64>,
    /// Whether the database has it for itself; `None` where the default is not known.
    is_own: Option<bool>,
    /// For all pools of the database together (`max_db_connections`).
    database_max: Option<u64>,
}

/// Why a console is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    /// Nothing answers there.
    #[error("it cannot be reached: {0}")]
    Unreachable(ConnectError),
    /// Something else than pgbouncer answers.
    #[error("what answers there is no pgbouncer: {0}")]
    Other(String),
    /// It wants a password that it did not get.
    #[error("it does not accept the password: {0}")]
    Password(ConnectError),
    /// It does not admit the role.
    #[error("its console does not admit our role: {0}")]
    Refused(ConnectError),
    /// The connection ended.
    #[error("its console does not answer: {0}")]
    Lost(postgres::Error),
    /// It is before other servers.
    #[error("none of its databases is on this node")]
    Elsewhere,
}

/// How to name a console.
pub(super) const NAME_IT: &str = "--pooler 'host=... port=... user=...'";

impl From<ConnectError> for Unread {
    fn from(error: ConnectError) -> Unread {
        if error.is_of_server_of_databases() || error.is_no_protocol() {
            Unread::Other(error.to_string())
        } else if error.is_about_password() {
            Unread::Password(error)
        } else if error.is_answered() {
            Unread::Refused(error)
        } else {
            Unread::Unreachable(error)
        }
    }
}

impl From<postgres::Error> for Unread {
    fn from(error: postgres::Error) -> Unread {
        // The console knows SHOW DATABASES; a server takes it for the name of a setting.
        if error.as_db_error().is_some() { Unread::Other(error.to_string()) } else { Unread::Lost(error) }
    }
}

impl Unread {
    /// What to do, by how the pooler became known.
    pub(super) fn hint(&self, origin: Origin) -> String {
        match (self, origin) {
            (Unread::Unreachable(_) | Unread::Lost(_), Origin::Named) => {
                "see whether it runs, and check host and port of --pooler".to_string()
            }
            (Unread::Unreachable(_) | Unread::Lost(_), _) => {
                format!("see whether it runs, or name its console: {NAME_IT}")
            }
            (Unread::Other(_) | Unread::Elsewhere, Origin::Named) => {
                "name the address that its clients connect to".to_string()
            }
            (Unread::Other(_) | Unread::Elsewhere, _) => format!("name the console of the pooler: {NAME_IT}"),
            (Unread::Password(_), Origin::Found) => format!(
                "a pooler that was only found gets no password: name it ({NAME_IT}) and set PGPASSWORD, or have a line for its host, its port and database \
                 {CONSOLE} in ~/.pgpass"
            ),
            (Unread::Password(_), _) => format!(
                "set PGPASSWORD, or have a line for its host, its port and database {CONSOLE} in ~/.pgpass; the password is that of the pooler's auth_file"
            ),
            (Unread::Refused(_), Origin::Named) => "add the role to stats_users in pgbouncer.ini".to_string(),
            (Unread::Refused(_), _) => {
                format!(
                    "add our role to stats_users in pgbouncer.ini, or name the console with another role: {NAME_IT}"
                )
            }
        }
    }
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
pub(super) enum Belongs {
    /// The node is reached by this one of them.
    Through,
    /// The node listens on this port.
    AtPort(u16),
}

impl Console {
    pub(super) fn open(
        place: &str,
        spec: &ConnSpec,
        database: &str,
        belongs: Belongs,
    ) -> Result<Console, Unread> {
        let mut spec = spec.clone().with_application_name(crate::sql::session::APPLICATION_NAME);
        spec.connect_timeout.get_or_insert(PATIENCE);
        let mut control = control::console(&spec)?;
        control.set_patience(PATIENCE);
        let name = spec.clone().with_only_host(control.host_index()).describe();
        let all = rows(&mut control, "SHOW DATABASES")?;
        let config = Config::of(&rows(&mut control, "SHOW CONFIG").unwrap_or_default());
        let databases = on_node(&all, database, belongs, config.default_pool_size);
        if databases.is_empty() {
            return Err(Unread::Elsewhere);
        }
        Ok(Console {
            control,
            place: place.to_string(),
            name,
            databases,
            before: BTreeMap::new(),
            last_us: None,
            log: config.log.as_deref().filter(|_| crate::sql::is_near(&spec)).and_then(Log::open),
            config,
        })
    }

    /// The host and port of the pooler.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// One look at all pools.
    pub(super) fn read(&mut self, node: &str, tick: &Tick, batch: &mut Batch) -> Result<(), postgres::Error> {
        let pools = rows(&mut self.control, "SHOW POOLS")?;
        let totals = rows(&mut self.control, "SHOW STATS")?;
        let databases = rows(&mut self.control, "SHOW DATABASES")?;
        let lists = rows(&mut self.control, "SHOW LISTS")?;
        let clients = Clients {
            open: value_of(&lists, "list", "items", "used_clients").and_then(|value| value.parse().ok()),
            most: self.config.max_client_conn,
            refused: self.log.as_mut().map(Log::read),
        };
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
            let paused = databases.iter().find(|row| text(row, "name") == database).and_then(is_paused);
            batch.counted(
                now_us,
                interval_us,
                Pool { node: node.to_string(), pooler: self.name.clone(), database, paused, ..line },
            );
        }
        self.whole(node, &clients, (now_us, interval_us), batch);
        Ok(())
    }

    /// A line of the pooler as a whole.
    fn whole(&self, node: &str, clients: &Clients, (now_us, interval_us): (u64, u64), batch: &mut Batch) {
        let refused = clients.refused.as_ref();
        let line = Pooler {
            node: node.to_string(),
            pooler: self.name.clone(),
            clients: clients.open,
            clients_max: clients.most,
            size: None,
            refused: refused.map(|refused| refused.clients),
            reason: refused.map(|refused| refused.reason.clone()).unwrap_or_default(),
        };
        batch.counted(now_us, interval_us, line);
    }
}

impl Config {
    fn of(rows: &[Value]) -> Config {
        let value = |key: &str| value_of(rows, "key", "value", key);
        let number = |key: &str| value(key).and_then(|value| value.parse().ok());
        Config {
            default_pool_size: number("default_pool_size"),
            max_client_conn: number("max_client_conn").filter(|most| *most > 0),
            log: value("logfile").filter(|path| !path.is_empty()),
        }
    }
}

/// The value of a row that has this key.
fn value_of(rows: &[Value], key: &str, value: &str, name: &str) -> Option<String> {
    rows.iter().find(|row| text(row, key) == name).map(|row| text(row, value))
}

/// Whether a row of SHOW DATABASES is one of a database that was paused, or whose connections were killed.
fn is_paused(row: &Value) -> Option<bool> {
    count(row, "paused").map(|paused| paused > 0)
}

/// A row of SHOW POOLS as a line, with what its database has counted since the last look.
fn pool(row: &Value, size: Size, counts: Option<&(Totals, Totals)>) -> Pool {
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
        size: size.connections,
        size_of_database: size.is_own,
        database_max: size.database_max,
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
fn on_node(rows: &[Value], database: &str, belongs: Belongs, default: Option<u64>) -> BTreeMap<String, Size> {
    let place = |row: &Value| (text(row, "host"), text(row, "port"));
    let entry = rows.iter().find(|row| text(row, "name") == database).map(place);
    let is_here = |row: &&Value| match belongs {
        Belongs::AtPort(port) => text(row, "port") == port.to_string(),
        Belongs::Through => entry.as_ref().is_none_or(|entry| place(row) == *entry),
    };
    let size = |row: &Value| {
        let connections = count(row, "pool_size");
        Size {
            connections,
            is_own: connections.zip(default).map(|(size, default)| size != default),
            // 0 is no limit.
            database_max: count(row, "max_connections").filter(|most| *most > 0),
        }
    };
    rows.iter()
        .filter(|row| text(row, "name") != CONSOLE)
        .filter(is_here)
        .map(|row| (text(row, "name"), size(row)))
        .collect()
}

/// The rows of a command of the console, by the names of their columns: they differ between versions.
fn rows(control: &mut Control, command: &str) -> Result<Vec<Value>, postgres::Error> {
    let answer = control.outside()?.simple_query(command)?;
    let rows = answer.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            let fields = row.names().iter().enumerate();
            let object: Map<String, Value> = fields
                .map(|(at, name)| {
                    let value = row.get(at).map_or(Value::Null, |text| Value::String(text.to_string()));
                    (name.clone(), value)
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

    const OF_THREE: Size = Size { connections: Some(3), is_own: Some(false), database_max: None };

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
        let line = pool(&row, OF_THREE, Some(&(before, now)));
        assert_eq!(
            (line.clients_waiting, line.servers_free, line.max_wait_us),
            (Some(37), Some(1), Some(1_000_250))
        );
        assert_eq!((line.transactions, line.transaction_us, line.query_us), (Some(6), Some(1000), None));
        assert_eq!(pool(&row, OF_THREE, None).transactions, None);
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
        let names = |belongs| on_node(&rows, "cart", belongs, None).into_keys().collect::<Vec<_>>().join(" ");
        assert_eq!(names(Belongs::Through), "cart shop");
        assert_eq!(names(Belongs::AtPort(5433)), "old");
        let size = |default| on_node(&rows, "cart", Belongs::AtPort(5433), default)["old"];
        assert_eq!(size(None), Size { connections: Some(20), is_own: None, database_max: None });
        let limited =
            json!({"name": "cart", "host": "", "port": "5432", "pool_size": "20", "max_connections": "4"});
        assert_eq!(on_node(&[limited], "cart", Belongs::AtPort(5432), None)["cart"].database_max, Some(4));
        let config = json!({"key": "default_pool_size", "value": "3", "default": "20"});
        let log = json!({"key": "logfile", "value": "/var/log/bouncer.log"});
        let config = Config::of(&[config, log]);
        assert_eq!(config.log.as_deref(), Some("/var/log/bouncer.log"));
        assert_eq!(size(config.default_pool_size).is_own, Some(true));
        assert_eq!(size(Some(20)).is_own, Some(false));
    }
}

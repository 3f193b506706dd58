//! A connected node: its session, the facts that most checks need, and its settings.

use super::given::{Expected, Machine, Target, nearest};
use super::setting::{self, Setting};
use connect::ConnSpec;
use engines::profile::Own;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use watch::host::files::Tree;
use watch::sql::clock::Offset;
use watch::sql::json;
use watch::sql::session::{Failed, Limits, Session};

/// `application_name` of the sessions that check.
pub(crate) const APPLICATION_NAME: &str = "pgfathom check";
/// The longest query: statistics of 100,000 tables take some seconds.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(15);
/// A check waits for no lock longer than this: others queue behind a waiting session.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);
/// The shortest time between the two readings that give rates.
const RATE_OVER: Duration = Duration::from_secs(1);
/// Older servers have other catalogs; all of them are out of support.
const VERSION_MIN: u64 = 110_000;
/// Rows that a listing returns; more are counted.
const ROWS_MAX: usize = 200;

/// Relations that another session holds exclusively, or waits to hold so: touching one would wait, and queue others behind.
pub(crate) const LOCKED: &str = "locked as materialized (select relation from pg_catalog.pg_locks
    where locktype = 'relation' and mode = 'AccessExclusiveLock'
      and database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database()))";

/// The schemas of users: not those of the server, nor those of temporary tables.
pub(crate) const USERS: &str = "n.nspname <> 'information_schema' and n.nspname !~ '^pg_'";

/// Rows of a query: the first ones, and how many there are.
#[derive(Debug)]
pub(crate) struct Listing {
    /// At most [`ROWS_MAX`].
    pub(crate) rows: Vec<Value>,
    /// All of them.
    pub(crate) total: u64,
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    xid: f64,
    mxid_age: f64,
    wal_bytes: f64,
}

/// What was used per second between two readings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Transaction ids.
    pub(crate) xids: f64,
    /// Multixact ids.
    pub(crate) mxids: f64,
    /// WAL.
    pub(crate) wal_bytes: f64,
    /// The time between the readings.
    pub(crate) over_s: f64,
}

/// What a plan needs of a file system for one node.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PlannedSpace {
    /// The file system, by its name on the host.
    pub(crate) system: String,
    /// What is free there.
    pub(crate) free_bytes: f64,
    /// What the plan needs.
    pub(crate) needed_bytes: f64,
}

/// A node while it is checked.
#[derive(Debug)]
pub(crate) struct Node<'a> {
    target: &'a Target,
    pub(crate) expected: &'a Expected,
    session: Session,
    columns: BTreeMap<String, BTreeSet<String>>,
    first: Reading,
    settings: BTreeMap<String, Setting>,
    facts: Value,
    pub(crate) machine: Machine,
    /// How many of the checked servers share its host, with itself.
    pub(crate) servers: u64,
    /// What the plan needs of each of its file systems.
    pub(crate) planned_space: Vec<PlannedSpace>,
    /// Whether its folders are on this host.
    is_here: bool,
}

impl<'a> Node<'a> {
    /// Connects and reads the facts.
    ///
    /// # Errors
    /// The server's message, or why there is no connection.
    pub(crate) fn open(target: &'a Target, expected: &'a Expected, servers: u64) -> Result<Node<'a>, Failed> {
        let mut session = open(&target.spec)?;
        let version = session.query(
            "select pg_catalog.to_json(pg_catalog.current_setting('server_version_num')::int)::text",
            &[],
        )?;
        if version.as_u64().is_some_and(|version| version < VERSION_MIN) {
            return Err(Failed::Refused {
                sqlstate: "0A000".to_string(),
                message: format!(
                    "server_version_num is {version}: only PostgreSQL 11 and later can be checked"
                ),
            });
        }
        let facts = session.query(FACTS, &[])?;
        let settings = setting::read(&mut session)?;
        let first = read(&mut session)?;
        // The first session shows the server's own value of jit. Behind a pooler it must not be changed within a session.
        let mut session = open(&target.spec.clone().without_jit())?;
        let own = watch::sql::own::of_server(&mut session)?;
        watch::sql::own::show_parts(&mut session, &own)?;
        let mut node = Node {
            target,
            expected,
            session,
            columns: BTreeMap::new(),
            first,
            settings,
            facts,
            machine: target.machine.clone().unwrap_or_default(),
            servers: servers.max(1),
            planned_space: vec![],
            is_here: false,
        };
        let pid = json::count(&node.facts, "pid").and_then(|pid| u32::try_from(pid).ok());
        let folder = node.setting("data_directory").ok().map(|setting| PathBuf::from(&setting.value));
        if target.machine.is_none() && watch::sql::is_local(&target.spec, pid) {
            node.machine = here(folder.as_deref(), pid);
            node.is_here = true;
        } else if let Some(folder) = folder {
            node.machine.find_wal(&folder);
        }
        Ok(node)
    }

    /// The system identifier, which a standby shares with its primary; empty if the role may not read it.
    pub(crate) fn system(&mut self) -> String {
        const SQL: &str = "select pg_catalog.to_json((select system_identifier from pg_catalog.pg_control_system())::text)::text";
        let read = self.query(SQL).ok();
        read.and_then(|value| value.as_str().map(str::to_string)).unwrap_or_default()
    }

    /// What the engine of a cluster made for itself here.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) fn own(&mut self) -> Result<Vec<Own>, Failed> {
        watch::sql::own::of_server(&mut self.session)
    }

    /// Whether this is another build than PostgreSQL's: a fork by its `version()`, or an engine that needs changes in the server.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) fn is_other_build(&mut self) -> Result<bool, Failed> {
        Ok(is_fork(&self.fact("banner")) || self.own()?.iter().any(|own| own.is_patched))
    }

    /// How far its clock is from ours.
    ///
    /// # Errors
    /// The server's message, or why the connection is gone.
    pub(crate) fn clock(&mut self) -> Result<Option<Offset>, Failed> {
        watch::sql::clock::offset(&mut self.session)
    }

    /// A new session in place of a lost one.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(crate) fn reopen(&mut self) -> Result<(), Failed> {
        self.session = open(&self.target.spec.clone().without_jit())?;
        Ok(())
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.target.name
    }

    /// `server_version_num`.
    pub(crate) fn version(&self) -> u64 {
        json::count(&self.facts, "version").unwrap_or(0)
    }

    /// A fact by its name in [`FACTS`], as text.
    pub(crate) fn fact(&self, name: &str) -> String {
        json::text(&self.facts, name)
    }

    /// A fact, as a number.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        json::number(&self.facts, name)
    }

    /// A fact, as yes or no; an unknown one is no.
    pub(crate) fn is(&self, name: &str) -> bool {
        json::flag(&self.facts, name) == Some(true)
    }

    /// A setting.
    ///
    /// # Errors
    /// That this server has none of that name, or hides it.
    pub(crate) fn setting(&self, name: &str) -> Result<&Setting, Failed> {
        self.settings.get(name).ok_or_else(|| Failed::Refused {
            sqlstate: "42704".to_string(),
            message: format!("this server shows this role no setting {name}"),
        })
    }

    /// All of them, by name.
    pub(crate) fn settings(&self) -> impl Iterator<Item = &Setting> {
        self.settings.values()
    }

    /// Whether a view or function call has this column.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) fn has_column(&mut self, relation: &str, column: &str) -> Result<bool, Failed> {
        if !self.columns.contains_key(relation) {
            let columns = self.session.columns(relation)?;
            self.columns.insert(relation.to_string(), columns);
        }
        Ok(self.columns[relation].contains(column))
    }

    /// `column` if the relation has it, else `otherwise`.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) fn column(
        &mut self,
        relation: &str,
        column: &'static str,
        otherwise: &'static str,
    ) -> Result<&'static str, Failed> {
        Ok(if self.has_column(relation, column)? { column } else { otherwise })
    }

    /// The JSON value of a query.
    ///
    /// # Errors
    /// The server's message.
    pub(crate) fn query(&mut self, sql: &str) -> Result<Value, Failed> {
        self.session.query(sql, &[])
    }

    /// One row of a query.
    ///
    /// # Errors
    /// The server's message.
    pub(crate) fn row(&mut self, sql: &str) -> Result<Value, Failed> {
        self.query(&format!("select (select pg_catalog.row_to_json(r) from ({sql}) r)::text"))
    }

    /// The rows of a query in an order; `with` are common table expressions before it, each with a comma after it.
    ///
    /// # Errors
    /// The server's message.
    pub(crate) fn list(&mut self, with: &str, sql: &str, order: &str) -> Result<Listing, Failed> {
        let answer = self.query(&format!(
            "with {with} found as materialized ({sql})
             select pg_catalog.json_build_object('total', (select count(*) from found),
               'rows', (select pg_catalog.json_agg(r) from (select * from found order by {order} limit {ROWS_MAX}) r))::text"
        ))?;
        let rows = json::list(&answer, "rows").to_vec();
        Ok(Listing { total: json::count(&answer, "total").unwrap_or(rows.len() as u64), rows })
    }

    /// What was used per second since the node was opened.
    ///
    /// # Errors
    /// The server's message.
    pub(crate) fn rates(&mut self) -> Result<Rates, Failed> {
        std::thread::sleep(RATE_OVER.saturating_sub(self.first.at.elapsed()));
        let (first, now) = (self.first, read(&mut self.session)?);
        let over_s = now.at.duration_since(first.at).as_secs_f64();
        let rate = |before: f64, after: f64| ((after - before) / over_s).max(0.0);
        Ok(Rates {
            xids: rate(first.xid, now.xid),
            mxids: rate(first.mxid_age, now.mxid_age),
            wal_bytes: rate(first.wal_bytes, now.wal_bytes),
            over_s,
        })
    }

    /// The file system that a folder of the node is on, and its free bytes; `None` if the host was not checked.
    pub(crate) fn free_space(&self, folder: &Path) -> Option<(String, u64)> {
        if self.is_here {
            let (there, space) = (rustix::fs::stat(folder).ok()?, rustix::fs::statvfs(folder).ok()?);
            return Some((there.st_dev.to_string(), space.f_bavail.saturating_mul(space.f_frsize)));
        }
        let mount = nearest(&self.machine.mounts, folder)?;
        Some((mount.mount.clone(), mount.free_bytes?))
    }

    /// Bytes of a page.
    pub(crate) fn block_bytes(&self) -> f64 {
        self.setting("block_size").ok().and_then(Setting::number).unwrap_or(8192.0)
    }
}

/// Whether `version()` names another product than PostgreSQL. Distributions' packages have their names in it, too, and are PostgreSQL.
fn is_fork(banner: &str) -> bool {
    const MAKERS: [&str; 6] = ["EnterpriseDB", "Greenplum", "Arenadata", "-YB-", "Percona", "Postgres Pro"];
    !banner.starts_with("PostgreSQL ") || MAKERS.iter().any(|maker| banner.contains(maker))
}

fn open(spec: &ConnSpec) -> Result<Session, Failed> {
    let limits = Limits { statement: STATEMENT_TIMEOUT, lock: LOCK_TIMEOUT };
    Session::open_within(spec, APPLICATION_NAME, &limits)
}

/// What most checks need. All of it is visible to every role.
const FACTS: &str = "select pg_catalog.json_build_object(
    'version', pg_catalog.current_setting('server_version_num')::bigint,
    'banner', pg_catalog.version(),
    'release', pg_catalog.current_setting('server_version'),
    'database', pg_catalog.current_database(),
    'database_quoted', pg_catalog.quote_ident(pg_catalog.current_database()),
    'role', pg_catalog.quote_ident(current_user),
    'is_superuser', pg_catalog.current_setting('is_superuser')::bool,
    'reads_statistics', pg_catalog.pg_has_role('pg_read_all_stats', 'usage'),
    'reads_settings', pg_catalog.pg_has_role('pg_read_all_settings', 'usage'),
    'is_standby', pg_catalog.pg_is_in_recovery(),
    'pid', pg_catalog.pg_backend_pid(),
    'now_s', extract(epoch from pg_catalog.clock_timestamp()),
    'today', pg_catalog.to_char(pg_catalog.clock_timestamp(), 'YYYY-MM-DD'),
    'up_s', extract(epoch from pg_catalog.clock_timestamp() - pg_catalog.pg_postmaster_start_time()),
    'stats_reset', (select stats_reset from pg_catalog.pg_stat_database where datname = pg_catalog.current_database()),
    'stats_age_s', (select extract(epoch from pg_catalog.clock_timestamp() - stats_reset) from pg_catalog.pg_stat_database where datname = \
        pg_catalog.current_database())
  )::text";

/// The next transaction id, the oldest multixact's age, the end of the WAL.
fn read(session: &mut Session) -> Result<Reading, Failed> {
    let answer = session.query(
        "select pg_catalog.json_build_object('xid', pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()),
           'mxid_age', (select max(pg_catalog.mxid_age(datminmxid)) from pg_catalog.pg_database),
           'wal', pg_catalog.pg_wal_lsn_diff(case when pg_catalog.pg_is_in_recovery()
             then coalesce(pg_catalog.pg_last_wal_replay_lsn(), '0/0') else pg_catalog.pg_current_wal_lsn() end, '0/0'))::text",
        &[],
    )?;
    let number = |name| json::number(&answer, name).unwrap_or(0.0);
    Ok(Reading {
        at: Instant::now(),
        xid: number("xid"),
        mxid_age: number("mxid_age"),
        wal_bytes: number("wal"),
    })
}

/// The host that both run on, and what the control group of the server allows of it.
fn here(folder: Option<&Path>, pid: Option<u32>) -> Machine {
    let this = record::machine::this();
    let allowed = pid.map(|pid| watch::host::cgroup::allowed(&mut Tree::live(), pid)).unwrap_or_default();
    let limit = allowed.memory_max_bytes.filter(|most| this.memory_bytes.is_none_or(|all| *most < all));
    // A part of a CPU is one that can be busy.
    let cpus = allowed.cpus.map_or(this.cpus, |cpus| this.cpus.min(cpus.ceil() as u64));
    let space = folder.and_then(|folder| rustix::fs::statvfs(folder.join("pg_wal")).ok());
    Machine {
        memory_bytes: limit.or(this.memory_bytes),
        is_limited: limit.is_some(),
        cpus: Some(cpus.max(1)),
        wal_disk_bytes: space.as_ref().map(|space| space.f_blocks.saturating_mul(space.f_frsize)),
        wal_free_bytes: space.map(|space| space.f_bavail.saturating_mul(space.f_frsize)),
        is_rotational: folder.and_then(is_rotational),
        mounts: vec![],
    }
}

/// Whether the disk below a folder spins; `None` if it has no disk of its own (a file system in memory, a network one).
fn is_rotational(folder: &Path) -> Option<bool> {
    let device = rustix::fs::stat(folder).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let of_disk = PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()?;
    // A partition has the queue of its disk, one folder up.
    let queues = [Some(of_disk.as_path()), of_disk.parent()];
    let text = queues
        .into_iter()
        .flatten()
        .find_map(|at| std::fs::read_to_string(at.join("queue/rotational")).ok())?;
    Some(text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::is_fork;

    #[test]
    fn a_fork_is_known_by_its_banner() {
        for fork in [
            "PostgreSQL 15.2 (EnterpriseDB Advanced Server 15.2.0) on x86_64-pc-linux-gnu",
            "PostgreSQL 9.4.26 (Greenplum Database 6.21.0 build commit:1) on x86_64",
            "PostgresPro 15.2.1 on x86_64-pc-linux-gnu, compiled by gcc",
            "CockroachDB CCL v23.1.0",
        ] {
            assert!(is_fork(fork), "{fork}");
        }
        for ours in [
            "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc",
            "PostgreSQL 18.4 on x86_64-pc-linux-gnu",
        ] {
            assert!(!is_fork(ours), "{ours}");
        }
    }
}

//! The connection to a node: opening it, its limits, and its errors.
//!
//! It only reads, waits for locks at most [`LOCK_TIMEOUT`], runs statements for at most [`STATEMENT_TIMEOUT`], and every statement
//! is its own transaction, so nothing is held between two ticks. Statements are prepared once: planning the statistics views
//! costs more than reading them.

use crate::sql::json;
use connect::conninfo::SessionAttrs;
use connect::{ConnSpec, ConnectError, control};
use postgres::SimpleQueryMessage;
use postgres::types::ToSql;
use record::clock::monotonic_us;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

/// `application_name` of every connection that samples; samples leave out sessions of this name and our role: a name alone would hide any session.
pub const APPLICATION_NAME: &str = "pgfathom watch";
/// The time limit for a query. On a host whose CPUs are full for seconds a short limit would cancel the sample just when it matters, and each would
/// leave an error in the server's log; starts that pass meanwhile are missed and reported.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(4);
/// A session ends if the server sends nothing for this long: the statement's own limit is shorter.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time limit for a lock.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_millis(50);
/// `server_version_num` from which on WITH may say MATERIALIZED.
const MATERIALIZE_SINCE: u32 = 120_000;
/// The default time limit for opening a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// If the other side does not acknowledge sent data for this long, the connection is lost.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest answer to a question. A longer message would end the connection, and the owner of an object decides how long its definitions are.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// What the server sends instead of a longer one, before the number of its bytes: no JSON begins like this.
const TOO_LONG: &str = "too long: ";
/// SQLSTATE of a limit of the program (`program_limit_exceeded`).
const TOO_LONG_STATE: &str = "54000";

/// A query for one text, of which the server sends at most [`ANSWER_BYTES_MAX`]. OFFSET keeps the planner from putting the query in twice.
fn bounded(sql: &str) -> String {
    format!(
        "select case when pg_catalog.octet_length(answer) > {ANSWER_BYTES_MAX} then '{TOO_LONG}' || pg_catalog.octet_length(answer) else answer end \
         from ({sql} offset 0) question (answer)"
    )
}

/// Why a question has no answer.
#[derive(Debug)]
pub enum Failed {
    /// The server refused or cancelled; the connection is open.
    Refused {
        /// Its message.
        sqlstate: String,
        /// In its words.
        message: String,
    },
    /// The server has ended the session for a reason of the session, and admits the next one: replay on a standby needed what it held, or a time limit.
    Ended(String),
    /// The connection is lost, or was never opened.
    Gone(String),
}

/// Why a server ends one session and no other: `serialization_failure` by replay (`ProcessInterrupts` in `postgres.c`), and the three limits of time.
const ENDS_ONE: [&str; 4] = ["40001", "25P03", "25P04", "57P05"];

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Refused { message, .. } => f.write_str(message),
            Failed::Ended(message) | Failed::Gone(message) => f.write_str(message),
        }
    }
}

impl Failed {
    /// Whether a retry can help: after a timeout, but not for a missing privilege or column.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            // query_canceled, lock_not_available, and the classes of resources, intervention and system errors.
            Failed::Refused { sqlstate, .. } => {
                ["57014", "55P03"].contains(&sqlstate.as_str())
                    || ["53", "57", "58", "40"].iter().any(|class| sqlstate.starts_with(class))
            }
            Failed::Ended(_) | Failed::Gone(_) => true,
        }
    }
}

impl From<postgres::Error> for Failed {
    fn from(error: postgres::Error) -> Failed {
        match control::server_error(&error) {
            Some(server)
                if !server.is_fatal() && !["57P01", "57P02", "57P03"].contains(&server.sqlstate.as_str()) =>
            {
                Failed::Refused { sqlstate: server.sqlstate.as_str().to_string(), message: server.message }
            }
            Some(server) if ENDS_ONE.contains(&server.sqlstate.as_str()) => Failed::Ended(server.message),
            Some(server) => Failed::Gone(server.message),
            None => Failed::Gone(words(&error)),
        }
    }
}

/// An error with its causes in one line.
fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}

/// An open connection that samples.
#[derive(Debug)]
pub struct Session {
    client: control::Control,
    /// Whether WITH may say MATERIALIZED (PostgreSQL 12). Older releases always materialize; the word is a syntax error there, and trying it would write a line
    /// into the server's log.
    can_materialize: bool,
    prepared: HashMap<String, postgres::Statement>,
    /// Settings of the application's own that were given a value for planning.
    pub(crate) customs: Vec<String>,
    /// How it was opened.
    spec: ConnSpec,
    queries: u64,
    /// Time spent waiting for answers.
    waited_us: u64,
    /// The parts of both that were already reported.
    server_text: (u64, u64),
}

impl Session {
    /// Opens it.
    ///
    /// # Errors
    /// [`Failed::Gone`] with the reason.
    pub fn open(spec: &ConnSpec) -> Result<Session, Failed> {
        Session::open_ready(&sampling(spec), PATIENCE)
    }

    /// Opens it for single questions, with other limits and another `application_name`. It is read-only, too.
    ///
    /// # Errors
    /// [`Failed::Gone`] with the reason.
    pub fn open_within(spec: &ConnSpec, name: &str, limits: &Limits) -> Result<Session, Failed> {
        let spec = limited(&spec.pinned().with_application_name(name), limits);
        Session::open_ready(&spec, limits.statement.saturating_mul(2))
    }

    /// Opens a connection whose settings are complete.
    fn open_ready(spec: &ConnSpec, patience: Duration) -> Result<Session, Failed> {
        let mut client = connected(spec).map_err(|error| Failed::Gone(words(&error)))?;
        client.set_patience(patience);
        let mut session = Session {
            client,
            can_materialize: true,
            prepared: HashMap::new(),
            customs: vec![],
            spec: spec.clone(),
            queries: 0,
            waited_us: 0,
            server_text: (0, 0),
        };
        if session.client.is_shared() {
            // Each query is its own transaction, with current statistics.
            return session.versioned();
        }
        // Without it (15 and later) a cached value would be returned instead of the current statistic. It cannot be a startup
        // option, because older servers would refuse the connection.
        // A database of any bytes refuses to send those that are not UTF-8 to a session of that encoding.
        // The owner of the database may have set limits that would end our session between two looks, or at an error. A server process that computes for us
        // ends soon after our connection is gone.
        session.client.batch_execute(
            "select pg_catalog.set_config(name, case name when 'stats_fetch_consistency' then 'none' when 'exit_on_error' then 'off'
                when 'client_encoding' then 'SQL_ASCII'
                when 'client_connection_check_interval' then '1000' else '0' end, false)
              from pg_catalog.pg_settings where name in ('stats_fetch_consistency', 'idle_session_timeout', 'transaction_timeout', 'exit_on_error',
                'client_connection_check_interval')
                or name = 'client_encoding' and pg_catalog.current_setting('server_encoding') = 'SQL_ASCII'",
        )?;
        session.versioned()
    }

    fn versioned(mut self) -> Result<Session, Failed> {
        let version = self.word("show server_version_num")?.and_then(|number| number.parse::<u32>().ok());
        self.can_materialize = version.is_none_or(|number| number >= MATERIALIZE_SINCE);
        Ok(self)
    }

    /// The first value of an answer, as text.
    fn word(&mut self, sql: &str) -> Result<Option<String>, Failed> {
        let rows = self.client.simple_query(sql)?;
        self.client.release()?;
        Ok(rows.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_string),
            _ => None,
        }))
    }

    /// The host that answered.
    pub fn host(&self) -> &connect::conninfo::HostSpec {
        self.client.host()
    }

    /// Statements sent since it was opened, without PREPARE.
    pub fn queries(&self) -> u64 {
        self.queries
    }

    /// The columns of a table, view or function call; empty if it does not exist or is not readable. Nothing is executed.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn columns(&mut self, relation: &str) -> Result<BTreeSet<String>, Failed> {
        // Missing objects are not queried: each refusal is a line in the server's log. A call has no such look-up.
        if !relation.contains('(')
            && let Ok(None) = self.word(&format!("select pg_catalog.to_regclass('{relation}')"))
        {
            return Ok(BTreeSet::new());
        }
        // The statement is closed before its transaction ends: behind a pooler, the next transaction may use another server process.
        let columns = self
            .client
            .prepare(&format!("select * from {relation} limit 0"))
            .map(|statement| statement.columns().iter().map(|column| column.name().to_string()).collect())
            .map_err(Failed::from);
        self.client.release()?;
        match columns {
            Err(Failed::Refused { .. }) => Ok(BTreeSet::new()),
            other => other,
        }
    }

    /// The JSON value that `sql` returns; the statement is prepared at its first use.
    ///
    /// # Errors
    /// The server's message.
    pub fn query(&mut self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Value, Failed> {
        let begin_us = monotonic_us();
        let answer = self.answer(sql, parameters);
        self.waited_us += monotonic_us() - begin_us;
        answer
    }

    fn answer(&mut self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Value, Failed> {
        let text = self.text_of(sql, parameters)?;
        let Some(text) = text else { return Ok(Value::Null) };
        match text.0.strip_prefix(TOO_LONG) {
            Some(bytes) => Err(Failed::Refused {
                sqlstate: TOO_LONG_STATE.to_string(),
                message: format!(
                    "the server's answer has {bytes} bytes, more than the {ANSWER_BYTES_MAX} that are read"
                ),
            }),
            None => Ok(json::parse(&text.0)),
        }
    }

    fn text_of(
        &mut self,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<json::Raw>, Failed> {
        let whole = || {
            let sql = bounded(sql);
            if self.can_materialize { sql } else { sql.replace(" as materialized (", " as (") }
        };
        if self.client.is_shared() {
            // The next transaction may use another server process, which does not have our statement.
            self.queries += 1;
            // The row owns its statement, which is closed before the transaction ends: behind a pooler, the next one may use another server process.
            let whole = whole();
            let answer = self.client.query_one(&whole, parameters).and_then(|row| row.try_get(0));
            self.client.release()?;
            return Ok(answer?);
        }
        if !self.prepared.contains_key(sql) {
            let whole = whole();
            let statement = self.client.prepare(&whole)?;
            self.prepared.insert(sql.to_string(), statement);
        }
        let statement = self.prepared[sql].clone();
        self.queries += 1;
        Ok(self.client.query_one(&statement, parameters)?.try_get(0)?)
    }

    /// The time of a round trip without work: an empty statement needs no transaction and no snapshot.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn round_trip_us(&mut self) -> Result<u64, Failed> {
        let begin_us = monotonic_us();
        self.client.outside()?.batch_execute("")?;
        let rtt_us = monotonic_us() - begin_us;
        self.queries += 1;
        self.waited_us += rtt_us;
        Ok(rtt_us)
    }

    /// Runs plain text, and returns the first column of its rows; several statements are possible. Not for a
    /// connection that [`is_shared`](Session::is_shared).
    ///
    /// # Errors
    /// The server's message.
    pub(crate) fn plain(&mut self, sql: &str) -> Result<Vec<String>, Failed> {
        let begin_us = monotonic_us();
        let answer = self.client.outside()?.simple_query(sql);
        self.waited_us += monotonic_us() - begin_us;
        self.queries += 1;
        let rows = answer?.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_string()),
            _ => None,
        });
        Ok(rows.collect())
    }

    /// The message of the error with this SQLSTATE in which a text ends, as long as it is; `None` if it ends without an error.
    ///
    /// # Errors
    /// Any other error.
    pub(crate) fn message(&mut self, sql: &str, sqlstate: &str) -> Result<Option<String>, Failed> {
        self.queries += 1;
        let begin_us = monotonic_us();
        let answer = self.client.outside()?.simple_query(sql);
        self.waited_us += monotonic_us() - begin_us;
        match answer {
            Ok(_) => Ok(None),
            Err(error) => match error.as_db_error() {
                Some(found) if found.code().code() == sqlstate => Ok(Some(found.message().to_string())),
                _ => Err(error.into()),
            },
        }
    }

    /// Another connection to the same server, for what must not stay with this one.
    ///
    /// # Errors
    /// [`Failed::Gone`] with the reason.
    pub(crate) fn beside(&self, patience: Duration) -> Result<Beside, Failed> {
        let mut session = Session::open_ready(&self.spec, patience)?;
        let pid = session.word("select pg_catalog.pg_backend_pid()")?.and_then(|pid| pid.parse().ok());
        Ok(Beside { session, pid: pid.unwrap_or_default() })
    }

    /// Ends the server process of such a connection, if it is still there.
    ///
    /// # Errors
    /// The server's message.
    pub(crate) fn end(&mut self, pid: i32) -> Result<(), Failed> {
        self.plain(&format!(
            "select pg_catalog.pg_terminate_backend(pid) from pg_catalog.pg_stat_activity where pid = {pid} and application_name = '{APPLICATION_NAME}'
               and usesysid = (select oid from pg_catalog.pg_roles where rolname = session_user)"
        ))?;
        Ok(())
    }

    /// Whether another client may use the server process between two transactions.
    pub(crate) fn is_shared(&self) -> bool {
        self.client.is_shared()
    }

    /// Statements sent, and microseconds waited for their answers, since the last call.
    pub fn spent(&mut self) -> (u64, u64) {
        let (queries, waited_us) = std::mem::replace(&mut self.server_text, (self.queries, self.waited_us));
        (self.queries - queries, self.waited_us - waited_us)
    }
}

/// The setting of a session that only reads.
const READS_ONLY: &str = "default_transaction_read_only";
/// SQLSTATE of a write in such a session.
const READ_ONLY_TRANSACTION: &str = "25006";

/// Opens a connection. An event trigger of a database that writes something down at each login (PostgreSQL 17) refuses a session that only reads from its
/// begin: there it becomes one right after.
fn connected(spec: &ConnSpec) -> Result<control::Control, ConnectError> {
    let refused = match control::connect_shared(spec) {
        Err(error) if error.sqlstate() == Some(READ_ONLY_TRANSACTION) => error,
        connected => return connected,
    };
    let mut client = control::connect_shared(&spec.clone().without_session_setting(READS_ONLY))?;
    // A server process that others use, too, is not ours to change.
    let is_set = !client.is_shared() && client.batch_execute(&format!("set {READS_ONLY} = on")).is_ok();
    if is_set { Ok(client) } else { Err(refused) }
}

/// A connection beside another one.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) session: Session,
    /// Of its server process.
    pub(crate) pid: i32,
}

/// Time limits of a session.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For a statement.
    pub statement: Duration,
    /// For a lock.
    pub lock: Duration,
}

/// The user's connection, made ours.
fn sampling(spec: &ConnSpec) -> ConnSpec {
    let limits = Limits { statement: STATEMENT_TIMEOUT, lock: LOCK_TIMEOUT };
    limited(&spec.pinned().with_application_name(APPLICATION_NAME), &limits).without_jit()
}

/// The connection with these limits, and read-only.
fn limited(spec: &ConnSpec, limits: &Limits) -> ConnSpec {
    let milliseconds = |duration: Duration| format!("{}ms", duration.as_millis());
    let mut spec = spec
        .clone()
        .with_session_setting("statement_timeout", &milliseconds(limits.statement))
        .with_session_setting("lock_timeout", &milliseconds(limits.lock))
        .with_session_setting(READS_ONLY, "on")
        // These queries must not wait for parallel workers.
        .with_session_setting("max_parallel_workers_per_gather", "0");
    // Ours is read-only by that setting, on any server: the server's own state decides which one was meant.
    spec.target_session_attrs = match spec.target_session_attrs {
        SessionAttrs::ReadWrite => SessionAttrs::Primary,
        SessionAttrs::ReadOnly => SessionAttrs::PreferStandby,
        other => other,
    };
    spec.connect_timeout.get_or_insert(CONNECT_TIMEOUT);
    spec.keepalives.user_timeout.get_or_insert(UNACKNOWLEDGED_TIMEOUT);
    spec
}

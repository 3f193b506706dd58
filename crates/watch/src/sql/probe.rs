//! The columns and views of this server: they are looked up by name, never inferred from a version number, because relatives of PostgreSQL have the
//! number of one version and the views of another.

use crate::sql::held::{Held, SCHEMA_OF};
use crate::sql::json::{flag, text};
use crate::sql::own;
use crate::sql::powers::{IS_POWERFUL, READS_ALL, TRUSTED};
use crate::sql::session::{Failed, Session};
use engines::profile::Own;
use record::watched::MORE_THAN_READ;
use serde_json::Value;
use std::collections::BTreeSet;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    /// The source of sessions: the function below the view, which takes no locks on catalogs; else the view.
    pub(crate) activity: &'static str,
    pub(crate) activity_columns: BTreeSet<String>,
    pub(crate) locks_columns: BTreeSet<String>,
    pub(crate) database: BTreeSet<String>,
    pub(crate) bgwriter: BTreeSet<String>,
    pub(crate) checkpointer: BTreeSet<String>,
    pub(crate) wal: BTreeSet<String>,
    pub(crate) io: BTreeSet<String>,
    pub(crate) slru: BTreeSet<String>,
    /// Whether a standby can be queried for a paused replay.
    pub(crate) has_replay_pause: bool,
    /// Whether the queue of NOTIFY reports how full it is.
    pub(crate) has_notify_queue: bool,
    /// Whether updates are counted that went to another page.
    pub(crate) has_newpage_updates: bool,
    pub(crate) slots: BTreeSet<String>,
    pub(crate) slot_statistics: BTreeSet<String>,
    pub(crate) senders: BTreeSet<String>,
    pub(crate) subscription: BTreeSet<String>,
    pub(crate) subscription_statistics: BTreeSet<String>,
    /// What the engines make for themselves whose signs this server has.
    pub(crate) own: Vec<Own>,
    /// Replications with subscriptions outside of PostgreSQL's catalog: their names and queries.
    pub(crate) foreign_subscriptions: Vec<(&'static str, &'static str)>,
    pub(crate) publication_namespace: BTreeSet<String>,
    pub(crate) statements: Call,
    /// How often that has thrown entries away.
    pub(crate) statements_info: Call,
    pub(crate) kcache: Call,
    pub(crate) wait_sampling: Call,
    /// The existing views of commands in progress, with their columns.
    pub(crate) progress: Vec<(&'static str, BTreeSet<String>)>,
}

/// A function or view of an extension.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// As it stands behind `from`.
    pub(crate) sql: String,
    /// Its columns; empty if it does not exist.
    pub(crate) columns: BTreeSet<String>,
    /// Why it is not used although it is there.
    pub(crate) why_not: Option<String>,
    /// It is used only while its place is looked at and kept.
    pub(crate) held: Option<Held>,
}

impl Call {
    /// The schema is the extension's own choice, and need not be in the search path. An object of this name outside of the extension is not trusted, and not
    /// called. Nor is one in a schema whose owner is not trusted, if our role may do more than read: the owner can rename the schema and put another function
    /// in its place, and statements find it by its name each time they are analysed. A superuser on a primary keeps the schema in its place while it asks
    /// ([`Held`]). A role that may read the tables of all trusts the owner of the database besides, because by default the schema public is theirs.
    /// `None` if no such extension is installed: to try it all the same would write an error into the server's log.
    fn find(session: &mut Session, name: &str, arguments: &str) -> Result<Option<Call>, Failed> {
        let question = format!(
            "with {TRUSTED} select (select json_build_object('schema', min(pg_catalog.quote_ident(n.nspname)),
                'is_held', (select m.rolsuper from pg_catalog.pg_roles m where m.rolname = current_user) and not pg_catalog.pg_is_in_recovery(),
                'owner', (min(r.rolname::text) filter (where n.nspowner not in (select oid from trusted) and ({IS_POWERFUL}
                    or {READS_ALL} and r.rolname <> 'pg_database_owner' and n.nspowner not in (select datdba from pg_catalog.pg_database
                      where datname = current_database())))))
              {SCHEMA_OF})::text"
        );
        let is_function = !arguments.is_empty();
        let schema = session.query(&question, &[&name, &is_function]);
        let (place, owner, is_held) = match &schema {
            Ok(found) if text(found, "schema").is_empty() => return Ok(None),
            Ok(found) => (text(found, "schema"), text(found, "owner"), flag(found, "is_held") == Some(true)),
            Err(Failed::Refused { .. }) => (String::new(), String::new(), false),
            Err(_) => return Err(schema.expect_err("it is one")),
        };
        let is_held = is_held && !owner.is_empty() && !session.is_shared();
        let held = is_held.then(|| Held { name: name.to_string(), is_function, schema: place.clone() });
        let why_not = (!owner.is_empty() && !is_held).then(|| {
            format!(
                "its schema {place} belongs to {owner}, who could put another function in its place, and {MORE_THAN_READ} the server's views; watch as a role \
                    that is only in pg_monitor, or move it into a schema of a superuser: ALTER EXTENSION ... SET SCHEMA ..."
            )
        });
        let dot = if place.is_empty() { "" } else { "." };
        let sql = format!("{place}{dot}{name}{arguments}");
        Ok(Some(Call { sql, columns: BTreeSet::new(), why_not, held }))
    }
}

/// Where the function is missing.
const ACTIVITY_VIEW: &str = "pg_catalog.pg_stat_activity";
const ACTIVITY_FUNCTION: &str = "pg_catalog.pg_stat_get_activity(null)";
/// The commands that may report progress; the view is `pg_stat_progress_` and the name.
pub(crate) const PROGRESS: [&str; 6] = ["vacuum", "analyze", "create_index", "copy", "cluster", "basebackup"];

impl Probe {
    /// Evaluates the condition.
    ///
    /// # Errors
    /// When the connection is gone.
    pub(crate) fn of(session: &mut Session) -> Result<Probe, Failed> {
        let mut probe = Probe { activity: ACTIVITY_FUNCTION, ..Probe::default() };
        probe.activity_columns = session.columns(ACTIVITY_FUNCTION)?;
        if probe.activity_columns.is_empty() {
            probe.activity = ACTIVITY_VIEW;
            probe.activity_columns = session.columns(ACTIVITY_VIEW)?;
        }
        probe.locks_columns = session.columns("pg_catalog.pg_locks")?;
        probe.database = session.columns("pg_catalog.pg_stat_database")?;
        probe.bgwriter = session.columns("pg_catalog.pg_stat_bgwriter")?;
        probe.checkpointer = session.columns("pg_catalog.pg_stat_checkpointer")?;
        probe.wal = session.columns("pg_catalog.pg_stat_wal")?;
        probe.io = session.columns("pg_catalog.pg_stat_io")?;
        probe.slru = session.columns("pg_catalog.pg_stat_slru")?;
        probe.has_replay_pause = has_function(session, "pg_catalog.pg_is_wal_replay_paused()")?;
        probe.has_notify_queue = has_function(session, "pg_catalog.pg_notification_queue_usage()")?;
        probe.has_newpage_updates =
            has_function(session, "pg_catalog.pg_stat_get_tuples_newpage_updated(oid)")?;
        probe.slots = session.columns("pg_catalog.pg_replication_slots")?;
        probe.slot_statistics = session.columns("pg_catalog.pg_stat_replication_slots")?;
        probe.senders = session.columns("pg_catalog.pg_stat_get_wal_senders()")?;
        probe.subscription = session.columns("pg_catalog.pg_stat_subscription")?;
        probe.subscription_statistics = session.columns("pg_catalog.pg_stat_subscription_stats")?;
        for sign in own::signs(session)? {
            probe.own.push(sign.own());
            let theirs =
                sign.replication.and_then(|replication| Some((replication.name, replication.subscriptions?)));
            probe.foreign_subscriptions.extend(theirs);
        }
        own::show_parts(session, &probe.own)?;
        probe.publication_namespace = session.columns("pg_catalog.pg_publication_namespace")?;
        for (at, name, arguments) in [
            (&mut probe.statements, "pg_stat_statements", "(false)"),
            (&mut probe.statements_info, "pg_stat_statements_info", "()"),
            (&mut probe.kcache, "pg_stat_kcache", "()"),
            (&mut probe.wait_sampling, "pg_wait_sampling_profile", ""),
        ] {
            let Some(call) = Call::find(session, name, arguments)? else { continue };
            if call.why_not.is_none() {
                at.columns = session.columns(&call.sql)?;
            }
            (at.sql, at.why_not, at.held) = (call.sql, call.why_not, call.held);
        }
        for name in PROGRESS {
            let columns = session.columns(&format!("pg_catalog.pg_stat_progress_{name}"))?;
            if !columns.is_empty() {
                probe.progress.push((name, columns));
            }
        }
        Ok(probe)
    }
}

/// Whether a function exists, by its signature. Nothing is executed.
fn has_function(session: &mut Session, signature: &str) -> Result<bool, Failed> {
    let question = format!("select to_json(pg_catalog.to_regprocedure('{signature}') is not null)::text");
    match session.query(&question, &[]) {
        Ok(answer) => Ok(answer == Value::Bool(true)),
        Err(Failed::Refused { .. }) => Ok(false),
        Err(gone) => Err(gone),
    }
}

/// `column` if it is there, else `otherwise`.
pub(crate) fn column<'a>(columns: &BTreeSet<String>, column: &'a str, otherwise: &'a str) -> &'a str {
    if columns.contains(column) { column } else { otherwise }
}

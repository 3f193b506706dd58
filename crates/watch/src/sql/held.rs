//! Extensions in a schema whose owner is not trusted, read by a superuser.
//!
//! The owner of a schema can rename it and put a function of the same name into another one that takes its name; a statement finds its functions by name each
//! time it is analysed. A transaction that renames a schema keeps its lock on `pg_namespace` until it is committed (`RenameSchema` in schemacmds.c): while we
//! have that table locked in SHARE mode no such change is under way, and none begins. A schema can also be dropped with all that is in it, and made anew: then
//! the extension's view is locked until that is committed, so we lock the view as well. Behind both locks, a look at where the extension's objects are stays
//! true for one question. Who makes a schema, or the first temporary table of a session, waits for that long. A standby takes no such lock.

use super::json::text;
use super::session::{Failed, Session};
use postgres::types::ToSql;
use serde_json::Value;

/// Where the objects of the extensions are: $1 the name of a function or view, $2 whether it is a function. One column follows each row.
pub(super) const SCHEMA_OF: &str = "from (select 'pg_catalog.pg_proc'::pg_catalog.regclass c, oid, pronamespace s from pg_catalog.pg_proc where proname = \
    $1 and $2
       union all select 'pg_catalog.pg_class'::pg_catalog.regclass, oid, relnamespace from pg_catalog.pg_class where relname = $1 and not $2) o
     join pg_catalog.pg_depend d on d.classid = o.c and d.objid = o.oid and d.deptype = 'e'
     join pg_catalog.pg_extension e on d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass and e.oid = d.refobjid
     join pg_catalog.pg_namespace n on n.oid = o.s join pg_catalog.pg_roles r on r.oid = n.nspowner
     where e.extname in ('pg_stat_statements', 'pg_stat_kcache', 'pg_wait_sampling')";

/// A lock that is not free within the session's limit leaves no error in the server's log. Any role can make the texts of statements long: what takes longer
/// than this would keep others from making schemas.
const BEGIN: &str = "begin; set local idle_in_transaction_session_timeout = 0; set local statement_timeout = '1s'; \
    select pg_catalog.set_config('log_min_messages', 'fatal', true); lock table pg_catalog.pg_namespace in share mode";

/// An object that is looked for again each time.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(super) name: String,
    pub(super) is_function: bool,
    /// As it was found at first, quoted.
    pub(super) schema: String,
}

impl Held {
    /// Whether it is still there, and the extension's view beside it. The view is locked first; to lock one executes nothing of it.
    fn is_there(&self, session: &mut Session) -> Result<bool, Failed> {
        session.plain(&format!("lock table {}.{} in access share mode", self.schema, self.name))?;
        let sql = format!(
            "select json_build_object('schema', (select min(pg_catalog.quote_ident(n.nspname)) {SCHEMA_OF}))::text"
        );
        for is_function in [self.is_function, false] {
            let found = session.query(&sql, &[&self.name, &is_function])?;
            if text(&found, "schema") != self.schema {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The same as [`Session::query`], with these objects kept in their places.
pub(crate) fn query(
    session: &mut Session,
    held: &[&Held],
    sql: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Value, Failed> {
    if held.is_empty() {
        return session.query(sql, parameters);
    }
    let within = |session: &mut Session| {
        session.plain(BEGIN)?;
        for one in held {
            if !one.is_there(session)? {
                let message = format!("{} is no longer in schema {}", one.name, one.schema);
                return Err(Failed::Refused { sqlstate: "42P01".to_string(), message });
            }
        }
        session.query(sql, parameters)
    };
    let answer = within(session);
    if matches!(answer, Err(Failed::Ended(_) | Failed::Gone(_))) {
        return answer;
    }
    session.plain("rollback")?;
    answer
}

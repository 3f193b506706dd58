//! pgfathom's advisory locks, and who has one that is not free.
//!
//! Every role that can connect to a database can take any advisory lock in it. So the holder is a pgfathom only if its role may do what a pgfathom does
//! with the lock: write the ledger, or make it where there is none. For any other holder it is useless to wait.

use connect::sql;
use postgres::GenericClient;

/// Their class: the letters `pgfa`. A lock of one number with this class is the mark of a run that is on.
pub const LOCK_CLASS: i32 = 0x7067_6661;

/// The longest application name in a message.
const NAME_CHARS: usize = 63;

/// The key of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Two numbers, the first of which is [`LOCK_CLASS`].
    Of(i32),
    /// One number.
    One(i64),
}

impl Key {
    /// `classid`, `objid` and `objsubid` in `pg_locks` (`lockfuncs.c`).
    fn columns(self) -> [i64; 3] {
        match self {
            Key::Of(second) => [i64::from(LOCK_CLASS), i64::from(second) & 0xFFFF_FFFF, 2],
            Key::One(number) => [number >> 32 & 0xFFFF_FFFF, number & 0xFFFF_FFFF, 1],
        }
    }
}

/// Who has a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Process, application and role, in words.
    pub words: String,
    /// The statement that ends it.
    pub remedy: String,
    /// Whether its role may write the ledger of this database, or make one.
    pub may_load: bool,
}

/// The holder of a lock in the client's database, one that may load before others; `None` if it is free, or the server does not show who has it.
pub fn holder(client: &mut impl GenericClient, key: Key) -> Option<Holder> {
    let [class, object, sub] = key.columns();
    let found = client.query_opt(
        "select h.pid, h.application, pg_catalog.pg_get_userbyid(h.role)::text, h.gid,
                coalesce(pg_catalog.has_table_privilege(h.role, pg_catalog.to_regclass('pgfathom.dataset')::oid, 'insert'),
                         pg_catalog.has_database_privilege(h.role, pg_catalog.current_database(), 'create'), true)
         from (select l.pid, coalesce(a.application_name, '') as application, coalesce(a.usesysid, r.oid) as role, p.gid
               from pg_catalog.pg_locks l left join pg_catalog.pg_stat_activity a on a.pid = l.pid
               left join pg_catalog.pg_prepared_xacts p on l.pid is null and l.virtualtransaction = '-1/' || p.transaction::text
               left join pg_catalog.pg_roles r on r.rolname = p.owner
               where l.locktype = 'advisory' and l.granted and l.classid::int8 = $1 and l.objid::int8 = $2 and l.objsubid::int8 = $3
                 and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())) h
         order by 5 desc limit 1",
        &[&class, &object, &sub],
    );
    let row = found.ok()??;
    let role: Option<String> = row.try_get(2).ok()?;
    let role = role.unwrap_or_else(|| "that is not known".to_owned());
    let may_load = row.try_get(4).ok()?;
    let gid: Option<String> = row.try_get(3).ok()?;
    let pid: Option<i32> = row.try_get(0).ok()?;
    Some(match (gid, pid) {
        (Some(gid), _) => Holder {
            words: record::escape::one_line(
                &format!("the prepared transaction {gid} of the role {role}"),
                2 * NAME_CHARS,
            ),
            remedy: format!("rollback prepared {}", sql::literal(&gid).trim_start()),
            may_load,
        },
        (None, pid) => {
            let application: String = row.try_get(1).ok()?;
            let application = match record::escape::one_line(&application, NAME_CHARS) {
                name if name.is_empty() => "without an application name".to_owned(),
                name => format!("application {name}"),
            };
            let pid = pid.unwrap_or_default();
            Holder {
                words: format!(
                    "server process {pid} ({application}, role {})",
                    record::escape::one_line(&role, NAME_CHARS)
                ),
                remedy: format!("select pg_terminate_backend({pid})"),
                may_load,
            }
        }
    })
}

//! Numbers that run out: sequences, and integer keys.

use crate::database::draft::{Draft, each, fail, pass, unknown, warn};
use crate::database::node::{Node, USERS};
use crate::database::rule::{Check, Judged};
use record::check::{Area, Unit};
use record::number;
use serde_json::Value;
use watch::sql::json;

/// Of the range, used: time to plan a change of the type.
const USED_SHARE_WARN: f64 = 0.75;
/// Time to do it.
const USED_SHARE_FAIL: f64 = 0.95;
/// Sequences read in one transaction: each stays locked to its end (as by nextval), and the lock table is shared by all sessions.
const BATCH: usize = 200;
/// Sequences read at all, those of small types first.
const SEQUENCES_MAX: usize = 5000;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "schema.sequences",
        area: Area::Schema,
        title: "sequences near their end, or near the end of their column's type",
        limits: "75 % used: warning; 95 %: fail; of the smaller of MAXVALUE and the type's largest value",
        units: &[Unit::Share],
        needs: &[],
        why: "the next value after the end is an error, and every insert fails",
        judge: sequences,
    },
    Check {
        id: "schema.int4_keys",
        area: Area::Schema,
        title: "integer primary keys with values near the end of their type",
        limits: "75 % of 2^31 or 2^15 (from the statistics of ANALYZE): warning; 95 %: fail",
        units: &[Unit::Share],
        needs: &[],
        why: "the change to bigint rewrites the table and its indexes: at 2^31 it is an outage",
        judge: int4_keys,
    },
];

/// The largest value of an integer type.
const TYPE_MAX: &str = "case a.atttypid when 'pg_catalog.int2'::pg_catalog.regtype then 32767 when 'pg_catalog.int4'::pg_catalog.regtype then 2147483647 end";

fn sequences(node: &mut Node<'_>) -> Judged {
    // A column uses a sequence by owning it, or by its default.
    let all = node.query(&format!(
        "with uses as materialized (select d.objid seq, d.refobjid rel, d.refobjsubid att from pg_catalog.pg_depend d
             where d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.deptype \
                 in ('a', 'i') and d.refobjsubid > 0
             union select d.refobjid, f.adrelid, f.adnum from pg_catalog.pg_depend d join pg_catalog.pg_attrdef f on d.classid = \
                 'pg_catalog.pg_attrdef'::pg_catalog.regclass and d.objid = f.oid
             where d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass)
         select pg_catalog.json_build_object('total', count(*), 'hidden', count(*) filter (where not readable), 'oids', (pg_catalog.json_agg(oid \
             order by most, oid) filter (where readable)))::text
         from (select c.oid::bigint, least(s.seqmax, min({TYPE_MAX})) most, pg_catalog.has_sequence_privilege(c.oid, 'USAGE,SELECT') readable
           from pg_catalog.pg_sequence s join pg_catalog.pg_class c on c.oid = s.seqrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
             left join uses u on u.seq = c.oid left join pg_catalog.pg_attribute a on a.attrelid = u.rel and a.attnum = u.att
           where s.seqincrement > 0 and not s.seqcycle and c.relpersistence <> 't' and {USERS} group by c.oid, s.seqmax) q"
    ))?;
    let (total, hidden) = (json::count(&all, "total").unwrap_or(0), json::count(&all, "hidden").unwrap_or(0));
    let oids: Vec<String> =
        json::list(&all, "oids").iter().filter_map(Value::as_u64).map(|oid| oid.to_string()).collect();
    let mut rows = Vec::new();
    let mut locked = 0;
    for batch in oids[..oids.len().min(SEQUENCES_MAX)].chunks(BATCH) {
        let answer = node.query(&used(&batch.join(",")))?;
        locked += json::count(&answer, "locked").unwrap_or(0);
        rows.extend(json::list(&answer, "rows").iter().cloned());
    }
    rows.sort_by(|a, b| share(b).total_cmp(&share(a)));
    let found = rows.len() as u64;
    let mut drafts = each(&rows, found, near_end, || {
        pass(format!("{} read, none is near its end", number::counted(total - hidden - locked, "sequence")))
    });
    let unread = hidden + locked + (oids.len().saturating_sub(SEQUENCES_MAX)) as u64;
    if unread > 0 {
        drafts.push(unknown(
            format!("{} not read", number::counted(unread, "sequence")),
            format!("{hidden} need USAGE or SELECT, {locked} are locked by other sessions, and at most {SEQUENCES_MAX} are read"),
        ));
    }
    Ok(drafts)
}

/// The sequences of these numbers that are nearly used up.
fn used(oids: &str) -> String {
    format!(
        "with locked as materialized (select relation from pg_catalog.pg_locks where locktype = 'relation'
             and mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
             and database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())),
           uses as materialized (select d.objid seq, d.refobjid rel, d.refobjsubid att from pg_catalog.pg_depend d
             where d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.deptype \
                 in ('a', 'i') and d.refobjsubid > 0 and d.objid in ({oids})
             union select d.refobjid, f.adrelid, f.adnum from pg_catalog.pg_depend d join pg_catalog.pg_attrdef f on d.classid = \
                 'pg_catalog.pg_attrdef'::pg_catalog.regclass and d.objid = f.oid
             where d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.refobjid in ({oids})),
           q as materialized (select pg_catalog.format('%I.%I', n.nspname, c.relname) as sequence, pg_catalog.pg_sequence_last_value(c.oid) as last, s.seqmax,
             (select min({TYPE_MAX}) from uses u join pg_catalog.pg_attribute a on a.attrelid = u.rel and a.attnum = u.att where u.seq = c.oid) type_max,
             (select pg_catalog.json_agg(pg_catalog.json_build_array(pg_catalog.format('%I.%I', m.nspname, r.relname), pg_catalog.quote_ident(a.attname)))
              from uses u join pg_catalog.pg_class r on r.oid = u.rel join pg_catalog.pg_namespace m on m.oid = r.relnamespace join \
                  pg_catalog.pg_attribute a on a.attrelid = u.rel and a.attnum = u.att
              where u.seq = c.oid and a.atttypid in ('pg_catalog.int2'::pg_catalog.regtype, 'pg_catalog.int4'::pg_catalog.regtype)) as columns
           from pg_catalog.pg_sequence s join pg_catalog.pg_class c on c.oid = s.seqrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
           where c.oid in ({oids}) and c.oid not in (select relation from locked) and not (pg_catalog.pg_is_in_recovery() and c.relpersistence = 'u'))
         select pg_catalog.json_build_object('locked', (select count(*) from locked where relation in ({oids})),
           'rows', (select pg_catalog.json_agg(q) from q where last::float8 / least(seqmax, type_max) >= {USED_SHARE_WARN}))::text"
    )
}

/// The used share of a row.
fn share(row: &Value) -> f64 {
    let number = |name| json::number(row, name).filter(|value| *value > 0.0);
    let most = number("seqmax").unwrap_or(f64::INFINITY).min(number("type_max").unwrap_or(f64::INFINITY));
    number("last").unwrap_or(0.0) / most
}

fn near_end(row: &Value) -> Draft {
    let sequence = json::text(row, "sequence");
    let share = share(row);
    let (last, most) =
        (json::number(row, "last").unwrap_or(0.0), json::number(row, "last").unwrap_or(0.0) / share);
    let of_type = json::number(row, "type_max") == Some(most.round());
    let claim = format!(
        "{sequence} is at {} of {}{}: {} used",
        number::short(last),
        number::short(most),
        if of_type { ", the largest value of its column's type" } else { "" },
        number::percent(share)
    );
    let draft = if share >= USED_SHARE_FAIL { fail(&*sequence, claim) } else { warn(&*sequence, claim) };
    let mut draft = draft
        .figure(share, Unit::Share)
        .at_most(USED_SHARE_WARN)
        .advice("make column and sequence bigint; this rewrites the table, so on a large one fill a new column in batches and swap them");
    for column in json::list(row, "columns") {
        let (table, name) = (column[0].as_str().unwrap_or_default(), column[1].as_str().unwrap_or_default());
        draft = draft.run(format!("ALTER TABLE {table} ALTER COLUMN {name} TYPE bigint;"));
    }
    draft.run(format!("ALTER SEQUENCE {sequence} AS bigint NO MAXVALUE;"))
}

fn int4_keys(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        &format!(
            "select * from (select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, pg_catalog.quote_ident(a.attname) as column, {TYPE_MAX} most,
               (select s.histogram_bounds::text::bigint[] from pg_catalog.pg_stats s
                where s.schemaname = n.nspname and s.tablename = c.relname and s.attname = a.attname and not s.inherited) bounds
             from pg_catalog.pg_index x join pg_catalog.pg_class c on c.oid = x.indrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
               join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = any(x.indkey::int2[])
             where x.indisprimary and c.relkind = 'r' and a.atttypid in ('pg_catalog.int2'::pg_catalog.regtype, \
                 'pg_catalog.int4'::pg_catalog.regtype) and {USERS}) k
             cross join lateral (select bounds[pg_catalog.array_upper(bounds, 1)]::float8 / most as share, bounds[pg_catalog.array_upper(bounds, 1)] \
                 as largest) l
             where share >= {USED_SHARE_WARN}"
        ),
        "share desc, relation",
    )?;
    let draft = |row: &Value| {
        let (relation, column) = (json::text(row, "relation"), json::text(row, "column"));
        let share = json::number(row, "share").unwrap_or(0.0);
        let claim = format!(
            "the largest known {relation}.{column} is {}, {} of its type",
            number::short(json::number(row, "largest").unwrap_or(0.0)),
            number::percent(share)
        );
        let subject = format!("{relation}.{column}");
        let draft = if share >= USED_SHARE_FAIL { fail(subject, claim) } else { warn(subject, claim) };
        draft
            .figure(share, Unit::Share)
            .at_most(USED_SHARE_WARN)
            .advice("change the type; this rewrites the table, so on a large one fill a new column in batches and swap them")
            .run(format!("ALTER TABLE {relation} ALTER COLUMN {column} TYPE bigint;"))
    };
    let sees_all = node.is("is_superuser");
    let mut drafts = each(&found.rows, found.total, draft, || {
        pass("no integer key is near the end of its type, by the statistics of ANALYZE")
    });
    if !sees_all {
        drafts.push(unknown(
            "keys of tables that this role cannot read were not checked",
            "pg_stats shows only columns that the role may read",
        ));
    }
    Ok(drafts)
}

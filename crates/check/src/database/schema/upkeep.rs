//! What vacuum and ANALYZE have to do with tables, and extensions behind their files.

use crate::database::draft::{each, note, pass, warn};
use crate::database::node::{Node, USERS};
use crate::database::rule::{Check, Judged, Need};
use record::check::{Area, Unit};
use record::number;
use serde_json::Value;
use watch::sql::json;

/// Autovacuum comes at its threshold; at twice of it, it does not keep up.
const DEAD_TIMES_MAX: u32 = 2;
/// Fewer dead rows cost little.
const DEAD_ROWS_MIN: u32 = 10_000;
/// Fewer rows need no statistics.
const ROWS_MIN: u32 = 1000;
/// Of the rows, changed since ANALYZE; autovacuum's default is 10 %.
const CHANGED_SHARE_MAX: f64 = 0.5;
/// Updates that say something about their kind.
const UPDATES_MIN: u32 = 100_000;
/// HOT updates below this share write to every index.
const HOT_SHARE_MIN: f64 = 0.5;
/// A smaller TOAST table is not worth a line.
const TOAST_BYTES_MIN: f64 = 16.0 * 1024.0 * 1024.0;
/// Of table and TOAST table together.
const TOAST_SHARE_MIN: f64 = 0.8;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "schema.dead_rows",
        area: Area::Schema,
        title: "tables with dead rows that vacuum does not remove",
        limits: "10,000 dead rows, and twice the table's autovacuum threshold",
        units: &[Unit::Count],
        needs: &[Need::Primary],
        why: "dead rows are read by every scan; vacuum was never there, is too slow, or a held horizon keeps it from removing them",
        judge: dead_rows,
    },
    Check {
        id: "schema.autovacuum_disabled",
        area: Area::Schema,
        title: "tables with autovacuum disabled",
        limits: "any",
        units: &[],
        needs: &[],
        why: "a table excluded for a load is often forgotten: it bloats, and its statistics stay as they were",
        judge: disabled,
    },
    Check {
        id: "schema.statistics",
        area: Area::Schema,
        title: "stale and missing planner statistics",
        limits: "never analyzed with at least 1,000 rows; half of the rows changed since; partitioned tables never analyzed",
        units: &[Unit::Count],
        needs: &[Need::Primary],
        why: "the planner guesses the number of rows, and chooses nested loops or scans for the wrong size; autovacuum never analyzes a partitioned \
            table itself",
        judge: statistics,
    },
    Check {
        id: "schema.fillfactor",
        area: Area::Schema,
        title: "fillfactor of tables that are updated often",
        limits: "at least 100,000 updates, less than half of them HOT, fillfactor 100: a note",
        units: &[Unit::Share],
        needs: &[Need::Primary],
        why: "an update without room on its page goes to another page, and every index gets a new entry",
        judge: fillfactor,
    },
    Check {
        id: "schema.toast",
        area: Area::Schema,
        title: "tables whose bytes are mostly in TOAST",
        limits: "80 % and at least 16 MiB: a note",
        units: &[Unit::Bytes],
        needs: &[],
        why: "large values are compressed, cut and written whole at each update: WAL and CPU per row are far above those of the table (seen: documents \
            of 20 MB)",
        judge: toast,
    },
    Check {
        id: "schema.extended_statistics",
        area: Area::Schema,
        title: "extended statistics without data",
        limits: "any, of tables with at least 1,000 rows",
        units: &[],
        needs: &[Need::View("pg_catalog.pg_statistic_ext_data")],
        why: "they are only filled by ANALYZE: until then the planner takes the columns as independent",
        judge: extended_statistics,
    },
    Check {
        id: "schema.extensions",
        area: Area::Schema,
        title: "extensions behind the installed files",
        limits: "any",
        units: &[],
        needs: &[],
        why: "the library is new and its SQL objects are old: fixes are missing, and some functions may fail",
        judge: extensions,
    },
];

/// A storage parameter of table `c`, or the server's.
fn parameter(name: &str) -> String {
    format!(
        "coalesce(pg_catalog.substring(pg_catalog.array_to_string(c.reloptions, ' '), '{name}=([0-9.e+-]+)'), pg_catalog.current_setting('{name}'))::float8"
    )
}

fn dead_rows(node: &mut Node<'_>) -> Judged {
    let threshold = format!(
        "({} + {} * greatest(c.reltuples, 0))",
        parameter("autovacuum_vacuum_threshold"),
        parameter("autovacuum_vacuum_scale_factor")
    );
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, s.dead, s.live, {threshold} threshold, greatest(s.by_hand, \
                s.by_itself)::text as last
             from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
               cross join lateral (select pg_catalog.pg_stat_get_dead_tuples(c.oid) dead, pg_catalog.pg_stat_get_live_tuples(c.oid) live,
                 pg_catalog.pg_stat_get_last_vacuum_time(c.oid) by_hand, pg_catalog.pg_stat_get_last_autovacuum_time(c.oid) by_itself) s
             where c.relkind in ('r', 'm') and {USERS} and s.dead >= {DEAD_ROWS_MIN} and s.dead > {DEAD_TIMES_MAX} * {threshold}"
        ),
        "dead desc, relation",
    )?;
    let draft = |row: &Value| {
        let relation = json::text(row, "relation");
        let dead = json::number(row, "dead").unwrap_or(0.0);
        let last = match json::text(row, "last") {
            never if never.is_empty() => "never vacuumed".to_string(),
            time => format!("last vacuumed at {time}"),
        };
        let claim = format!(
            "{relation} has {} dead rows beside {} live ones, {last}",
            number::short(dead),
            number::short(json::number(row, "live").unwrap_or(0.0))
        );
        warn(&*relation, claim)
            .figure(dead, Unit::Count)
            .at_most(
                f64::from(DEAD_ROWS_MIN)
                    .max(json::number(row, "threshold").unwrap_or(0.0) * f64::from(DEAD_TIMES_MAX)),
            )
            .advice("vacuum it; if they stay, look for old transactions, prepared transactions and slots (state.*)")
            .run(format!("VACUUM (ANALYZE) {relation};"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("no table has many dead rows")))
}

fn disabled(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, c.relpages::bigint pages from pg_catalog.pg_class c join \
                pg_catalog.pg_namespace n on n.oid = c.relnamespace
             where c.relkind in ('r', 'm') and {USERS} and pg_catalog.lower(pg_catalog.array_to_string(c.reloptions, ' ')) ~ '(^| \
                 )autovacuum_enabled=(off|false|no|0|f|n)( |$)'"
        ),
        "pages desc, relation",
    )?;
    let draft = |row: &Value| {
        let relation = json::text(row, "relation");
        warn(&*relation, format!("autovacuum is disabled for {relation}"))
            .advice("enable it, and vacuum the table once")
            .run(format!("ALTER TABLE {relation} RESET (autovacuum_enabled);"))
            .run(format!("VACUUM (ANALYZE) {relation};"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("autovacuum is enabled for every table")))
}

fn statistics(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, c.relkind kind, s.live, s.changed, s.last::text as last, \
                greatest(s.live, c.relpages) weight
             from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
               cross join lateral (select pg_catalog.pg_stat_get_live_tuples(c.oid) live, pg_catalog.pg_stat_get_mod_since_analyze(c.oid) changed,
                 greatest(pg_catalog.pg_stat_get_last_analyze_time(c.oid), pg_catalog.pg_stat_get_last_autoanalyze_time(c.oid)) as last) s
             where {USERS} and (c.relkind in ('r', 'm') and s.live >= {ROWS_MIN} and (s.last is null and not exists (select from pg_catalog.pg_stats \
                 p where p.schemaname = n.nspname and p.tablename = c.relname)
                   or s.changed > {CHANGED_SHARE_MAX} * s.live)
                 or c.relkind = 'p' and s.last is null
                   and not exists (select from pg_catalog.pg_stats p where p.schemaname = n.nspname and p.tablename = c.relname and p.inherited)
                   and exists (select from pg_catalog.pg_inherits h join pg_catalog.pg_class k on k.oid = h.inhrelid where h.inhparent = c.oid and \
                       pg_catalog.pg_stat_get_live_tuples(k.oid) >= {ROWS_MIN}))"
        ),
        "weight desc, relation",
    )?;
    let draft = |row: &Value| {
        let relation = json::text(row, "relation");
        let live = json::number(row, "live").unwrap_or(0.0);
        let changed = json::number(row, "changed").unwrap_or(0.0);
        let claim = if json::text(row, "kind") == "p" {
            format!("{relation}, a partitioned table, was never analyzed as a whole")
        } else if json::text(row, "last").is_empty() {
            format!("{relation} ({} rows) was never analyzed", number::short(live))
        } else {
            format!(
                "{} of {} rows of {relation} changed since ANALYZE",
                number::short(changed),
                number::short(live)
            )
        };
        warn(&*relation, claim)
            .figure(changed, Unit::Count)
            .at_most(live * CHANGED_SHARE_MAX)
            .advice("gather them")
            .run(format!("ANALYZE {relation};"))
    };
    Ok(each(&found.rows, found.total, draft, || {
        pass("statistics of every larger table are there and not stale")
    }))
}

fn fillfactor(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, s.updates, s.hot
             from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
               cross join lateral (select pg_catalog.pg_stat_get_tuples_updated(c.oid) updates, pg_catalog.pg_stat_get_tuples_hot_updated(c.oid) hot) s
             where c.relkind = 'r' and {USERS} and s.updates >= {UPDATES_MIN} and s.hot < {HOT_SHARE_MIN} * s.updates
               and coalesce(pg_catalog.substring(pg_catalog.array_to_string(c.reloptions, ' '), 'fillfactor=([0-9]+)')::int, 100) = 100"
        ),
        "updates - hot desc, relation",
    )?;
    let draft = |row: &Value| {
        let relation = json::text(row, "relation");
        let (updates, hot) =
            (json::number(row, "updates").unwrap_or(0.0), json::number(row, "hot").unwrap_or(0.0));
        note(&*relation, format!("{} of {} updates of {relation} were HOT, and its fillfactor is \
            100", number::percent(hot / updates), number::short(updates)))
            .figure(hot / updates, Unit::Share)
            .at_least(HOT_SHARE_MIN)
            .advice("leave room on new pages, if the updated columns are in no index; pages fill anew only after a rewrite")
            .run(format!("ALTER TABLE {relation} SET (fillfactor = 90);"))
    };
    Ok(each(&found.rows, found.total, draft, || {
        pass("no table has many updates that are not HOT with fillfactor 100")
    }))
}

fn toast(node: &mut Node<'_>) -> Judged {
    let block_bytes = node.block_bytes();
    let least = (TOAST_BYTES_MIN / block_bytes).ceil();
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, t.relpages::bigint & 4294967295 pages, c.relpages::bigint & 4294967295 own
             from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace join pg_catalog.pg_class t on t.oid = c.reltoastrelid
             where c.relkind in ('r', 'm') and {USERS} and t.relpages::bigint & 4294967295 >= {least} and t.relpages >= {TOAST_SHARE_MIN} * \
                 (t.relpages::float8 + c.relpages)"
        ),
        "pages desc, relation",
    )?;
    let draft = |row: &Value| {
        let relation = json::text(row, "relation");
        let bytes = json::number(row, "pages").unwrap_or(0.0) * block_bytes;
        let own = json::number(row, "own").unwrap_or(0.0) * block_bytes;
        note(&*relation, format!("{relation} has {} in TOAST and {} in the table", number::bytes(bytes), number::bytes(own)))
            .figure(bytes, Unit::Bytes)
            .advice("keep large documents out of rows that are updated often; lz4 (since 14) compresses them with less CPU")
    };
    Ok(each(&found.rows, found.total, draft, || pass("no table has most of its bytes in TOAST")))
}

fn extended_statistics(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, x.stxname) as statistics, (select pg_catalog.format('%I.%I', m.nspname, c.relname)
               from pg_catalog.pg_class c join pg_catalog.pg_namespace m on m.oid = c.relnamespace where c.oid = x.stxrelid) relation
             from pg_catalog.pg_statistic_ext x join pg_catalog.pg_namespace n on n.oid = x.stxnamespace
             where {USERS} and not exists (select from pg_catalog.pg_statistic_ext_data d where d.stxoid = x.oid)
               and exists (select from pg_catalog.pg_class c where c.oid = x.stxrelid and greatest(c.reltuples, \
                   pg_catalog.pg_stat_get_live_tuples(c.oid)) >= {ROWS_MIN})"
        ),
        "1",
    )?;
    let draft = |row: &Value| {
        let (name, relation) = (json::text(row, "statistics"), json::text(row, "relation"));
        warn(&*name, format!("statistics {name} of {relation} have no data"))
            .advice("gather them")
            .run(format!("ANALYZE {relation};"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("all extended statistics have data")))
}

fn extensions(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        "select pg_catalog.quote_ident(e.extname) as extension, e.extversion as here, a.default_version there
         from pg_catalog.pg_extension e join pg_catalog.pg_available_extensions a on a.name = e.extname where a.default_version <> e.extversion",
        "1",
    )?;
    let draft = |row: &Value| {
        let name = json::text(row, "extension");
        warn(
            &*name,
            format!(
                "extension {name} is {} in this database, its files are {}",
                json::text(row, "here"),
                json::text(row, "there")
            ),
        )
        .advice("update it")
        .run(format!("ALTER EXTENSION {name} UPDATE;"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("every extension has the version of its files")))
}

//! Indexes that cost more than they give, or do not work.

use crate::database::draft::{each, note, pass, warn};
use crate::database::node::{LOCKED, Node, USERS};
use crate::database::rule::{Check, Judged};
use record::check::{Area, Unit};
use record::number;
use serde_json::Value;
use watch::sql::json;

/// Statistics younger than this miss weekly and monthly work.
const UNUSED_DAYS_MIN: f64 = 7.0;
/// A table that was read so often, never through the index, has shown its use even in a shorter time.
const TABLE_READS_MIN: u64 = 10_000;
/// Smaller indexes cost little; in pages.
const UNUSED_PAGES_MIN: u32 = 8;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "schema.unused_indexes",
        area: Area::Schema,
        title: "indexes that no query used since the statistics began",
        limits: "no scan in 7 days, or in 10,000 reads of its table; of at least 8 pages; not unique, not a constraint's. With standbys, or in a \
            shorter time, a note",
        units: &[Unit::Bytes],
        needs: &[],
        why: "every insert and most updates maintain it, vacuum reads it, and an update of its columns cannot be HOT",
        judge: unused,
    },
    Check {
        id: "schema.duplicate_indexes",
        area: Area::Schema,
        title: "indexes equal to another one",
        limits: "the same table, columns, order, collation, operator classes, expressions and condition",
        units: &[Unit::Bytes],
        needs: &[],
        why: "both are maintained, and only one is used",
        judge: duplicate,
    },
    Check {
        id: "schema.redundant_indexes",
        area: Area::Schema,
        title: "indexes whose columns are the first ones of another index",
        limits: "any, not unique, without expressions and conditions: a note below 8 pages",
        units: &[Unit::Bytes],
        needs: &[],
        why: "the longer index serves the same queries; the shorter one is smaller, but both are maintained",
        judge: redundant,
    },
    Check {
        id: "schema.invalid_indexes",
        area: Area::Schema,
        title: "invalid indexes",
        limits: "any that is not being built now",
        units: &[],
        needs: &[],
        why: "a failed CREATE INDEX CONCURRENTLY leaves an index that costs every write and serves no query",
        judge: invalid,
    },
];

fn unused(node: &mut Node<'_>) -> Judged {
    let standbys =
        node.row("select count(*) n from pg_catalog.pg_stat_get_wal_senders() where pid is not null")?;
    let standbys = json::count(&standbys, "n").unwrap_or(0);
    let age_days = node.number("stats_age_s").map(|seconds| seconds / 86_400.0);
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, i.relname) as index, i.relpages::bigint pages,
               pg_catalog.pg_stat_get_numscans(c.oid) + (select coalesce(sum(pg_catalog.pg_stat_get_numscans(o.indexrelid)), 0) from \
                   pg_catalog.pg_index o where o.indrelid = c.oid) reads
             from pg_catalog.pg_index x join pg_catalog.pg_class i on i.oid = x.indexrelid join pg_catalog.pg_class c on c.oid = x.indrelid
               join pg_catalog.pg_namespace n on n.oid = c.relnamespace
             where i.relkind = 'i' and not x.indisunique and x.indisvalid and i.relpages >= {UNUSED_PAGES_MIN} and {USERS}
               and pg_catalog.pg_stat_get_numscans(i.oid) = 0 and not x.indisreplident
               and not exists (select from pg_catalog.pg_constraint k where k.conindid = i.oid)
               and not exists (select from pg_catalog.pg_inherits h where h.inhrelid = i.oid)"
        ),
        "pages desc, 1",
    )?;
    let since = match age_days {
        Some(days) => format!("in the {} since its statistics were reset", number::duration(days * 86_400.0)),
        None => "since the statistics began".to_string(),
    };
    let is_long = age_days.is_some_and(|days| days >= UNUSED_DAYS_MIN);
    let block_bytes = node.block_bytes();
    let draft = |row: &Value| {
        let index = json::text(row, "index");
        let reads = json::count(row, "reads").unwrap_or(0);
        let bytes = json::number(row, "pages").unwrap_or(0.0) * block_bytes;
        let beside = if standbys > 0 { "; its use on the standbys is not counted here" } else { "" };
        let claim = format!(
            "{index} ({}) was not used {since}, in {} of its table{beside}",
            number::bytes(bytes),
            number::counted(reads, "read")
        );
        let is_sure = standbys == 0 && (is_long || reads >= TABLE_READS_MIN);
        let draft = if is_sure { warn(&*index, claim) } else { note(&*index, claim) };
        draft
            .figure(bytes, Unit::Bytes)
            .advice("drop it, if its queries are not rarer than that and no standby uses it")
            .run(format!("DROP INDEX CONCURRENTLY {index};"))
    };
    Ok(each(&found.rows, found.total, draft, || {
        pass(format!("every index of at least {UNUSED_PAGES_MIN} pages was used {since}"))
    }))
}

fn duplicate(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        &format!("{LOCKED}, "),
        &format!(
            "select * from (select pg_catalog.format('%I.%I', n.nspname, i.relname) as index, i.relpages::bigint pages, x.serves,
               first_value(pg_catalog.format('%I.%I', n.nspname, i.relname)) over same as other, row_number() over same as place
             from (select x.*, exists (select from pg_catalog.pg_constraint k where k.conindid = x.indexrelid) or x.indisreplident or x.indisclustered serves
                   from pg_catalog.pg_index x where x.indisvalid and x.indrelid not in (select relation from locked)) x
               join pg_catalog.pg_class i on i.oid = x.indexrelid join pg_catalog.pg_class c on c.oid = x.indrelid
               join pg_catalog.pg_namespace n on n.oid = c.relnamespace
             where i.relkind = 'i' and {USERS} and not exists (select from pg_catalog.pg_inherits h where h.inhrelid = i.oid)
             window same as (partition by x.indrelid, i.relam, x.indkey::text, x.indnkeyatts, x.indclass::text, x.indcollation::text, \
                 x.indoption::text, x.indisunique, i.relam,
               pg_catalog.pg_get_expr(x.indexprs, x.indrelid), pg_catalog.pg_get_expr(x.indpred, x.indrelid) order by x.serves desc, i.oid)) d
             where place > 1 and not serves"
        ),
        "pages desc, 1",
    )?;
    let block_bytes = node.block_bytes();
    let draft = |row: &Value| {
        let index = json::text(row, "index");
        let bytes = json::number(row, "pages").unwrap_or(0.0) * block_bytes;
        warn(&*index, format!("{index} ({}) is equal to {}", number::bytes(bytes), json::text(row, "other")))
            .figure(bytes, Unit::Bytes)
            .advice("drop one of them")
            .run(format!("DROP INDEX CONCURRENTLY {index};"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("no index is equal to another one")))
}

fn redundant(node: &mut Node<'_>) -> Judged {
    // An operator class, a collation and an order per column: those of the shorter index are the first ones of the longer.
    let begins = |column: &str| {
        format!(
            "pg_catalog.left(b.{column}::text || ' ', pg_catalog.length(a.{column}::text) + 1) = a.{column}::text || ' '"
        )
    };
    let found = node.list(
        "candidates as materialized (select x.*, i.relam, i.relpages from pg_catalog.pg_index x join pg_catalog.pg_class i on i.oid = x.indexrelid
            where i.relkind = 'i' and x.indisvalid and x.indexprs is null and x.indpred is null
              and i.relam = (select oid from pg_catalog.pg_am where amname = 'btree')),",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, i.relname) as index, min(pg_catalog.format('%I.%I', n.nspname, o.relname)) as other, \
                max(a.relpages)::bigint pages
             from candidates a join candidates b on b.indrelid = a.indrelid and b.indnkeyatts > a.indnkeyatts
               join pg_catalog.pg_class i on i.oid = a.indexrelid join pg_catalog.pg_class o on o.oid = b.indexrelid
               join pg_catalog.pg_class c on c.oid = a.indrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
             where {USERS} and not a.indisunique and a.indnatts = a.indnkeyatts and not a.indisreplident and not a.indisclustered
               and {} and {} and {} and {}
               and not exists (select from pg_catalog.pg_inherits h where h.inhrelid = a.indexrelid)
             group by i.oid, n.nspname, i.relname",
            begins("indkey"),
            begins("indclass"),
            begins("indcollation"),
            begins("indoption")
        ),
        "pages desc, 1",
    )?;
    let block_bytes = node.block_bytes();
    let draft = |row: &Value| {
        let index = json::text(row, "index");
        let pages = json::number(row, "pages").unwrap_or(0.0);
        let claim = format!(
            "{index} ({}) has the first columns of {}",
            number::bytes(pages * block_bytes),
            json::text(row, "other")
        );
        let draft =
            if pages >= f64::from(UNUSED_PAGES_MIN) { warn(&*index, claim) } else { note(&*index, claim) };
        draft
            .figure(pages * block_bytes, Unit::Bytes)
            .advice("drop it, unless it is much smaller and read very often")
            .run(format!("DROP INDEX CONCURRENTLY {index};"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("no index is the beginning of another one")))
}

fn invalid(node: &mut Node<'_>) -> Judged {
    let built = if node.has_column("pg_catalog.pg_stat_progress_create_index", "index_relid")? {
        "and i.oid not in (select index_relid from pg_catalog.pg_stat_progress_create_index where index_relid is not null)"
    } else {
        ""
    };
    let found = node.list(
        &format!("{LOCKED}, "),
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, i.relname) as index, i.relpages::bigint pages, x.indisunique as unique, i.relkind kind,
               c.oid in (select relation from locked) as locked
             from pg_catalog.pg_index x join pg_catalog.pg_class i on i.oid = x.indexrelid join pg_catalog.pg_class c on c.oid = x.indrelid
               join pg_catalog.pg_namespace n on n.oid = c.relnamespace
             where not (x.indisvalid and x.indisready and x.indislive) and n.nspname !~ '^pg_(temp|toast_temp)_' {built}"
        ),
        "pages desc, 1",
    )?;
    let draft = |row: &Value| {
        let index = json::text(row, "index");
        if json::text(row, "kind") == "I" {
            return warn(&*index, format!("{index}, an index of a partitioned table, is invalid: not every partition has its part"))
                .advice("create the index of each partition that lacks it, and attach it: ALTER INDEX ... ATTACH PARTITION");
        }
        let why = if json::flag(row, "unique") == Some(true) { ": most likely rows violate it" } else { "" };
        warn(&*index, format!("{index} is invalid{why}"))
            .advice("drop it, and create it again with CREATE INDEX CONCURRENTLY")
            .run(format!("DROP INDEX CONCURRENTLY {index};"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("every index is valid")))
}

//! Partitions: their size limit, those to come, and the default one.

use crate::database::draft::{Draft, each, fail, pass, warn};
use crate::database::node::{LOCKED, Node, USERS};
use crate::database::rule::{Check, Judged};
use record::check::{Area, Unit};
use record::number;
use serde_json::Value;
use watch::sql::json;

/// A relation has at most 2^32 - 2 blocks (MaxBlockNumber): 32 TB of 8 kB.
const BLOCKS_MAX: f64 = 4_294_967_294.0;
/// Of that: time to make more partitions (CAP-02).
const BLOCKS_SHARE_WARN: f64 = 0.8;
/// Inserts fail soon.
const BLOCKS_SHARE_FAIL: f64 = 0.95;
/// The relations whose size is read from the disk; of the others, the last vacuum's count is used.
const MEASURED_MAX: u32 = 50;
/// Partitions made by a remedy at once.
const NEW_PARTITIONS_MAX: u32 = 24;
/// Wide partitions need no successor earlier than this: time enough for a monthly job.
const AHEAD_DAYS_MAX: u32 = 31;
/// Partitions of one table whose bounds are read, the newest first.
const CHILDREN_MAX: u32 = 1000;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "schema.relation_size",
        area: Area::Schema,
        title: "tables, partitions, indexes and TOAST tables near the size limit",
        limits: "80 % of 2^32 - 2 blocks (32 TB of 8 kB): warning; 95 %: fail",
        units: &[Unit::Bytes],
        needs: &[],
        why: "at the limit every insert fails, and a move to more partitions takes days at this size (seen: 70 partitions, so that none reaches it)",
        judge: relation_size,
    },
    Check {
        id: "schema.partitions_ahead",
        area: Area::Schema,
        title: "range partitions by time for the next interval",
        limits: "the last one ends within the width of a partition, at most 31 days: warning; it has ended: fail",
        units: &[Unit::Microseconds],
        needs: &[],
        why: "rows beyond the last partition are refused, or go to the default partition, which then blocks new ones",
        judge: ahead,
    },
    Check {
        id: "schema.default_partition",
        area: Area::Schema,
        title: "rows in default partitions",
        limits: "any",
        units: &[Unit::Count],
        needs: &[],
        why: "a new partition is checked against every row of the default one, under an exclusive lock, and fails if one belongs into it",
        judge: default_partition,
    },
];

fn relation_size(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        &format!(
            "{LOCKED}, largest as materialized (select c.oid, c.relname, c.relnamespace, c.relkind, c.relpages::bigint & 4294967295 pages
               from pg_catalog.pg_class c where c.relkind in ('r', 'm', 'i', 't') order by pages desc limit {MEASURED_MAX}),"
        ),
        "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, c.relkind kind, greatest(c.pages,
                 case when c.oid not in (select relation from locked) then pg_catalog.pg_relation_size(c.oid) / \
                     pg_catalog.current_setting('block_size')::bigint end) blocks
             from largest c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where true",
        "blocks desc, relation",
    )?;
    let share = |row: &Value| json::number(row, "blocks").unwrap_or(0.0) / BLOCKS_MAX;
    let near: Vec<Value> = found.rows.iter().filter(|row| share(row) >= BLOCKS_SHARE_WARN).cloned().collect();
    let block_bytes = node.block_bytes();
    let draft = |row: &Value| {
        let relation = json::text(row, "relation");
        let (share, blocks) = (share(row), json::number(row, "blocks").unwrap_or(0.0));
        let claim = format!(
            "{relation} has {}, {} of the limit of {}",
            number::bytes(blocks * block_bytes),
            number::percent(share),
            number::bytes(BLOCKS_MAX * block_bytes)
        );
        let draft =
            if share >= BLOCKS_SHARE_FAIL { fail(&*relation, claim) } else { warn(&*relation, claim) };
        draft
            .figure(blocks * block_bytes, Unit::Bytes)
            .at_most(BLOCKS_MAX * BLOCKS_SHARE_WARN * block_bytes)
            .advice(
                "divide its rows into more partitions; VACUUM FULL or pg_repack helps only if it is bloated",
            )
    };
    let largest = found.rows.first().map_or(0.0, |row| json::number(row, "blocks").unwrap_or(0.0));
    Ok(each(&near, near.len() as u64, draft, || {
        pass(format!("the largest relation has {}", number::bytes(largest * block_bytes)))
            .figure(largest * block_bytes, Unit::Bytes)
            .at_most(BLOCKS_MAX * BLOCKS_SHARE_WARN * block_bytes)
    }))
}

/// Bounds of time partitions, from their text: the server prints constants in ISO format, as the session's DateStyle is fixed.
fn bounds() -> String {
    let bound = |side: &str| {
        format!(
            "pg_catalog.substring(pg_catalog.pg_get_expr(k.relpartbound, k.oid), '{side} \\(''([^'']*)''\\)')"
        )
    };
    format!(
        "select p.oid, pg_catalog.format('%I.%I', n.nspname, p.relname) relation, pg_catalog.quote_ident(n.nspname) as schema, p.relname as base, \
            t.partdefid <> 0 has_default, a.atttypid as type,
           k.low, k.high, k.is_open
         from pg_catalog.pg_partitioned_table t join pg_catalog.pg_class p on p.oid = t.partrelid join pg_catalog.pg_namespace n on n.oid = p.relnamespace
           join pg_catalog.pg_attribute a on a.attrelid = p.oid and a.attnum = t.partattrs[0]
           cross join lateral (select {} low, {} high, pg_catalog.pg_get_expr(k.relpartbound, k.oid) like '%TO (MAXVALUE)' is_open
             from pg_catalog.pg_inherits i join pg_catalog.pg_class k on k.oid = i.inhrelid
             where i.inhparent = p.oid and k.relispartition and k.oid <> t.partdefid and k.oid not in (select relation from locked)
             order by k.oid desc limit {CHILDREN_MAX}) k
         where t.partstrat = 'r' and t.partnatts = 1 and t.partattrs[0] <> 0 and {USERS}
           and a.atttypid in ('pg_catalog.date'::pg_catalog.regtype, 'pg_catalog.timestamp'::pg_catalog.regtype, \
               'pg_catalog.timestamptz'::pg_catalog.regtype)",
        bound("FROM"),
        bound("TO")
    )
}

fn ahead(node: &mut Node<'_>) -> Judged {
    let step = "case when extract(day from low) = 1 and extract(day from high) = 1 and high - low > interval '27 days' then pg_catalog.age(high, low) \
        else high - low end";
    let found = node.list(
        &format!(
            "{LOCKED}, bounds as materialized ({}),
             times as materialized (select oid, low::pg_catalog.timestamptz low, high::pg_catalog.timestamptz high, is_open from bounds where high is \
                 not null and low is not null or is_open),
             last as materialized (select distinct on (oid) oid, low, high from times where high is not null and low is not null order by oid, high desc),
             open as materialized (select distinct oid from times where is_open),",
            bounds()
        ),
        &format!(
            "select b.relation, l.high::text as until, extract(epoch from l.high - pg_catalog.now()) left_s, extract(epoch from l.high - l.low) \
                width_s, b.has_default,
               (select pg_catalog.json_agg(pg_catalog.format('CREATE TABLE %s.%I PARTITION OF %s FOR VALUES FROM (%L) TO (%L);', b.schema,
                    pg_catalog.left(b.base, 40) || '_' || pg_catalog.to_char(s, case when step < interval '1 day' then 'YYYYMMDD_HH24MI' else \
                        'YYYYMMDD' end), b.relation, s::text, (s + step)::text) order by s)
                from (select s from pg_catalog.generate_series(l.high, greatest(pg_catalog.now(), l.high - step) + step + step, step) s order by s \
                    limit {NEW_PARTITIONS_MAX}) g) commands
             from last l cross join lateral (select {step} step) w
               join lateral (select relation, schema, base, has_default from bounds where bounds.oid = l.oid limit 1) b on true
             where l.oid not in (select oid from open) and l.high < pg_catalog.now() + least(step, interval '{AHEAD_DAYS_MAX} days') and step > \
                 interval '0' and l.high <> 'infinity'"
        ),
        "left_s, 1",
    )?;
    let draft = |row: &Value| {
        let relation = json::text(row, "relation");
        let left_s = json::number(row, "left_s").unwrap_or(0.0);
        let rest = if json::flag(row, "has_default") == Some(true) {
            "go to the default partition"
        } else {
            "are refused"
        };
        let until = json::text(row, "until");
        let draft = if left_s <= 0.0 {
            fail(&*relation, format!("the last partition of {relation} ended at {until}: newer rows {rest}"))
        } else {
            warn(
                &*relation,
                format!(
                    "the last partition of {relation} ends at {until}, in {}: later rows {rest}",
                    number::duration(left_s)
                ),
            )
        };
        let commands = json::list(row, "commands")
            .iter()
            .filter_map(|command| command.as_str().map(str::to_string))
            .collect();
        draft
            .figure(left_s * 1e6, Unit::Microseconds)
            .at_least(
                json::number(row, "width_s").unwrap_or(0.0).min(f64::from(AHEAD_DAYS_MAX) * 86_400.0) * 1e6,
            )
            .advice("make the next partitions, and let a job make them ahead of time")
            .run_all(commands)
    };
    Ok(each(&found.rows, found.total, draft, || {
        pass("every range partition by time has a successor for the next interval")
    }))
}

fn default_partition(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, p.relname) relation, pg_catalog.format('%I.%I', m.nspname, d.relname) as other,
               greatest(d.reltuples::bigint, pg_catalog.pg_stat_get_live_tuples(d.oid)) as rows
             from pg_catalog.pg_partitioned_table t join pg_catalog.pg_class p on p.oid = t.partrelid join pg_catalog.pg_namespace n on n.oid = p.relnamespace
               join pg_catalog.pg_class d on d.oid = t.partdefid join pg_catalog.pg_namespace m on m.oid = d.relnamespace
             where t.partdefid <> 0 and {USERS} and greatest(d.reltuples, pg_catalog.pg_stat_get_live_tuples(d.oid)) > 0"
        ),
        "rows desc, 1",
    )?;
    let draft = |row: &Value| -> Draft {
        let (relation, default) = (json::text(row, "relation"), json::text(row, "other"));
        let rows = json::number(row, "rows").unwrap_or(0.0);
        warn(
            &*relation,
            format!("the default partition {default} of {relation} has about {} rows", number::short(rows)),
        )
        .figure(rows, Unit::Count)
        .at_most(0.0)
        .advice(
            "detach it, make the missing partitions, insert its rows through the table, and attach it again",
        )
        .run(format!("ALTER TABLE {relation} DETACH PARTITION {default};"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("no default partition has rows")))
}

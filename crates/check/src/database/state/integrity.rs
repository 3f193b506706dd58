//! Damage, and what may have caused some: checksums, collations, lost statistics.

use crate::database::draft::{each, fail, note, pass, unknown, warn};
use crate::database::node::{Node, USERS};
use crate::database::rule::{Check, Judged, Need};
use record::check::{Area, Unit};
use record::number;
use serde_json::Value;
use watch::sql::json;

/// Fewer rows say nothing.
const LOST_ROWS_MIN: u32 = 1000;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "state.checksum_failures",
        area: Area::State,
        title: "pages whose checksum was wrong",
        limits: "any",
        units: &[Unit::Count],
        needs: &[Need::Since(120_000)],
        why: "the disk, the controller or the memory changed data after the server had written it",
        judge: checksum_failures,
    },
    Check {
        id: "state.database_collation",
        area: Area::State,
        title: "the version of the database's collation",
        limits: "another version than at its creation, of any database",
        units: &[],
        needs: &[Need::Since(150_000)],
        why: "a new version of the library sorts differently: indexes on text miss rows, and unique ones admit duplicates",
        judge: database_collation,
    },
    Check {
        id: "state.collations",
        area: Area::State,
        title: "versions of collations in use",
        limits: "another version than at its creation",
        units: &[Unit::Count],
        needs: &[],
        why: "a new version of the library sorts differently: indexes with this collation miss rows, and unique ones admit duplicates",
        judge: collations,
    },
    Check {
        id: "state.lost_statistics",
        area: Area::State,
        title: "tables whose counters are lost: after a crash, an immediate stop or an upgrade",
        limits: "rows counted by ANALYZE, but no counter, in tables of at least 1,000 rows",
        units: &[Unit::Count],
        needs: &[Need::Primary],
        why: "a crash recovery drops all counters: until tables are analyzed, autovacuum does not know how many rows are dead",
        judge: lost_statistics,
    },
    Check {
        id: "state.uptime",
        area: Area::State,
        title: "time since the start and since the statistics were reset",
        limits: "a note",
        units: &[Unit::Microseconds],
        needs: &[],
        why: "counters are only as old as their reset",
        judge: uptime,
    },
];

fn checksum_failures(node: &mut Node<'_>) -> Judged {
    let is_on = node.setting("data_checksums")?.is_on();
    let found = node.list(
        "",
        "select coalesce(pg_catalog.quote_ident(datname), 'shared objects') as database, checksum_failures failures, checksum_last_failure::text as last
         from pg_catalog.pg_stat_database where checksum_failures > 0",
        "failures desc, 1",
    )?;
    let draft = |row: &Value| {
        let database = json::text(row, "database");
        let failures = json::number(row, "failures").unwrap_or(0.0);
        fail(&*database, format!("{database}: {failures} checksum failures, the last at {}", json::text(row, "last")))
            .figure(failures, Unit::Count)
            .at_most(0.0)
            .advice("restore the page from a backup or a standby, and replace the hardware; pg_amcheck finds what is affected")
            .run("$ pg_amcheck --all --heapallindexed")
    };
    Ok(each(&found.rows, found.total, draft, || {
        if is_on {
            pass("none since the statistics were reset")
        } else {
            unknown("damaged pages cannot be counted", "data checksums are off: settings.data_checksums")
        }
    }))
}

fn database_collation(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        "select pg_catalog.quote_ident(datname) as database, datcollversion as then, now from pg_catalog.pg_database
           cross join lateral (select pg_catalog.pg_database_collation_actual_version(oid) as now) a
         where datallowconn and datcollversion <> now",
        "1",
    )?;
    let draft = |row: &Value| {
        let database = json::text(row, "database");
        warn(
            &*database,
            format!(
                "{database} was made with collation version {}, the library has {}",
                json::text(row, "then"),
                json::text(row, "now")
            ),
        )
        .advice("rebuild the indexes on text first, in that database; then accept the version")
        .run(format!("REINDEX DATABASE {database};"))
        .run(format!("ALTER DATABASE {database} REFRESH COLLATION VERSION;"))
    };
    Ok(each(&found.rows, found.total, draft, || {
        pass("every database has the version of its library, or none")
    }))
}

fn collations(node: &mut Node<'_>) -> Judged {
    // Only those that something uses: a distribution's update changes hundreds of others.
    let found = node.list(
        "used as materialized (select distinct k.coll from (
             select attcollation from pg_catalog.pg_attribute where attcollation <> 0 and attnum > 0
             union all select pg_catalog.unnest(indcollation::oid[]) from pg_catalog.pg_index) k(coll)),",
        "select pg_catalog.format('%I.%I', n.nspname, c.collname) as collation, c.collversion as then, now,
           (select count(*) from pg_catalog.pg_index x where c.oid = any(x.indcollation::oid[])) as indexes
         from used u join pg_catalog.pg_collation c on c.oid = u.coll join pg_catalog.pg_namespace n on n.oid = c.collnamespace
           cross join lateral (select pg_catalog.pg_collation_actual_version(c.oid) as now) a
         where c.collversion <> now",
        "indexes desc, 1",
    )?;
    let draft = |row: &Value| {
        let collation = json::text(row, "collation");
        let indexes = json::count(row, "indexes").unwrap_or(0);
        let claim = format!(
            "{collation} was made with version {}, the library has {}; {} it",
            json::text(row, "then"),
            json::text(row, "now"),
            if indexes == 1 {
                "1 index uses".to_string()
            } else {
                format!("{} use", number::counted(indexes, "index"))
            }
        );
        warn(&*collation, claim)
            .figure(indexes as f64, Unit::Count)
            .advice("rebuild the indexes that use it first; then accept the version")
            .run(format!("ALTER COLLATION {collation} REFRESH VERSION;"))
    };
    Ok(each(&found.rows, found.total, draft, || {
        pass("every collation in use has the version of its library, or none")
    }))
}

fn lost_statistics(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, c.reltuples::bigint as rows
             from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
             where c.relkind in ('r', 'm') and c.relpersistence = 'p' and c.reltuples >= {LOST_ROWS_MIN} and {USERS} and \
                 pg_catalog.pg_stat_get_live_tuples(c.oid) = 0
               and pg_catalog.pg_stat_get_dead_tuples(c.oid) = 0 and pg_catalog.pg_stat_get_tuples_inserted(c.oid) = 0 and \
                   pg_catalog.pg_stat_get_tuples_deleted(c.oid) = 0"
        ),
        "rows desc, relation",
    )?;
    let up_s = node.number("up_s").unwrap_or(0.0);
    let draft = |row: &Value| {
        let relation = json::text(row, "relation");
        let rows = json::number(row, "rows").unwrap_or(0.0);
        warn(
            &*relation,
            format!(
                "{relation} has about {} rows and no counters; the server started {} ago",
                number::short(rows),
                number::duration(up_s)
            ),
        )
        .figure(rows, Unit::Count)
        .advice("look into the server's log for a crash, then analyze every table once")
        .run(format!("ANALYZE {relation};"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("every larger table has its counters")))
}

fn uptime(node: &mut Node<'_>) -> Judged {
    let up_s = node.number("up_s").unwrap_or(0.0);
    let since = match node.number("stats_age_s") {
        Some(age_s) => format!("the statistics of this database were reset {} ago", number::duration(age_s)),
        None => "the statistics of this database were never reset".to_string(),
    };
    Ok(vec![
        note("", format!("started {} ago; {since}", number::duration(up_s)))
            .figure(up_s * 1e6, Unit::Microseconds),
    ])
}

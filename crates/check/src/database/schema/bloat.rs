//! Space in tables and btree indexes that holds nothing: an estimate from statistics, as the field makes it, or a measurement by `pgstattuple`.

use crate::database::draft::{Draft, each, pass, unknown, warn};
use crate::database::node::{LOCKED, Node, USERS};
use crate::database::rule::{Check, Judged};
use record::check::{Area, Unit};
use record::number;
use serde_json::Value;
use watch::sql::json;
use watch::sql::session::Failed;

/// Of a relation: half of what is read and cached is nothing.
const BLOAT_SHARE_MAX: f64 = 0.5;
/// Less wasted space costs little.
const WASTED_BYTES_MIN: f64 = 16.0 * 1024.0 * 1024.0;
/// Relations that are looked at, the largest first.
const RELATIONS_MAX: u32 = 500;
/// Tables that are measured where `pgstattuple` is installed; each is read outside of its all-visible pages.
const MEASURED_MAX: usize = 5;
/// Larger ones are not: the read would cost too much.
const MEASURED_BYTES_MAX: f64 = 1024.0 * 1024.0 * 1024.0;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "schema.table_bloat",
        area: Area::Schema,
        title: "bloat of tables (estimate; measured by pgstattuple_approx if installed)",
        limits: "half of a table, and at least 16 MiB; among the 500 largest",
        units: &[Unit::Share],
        needs: &[],
        why: "scans read empty pages, and caches hold them; a plain vacuum makes the space usable but does not give it back",
        judge: tables,
    },
    Check {
        id: "schema.index_bloat",
        area: Area::Schema,
        title: "bloat of btree indexes (estimate)",
        limits: "half of an index, and at least 16 MiB; among the 500 largest without expressions",
        units: &[Unit::Share],
        needs: &[],
        why: "a bloated index needs more pages per look-up and more cache",
        judge: indexes,
    },
];

/// The share and the bytes of a relation that hold nothing.
#[derive(Clone, Debug, Default)]
struct Bloat {
    relation: String,
    oid: u64,
    bytes: f64,
    wasted_bytes: f64,
    is_measured: bool,
}

impl Bloat {
    fn of(row: &Value, block_bytes: f64) -> Bloat {
        let pages = json::number(row, "pages").unwrap_or(0.0);
        let needed = json::number(row, "needed").unwrap_or(pages).max(1.0);
        Bloat {
            relation: json::text(row, "relation"),
            oid: json::count(row, "oid").unwrap_or(0),
            bytes: pages * block_bytes,
            wasted_bytes: (pages - needed).max(0.0) * block_bytes,
            is_measured: false,
        }
    }

    fn is_much(&self) -> bool {
        self.wasted_bytes >= WASTED_BYTES_MIN && self.wasted_bytes >= self.bytes * BLOAT_SHARE_MAX
    }

    fn draft(&self, how: &str) -> Draft {
        let share = self.wasted_bytes / self.bytes.max(1.0);
        let claim = format!(
            "{} of {} ({} of {}) hold no rows ({how})",
            number::percent(share),
            self.relation,
            number::bytes(self.wasted_bytes),
            number::bytes(self.bytes)
        );
        warn(&*self.relation, claim).figure(share, Unit::Share).at_most(BLOAT_SHARE_MAX)
    }
}

/// The widths of rows are those of `pg_stats`; a row has a header of 24 bytes and a line pointer of 4, and starts at a multiple of 8.
fn tables(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        &format!(
            "largest as materialized (select c.oid, n.nspname, c.relname, c.relnatts, c.relpages::bigint & 4294967295 pages, c.reltuples,
                 coalesce(pg_catalog.substring(pg_catalog.array_to_string(c.reloptions, ' '), 'fillfactor=([0-9]+)')::float8, 100) fill
               from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
               where c.relkind in ('r', 'm') and c.relpersistence <> 't' and c.reltuples >= 0 and {USERS} order by c.relpages desc limit {RELATIONS_MAX}),"
        ),
        "select oid::bigint, pg_catalog.format('%I.%I', nspname, relname) relation, pages, known, relnatts::bigint as columns,
           pg_catalog.ceil(reltuples * (pg_catalog.ceil((24 + case when has_null then (relnatts + 7) / 8 else 0 end + width) / 8.0) * 8 + 4)
             / ((pg_catalog.current_setting('block_size')::float8 - 24) * fill / 100)) needed
         from largest l cross join lateral (select count(*) known, coalesce(sum((1 - s.null_frac) * s.avg_width), 0) width, \
             coalesce(pg_catalog.bool_or(s.null_frac > 0), false) has_null
           from pg_catalog.pg_stats s where s.schemaname = l.nspname and s.tablename = l.relname and not s.inherited) w
         where pages > 0",
        "(pages - coalesce(needed, pages)) desc, relation",
    )?;
    let block_bytes = node.block_bytes();
    let is_known = |row: &&Value| json::count(row, "known") > Some(0);
    // A table without a row has no statistics of columns, and needs nothing.
    let is_empty = |row: &Value| json::number(row, "needed") == Some(0.0);
    let mut bloated: Vec<Bloat> = found
        .rows
        .iter()
        .filter(|row| is_known(row) || is_empty(row))
        .map(|row| Bloat::of(row, block_bytes))
        .filter(Bloat::is_much)
        .collect();
    let unknown_rows = found.rows.iter().filter(|row| {
        !is_known(row)
            && !is_empty(row)
            && json::number(row, "pages").unwrap_or(0.0) * block_bytes >= WASTED_BYTES_MIN
    });
    let without = unknown_rows.count() as u64;
    measure(node, &mut bloated)?;
    bloated.retain(Bloat::is_much);
    let draft = |bloat: &Bloat| {
        bloat
            .draft(if bloat.is_measured { "measured by pgstattuple_approx" } else { "an estimate from statistics, without TOAST" })
            .advice("rewrite it in a maintenance window (it is locked meanwhile), or online with pg_repack; look for what held the vacuum back")
            .run(format!("VACUUM (FULL, ANALYZE) {};", bloat.relation))
    };
    let mut drafts = each(&bloated, bloated.len() as u64, draft, || {
        pass(format!("no table among the {} largest is bloated, by an estimate", found.total))
    });
    if without > 0 {
        drafts.push(unknown(
            format!("{} of 16 MiB and more not estimated", number::counted(without, "table")),
            "their columns have no statistics: they were never analyzed, or this role may not read them",
        ));
    }
    Ok(drafts)
}

/// Measures the first tables, if the extension is there and this role may call it.
fn measure(node: &mut Node<'_>, bloated: &mut [Bloat]) -> Result<(), Failed> {
    if bloated.is_empty() {
        return Ok(());
    }
    // Only the function that belongs to the extension: a plain role can make another one of the same name.
    let function = node.query(
        "select pg_catalog.to_json((select pg_catalog.quote_ident(n.nspname) from pg_catalog.pg_extension e
           join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass and d.refobjid = e.oid and d.deptype = 'e'
             and d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
           join pg_catalog.pg_proc p on p.oid = d.objid join pg_catalog.pg_namespace n on n.oid = p.pronamespace
           where e.extname = 'pgstattuple' and p.proname = 'pgstattuple_approx' and p.proargtypes::text = 'pg_catalog.regclass'::pg_catalog.regtype::oid::text
             and pg_catalog.has_function_privilege(p.oid, 'execute')))::text",
    )?;
    let Some(schema) = function.as_str() else { return Ok(()) };
    for bloat in bloated.iter_mut().filter(|bloat| bloat.bytes <= MEASURED_BYTES_MAX).take(MEASURED_MAX) {
        let answer = node.row(&format!(
            "with {LOCKED} select a.table_len, a.approx_free_space + a.dead_tuple_len wasted from pg_catalog.pg_class c
               cross join lateral {schema}.pgstattuple_approx(c.oid::pg_catalog.regclass) a
             where c.oid = {} and c.oid not in (select relation from locked)",
            bloat.oid
        ));
        match answer {
            Ok(row) => {
                if let (Some(bytes), Some(wasted)) =
                    (json::number(&row, "table_len"), json::number(&row, "wasted"))
                {
                    *bloat = Bloat { bytes, wasted_bytes: wasted, is_measured: true, ..bloat.clone() };
                }
            }
            // The estimate stays.
            Err(Failed::Refused { .. }) => {}
            Err(gone) => return Err(gone),
        }
    }
    Ok(())
}

/// An entry has a header of 8 bytes (2 more words with nulls are left out), is aligned, and has a line pointer; leaves are filled to 90 %.
/// Entries of equal keys are stored once since 13, which the estimate does not see: it finds less bloat than there is.
fn indexes(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        &format!(
            "largest as materialized (select i.oid, n.nspname, c.relname as table_name, i.relname, x.indrelid, x.indkey, i.relpages::bigint & \
                4294967295 pages, i.reltuples,
                 coalesce(pg_catalog.substring(pg_catalog.array_to_string(i.reloptions, ' '), 'fillfactor=([0-9]+)')::float8, 90) fill
               from pg_catalog.pg_index x join pg_catalog.pg_class i on i.oid = x.indexrelid join pg_catalog.pg_class c on c.oid = x.indrelid
                 join pg_catalog.pg_namespace n on n.oid = c.relnamespace join pg_catalog.pg_am m on m.oid = i.relam
               where i.relkind = 'i' and m.amname = 'btree' and x.indisvalid and x.indexprs is null and i.reltuples >= 0 and {USERS}
               order by i.relpages desc limit {RELATIONS_MAX}),"
        ),
        "select oid::bigint, pg_catalog.format('%I.%I', nspname, relname) relation, pages, known,
           pg_catalog.ceil(reltuples * (pg_catalog.ceil((8 + width) / 8.0) * 8 + 4) / ((pg_catalog.current_setting('block_size')::float8 - 40) * fill \
               / 100)) + 1 needed
         from largest l cross join lateral (select count(s.avg_width) known, coalesce(sum((1 - s.null_frac) * s.avg_width), 0) width
           from pg_catalog.unnest(l.indkey::int2[]) k(attnum) join pg_catalog.pg_attribute a on a.attrelid = l.indrelid and a.attnum = k.attnum
             left join pg_catalog.pg_stats s on s.schemaname = l.nspname and s.tablename = l.table_name and s.attname = a.attname and not s.inherited) w
         where pages > 0",
        "(pages - coalesce(needed, pages)) desc, relation",
    )?;
    let concurrently = if node.version() >= 120_000 { " CONCURRENTLY" } else { "" };
    let block_bytes = node.block_bytes();
    let is_empty = |row: &Value| json::number(row, "needed").is_some_and(|needed| needed <= 1.0);
    let bloated: Vec<Bloat> = found
        .rows
        .iter()
        .filter(|row| json::count(row, "known") > Some(0) || is_empty(row))
        .map(|row| Bloat::of(row, block_bytes))
        .filter(Bloat::is_much)
        .collect();
    let draft = |bloat: &Bloat| {
        bloat
            .draft("an estimate from statistics")
            .advice("build it again")
            .run(format!("REINDEX INDEX{concurrently} {};", bloat.relation))
    };
    Ok(each(&bloated, bloated.len() as u64, draft, || {
        pass(format!("no index among the {} largest is bloated, by an estimate", found.total))
    }))
}

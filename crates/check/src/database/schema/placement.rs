//! Where tables and indexes lie, and whether they survive a crash.

use crate::database::draft::{each, note, pass, warn};
use crate::database::node::{Node, USERS};
use crate::database::rule::{Check, Judged};
use record::check::{Area, Unit};
use record::number;
use serde_json::Value;
use watch::sql::json;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "schema.tablespaces",
        area: Area::Schema,
        title: "indexes in another tablespace than their table",
        limits: "some indexes of a tablespace's tables lie elsewhere: warning; all of them: a note, as it may be meant",
        units: &[Unit::Bytes],
        needs: &[],
        why: "a table that is moved leaves its indexes behind: they fill the old disk",
        judge: tablespaces,
    },
    Check {
        id: "schema.unlogged",
        area: Area::Schema,
        title: "unlogged tables",
        limits: "any",
        units: &[Unit::Bytes],
        needs: &[],
        why: "after a crash they are empty, and standbys never have their rows",
        judge: unlogged,
    },
];

fn tablespaces(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "pairs as materialized (select c.oid, i.oid index_oid, c.reltablespace home, i.reltablespace place, i.relpages::bigint pages
            from pg_catalog.pg_index x join pg_catalog.pg_class i on i.oid = x.indexrelid join pg_catalog.pg_class c on c.oid = x.indrelid
            where c.relkind in ('r', 'm') and i.relkind = 'i' and c.relpersistence <> 't'),
          beside as materialized (select home, count(*) filter (where place = home) together from pairs group by 1),
          base as materialized (select t.spcname from pg_catalog.pg_database d join pg_catalog.pg_tablespace t on t.oid = d.dattablespace
            where d.datname = pg_catalog.current_database()),",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, pg_catalog.format('%I.%I', n.nspname, i.relname) as index, p.pages,
               coalesce((select spcname from pg_catalog.pg_tablespace where oid = p.home), (select spcname from base)) home,
               pg_catalog.quote_ident(coalesce((select spcname from pg_catalog.pg_tablespace where oid = p.home), (select spcname from base))) home_quoted,
               coalesce((select spcname from pg_catalog.pg_tablespace where oid = p.place), (select spcname from base)) place, b.together
             from pairs p join beside b using (home) join pg_catalog.pg_class c on c.oid = p.oid join pg_catalog.pg_class i on i.oid = p.index_oid
               join pg_catalog.pg_namespace n on n.oid = c.relnamespace
             where p.home <> p.place and {USERS}"
        ),
        "pages desc, 2",
    )?;
    let block_bytes = node.block_bytes();
    let draft = |row: &Value| {
        let index = json::text(row, "index");
        let bytes = json::number(row, "pages").unwrap_or(0.0) * block_bytes;
        let claim = format!(
            "{index} ({}) is in tablespace {}, its table {} in {}",
            number::bytes(bytes),
            json::text(row, "place"),
            json::text(row, "relation"),
            json::text(row, "home")
        );
        let is_meant = json::count(row, "together") == Some(0);
        let draft = if is_meant { note(&*index, claim) } else { warn(&*index, claim) };
        draft
            .figure(bytes, Unit::Bytes)
            .advice("move it to its table, if the place is not meant; the index is locked meanwhile")
            .run(format!("ALTER INDEX {index} SET TABLESPACE {};", json::text(row, "home_quoted")))
    };
    Ok(each(&found.rows, found.total, draft, || pass("every index is in the tablespace of its table")))
}

fn unlogged(node: &mut Node<'_>) -> Judged {
    // The mark of pgfathom's own loads has to be unlogged.
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, c.relpages::bigint pages
             from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
             where c.relkind = 'r' and c.relpersistence = 'u' and not (n.nspname = 'pgfathom' and c.relname = 'unlogged') and {USERS}"
        ),
        "pages desc, relation",
    )?;
    let block_bytes = node.block_bytes();
    let draft = |row: &Value| {
        let relation = json::text(row, "relation");
        let bytes = json::number(row, "pages").unwrap_or(0.0) * block_bytes;
        warn(&*relation, format!("{relation} ({}) is unlogged", number::bytes(bytes)))
            .figure(bytes, Unit::Bytes)
            .advice("log it, unless its rows can be made again; this writes the whole table to the WAL")
            .run(format!("ALTER TABLE {relation} SET LOGGED;"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("no table is unlogged")))
}

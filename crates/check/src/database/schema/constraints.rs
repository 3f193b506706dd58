//! Constraints that were never verified, and foreign keys without an index.

use crate::database::draft::{each, pass, warn};
use crate::database::node::{Node, USERS};
use crate::database::rule::{Check, Judged};
use record::check::{Area, Unit};
use record::number;
use serde_json::Value;
use watch::sql::json;

/// Below it a scan costs nothing.
const FOREIGN_KEY_ROWS_MIN: u32 = 1000;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "schema.not_validated",
        area: Area::Schema,
        title: "constraints that are NOT VALID",
        limits: "any",
        units: &[],
        needs: &[],
        why: "rows from before may violate it, and the planner does not rely on it",
        judge: not_validated,
    },
    Check {
        id: "schema.foreign_key_index",
        area: Area::Schema,
        title: "foreign keys without an index on the referencing columns",
        limits: "in tables of at least 1,000 rows",
        units: &[Unit::Count],
        needs: &[],
        why: "each delete or key update of a referenced row scans the whole referencing table, while it holds the lock",
        judge: foreign_key_index,
    },
];

fn not_validated(node: &mut Node<'_>) -> Judged {
    // Since 18 a constraint may be declared NOT ENFORCED, which cannot be validated.
    let enforced =
        if node.has_column("pg_catalog.pg_constraint", "conenforced")? { "and k.conenforced" } else { "" };
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, pg_catalog.quote_ident(k.conname) as constraint, c.relpages::bigint pages
             from pg_catalog.pg_constraint k join pg_catalog.pg_class c on c.oid = k.conrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
             where not k.convalidated and k.conrelid <> 0 and k.conparentid = 0 and {USERS} {enforced}"
        ),
        "pages desc, 1, 2",
    )?;
    let draft = |row: &Value| {
        let (relation, constraint) = (json::text(row, "relation"), json::text(row, "constraint"));
        warn(
            format!("{relation}, {constraint}"),
            format!("constraint {constraint} of {relation} was never validated"),
        )
        .advice("validate it: it reads the table once, and writes go on meanwhile")
        .run(format!("ALTER TABLE {relation} VALIDATE CONSTRAINT {constraint};"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("every constraint is validated")))
}

fn foreign_key_index(node: &mut Node<'_>) -> Judged {
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, pg_catalog.quote_ident(k.conname) as constraint, c.reltuples::bigint \
                as rows, c.relkind kind,
               (select pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' order by f.place) from pg_catalog.unnest(k.conkey) with \
                   ordinality f(attnum, place)
                  join pg_catalog.pg_attribute a on a.attrelid = k.conrelid and a.attnum = f.attnum) as columns,
               (select pg_catalog.format('%I.%I', m.nspname, r.relname) from pg_catalog.pg_class r join pg_catalog.pg_namespace m on m.oid = \
                   r.relnamespace where r.oid = k.confrelid) referenced
             from pg_catalog.pg_constraint k join pg_catalog.pg_class c on c.oid = k.conrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
             where k.contype = 'f' and k.conparentid = 0 and c.reltuples >= {FOREIGN_KEY_ROWS_MIN} and {USERS}
               and not exists (select from pg_catalog.pg_index x where x.indrelid = k.conrelid and x.indisvalid and x.indpred is null
                 and (pg_catalog.string_to_array(x.indkey::text, ' ')::int2[])[1:pg_catalog.cardinality(k.conkey)] @> k.conkey)"
        ),
        "rows desc, 1, 2",
    )?;
    let draft = |row: &Value| {
        let (relation, columns) = (json::text(row, "relation"), json::text(row, "columns"));
        let rows = json::number(row, "rows").unwrap_or(0.0);
        let constraint = json::text(row, "constraint");
        let claim = format!(
            "{relation} (about {} rows) has no index on ({columns}), which reference {} ({constraint})",
            number::short(rows),
            json::text(row, "referenced")
        );
        let concurrently = if json::text(row, "kind") == "p" { "" } else { " CONCURRENTLY" };
        warn(format!("{relation}, {constraint}"), claim)
            .figure(rows, Unit::Count)
            .at_most(f64::from(FOREIGN_KEY_ROWS_MIN))
            .advice("create one, if rows of the referenced table are deleted or their keys change")
            .run(format!("CREATE INDEX{concurrently} ON {relation} ({columns});"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("every foreign key of a larger table has an index")))
}

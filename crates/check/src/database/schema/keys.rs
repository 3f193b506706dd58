//! Keys that replication needs to find rows.

use crate::database::draft::{Draft, each, fail, note, pass, warn};
use crate::database::node::{Node, USERS};
use crate::database::rule::{Check, Judged};
use record::check::{Area, Unit};
use record::number;
use serde_json::Value;
use watch::sql::json;
use watch::sql::session::Failed;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "schema.primary_key",
        area: Area::Schema,
        title: "tables without a primary key",
        limits: "published or decoded without any row identity: fail; in a database with logical slots: warning; else a note",
        units: &[Unit::Count],
        needs: &[],
        why: "logical replication finds a row by its key: without one, the server refuses updates and deletes of a published table, or \
            each applied row scans the whole table",
        judge: primary_key,
    },
    Check {
        id: "schema.replica_identity",
        area: Area::Schema,
        title: "REPLICA IDENTITY of published tables",
        limits: "nothing: fail; full: warning",
        units: &[],
        needs: &[],
        why: "full writes whole old rows to the WAL, and the subscriber may scan the table for each; nothing makes updates and deletes fail",
        judge: replica_identity,
    },
];

/// Whether table `c` is in a publication.
fn published(node: &mut Node<'_>) -> Result<String, Failed> {
    let by_schema = if node.has_column("pg_catalog.pg_publication_namespace", "pnnspid")? {
        " or exists (select from pg_catalog.pg_publication_namespace where pnnspid = c.relnamespace)"
    } else {
        ""
    };
    Ok(format!(
        "(exists (select from pg_catalog.pg_publication where puballtables) or exists (select from pg_catalog.pg_publication_rel where prrelid = \
            c.oid){by_schema})"
    ))
}

fn primary_key(node: &mut Node<'_>) -> Judged {
    let published = published(node)?;
    let slots = node.row(
        "select count(*) n from pg_catalog.pg_replication_slots where slot_type = 'logical' and database = pg_catalog.current_database()",
    )?;
    let decoded = json::count(&slots, "n").unwrap_or(0);
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, greatest(c.reltuples, 0)::bigint as rows, {published} published,
               c.relreplident as identity, c.relkind kind,
               (select pg_catalog.quote_ident(x.relname) from pg_catalog.pg_index i join pg_catalog.pg_class x on x.oid = i.indexrelid
                where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null and i.indexprs is null
                  and not exists (select from pg_catalog.pg_constraint k where k.conindid = x.oid)
                  and not exists (select from pg_catalog.pg_attribute a where a.attrelid = x.oid and a.attnum <= i.indnkeyatts
                    and not (select k.attnotnull from pg_catalog.pg_attribute k where k.attrelid = c.oid and k.attnum = i.indkey[a.attnum - 1]))
                order by x.oid limit 1) candidate,
               (select pg_catalog.quote_ident(k.conname) from pg_catalog.pg_constraint k join pg_catalog.pg_index i on i.indexrelid = k.conindid
                where k.conrelid = c.oid and k.contype = 'u' and i.indisvalid and i.indimmediate
                  and not exists (select from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum = any(k.conkey) and not a.attnotnull) \
                      order by k.oid limit 1) as constraint,
               case when exists (select from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attname = 'row_id') then 'row_key' else \
                   'row_id' end new_column
             from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
             where c.relkind in ('r', 'p') and not c.relispartition and c.relpersistence = 'p' and c.relreplident <> 'i' and {USERS}
               and not exists (select from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisprimary)
               and not exists (select from pg_catalog.pg_depend d where d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.objid = c.oid \
                   and d.deptype = 'e')"
        ),
        "published desc, rows desc, relation",
    )?;
    let draft = |row: &Value| without_key(row, decoded);
    Ok(each(&found.rows, found.total, draft, || pass("every table has a primary key")))
}

fn without_key(row: &Value, decoded: u64) -> Draft {
    let relation = json::text(row, "relation");
    let rows = json::count(row, "rows").unwrap_or(0);
    let is_published = json::flag(row, "published") == Some(true);
    let identity = json::text(row, "identity");
    let claim = format!("{relation} has no primary key, and about {}", number::counted(rows, "row"));
    // `d` without a key is as good as nothing.
    let draft = match (is_published, identity.as_str()) {
        (true, "d" | "n") => {
            fail(&*relation, format!("{claim}; it is published, so updates and deletes are refused"))
        }
        (true, "f") => warn(&*relation, format!("{claim}; it is published with REPLICA IDENTITY FULL")),
        (false, _) if decoded > 0 => warn(
            &*relation,
            format!(
                "{claim}; {} this database",
                if decoded == 1 { "a logical slot decodes" } else { "logical slots decode" }
            ),
        ),
        (true, _) | (false, _) => note(&*relation, claim),
    };
    let draft = draft.figure(rows as f64, Unit::Count);
    let (index, constraint) = (json::text(row, "candidate"), json::text(row, "constraint"));
    if !index.is_empty() {
        return draft
            .advice("its unique index can become the primary key")
            .run(format!("ALTER TABLE {relation} ADD PRIMARY KEY USING INDEX {index};"));
    }
    if !constraint.is_empty() && json::text(row, "kind") == "r" {
        return draft
            .advice("its unique constraint can identify rows")
            .run(format!("ALTER TABLE {relation} REPLICA IDENTITY USING INDEX {constraint};"));
    }
    draft
        .advice("add a key from the columns that identify a row; if there are none, a new column (rewrites the table and locks it)")
        .run(format!(
            "ALTER TABLE {relation} ADD COLUMN {} bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY;",
            json::text(row, "new_column")
        ))
}

fn replica_identity(node: &mut Node<'_>) -> Judged {
    let published = published(node)?;
    let found = node.list(
        "",
        &format!(
            "select pg_catalog.format('%I.%I', n.nspname, c.relname) relation, greatest(c.reltuples, 0)::bigint as rows, c.relreplident as identity
             from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
             where c.relkind = 'r' and c.relpersistence = 'p' and c.relreplident in ('f', 'n') and {USERS} and {published}
               and exists (select from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisprimary)"
        ),
        "identity desc, rows desc, relation",
    )?;
    let draft = |row: &Value| {
        let relation = json::text(row, "relation");
        let draft = if json::text(row, "identity") == "n" {
            fail(
                &*relation,
                format!(
                    "{relation} is published with REPLICA IDENTITY NOTHING: updates and deletes are refused"
                ),
            )
        } else {
            warn(
                &*relation,
                format!("{relation} is published with REPLICA IDENTITY FULL, although it has a primary key"),
            )
        };
        draft.advice("use the primary key").run(format!("ALTER TABLE {relation} REPLICA IDENTITY DEFAULT;"))
    };
    Ok(each(&found.rows, found.total, draft, || pass("every published table is identified by its key")))
}

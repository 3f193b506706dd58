//! Checks that a node reaches the leaves of other nodes: its foreign tables have the same columns, accept writes, and return rows.
//!
//! A row is exact on the node that has it, and queries through another node may still not return it as it is. So every foreign partition is looked at in the
//! catalog, and one row is read through it, in a separate session: `postgres_fdw` would otherwise keep transactions open on the other nodes as
//! long as this one.

use connect::ConnSpec;
use postgres::Client;

use super::definition::{self, Definition, Subject};
use super::error::{VerifyError, sql};
use super::problem::Problem;
use crate::connections;
use crate::difference::TableName;

/// How long one row may take. A node that needs longer for it is as good as away.
const LIMIT: &str = "set statement_timeout = '60s'";

/// A foreign partition.
struct Foreign {
    table: String,
    /// Schema and name, quoted.
    relation: String,
    /// What is wrong with it, by the catalog.
    problems: Vec<String>,
    /// Its server.
    server: String,
    /// This session's role can use its server.
    has_mapping: bool,
}

/// What is wrong with the foreign partitions of `parent` on a node. Those in `astray` lead to other tables or to none, which was reported already:
/// nothing is read through them.
pub(super) fn check(
    spec: &ConnSpec,
    node: &str,
    parent: &str,
    definition: &Definition,
    astray: &[String],
) -> Result<Vec<Problem>, VerifyError> {
    let mut client = connections::control(spec)?;
    let partitions = partitions(&mut client, parent)?;
    if partitions.is_empty() {
        return Ok(Vec::new());
    }
    let name = |table: &str| TableName { table: table.to_owned(), node: Some(node.to_owned()) };
    let subjects: Vec<Subject> = partitions
        .iter()
        .map(|one| Subject {
            name: name(&one.table),
            relation: one.relation.clone(),
            is_home: false,
            is_parent: false,
        })
        .collect();
    // Notes on columns that are not the dataset's are made where the rows are.
    let mut problems = definition::compare(&mut client, &subjects, definition)?.problems;
    sql("setting up the session", client.batch_execute(LIMIT))?;
    let mut unmapped: Vec<String> = Vec::new();
    for one in partitions {
        let is_read = one.has_mapping && !astray.contains(&one.table);
        let read = if is_read { read_one(&mut client, &one.relation, definition) } else { None };
        // The right of this role is missing, and nothing of the rows.
        if !one.has_mapping && !unmapped.contains(&one.server) {
            unmapped.push(one.server);
        }
        let found = one.problems.into_iter().chain(read);
        problems.extend(found.map(|problem| Problem::Definition {
            node: Some(node.to_owned()),
            table: one.table.clone(),
            problem,
        }));
    }
    if !unmapped.is_empty() {
        unmapped.sort();
        let (node, role) = (node.to_owned(), spec.user.clone());
        problems.push(Problem::NoMapping { node, role, servers: unmapped });
    }
    Ok(problems)
}

/// Why no row can be read through a foreign table; `None`: it works.
fn read_one(client: &mut Client, relation: &str, definition: &Definition) -> Option<String> {
    let columns = definition.column_list();
    let read = client.query_opt(&format!("select {columns} from {relation} limit 1"), &[]);
    let error = read.err()?;
    let words = error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned());
    Some(format!("no row can be read through it: {words}"))
}

fn partitions(client: &mut Client, parent: &str) -> Result<Vec<Foreign>, VerifyError> {
    const DOING: &str = "looking at the foreign tables";
    let rows = client.query(
        "select n.nspname::text, c.relname::text,
                array(select a.attname || ' is mapped to ' || o.option_value || ' of the remote table'
                      from pg_attribute a cross join pg_options_to_table(a.attfdwoptions) o
                      where a.attrelid = c.oid and not a.attisdropped and o.option_name = 'column_name' and o.option_value <> a.attname order by a.attnum),
                lower(coalesce((select option_value from pg_options_to_table(f.ftoptions) where option_name = 'updatable'),
                               (select option_value from pg_options_to_table(s.srvoptions) where option_name = 'updatable'), 'true')),
                array(select tgname::text from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal and t.tgenabled <> 'D' order by 1),
                exists (select from pg_user_mappings m where m.srvid = s.oid and (m.umuser = 0 or m.usename = current_user)),
                s.srvname::text
         from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_namespace n on n.oid = c.relnamespace
         join pg_foreign_table f on f.ftrelid = c.oid join pg_foreign_server s on s.oid = f.ftserver
         where i.inhparent = to_regclass($1) order by 1, 2",
        &[&parent],
    );
    let foreign = sql(DOING, rows)?.into_iter().map(|row| {
        let (schema, table): (&str, String) = (row.get(0), row.get(1));
        let mut problems: Vec<String> =
            row.get::<_, Vec<String>>(2).into_iter().map(|column| format!("its column {column}")).collect();
        if !matches!(row.get::<_, &str>(3), "true" | "on" | "yes" | "1" | "t" | "y") {
            problems.push("accepts no writes (option updatable)".to_owned());
        }
        problems.extend(
            row.get::<_, Vec<String>>(4)
                .into_iter()
                .map(|trigger| format!("its trigger {trigger} may change or drop rows written through it")),
        );
        Foreign {
            relation: crate::ledger::qualified(schema, &table),
            table,
            problems,
            has_mapping: row.get(5),
            server: row.get(6),
        }
    });
    Ok(foreign.collect())
}

//! Which tables pgfathom made: `pgfathom.object`, and the comment that marks each of them.

use postgres::GenericClient;

use super::{Dataset, TABLE_MARK, layout, qualified, sql};
use crate::error::LoadError;
use crate::trust;

/// Notes that the table of this name (in the dataset's schema) is ours, and marks the table itself.
pub(crate) fn own_table(
    client: &mut impl GenericClient,
    dataset: &Dataset,
    name: &str,
) -> Result<(), LoadError> {
    let inserted = client.query_opt(
        "insert into pgfathom.object (dataset, name, oid)
         select $1, c.relname, c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = $2 and c.relname = $3
         returning (select c.relkind::text from pg_class c where c.oid = object.oid)",
        &[&dataset.id, &dataset.schema_name, &name],
    );
    let kind = sql("writing pgfathom.object", inserted)?;
    let foreign = kind.is_some_and(|row| row.get::<_, &str>(0) == "f");
    let kind = if foreign { "foreign table" } else { "table" };
    sql("marking a table as ours", client.batch_execute(&mark_sql(dataset, kind, name)))
}

/// The statement that marks a table as ours.
fn mark_sql(dataset: &Dataset, kind: &str, name: &str) -> String {
    let table = qualified(&dataset.schema_name, name);
    format!("comment on {kind} {table} is '{}'", table_comment(dataset))
}

/// Marks the ledger and these tables on a node that has received them from another one, without the comments.
pub(crate) fn mark_copies(
    client: &mut impl GenericClient,
    dataset: &Dataset,
    names: &[String],
) -> Result<(), LoadError> {
    let marks: Vec<String> = names.iter().map(|name| mark_sql(dataset, "table", name)).collect();
    let all = format!("{}; {}", super::schema_mark_sql(), marks.join("; "));
    sql("marking replicated tables as ours", client.batch_execute(&all))
}

/// Notes which tables are the partitions of our table now: others may have taken their place.
pub(crate) fn adopt_tables(
    client: &mut impl GenericClient,
    dataset: i32,
    names: &[&str],
    oids: &[u32],
) -> Result<(), LoadError> {
    let adopted = client.execute(
        "insert into pgfathom.object (dataset, name, oid) select $1, n, o from unnest($2::text[], $3::oid[]) as t (n, o)
         where not exists (select from pgfathom.object b where b.dataset = $1 and b.name = n and b.oid = o)
         on conflict (dataset, name) do update set oid = excluded.oid",
        &[&dataset, &names, &oids],
    );
    sql("writing pgfathom.object", adopted).map(|_| ())
}

/// The comment of a table of ours. No part of it can hold a quote.
fn table_comment(dataset: &Dataset) -> String {
    format!(
        "{TABLE_MARK}{} {}: format {}, {} rows, seed {}, {} keys, compressible {}",
        dataset.name,
        dataset.id,
        dataset.format,
        dataset.rows,
        dataset.spec.seed,
        dataset.spec.key_order,
        dataset.spec.compressible
    )
}

/// A relation that bears a name we want.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Relation {
    pub(crate) name: String,
    /// `pg_class.relkind`.
    pub(crate) kind: char,
    /// The ledger lists it, by its oid or (after a dump and restore, which changes oids) by its name and its marker.
    pub(crate) ours: bool,
}

impl Relation {
    /// What it is, in words.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            'r' | 'p' => "table",
            'v' => "view",
            'm' => "materialized view",
            'f' => "foreign table",
            'i' | 'I' => "index",
            'S' => "sequence",
            'c' => "composite type",
            _ => "relation",
        }
    }
}

/// The oids of relations whose comment is like what follows. `obj_description` would run a query of its own for every relation of the database.
pub(crate) const MARKED: &str = "select objoid from pg_catalog.pg_description \
     where classoid = 'pg_catalog.pg_class'::pg_catalog.regclass and objsubid = 0 and description like";

/// The relations of `schema` that bear one of `names`. `id` is the dataset they should belong to, when there is one.
pub(crate) fn relations(
    client: &mut impl GenericClient,
    schema: &str,
    names: &[String],
    id: Option<i32>,
) -> Result<Vec<Relation>, LoadError> {
    let rows = match id {
        Some(id) => client.query(
            "select c.relname::text, c.relkind::text, o.name is not null and
                    (o.oid = c.oid or coalesce(obj_description(c.oid, 'pg_class'), '') like $4)
             from pg_class c join pg_namespace n on n.oid = c.relnamespace
             left join pgfathom.object o on o.dataset = $3 and o.name = c.relname
             where n.nspname = $1 and c.relname = any($2) order by 1",
            &[&schema, &names, &id, &format!("{TABLE_MARK}%")],
        ),
        None => client.query(
            "select c.relname::text, c.relkind::text, false
             from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname = $1 and c.relname = any($2) order by 1",
            &[&schema, &names],
        ),
    };
    let rows = sql("looking for existing tables", rows)?;
    Ok(rows
        .iter()
        .map(|row| Relation {
            name: row.get(0),
            kind: row.get::<_, &str>(1).chars().next().unwrap_or('?'),
            ours: row.get(2),
        })
        .collect())
}

/// The dataset in whose list a relation is, by name and identity.
pub(crate) fn dataset_with(
    client: &mut impl GenericClient,
    schema: &str,
    name: &str,
) -> Result<Option<String>, LoadError> {
    let row = client.query_opt(
        "select d.name from pgfathom.object o
         join pgfathom.dataset d on d.id = o.dataset
         join pg_class c on c.oid = o.oid and c.relname = o.name
         join pg_namespace n on n.oid = c.relnamespace and n.nspname = d.schema_name
         where n.nspname = $1 and c.relname = $2 limit 1",
        &[&schema, &name],
    );
    Ok(sql("looking for the dataset of a table", row)?.map(|row| row.get(0)))
}

/// The names of all tables of a dataset.
pub(crate) fn owned_names(client: &mut impl GenericClient, id: i32) -> Result<Vec<String>, LoadError> {
    let rows = client.query("select name from pgfathom.object where dataset = $1 order by name", &[&id]);
    Ok(sql("reading pgfathom.object", rows)?.iter().map(|row| row.get(0)).collect())
}

/// Refuses a ledger that does not list all tables of a dataset, as no process looks at what it does not list, and one that lists for one server
/// what is true of several only.
fn check_listed(
    client: &mut impl GenericClient,
    dataset: &Dataset,
    expected: &[String],
) -> Result<(), LoadError> {
    let listed = owned_names(client, dataset.id)?;
    let layout = layout(client, dataset.id)?;
    let missing = expected.iter().find(|name| !listed.contains(name));
    let problem = match (missing, layout.nodes.as_slice(), layout.token) {
        (Some(table), ..) => format!("it does not list the table {table} in pgfathom.object"),
        // One server has no token, several have the same.
        (None, [], 0) => return Ok(()),
        (None, [], _) => "it has a token, but names no nodes".to_owned(),
        (None, nodes, 0) => format!("it names the nodes {}, but has no token", nodes.join(", ")),
        (None, ..) => return Ok(()),
    };
    Err(LoadError::Contradiction { dataset: dataset.name.clone(), problem })
}

/// Refuses relations of a schema that this session should not use, by which role they may be made: they or what is attached to them belong to a role that it
/// does not trust, or such a role may attach something.
///
/// # Errors
/// As above; also when the query fails.
pub fn check_usable(client: &mut impl GenericClient, schema: &str, oids: &[u32]) -> Result<(), LoadError> {
    trust::check_schema(client, schema)?;
    trust::check(client, oids, trust::Purpose::Use)?;
    let views = client.query(
        "select relname::text, relkind::text from pg_class where oid = any ($1) and relkind not in ('r', 'p', 'f') order by 1 limit 1",
        &[&oids],
    );
    if let Some(row) = sql("looking for views in the place of tables", views)?.first() {
        let (name, kind) = (row.get::<_, String>(0), row.get::<_, &str>(1).chars().next().unwrap_or('?'));
        let kind = Relation { name: name.clone(), kind, ours: false }.kind_name().to_owned();
        return Err(LoadError::NotATable { name: format!("{schema}.{name}"), kind });
    }
    trust::check_rules(client, oids)
}

/// Refuses a dataset whose tables have a rule that replaces what is written to them.
///
/// # Errors
/// As above; also when the query fails.
pub fn check_rules(client: &mut impl GenericClient, dataset: &Dataset) -> Result<(), LoadError> {
    let oids = trust::tables_of(client, dataset.id, &dataset.schema_name)?;
    trust::check_rules(client, &oids)
}

/// Refuses a dataset whose tables this session should not use: they are views by now, bear another name, belong to a role it does not trust,
/// or call what such a one has made. `expected` are the tables that the ledger must list. Tables that are gone are passed over.
///
/// # Errors
/// As above; also when the query fails.
pub fn check_in_place(
    client: &mut impl GenericClient,
    dataset: &Dataset,
    expected: &[String],
) -> Result<(), LoadError> {
    trust::check_schema(client, &dataset.schema_name)?;
    check_listed(client, dataset, expected)?;
    let rows = client.query(
        &format!(
        "select b.name, c.oid is not null, coalesce(c.relkind::text, ''), m.nspname::text, m.relname::text
         from pgfathom.object b
         left join (select c.oid, c.relname, c.relkind from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $2) c
                   on c.relname = b.name
         left join (select c.oid, c.relname, n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
                    where c.oid in ({MARKED} $3)) m on c.oid is null and m.oid = b.oid
         where b.dataset = $1 order by b.name"),
        &[&dataset.id, &dataset.schema_name, &format!("{TABLE_MARK}%")],
    );
    for row in sql("looking for the tables of the dataset", rows)? {
        let table: String = row.get(0);
        let relation =
            Relation { name: table, kind: row.get::<_, &str>(2).chars().next().unwrap_or('?'), ours: true };
        if row.get(1) && !matches!(relation.kind, 'r' | 'p' | 'f') {
            let (name, kind) = (format!("{}.{}", dataset.schema_name, relation.name), relation.kind_name());
            return Err(LoadError::NotATable { name, kind: kind.to_owned() });
        }
        if let (Some(schema), Some(name)) = (row.get::<_, Option<String>>(3), row.get::<_, Option<String>>(4))
        {
            let table = format!("{}.{}", dataset.schema_name, relation.name);
            return Err(LoadError::MovedTable { table, now: format!("{schema}.{name}") });
        }
    }
    let oids = trust::tables_of(client, dataset.id, &dataset.schema_name)?;
    trust::check(client, &oids, trust::Purpose::Use)
}

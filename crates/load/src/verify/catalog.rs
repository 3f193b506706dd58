//! What the server's catalog says about the table: leaf tables, columns, and what the server can compute.

use data::ycsb::{FIELD_BYTES, FIELD_COUNT};
use engines::hash;
use postgres::Client;

use super::definition::{self, Column, Definition, Subject};
use super::error::VerifyError;
use super::problem::Problem;
use super::report::TableName;
use crate::ledger::{self, Dataset};
use crate::plan::{self, TABLE};

/// One leaf table, or in a cluster a table that is none and should be empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Leaf {
    /// The server it is on.
    pub(super) site: usize,
    /// Schema and name, quoted; `None`: the table is gone, and so are all its rows.
    pub(super) relation: Option<String>,
    /// Size in blocks.
    pub(super) blocks: u64,
}

/// The table as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Catalog {
    /// In order of the remainder that is routed to them; then tables that nothing is routed to.
    pub(super) leaves: Vec<Leaf>,
    /// Their names.
    pub(super) names: Vec<TableName>,
    /// The server has `hash_record_extended`, and it agrees with ours.
    pub(super) record_hash: bool,
    /// The server has `hashtextextended`, and it agrees with ours.
    pub(super) text_hash: bool,
    /// The server reads a range of blocks without reading the whole table.
    pub(super) block_ranges: bool,
    /// Tables that are defined otherwise than the load made them.
    pub(super) problems: Vec<Problem>,
    /// What is different and no problem.
    pub(super) notes: Vec<String>,
}

/// Reads it from the one server that has everything; `node`: what that is called among others.
pub(super) fn read(
    client: &mut Client,
    dataset: &Dataset,
    node: Option<&str>,
) -> Result<Catalog, VerifyError> {
    let (names, leaves, leaving) = leaves(client, dataset)?;
    let named = |table| TableName { table, node: node.map(str::to_owned) };
    let leaving = leaving.into_iter().map(|table| is_leaving(node.map(str::to_owned), table));
    let mut catalog = Catalog::new(leaves, names.into_iter().map(named).collect());
    catalog.problems.extend(leaving);
    let is_unlogged = ledger::layout(client, dataset.id)?.unlogged;
    catalog.probe(client, 0, dataset, is_unlogged)?;
    if dataset.partitions > 1 {
        let parent = Subject {
            name: named(TABLE.to_owned()),
            relation: ledger::qualified(&dataset.schema_name, TABLE),
            is_home: true,
            is_parent: true,
        };
        catalog.compare(client, &[parent], false)?;
    }
    let gone = catalog.leaves.iter().zip(&catalog.names).filter(|(leaf, _)| leaf.relation.is_none());
    let gone: Vec<Problem> =
        gone.map(|(_, name)| is_gone(client, dataset, name)).collect::<Result<_, _>>()?;
    catalog.problems.extend(gone);
    Ok(catalog)
}

impl Catalog {
    /// Of servers that are still to be asked what they can do.
    pub(super) fn new(leaves: Vec<Leaf>, names: Vec<TableName>) -> Catalog {
        Catalog {
            leaves,
            names,
            record_hash: true,
            text_hash: true,
            block_ranges: true,
            problems: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Looks at a server's tables and asks it what it can do. What one server cannot do is done on none.
    pub(super) fn probe(
        &mut self,
        client: &mut Client,
        site: usize,
        dataset: &Dataset,
        is_unlogged: bool,
    ) -> Result<(), VerifyError> {
        let homes = dataset.partitions.max(1) as usize;
        let tables =
            self.names.iter().zip(&self.leaves).enumerate().filter(|(_, (_, leaf))| leaf.site == site);
        let subjects: Vec<Subject> = tables
            .filter_map(|(number, (name, leaf))| {
                let relation = leaf.relation.clone()?;
                Some(Subject { name: name.clone(), relation, is_home: number < homes, is_parent: false })
            })
            .collect();
        self.compare(client, &subjects, is_unlogged)?;
        let some = subjects.last().map(|subject| &subject.relation);
        let (text_hash, record_hash) = hashes(client)?;
        self.text_hash &= text_hash;
        self.record_hash &= record_hash;
        if let Some(relation) = some {
            self.block_ranges &= reads_block_ranges(client, relation)?;
        }
        Ok(())
    }
}

impl Catalog {
    fn compare(
        &mut self,
        client: &mut Client,
        subjects: &[Subject],
        is_unlogged: bool,
    ) -> Result<(), VerifyError> {
        let compared = definition::compare(client, subjects, &definition_of(is_unlogged))?;
        self.problems.extend(compared.problems);
        self.notes.extend(compared.notes);
        Ok(())
    }
}

/// What a load makes.
pub(super) fn definition_of(is_unlogged: bool) -> Definition {
    let mut columns = vec![Column::new("ycsb_key", "varchar(64) not null")];
    let declared = format!("varchar({FIELD_BYTES})");
    columns.extend((0..FIELD_COUNT).map(|number| Column::new(&format!("field{number}"), &declared)));
    Definition { columns, key: Some("ycsb_key".to_owned()), index: None, is_unlogged }
}

/// What to say of a table that has no rows because it is not there, or not where it was.
fn is_gone(client: &mut Client, dataset: &Dataset, name: &TableName) -> Result<Problem, VerifyError> {
    let relation = ledger::qualified(&dataset.schema_name, &name.table);
    let there = client.query_one("select to_regclass($1) is not null", &[&relation]);
    let problem = if sql("looking for the tables", there)?.get(0) {
        "is no longer a partition of the table: its rows were not read".to_owned()
    } else {
        format!("is gone: there is no such table in the schema {}", dataset.schema_name)
    };
    Ok(Problem::Definition { node: name.node.clone(), table: name.table.clone(), problem })
}

pub(super) fn sql<T>(doing: &'static str, result: Result<T, postgres::Error>) -> Result<T, VerifyError> {
    result.map_err(|source| VerifyError::Sql { doing, source })
}

/// What to say of a partition that is being detached: its rows are where they were, and no statement on its table sees them.
pub(super) fn is_leaving(node: Option<String>, table: String) -> Problem {
    let problem = "is being detached (detach partition ... concurrently was interrupted): queries of the partitioned table do not return its rows; \
                   alter table ... detach partition ... finalize ends that"
        .to_owned();
    Problem::Definition { node, table, problem }
}

/// What a partition is that holds no rows of its own on this server, in words; `None`: it is a table.
pub(super) fn other_kind(kind: &str) -> Option<&'static str> {
    match kind {
        "r" => None,
        "p" => Some("is itself partitioned"),
        "f" => Some(
            "is a foreign table: its rows are on another server; name all nodes of the cluster with --cluster",
        ),
        _ => Some("is no longer a table"),
    }
}

/// Names and leaf tables, from the partitions that are attached now; and which of these are being detached.
#[expect(clippy::type_complexity, reason = "three lists that are made together and go different ways")]
fn leaves(
    client: &mut Client,
    dataset: &Dataset,
) -> Result<(Vec<String>, Vec<Leaf>, Vec<String>), VerifyError> {
    const DOING: &str = "looking for the tables";
    let mut names = plan::leaf_names(dataset.partitions);
    let mut leaves = vec![Leaf { site: 0, relation: None, blocks: 0 }; names.len()];
    let changed =
        |table: &str, problem: String| VerifyError::ChangedTable { table: table.to_owned(), problem };
    let parent = ledger::qualified(&dataset.schema_name, TABLE);
    let kind = client.query_opt(
        "select relkind::text, pg_relation_size(oid) / current_setting('block_size')::bigint
         from pg_class where oid = to_regclass($1)",
        &[&parent],
    );
    let Some(kind) = sql(DOING, kind)? else { return Ok((names, leaves, Vec::new())) };
    let partitioned = match kind.get::<_, &str>(0) {
        "p" => true,
        "r" => false,
        _ => return Err(changed(TABLE, "is no longer a table".to_owned())),
    };
    if partitioned != (names.len() > 1) {
        let was = if partitioned { "a plain table" } else { "partitioned" };
        return Err(changed(TABLE, format!("the ledger records that it was {was}")));
    }
    if !partitioned {
        leaves[0] = Leaf { site: 0, relation: Some(parent), blocks: kind.get::<_, i64>(1) as u64 };
        return Ok((names, leaves, Vec::new()));
    }
    // Servers before PostgreSQL 14 have no inhdetachpending.
    let rows = client.query(
        "select n.nspname::text, c.relname::text, coalesce(pg_get_expr(c.relpartbound, c.oid), ''),
                coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::bigint, c.relkind::text,
                coalesce(to_jsonb(i) ->> 'inhdetachpending', '') = 'true'
         from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_namespace n on n.oid = c.relnamespace
         where i.inhparent = to_regclass($1)",
        &[&parent],
    );
    let mut leaving = Vec::new();
    for row in sql(DOING, rows)? {
        let (schema, name, bound): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
        if let Some(problem) = other_kind(row.get(4)) {
            return Err(changed(name, problem.to_owned()));
        }
        leaving.extend(row.get::<_, bool>(5).then(|| name.to_owned()));
        let remainder = remainder_of(bound, names.len() as u64);
        let remainder = remainder.ok_or_else(|| changed(name, format!("is a partition {bound}")))?;
        name.clone_into(&mut names[remainder]);
        let blocks = row.get::<_, i64>(3) as u64;
        leaves[remainder] = Leaf { site: 0, relation: Some(ledger::qualified(schema, name)), blocks };
    }
    Ok((names, leaves, leaving))
}

/// The remainder of a bound `FOR VALUES WITH (modulus 4, remainder 1)` of this modulus.
pub(super) fn remainder_of(bound: &str, modulus: u64) -> Option<usize> {
    let inside = bound.strip_prefix("FOR VALUES WITH (modulus ")?.strip_suffix(')')?;
    let (found_modulus, remainder) = inside.split_once(", remainder ")?;
    let remainder: u64 = remainder.parse().ok()?;
    let right = found_modulus.parse() == Ok(modulus) && remainder < modulus;
    right.then_some(remainder as usize)
}

/// Whether the server's hashes of text and of records are there and agree with ours.
fn hashes(client: &mut Client) -> Result<(bool, bool), VerifyError> {
    const DOING: &str = "checking how the server hashes";
    let row = client.query_one(
        "select to_regprocedure('pg_catalog.hashtextextended(text,bigint)') is not null,
                to_regprocedure('pg_catalog.hash_record_extended(record,bigint)') is not null",
        &[],
    );
    let row = sql(DOING, row)?;
    let (text, record): (bool, bool) = (row.get(0), row.get(1));
    if !text {
        return Ok((false, false));
    }
    let key = b"user000000000000000042";
    let ours = hash::text_extended(key, 0);
    let theirs = client.query_one("select hashtextextended('user000000000000000042'::varchar, 0)", &[]);
    let text = sql(DOING, theirs)?.get::<_, i64>(0) as u64 == ours;
    if !(text && record) {
        return Ok((text, false));
    }
    let ours = hash::text_record(key, &[*b"abc", *b"xyz"], ours);
    let theirs = client.query_one(
        "select hash_record_extended(row(k, 'abc'::varchar, 'xyz'::varchar), hashtextextended(k, 0))
         from (select 'user000000000000000042'::varchar as k) as one",
        &[],
    );
    Ok((text, sql(DOING, theirs)?.get::<_, i64>(0) as u64 == ours))
}

pub(super) fn reads_block_ranges(client: &mut Client, relation: &str) -> Result<bool, VerifyError> {
    let explain = format!("explain select from only {relation} where ctid >= '(0,0)' and ctid < '(1,0)'");
    let plan = sql("checking how the server reads blocks", client.query(explain.as_str(), &[]))?;
    Ok(plan.iter().any(|line| line.get::<_, &str>(0).contains("Tid Range Scan")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_the_right_modulus_have_a_remainder() {
        assert_eq!(remainder_of("FOR VALUES WITH (modulus 4, remainder 3)", 4), Some(3));
        for bound in [
            "FOR VALUES WITH (modulus 8, remainder 3)",
            "FOR VALUES WITH (modulus 4, remainder 4)",
            "FOR VALUES IN ('a')",
            "DEFAULT",
            "",
        ] {
            assert_eq!(remainder_of(bound, 4), None, "{bound}");
        }
    }
}

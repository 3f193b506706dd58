//! Where the rows are: which tables on which servers hold them.

use engines::Cluster;
use engines::profile::Layout;

use super::super::definition::{self, Column, Definition, Subject};
use super::super::foreign;
use super::super::problem::Problem;
use super::super::report::TableName;
use super::{CELL_BYTES, CELLS_MAX, Site, Source, TableAt, VerifyError, sql};
use crate::dataset::{self, Leaves, Table};
use crate::ledger::{self, Dataset, qualified};
use crate::shard;

/// What is proved, and where it is read.
#[derive(Default)]
pub(super) struct Places {
    pub(super) tables: Vec<TableAt>,
    pub(super) sources: Vec<Source>,
    /// Tables that are defined otherwise than the load made them.
    pub(super) problems: Vec<Problem>,
}

/// A leaf that a node has as a table.
struct Local {
    leaf: usize,
    /// Schema and name, quoted.
    relation: String,
}

/// Looks for the tables on all servers and compares their definitions with those that were made. Tables that are gone have no source, so all of
/// their rows are missing.
pub(super) fn find(
    cluster: &Cluster,
    sites: &mut [Site],
    ids: &[Dataset],
    content: &dyn dataset::Dataset,
) -> Result<Places, VerifyError> {
    let mut places = Places::default();
    // Where every node holds all rows, each node's copy is proved by itself.
    let copies =
        if matches!(cluster.engine.layout, Layout::Copies(_)) && sites.len() > 1 { sites.len() } else { 1 };
    let tables = content.tables();
    for site in sites.iter().take(copies) {
        let node = if copies > 1 { site.name.clone() } else { None };
        let shift = shift_of(content);
        places.tables.extend((0..tables.len()).map(|table| TableAt { table, node: node.clone(), shift }));
    }
    for (number, (site, dataset)) in std::iter::zip(sites.iter_mut(), ids).enumerate() {
        let is_unlogged = ledger::layout(&mut *site.control, dataset.id)?.unlogged;
        let leaves = Leaves::new(tables.len(), dataset.partitions);
        for Local { leaf, relation } in locals(site, dataset, tables)? {
            let table = leaves.table(leaf);
            let copy = if copies > 1 { number } else { 0 };
            let at = copy * tables.len() + table;
            let definition = definition_of(&tables[table], is_unlogged);
            if let Some(blocks) = places.table(site, tables[table].name, &relation, &definition)? {
                let partition = leaves.partition(leaf);
                places.sources.push(Source { at, site: number, partition, relation, blocks });
            }
        }
        if cluster.engine.layout == Layout::ForeignPartitions && dataset.partitions > 1 && site.name.is_some()
        {
            for table in tables {
                let node = site.name.as_deref().unwrap_or_default();
                let parent = qualified(&dataset.schema_name, table.name);
                let definition = definition_of(table, is_unlogged);
                places.problems.extend(foreign::check(&site.spec, node, &parent, &definition, &[])?);
            }
        }
    }
    Ok(places)
}

/// Rows of a cell, as a power of two.
fn shift_of(content: &dyn dataset::Dataset) -> u32 {
    let by_size = (CELL_BYTES / content.row_bytes().max(1)).max(1).ilog2();
    let rows = content.tables().iter().map(|table| table.rows).max().unwrap_or(0);
    by_size.max(rows.div_ceil(CELLS_MAX).max(1).next_power_of_two().ilog2())
}

/// The leaves that a server has as tables of its own.
fn locals(site: &mut Site, dataset: &Dataset, tables: &[Table]) -> Result<Vec<Local>, VerifyError> {
    if dataset.partitions > 1 {
        let found = shard::partitions(&mut *site.control, dataset, tables)?;
        let own = found.into_iter().filter(|partition| partition.local);
        return Ok(own
            .map(|one| Local { leaf: one.leaf.into(), relation: one.attachment.relation })
            .collect());
    }
    let local = |(leaf, table): (usize, &Table)| Local {
        leaf,
        relation: qualified(&dataset.schema_name, table.name),
    };
    Ok(tables.iter().enumerate().map(local).collect())
}

/// What a load makes of a table.
fn definition_of(table: &Table, is_unlogged: bool) -> Definition {
    Definition {
        columns: table.columns.iter().map(|(name, declared)| Column::new(name, declared)).collect(),
        key: table.key.map(str::to_owned),
        index: None,
        is_unlogged,
    }
}

impl Places {
    /// Looks for a table and compares its definition with what was made; its size in blocks, `None`: it is gone.
    fn table(
        &mut self,
        site: &mut Site,
        table: &str,
        relation: &str,
        definition: &Definition,
    ) -> Result<Option<u64>, VerifyError> {
        let row = site.control.query_opt(
            "select relname::text, relkind::text, pg_relation_size(oid) / current_setting('block_size')::bigint
             from pg_class where oid = to_regclass($1)",
            &[&relation],
        );
        let Some(row) = sql("looking for the tables", row)? else {
            let problem = "is gone: there is no such table".to_owned();
            self.problems.push(Problem::Definition {
                node: site.name.clone(),
                table: table.to_owned(),
                problem,
            });
            return Ok(None);
        };
        let (name, kind): (String, &str) = (row.get(0), row.get(1));
        if kind != "r" {
            let problem = "is no longer the table that was made".to_owned();
            return Err(VerifyError::ChangedTable { table: name, problem });
        }
        let blocks = row.get::<_, i64>(2) as u64;
        let name = TableName { table: name, node: site.name.clone() };
        let subject = Subject { name, relation: relation.to_owned(), is_home: true, is_parent: false };
        let compared = definition::compare(&mut site.control, &[subject], definition)?;
        self.problems.extend(compared.problems);
        Ok(Some(blocks))
    }
}

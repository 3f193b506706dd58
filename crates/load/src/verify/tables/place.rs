//! Where the rows are: which tables on which servers hold them.

use engines::Cluster;
use engines::profile::Layout;
use postgres::Client;

use super::super::catalog::is_leaving;
use super::super::definition::{self, Column, Definition, Subject};
use super::super::foreign;
use super::super::problem::Problem;
use super::super::report::TableName;
use super::{CELL_BYTES, CELLS_MAX, Site, Source, TableAt, VerifyError, sql};
use crate::dataset::{self, ForeignKey, Leaves, Placement, Table};
use crate::ledger::{self, Dataset, qualified};
use crate::shard;

/// What is proved, and where it is read.
#[derive(Default)]
pub(super) struct Places {
    pub(super) tables: Vec<TableAt>,
    pub(super) sources: Vec<Source>,
    /// Tables that are defined otherwise than the load made them.
    pub(super) problems: Vec<Problem>,
    /// What is odd and no difference of rows.
    pub(super) notes: Vec<String>,
}

/// A leaf that a node has as a table.
struct Local {
    site: usize,
    leaf: usize,
    /// Schema and name, quoted.
    relation: String,
}

/// Looks for the judged tables on all servers and compares their definitions with those that were made. Tables that are gone have no source, so all
/// of their rows are missing.
pub(super) fn find(
    cluster: &Cluster,
    sites: &mut [Site],
    ids: &[Dataset],
    content: &dyn dataset::Dataset,
    judged: &[usize],
) -> Result<Places, VerifyError> {
    let mut places = Places::default();
    // Where every node holds all rows, each node's copy is proved by itself.
    let has_copies = matches!(cluster.engine.layout, Layout::Copies(_)) && sites.len() > 1;
    let tables = content.tables();
    for &table in judged {
        let is_whole = has_copies || tables[table].placement == Placement::Whole;
        let nodes = sites.iter().map(|site| site.name.clone()).take(if is_whole { sites.len() } else { 1 });
        let per_cell = per_cell(content, table);
        places.tables.extend(nodes.map(|node| TableAt { table, node: node.filter(|_| is_whole), per_cell }));
    }
    let Some(model) = ids.first() else { return Ok(places) };
    let leaves = Leaves::of_tables(tables, model.partitions);
    let is_unlogged = ledger::layout(&mut *sites[0].control, model.id)?.unlogged;
    let mut locals = Vec::new();
    for (number, (site, dataset)) in std::iter::zip(sites.iter_mut(), ids).enumerate() {
        places.leaving(site, dataset, tables)?;
        locals.extend(locals_of(number, site, dataset, tables)?);
    }
    let dealt_to = ledger::layout(&mut *sites[0].control, model.id)?.nodes;
    for local in locals.iter().filter(|local| judged.contains(&leaves.table(local.leaf))) {
        let table = leaves.table(local.leaf);
        let owner = match has_copies || local.leaf >= leaves.whole_from() {
            true => None,
            false => owner_of(local.leaf, leaves, &locals, sites, &dealt_to),
        };
        let belongs_to = owner.filter(|owner| sites[local.site].name.as_ref() != Some(owner));
        let definition = definition_of(&tables[table], is_unlogged);
        let site = &mut sites[local.site];
        let at = places
            .tables
            .iter()
            .position(|at| at.table == table && (at.node.is_none() || at.node == site.name));
        let is_home = belongs_to.is_none();
        let found = places.table(site, tables[table].name, &local.relation, &definition, is_home)?;
        if let Some((at, blocks)) = at.zip(found) {
            let (partition, relation) = (leaves.partition(local.leaf), local.relation.clone());
            places.sources.push(Source { at, site: local.site, partition, relation, blocks, belongs_to });
        }
    }
    for (site, dataset) in std::iter::zip(sites.iter_mut(), ids) {
        if dataset.partitions > 1 {
            let divided = judged.iter().map(|table| &tables[*table]);
            places.loose(site, dataset, divided)?;
        }
        if cluster.engine.layout == Layout::ForeignPartitions && dataset.partitions > 1 && site.name.is_some()
        {
            for table in tables.iter().filter(|table| table.placement != Placement::Whole) {
                let node = site.name.as_deref().unwrap_or_default();
                let parent = qualified(&dataset.schema_name, table.name);
                let definition = definition_of(table, is_unlogged);
                places.problems.extend(foreign::check(&site.spec, node, &parent, &definition, &[])?);
            }
        }
    }
    for (site, dataset) in std::iter::zip(sites.iter_mut(), ids) {
        let found = references(&mut site.control, &dataset.schema_name, content, site.name.as_ref())?;
        places.problems.extend(found);
    }
    Ok(places)
}

/// The name of the node that a leaf belongs to, where several have it: the one it was dealt to, else the first of them.
fn owner_of(
    leaf: usize,
    leaves: Leaves,
    locals: &[Local],
    sites: &[Site],
    dealt_to: &[String],
) -> Option<String> {
    let mut have = locals.iter().filter(|local| local.leaf == leaf).map(|local| &sites[local.site].name);
    let dealt = dealt_to.get(leaves.partition(leaf) as usize % dealt_to.len().max(1));
    let first = have.clone().next().cloned().flatten();
    if have.any(|name| name.as_ref() == dealt) { dealt.cloned() } else { first }
}

/// Row numbers of a cell.
fn per_cell(content: &dyn dataset::Dataset, table: usize) -> u64 {
    if let Some((_, per_cell)) = content.cell(table) {
        return per_cell;
    }
    let by_size = (CELL_BYTES / content.row_bytes().max(1)).max(1).ilog2();
    let rows = content.tables().iter().map(|table| table.rows).max().unwrap_or(0);
    1 << by_size.max(rows.div_ceil(CELLS_MAX).max(1).next_power_of_two().ilog2())
}

/// The leaves that a server has as tables of its own.
fn locals_of(
    number: usize,
    site: &mut Site,
    dataset: &Dataset,
    tables: &[Table],
) -> Result<Vec<Local>, VerifyError> {
    let leaves = Leaves::of_tables(tables, dataset.partitions);
    let mut locals = Vec::new();
    if dataset.partitions > 1 {
        let found = shard::partitions(&mut *site.control, dataset, tables)?;
        let own = found.into_iter().filter(|partition| partition.local);
        locals.extend(own.map(|one| Local {
            site: number,
            leaf: one.leaf.into(),
            relation: one.attachment.relation,
        }));
    }
    let whole =
        (0..leaves.count()).filter(|leaf| !tables[leaves.table(*leaf)].is_divided(dataset.partitions));
    locals.extend(whole.map(|leaf| Local {
        site: number,
        leaf,
        relation: qualified(&dataset.schema_name, tables[leaves.table(leaf)].name),
    }));
    locals.sort_by_key(|local| local.leaf);
    Ok(locals)
}

/// What a load makes of a table.
fn definition_of(table: &Table, is_unlogged: bool) -> Definition {
    Definition {
        columns: table.columns.iter().map(|(name, declared)| Column::new(name, declared)).collect(),
        key: table.key.map(str::to_owned),
        index: table.index.map(|(_, columns)| columns.to_owned()),
        is_unlogged,
    }
}

/// Whether a partitioned table has partitions on other servers.
fn leads_elsewhere(control: &mut Client, relation: &str) -> Result<bool, VerifyError> {
    let foreign = control.query_one(
        "select exists (select from pg_inherits i join pg_foreign_table f on f.ftrelid = i.inhrelid where i.inhparent = to_regclass($1))",
        &[&relation],
    );
    Ok(sql("looking for the tables", foreign)?.get(0))
}

/// Foreign keys that the load made and that are gone, or that let rows pass.
fn references(
    control: &mut Client,
    schema: &str,
    content: &dyn dataset::Dataset,
    node: Option<&String>,
) -> Result<Vec<Problem>, VerifyError> {
    let mut problems = Vec::new();
    for ForeignKey { table, name, columns, referred } in content.foreign_keys() {
        // Servers before PostgreSQL 18 have no conenforced.
        let state = control.query_one(
            "select coalesce((
                 select case when coalesce(to_jsonb(c) ->> 'conenforced', 'true') <> 'true' then 'is not enforced'
                             when not c.convalidated then 'is not valid: older rows may violate it'
                             when exists (select from pg_trigger t where t.tgconstraint = c.oid and t.tgenabled not in ('O', 'A'))
                             then 'is not enforced: its triggers are disabled' else '' end
                 from pg_constraint c
                 where c.conrelid = to_regclass($1) and c.confrelid = to_regclass($2) and c.contype = 'f'
                   and (select string_agg(a.attname, ', ' order by k.n) from unnest(c.conkey) with ordinality as k (attnum, n)
                        join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.attnum) = $3
                 order by 1 limit 1), 'is gone')",
            &[&qualified(schema, table), &qualified(schema, referred), columns],
        );
        let state: String = sql("looking for the foreign keys", state)?.get(0);
        if !state.is_empty() {
            let problem = format!("its foreign key {name} ({columns}) on {referred} {state}");
            problems.push(Problem::Definition { node: node.cloned(), table: (*table).to_owned(), problem });
        }
    }
    Ok(problems)
}

impl Places {
    /// Looks for a table and compares its definition with what was made; its size in blocks, `None`: it is gone. `is_home`: it holds rows by right.
    fn table(
        &mut self,
        site: &mut Site,
        table: &str,
        relation: &str,
        definition: &Definition,
        is_home: bool,
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
        let problem = match kind {
            "r" => None,
            "p" if leads_elsewhere(&mut site.control, relation)? => Some(
                "is distributed over the nodes of a cluster, but only one was named: name all with --cluster",
            ),
            "p" => Some("is partitioned now, but was created as one table"),
            _ => Some("is no longer the table that was made"),
        };
        if let Some(problem) = problem {
            return Err(VerifyError::ChangedTable { table: name, problem: problem.to_owned() });
        }
        let blocks = row.get::<_, i64>(2) as u64;
        let name = TableName { table: name, node: site.name.clone() };
        let subject = Subject { name, relation: relation.to_owned(), is_home, is_parent: false };
        let compared = definition::compare(&mut site.control, &[subject], definition)?;
        self.problems.extend(compared.problems);
        self.notes.extend(compared.notes);
        Ok(Some(blocks))
    }

    /// Partitions that are being detached: nobody who asks the parent finds their rows.
    fn leaving(&mut self, site: &mut Site, dataset: &Dataset, tables: &[Table]) -> Result<(), VerifyError> {
        let parents: Vec<String> =
            tables.iter().map(|table| qualified(&dataset.schema_name, table.name)).collect();
        let rows = site.control.query(
            "select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
             where i.inhparent = any (select to_regclass(p)::oid from unnest($1::text[]) as p)
               and coalesce(to_jsonb(i) ->> 'inhdetachpending', '') = 'true' order by 1",
            &[&parents],
        );
        let leaving = sql("looking for the tables", rows)?;
        self.problems.extend(leaving.iter().map(|row| is_leaving(site.name.clone(), row.get(0))));
        Ok(())
    }

    /// Tables that have the name of a leaf and are no partition of anything: what is in them, nobody who asks for the rows finds.
    fn loose<'t>(
        &mut self,
        site: &mut Site,
        dataset: &Dataset,
        tables: impl Iterator<Item = &'t Table>,
    ) -> Result<(), VerifyError> {
        let divided = tables.filter(|table| table.is_divided(dataset.partitions));
        let names: Vec<String> = divided.flat_map(|table| table.leaf_names(dataset.partitions)).collect();
        let rows = site.control.query(
            "select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname = $1 and c.relname = any ($2) and c.relkind = 'r' and not c.relispartition order by 1",
            &[&dataset.schema_name, &names],
        );
        let on = site.name.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        self.notes.extend(sql("looking for the tables", rows)?.iter().map(|row| {
            let name: &str = row.get(0);
            format!("{name}{on} is not a partition of any table: its rows were not read")
        }));
        Ok(())
    }
}

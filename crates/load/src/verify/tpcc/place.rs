//! Where the rows are: which tables on which servers hold the rows of the nine, and which hold what is another node's.

use data::tpcc::Table;
use postgres::Client;

use super::super::catalog::is_leaving;
use super::super::definition::{self, Column, Definition, Subject};
use super::super::foreign;
use super::super::problem::Problem;
use super::super::report::TableName;
use super::{Site, Source, TableAt, VerifyError, sql};
use crate::ledger::{self, qualified};
use crate::tpcc::TpccDataset;
use crate::tpcc::cluster::tables_of;
use crate::tpcc::schema::{FOREIGN_KEYS, columns, index, primary_key};
use crate::tpcc::spread::{Spread, leaf_name, spread_tables};

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

/// A relation with the name of one of ours.
struct Relation {
    kind: char,
    blocks: u64,
}

/// Looks for the tables on all servers and compares their columns with those that were made. Tables that are gone have no source, so all of
/// their rows are missing.
pub(super) fn find(sites: &mut [Site], found: &TpccDataset, judged: &[Table]) -> Result<Places, VerifyError> {
    match sites {
        [site] if site.name.is_none() => on_one(site, found, judged),
        sites => on_nodes(sites, found, judged),
    }
}

fn on_one(site: &mut Site, found: &TpccDataset, judged: &[Table]) -> Result<Places, VerifyError> {
    let mut places = Places::default();
    for (at, &table) in judged.iter().enumerate() {
        places.tables.push(TableAt { table, node: None });
        let relation = qualified(&found.dataset.schema_name, table.name());
        let name = TableName::local(table.name());
        if let Some(Relation { blocks, .. }) =
            places.plain(&mut site.control, table, name, &relation, true)?
        {
            places.sources.push(Source { at, site: 0, relation, blocks, belongs_to: None });
        }
    }
    if found.foreign_keys {
        places.problems.extend(foreign_keys(&mut site.control, &found.dataset.schema_name)?);
    }
    Ok(places)
}

fn on_nodes(sites: &mut [Site], found: &TpccDataset, judged: &[Table]) -> Result<Places, VerifyError> {
    let mut places = Places::default();
    let schema = &found.dataset.schema_name;
    if judged.contains(&Table::Item) {
        for (number, site) in sites.iter_mut().enumerate() {
            let relation = qualified(schema, Table::Item.name());
            let at = places.tables.len();
            places.tables.push(TableAt { table: Table::Item, node: site.name.clone() });
            let name = TableName { table: Table::Item.name().to_owned(), node: site.name.clone() };
            if let Some(Relation { blocks, .. }) =
                places.plain(&mut site.control, Table::Item, name, &relation, true)?
            {
                places.sources.push(Source { at, site: number, relation, blocks, belongs_to: None });
            }
        }
    }
    let leaves = found.dataset.partitions.max(1);
    let bounds = Spread::dealt(found.warehouses, leaves, sites.len());
    let dealt_to = ledger::layout(&mut *sites[0].control, found.dataset.id)?.nodes;
    let mut partitions = Vec::new();
    for site in sites.iter_mut() {
        partitions.push(tables_of(&mut *site.control, &found.dataset, &bounds)?);
    }
    for table in spread_tables() {
        let (parent, definition) = (qualified(schema, table.name()), definition_of(table));
        for site in sites.iter() {
            let node = site.name.as_deref().unwrap_or_default();
            places.problems.extend(foreign::check(&site.spec, node, &parent, &definition, &[])?);
        }
    }
    for table in spread_tables().filter(|table| judged.contains(table)) {
        let at = places.tables.len();
        places.tables.push(TableAt { table, node: None });
        for leaf in 0..leaves as usize {
            let mut own = Vec::new();
            for (number, tables) in partitions.iter().enumerate() {
                let of_table = || tables.iter().filter(|(of, _)| *of == table).flat_map(|(_, own)| own);
                if of_table().any(|one| one.leaf == leaf && one.is_leaving) {
                    places.problems.push(is_leaving(sites[number].name.clone(), leaf_name(table, leaf)));
                }
                own.extend(
                    of_table().filter(|one| one.leaf == leaf && one.local).map(|one| (number, &one.relation)),
                );
            }
            // Where several nodes have it, the one it was dealt to has the right to it.
            let dealt = (!dealt_to.is_empty()).then(|| dealt_to[leaf % dealt_to.len()].as_str());
            let owner =
                own.iter().position(|(number, _)| sites[*number].name.as_deref() == dealt).unwrap_or(0);
            let owner_name = own.get(owner).and_then(|(number, _)| sites[*number].name.clone());
            for (nth, (number, relation)) in own.into_iter().enumerate() {
                let site = &mut sites[number];
                let name = TableName { table: leaf_name(table, leaf), node: site.name.clone() };
                let relation_of = places.plain(&mut site.control, table, name, relation, nth == owner)?;
                let Some(Relation { blocks, .. }) = relation_of else { continue };
                let belongs_to = if nth == owner { None } else { owner_name.clone() };
                places.sources.push(Source {
                    at,
                    site: number,
                    relation: relation.clone(),
                    blocks,
                    belongs_to,
                });
            }
        }
    }
    let judged = spread_tables().filter(|table| judged.contains(table));
    let names: Vec<String> =
        judged.flat_map(|table| (0..leaves as usize).map(move |leaf| leaf_name(table, leaf))).collect();
    places.notes.extend(loose(sites, schema, &names)?);
    Ok(places)
}

/// Tables that have the name of a leaf and are no partition of anything: what is in them, nobody who asks for the rows finds.
fn loose(sites: &mut [Site], schema: &str, names: &[String]) -> Result<Vec<String>, VerifyError> {
    let mut notes = Vec::new();
    for site in sites {
        let rows = site.control.query(
            "select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname = $1 and c.relname = any ($2) and c.relkind = 'r' and not c.relispartition order by 1",
            &[&schema, &names],
        );
        let node = site.name.as_deref().unwrap_or_default();
        notes.extend(sql("looking for the tables", rows)?.iter().map(|row| {
            let name: &str = row.get(0);
            format!("{name} on {node} is not a partition of any table: its rows were not read")
        }));
    }
    Ok(notes)
}

/// What a load makes of a table.
fn definition_of(table: Table) -> Definition {
    Definition {
        columns: columns(table).iter().map(|(name, declared)| Column::new(name, declared)).collect(),
        key: primary_key(table).map(str::to_owned),
        index: index(table).map(|(_, columns)| columns.to_owned()),
        is_unlogged: false,
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
fn foreign_keys(control: &mut Client, schema: &str) -> Result<Vec<Problem>, VerifyError> {
    let mut problems = Vec::new();
    for (table, name, columns, referred) in FOREIGN_KEYS {
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
            &[&qualified(schema, table.name()), &qualified(schema, referred.name()), &columns],
        );
        let state: String = sql("looking for the foreign keys", state)?.get(0);
        if !state.is_empty() {
            let problem = format!("its foreign key {name} ({columns}) on {} {state}", referred.name());
            problems.push(Problem::Definition { node: None, table: table.name().to_owned(), problem });
        }
    }
    Ok(problems)
}

impl Places {
    /// Looks for a table and compares its definition with what was made; `None`: it is gone. `is_home`: it holds rows by right.
    fn plain(
        &mut self,
        control: &mut Client,
        table: Table,
        name: TableName,
        relation: &str,
        is_home: bool,
    ) -> Result<Option<Relation>, VerifyError> {
        let row = control.query_opt(
            "select relkind::text, pg_relation_size(oid) / current_setting('block_size')::bigint
             from pg_class where oid = to_regclass($1)",
            &[&relation],
        );
        let Some(row) = sql("looking for the tables", row)? else {
            let problem = "is gone: there is no such table".to_owned();
            self.problems.push(Problem::Definition { node: name.node, table: name.table, problem });
            return Ok(None);
        };
        let changed = |problem: String| VerifyError::ChangedTable { table: table.name().to_owned(), problem };
        let found = Relation {
            kind: row.get::<_, &str>(0).chars().next().unwrap_or('?'),
            blocks: row.get::<_, i64>(1) as u64,
        };
        match found.kind {
            'r' => {}
            'p' => {
                let problem = if leads_elsewhere(control, relation)? {
                    "is distributed over the nodes of a cluster, but only one was named: name all with --cluster"
                } else {
                    "is partitioned now, but was created as one table"
                };
                return Err(changed(problem.to_owned()));
            }
            _ => return Err(changed("is no longer a table".to_owned())),
        }
        let definition = definition_of(table);
        let subject = Subject { name, relation: relation.to_owned(), is_home, is_parent: false };
        let compared = definition::compare(control, &[subject], &definition)?;
        self.problems.extend(compared.problems);
        self.notes.extend(compared.notes);
        Ok(Some(found))
    }
}

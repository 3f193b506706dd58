//! The tables of a dataset in the servers' catalogs: where their leaf tables are, how they are defined, and what servers can compute.

use engines::cluster::Cluster;
use engines::profile::Layout;
use postgres::Client;

use super::content;
use super::definition::{self, Column, Definition, Subject};
use super::error::{VerifyError, sql};
use super::foreign;
use super::leaf::{Found, bounds, is_leaving, other_kind};
use super::problem::Problem;
use super::references::references;
use super::site::Site;
use super::spread::{self, Spread};
use crate::dataset::{self, Hashing, Table};
use crate::difference::TableName;
use crate::ledger::{self, Dataset, qualified};

/// All rows of one table: wherever they are, or one node's copy of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TableAt {
    /// Which table of the dataset.
    pub(super) table: usize,
    /// Whose copy it is.
    pub(super) node: Option<String>,
    /// The leaf of its partition 0; the others follow.
    pub(super) first_leaf: usize,
    /// 1 for a table that is not divided.
    pub(super) partitions: u32,
}

/// A leaf table, or in a cluster a table that is none and should be empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Leaf {
    /// Whose rows: a place among the tables.
    pub(super) at: usize,
    pub(super) partition: u32,
    /// Rows belong here.
    pub(super) is_home: bool,
    /// The server it is on.
    pub(super) site: usize,
    /// Schema and name, quoted; `None`: the table no longer exists, nor do its rows.
    pub(super) relation: Option<String>,
    /// Size in blocks.
    pub(super) blocks: u64,
}

/// The tables as they are now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Catalog {
    pub(super) tables: Vec<TableAt>,
    /// Those that rows belong to, by table and partition; then tables in which nothing should be.
    pub(super) leaves: Vec<Leaf>,
    /// Their names.
    pub(super) names: Vec<TableName>,
    /// From here on, tables that are attached to nothing.
    pub(super) loose_from: usize,
    /// The servers hash rows as we do.
    pub(super) record_hash: bool,
    /// The servers hash keys as we do.
    pub(super) key_hash: bool,
    /// The servers read a range of blocks without reading the whole table.
    pub(super) block_ranges: bool,
    /// Tables that are defined otherwise than the load made them, and what nodes say of each other.
    pub(super) problems: Vec<Problem>,
    /// What is different and no problem.
    pub(super) notes: Vec<String>,
}

/// What is looked for.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) content: &'a dyn dataset::Dataset,
    /// As the ledgers have it.
    pub(super) dataset: &'a Dataset,
    /// The tables that are verified.
    pub(super) judged: &'a [usize],
    pub(super) is_unlogged: bool,
}

impl Wanted<'_> {
    fn table(&self, number: usize) -> &Table {
        &self.content.tables()[number]
    }

    /// Partitions of a table, 1 at least.
    fn partitions(&self, table: &Table) -> u32 {
        if table.is_divided(self.dataset.partitions) { self.dataset.partitions } else { 1 }
    }
}

/// Reads it from a server that has everything.
pub(super) fn of_server(site: &mut Site, wanted: Wanted<'_>) -> Result<Catalog, VerifyError> {
    let mut catalog = Catalog::new();
    for &number in wanted.judged {
        let table = wanted.table(number);
        let found = leaves(site, wanted, table, 0, &mut catalog.problems)?;
        catalog.add(number, None, found);
        if table.is_divided(wanted.dataset.partitions) {
            let name = TableName { table: table.name.to_owned(), node: site.name.clone() };
            let relation = qualified(&wanted.dataset.schema_name, table.name);
            let parent = Subject { name, relation, is_home: true, is_parent: true };
            let key = table.key_of_parent().map(str::to_owned);
            let definition = Definition { key, index: None, ..definition_of(table, false) };
            catalog.compare(&mut site.control, &[parent], &definition)?;
        }
    }
    catalog.probe(site, 0, wanted)?;
    Ok(catalog)
}

/// Reads it from nodes that share the rows.
pub(super) fn of_nodes(
    cluster: &Cluster,
    data: &[usize],
    sites: &mut [Site],
    wanted: Wanted<'_>,
) -> Result<Catalog, VerifyError> {
    let mut catalog = Catalog::new();
    let mut strays: Vec<(usize, Spread)> = Vec::new();
    for &number in wanted.judged {
        let table = wanted.table(number);
        if table.is_divided(wanted.dataset.partitions) {
            let mut spread = spread_of(cluster, data, sites, wanted, table)?;
            catalog.problems.append(&mut spread.problems);
            let at = catalog.tables.len();
            catalog.add(number, None, std::mem::take(&mut spread.leaves));
            strays.push((at, spread));
            continue;
        }
        for (place, site) in sites.iter_mut().enumerate() {
            let found = leaves(site, wanted, table, place, &mut catalog.problems)?;
            catalog.add(number, site.name.clone(), found);
        }
    }
    for (at, spread) in &strays {
        catalog.add_strays(*at, &spread.strays);
    }
    catalog.loose_from = catalog.leaves.len();
    for (at, spread) in &strays {
        catalog.add_strays(*at, &spread.loose);
    }
    for (number, site) in sites.iter_mut().enumerate() {
        catalog.probe(site, number, wanted).map_err(|error| site.named(error))?;
        if cluster.engine.layout == Layout::ForeignPartitions {
            catalog.check_foreign(site, wanted)?;
        }
    }
    catalog.problems.sort();
    catalog.problems.dedup();
    Ok(catalog)
}

/// Reads the catalogs of all nodes and makes one answer of them.
fn spread_of(
    cluster: &Cluster,
    data: &[usize],
    sites: &mut [Site],
    wanted: Wanted<'_>,
    table: &Table,
) -> Result<Spread, VerifyError> {
    let mut views = Vec::with_capacity(sites.len());
    for (number, site) in sites.iter_mut().enumerate() {
        let view = spread::view(&mut site.control, cluster, data, number, wanted.dataset, table);
        views.push(view.map_err(|error| site.named(error))?);
    }
    let mut there = Vec::with_capacity(sites.len());
    for (number, site) in sites.iter_mut().enumerate() {
        let found = spread::targets_there(&mut site.control, &views, number);
        there.push(found.map_err(|error| site.named(error))?);
    }
    let names: Vec<&str> = data.iter().map(|&node| cluster.nodes[node].name.as_str()).collect();
    spread::resolve(&names, &table.leaf_names(wanted.dataset.partitions), &views, &there)
}

impl Catalog {
    /// Of servers whose abilities are not known yet.
    pub(super) fn new() -> Catalog {
        Catalog {
            tables: Vec::new(),
            leaves: Vec::new(),
            names: Vec::new(),
            loose_from: usize::MAX,
            record_hash: true,
            key_hash: true,
            block_ranges: true,
            problems: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds a table and its leaves in the order of their partitions.
    fn add(&mut self, table: usize, node: Option<String>, leaves: Vec<Found>) {
        let at = self.tables.len();
        let (first_leaf, partitions) = (self.leaves.len(), leaves.len() as u32);
        self.tables.push(TableAt { table, node, first_leaf, partitions });
        for (partition, Found { name, site, relation, blocks }) in leaves.into_iter().enumerate() {
            self.names.push(name);
            self.leaves.push(Leaf { at, partition: partition as u32, is_home: true, site, relation, blocks });
        }
    }

    /// Adds tables in which no rows of a table should be.
    fn add_strays(&mut self, at: usize, strays: &[Found]) {
        for Found { name, site, relation, blocks } in strays.iter().cloned() {
            // Of a row whose place only the server knows, this is the leaf that the table's name stands for.
            let of_name =
                |(leaf, one): &(&Leaf, &TableName)| leaf.at == at && leaf.is_home && one.table == name.table;
            let partition =
                self.leaves.iter().zip(&self.names).find(of_name).map_or(0, |(leaf, _)| leaf.partition);
            self.names.push(name);
            self.leaves.push(Leaf { at, partition, is_home: false, site, relation, blocks });
        }
    }

    /// Looks at a server's tables and at what it can do. What one server cannot do is done on none.
    fn probe(&mut self, site: &mut Site, number: usize, wanted: Wanted<'_>) -> Result<(), VerifyError> {
        let mut some = None;
        for &table in wanted.judged {
            let of_table = |leaf: &Leaf| leaf.site == number && self.tables[leaf.at].table == table;
            let leaves = self.names.iter().zip(&self.leaves).filter(|(_, leaf)| of_table(leaf));
            let subjects: Vec<Subject> = leaves
                .filter_map(|(name, leaf)| {
                    let (relation, name) = (leaf.relation.clone()?, name.clone());
                    Some(Subject { name, relation, is_home: leaf.is_home, is_parent: false })
                })
                .collect();
            some = subjects.last().map(|subject| subject.relation.clone()).or(some);
            let definition = definition_of(wanted.table(table), wanted.is_unlogged);
            self.compare(&mut site.control, &subjects, &definition)?;
        }
        let (schema, node) = (&wanted.dataset.schema_name, site.name.as_ref());
        self.problems.extend(references(&mut site.control, schema, wanted.content, node)?);
        let hashing = wanted.content.hashing();
        self.ask(&mut site.control, hashing.as_ref())?;
        if let Some(relation) = some {
            self.block_ranges &= reads_block_ranges(&mut site.control, &relation)?;
        }
        Ok(())
    }

    fn ask(&mut self, client: &mut Client, hashing: Option<&Hashing>) -> Result<(), VerifyError> {
        let (key_hash, record_hash) = content::probe(client, hashing)?;
        self.key_hash &= key_hash;
        self.record_hash &= record_hash;
        Ok(())
    }

    /// Looks at the foreign tables through which a node reaches the rows of others.
    fn check_foreign(&mut self, site: &mut Site, wanted: Wanted<'_>) -> Result<(), VerifyError> {
        let node = site.name.as_deref().unwrap_or_default();
        let astray = self.problems.iter().filter_map(|problem| match problem {
            Problem::Dangling { node: at, leaf, .. } | Problem::Misdirected { node: at, leaf, .. } => {
                (at == node).then(|| leaf.clone())
            }
            _ => None,
        });
        let astray: Vec<String> = astray.collect();
        for table in wanted.content.tables().iter().filter(|table| wanted.partitions(table) > 1) {
            let parent = qualified(&wanted.dataset.schema_name, table.name);
            let definition = definition_of(table, false);
            self.problems.extend(foreign::check(&site.spec, node, &parent, &definition, &astray)?);
        }
        Ok(())
    }

    fn compare(
        &mut self,
        client: &mut Client,
        subjects: &[Subject],
        definition: &Definition,
    ) -> Result<(), VerifyError> {
        let compared = definition::compare(client, subjects, definition)?;
        self.problems.extend(compared.problems);
        self.notes.extend(compared.notes);
        Ok(())
    }
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

/// What to say of a table that has no rows because it is not there, or not where it was.
fn is_gone(client: &mut Client, schema: &str, name: &TableName) -> Result<Problem, VerifyError> {
    let there = client.query_one("select to_regclass($1) is not null", &[&qualified(schema, &name.table)]);
    let problem = if sql("looking for the tables", there)?.get(0) {
        "is no longer a partition of the table: its rows were not read".to_owned()
    } else {
        format!("is gone: there is no such table in the schema {schema}")
    };
    Ok(Problem::Definition { node: name.node.clone(), table: name.table.clone(), problem })
}

/// The leaf tables of a table on one server, from the partitions that are attached now.
fn leaves(
    site: &mut Site,
    wanted: Wanted<'_>,
    table: &Table,
    place: usize,
    problems: &mut Vec<Problem>,
) -> Result<Vec<Found>, VerifyError> {
    const DOING: &str = "looking for the tables";
    let (node, client, schema) = (site.name.clone(), &mut *site.control, &wanted.dataset.schema_name);
    let named = |table: &str| TableName { table: table.to_owned(), node: node.clone() };
    let changed =
        |table: &str, problem: String| VerifyError::ChangedTable { table: named(table).to_string(), problem };
    let nothing = |name: String| Found { name: named(&name), site: place, relation: None, blocks: 0 };
    let is_divided = table.is_divided(wanted.dataset.partitions);
    let mut found: Vec<Found> =
        table.leaf_names(wanted.dataset.partitions).into_iter().map(nothing).collect();
    let parent = qualified(schema, table.name);
    let kind = client.query_opt(
        "select relkind::text, pg_relation_size(oid) / current_setting('block_size')::bigint
         from pg_class where oid = to_regclass($1)",
        &[&parent],
    );
    match sql(DOING, kind)? {
        None => {}
        Some(row) => match (row.get::<_, &str>(0), is_divided) {
            ("r", false) => {
                let blocks = row.get::<_, i64>(1) as u64;
                found[0] = Found { relation: Some(parent), blocks, ..nothing(table.name.to_owned()) };
            }
            ("p", true) => attached(client, wanted, table, &parent, &mut found, problems, &changed)?,
            ("p", false) => {
                let problem = "is partitioned now, but was created as one table";
                return Err(changed(table.name, problem.to_owned()));
            }
            ("r", true) => {
                let problem = "is one table now, but was created with partitions";
                return Err(changed(table.name, problem.to_owned()));
            }
            _ => return Err(changed(table.name, "is no longer a table".to_owned())),
        },
    }
    for leaf in found.iter().filter(|leaf| leaf.relation.is_none()) {
        problems.push(is_gone(client, schema, &leaf.name)?);
    }
    Ok(found)
}

/// Finds the partitions of a table.
fn attached(
    client: &mut Client,
    wanted: Wanted<'_>,
    table: &Table,
    parent: &str,
    found: &mut [Found],
    problems: &mut Vec<Problem>,
    changed: &dyn Fn(&str, String) -> VerifyError,
) -> Result<(), VerifyError> {
    // Servers before PostgreSQL 14 have no inhdetachpending.
    let rows = client.query(
        "select n.nspname::text, c.relname::text, coalesce(pg_get_expr(c.relpartbound, c.oid), ''),
                coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::bigint, c.relkind::text,
                coalesce(to_jsonb(i) ->> 'inhdetachpending', '') = 'true'
         from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_namespace n on n.oid = c.relnamespace
         where i.inhparent = to_regclass($1)",
        &[&parent],
    );
    let bounds = bounds(table.placement, wanted.dataset.partitions);
    for row in sql("looking for the tables", rows)? {
        let (schema, name, bound): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
        if let Some(problem) = other_kind(row.get(4)) {
            return Err(changed(name, problem.to_owned()));
        }
        let partition = *bounds.get(bound).ok_or_else(|| changed(name, format!("is a partition {bound}")))?;
        let leaf = &mut found[partition];
        name.clone_into(&mut leaf.name.table);
        leaf.relation = Some(qualified(schema, name));
        leaf.blocks = row.get::<_, i64>(3) as u64;
        if row.get(5) {
            problems.push(is_leaving(leaf.name.node.clone(), name.to_owned()));
        }
    }
    Ok(())
}

fn reads_block_ranges(client: &mut Client, relation: &str) -> Result<bool, VerifyError> {
    let explain = format!("explain select from only {relation} where ctid >= '(0,0)' and ctid < '(1,0)'");
    let plan = sql("checking how the server reads blocks", client.query(explain.as_str(), &[]))?;
    Ok(plan.iter().any(|line| line.get::<_, &str>(0).contains("Tid Range Scan")))
}

/// Whether the dataset was made in unlogged tables.
pub(super) fn is_unlogged(site: &mut Site, id: i32) -> Result<bool, VerifyError> {
    Ok(ledger::layout(&mut *site.control, id)?.unlogged)
}

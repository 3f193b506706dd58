//! Compares nodes that should hold the same rows, and distinguishes rows that have diverged from rows that are still being replicated.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use data::Version;
use postgres::types::ToSql;

use super::catalog::{Catalog, Leaf, TableAt};
use super::content::{digests, identify, row_hash_sql};
use super::error::VerifyError;
use super::grid::{Grid, Part, Selection, Shape};
use super::problem::Problem;
use super::replication;
use super::site::{Site, split};
use super::sums;
use super::workers::{Coordinator, VerifyProgress, Workers, number};
use super::{Loaded, Setting, Task};
use crate::dataset::{Dataset, Hashing, Table};
use crate::difference::{Difference, DifferenceKind, KINDS, NAMED_MAX, TableName, Wrong};
use crate::ledger;

mod keyless;
mod loaded;

/// Keys of a bucket that differs are held for all nodes at once, for about so many rows at a time: some 100 MB per node.
const ROWS_AT_ONCE: u64 = 1 << 20;
/// Keys of one statement.
const KEYS_AT_ONCE: usize = 1000;
/// Rows that differ and are looked at again; more are counted as they were found.
const ROWS_AGAIN_MAX: usize = 100_000;
/// Pause between two readings of rows that are being written.
const PAUSE: Duration = Duration::from_millis(200);

/// What the comparison came to.
#[derive(Default)]
pub(super) struct Compared {
    pub(super) notes: Vec<String>,
    pub(super) problems: Vec<Problem>,
    pub(super) differences: Vec<Difference>,
    pub(super) totals: [u64; KINDS],
    /// Rows that were written all the time.
    pub(super) rows_unjudged: u64,
    /// Why something could not be compared.
    pub(super) unjudged: Option<String>,
    /// Differences by the name of the table.
    pub(super) of_table: BTreeMap<&'static str, u64>,
}

impl Compared {
    /// Whether all rows could be compared, and none differs.
    pub(super) fn is_alike(&self) -> bool {
        self.totals.iter().all(|total| *total == 0) && self.rows_unjudged == 0 && self.unjudged.is_none()
    }

    /// Adds what another comparison came to.
    pub(super) fn add(&mut self, other: Compared) {
        let new = other.notes.into_iter().filter(|note| !self.notes.contains(note));
        self.notes.extend(new.collect::<Vec<_>>());
        self.problems.extend(other.problems);
        self.differences.extend(other.differences);
        self.totals.iter_mut().zip(other.totals).for_each(|(total, more)| *total += more);
        self.rows_unjudged += other.rows_unjudged;
        self.unjudged = self.unjudged.take().or(other.unjudged);
        for (table, more) in other.of_table {
            *self.of_table.entry(table).or_default() += more;
        }
    }
}

/// How copies of the same rows come to be equal: what is waited for before rows that differ are read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// Nothing: a node was behind, and has been waited for.
    No,
    /// Until slots have confirmed what others have written.
    Slots,
    /// Until nothing arrives any more.
    Quiet,
    /// A commit is one of all copies: until those that are under way have ended.
    Commit,
}

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides<'a> {
    /// One per node, with the same tables and leaves on all of them.
    pub(super) catalogs: &'a [Catalog],
    pub(super) wait: Wait,
    /// Leaves are parts of tables that are read one by one, and only one copy of each has been verified.
    pub(super) are_parts: bool,
    /// The tables of which each node's copy has been verified: what is wrong with one copy alone has been named.
    pub(super) verified: &'a [usize],
}

/// The hash of a row on each node; `None`: it is not there.
type Hashes = Vec<Option<i64>>;

/// A row: its table, and the columns of its key as text.
type Key = (usize, Vec<String>);

/// What the comparison knows.
struct Comparison<'a> {
    task: &'a Task<'a>,
    loaded: &'a Loaded,
    sides: Sides<'a>,
    /// A node has no hash of rows, so they are hashed in a way that all nodes have.
    by_digest: bool,
}

/// Compares all rows of all nodes.
pub(super) fn nodes(
    task: &Task<'_>,
    sites: &mut [Site],
    sides: Sides<'_>,
    loaded: &Loaded,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<Compared, VerifyError> {
    let mut compared = Compared::default();
    let by_digest = !sides.catalogs.iter().all(|catalog| catalog.record_hash);
    let comparison = Comparison { task, loaded, sides, by_digest };
    let mut open = comparison.first_look(sites, observer)?;
    let total = open.len() as u64;
    if open.len() > ROWS_AGAIN_MAX {
        let kept: Vec<Key> = open.keys().take(ROWS_AGAIN_MAX).cloned().collect();
        open = kept.into_iter().filter_map(|key| open.remove_entry(&key)).collect();
        let more = total - ROWS_AGAIN_MAX as u64;
        compared.notes.push(format!("{more} more rows differ between nodes and were not read again"));
        compared.totals[DifferenceKind::Diverged {
            fields: Vec::new(),
            other: String::new(),
            wrong: Wrong::Unknown,
        }
        .index()] += more;
    }
    let diverged = match sides.wait {
        Wait::No => open.into_keys().collect(),
        _ => comparison.look_again(sites, open, &mut compared)?,
    };
    comparison.name(sites, &diverged, &mut compared)?;
    comparison.without_keys(sites, &mut compared)?;
    Ok(compared)
}

fn alike(hashes: &Hashes) -> bool {
    hashes.windows(2).all(|pair| pair[0] == pair[1])
}

fn add_hash(hashes: &mut BTreeMap<Key, Hashes>, nodes: usize, node: usize, key: Key, hash: i64) {
    let of_key = hashes.entry(key).or_insert_with(|| vec![None; nodes]);
    // A key that is there twice has the sum of both.
    of_key[node] = Some(of_key[node].unwrap_or(0).wrapping_add(hash));
}

/// Ends the snapshots, so that the rows are seen as they are now.
fn look_anew(sites: &mut [Site]) -> Result<(), VerifyError> {
    sites.iter_mut().try_for_each(Site::close_snapshot)
}

/// The columns of a table's key.
fn key_columns(table: &Table) -> Vec<&'static str> {
    table.key.map(|key| key.split(", ").collect()).unwrap_or_default()
}

/// A row's columns on one node, as text.
type Fields = Vec<Option<String>>;

/// A row as one node has it.
#[derive(Clone)]
struct RowCopy {
    fields: Fields,
    /// Where, if parts of tables are read one by one.
    leaf: Option<usize>,
}

/// Where a row was found that is read again.
struct Found {
    node: usize,
    table: usize,
    leaf: Option<usize>,
}

impl Comparison<'_> {
    fn content(&self) -> &dyn Dataset {
        &*self.loaded.content
    }

    fn table(&self, number: usize) -> &Table {
        &self.content().tables()[number]
    }

    /// Whether each copy of a table has been verified.
    fn is_verified(&self, table: usize) -> bool {
        self.sides.verified.contains(&table)
    }

    /// The dataset's own hashes, or those that stand for them. A dataset that has its own has one table.
    fn hashing(&self) -> Option<Hashing> {
        let hashing = self.content().hashing();
        if self.by_digest { hashing.map(|own| digests(own, self.table(0))) } else { hashing }
    }

    /// Reads rows that differ until they are equal, or stay as they are.
    fn look_again(
        &self,
        sites: &mut [Site],
        mut open: BTreeMap<Key, Hashes>,
        compared: &mut Compared,
    ) -> Result<Vec<Key>, VerifyError> {
        let (limit, begin) = (self.task.options.mirror.lag_limit, Instant::now());
        let mut diverged = BTreeMap::new();
        while !open.is_empty() {
            let late = self.await_others(sites, begin, compared)?;
            let now = self.read_hashes(sites, open.keys())?;
            open = now
                .into_iter()
                .filter(|(_, hashes)| !alike(hashes))
                .filter_map(|(key, hashes)| {
                    if late || open.get(&key) == Some(&hashes) {
                        diverged.insert(key, hashes);
                        return None;
                    }
                    Some((key, hashes))
                })
                .collect();
            if !open.is_empty() && begin.elapsed() > limit {
                compared.rows_unjudged = open.len() as u64;
                compared.notes.push(format!(
                    "{} rows are written continuously and were never equal on all nodes",
                    open.len()
                ));
                break;
            }
            if !open.is_empty() {
                thread::sleep(PAUSE);
            }
        }
        Ok(diverged.into_keys().collect())
    }

    /// Gives what others have written the time to arrive. Whether a node is behind, so that it is no use to go on waiting.
    fn await_others(
        &self,
        sites: &mut [Site],
        begin: Instant,
        compared: &mut Compared,
    ) -> Result<bool, VerifyError> {
        let (limit, stop) = (self.task.options.mirror.lag_limit, self.task.options.stop);
        match self.sides.wait {
            Wait::No => {}
            Wait::Slots => {
                let behind = replication::await_logical(sites, begin, limit, stop)?;
                let late = !behind.is_empty();
                compared.problems.extend(behind);
                return Ok(late);
            }
            Wait::Quiet => {
                replication::await_quiet(sites, Instant::now(), limit, stop)?;
            }
            Wait::Commit => {
                let prepared = self.task.cluster.engine.own().flat_map(|own| own.prepared).copied();
                let prepared: Vec<&str> = prepared.collect();
                replication::await_commits(sites, &prepared, begin, limit, stop)?;
            }
        }
        Ok(false)
    }

    /// The tables of all nodes side by side: table t of node n is table n * tables + t.
    fn all_tables(&self) -> Catalog {
        let mut all = Catalog::new();
        for (site, catalog) in self.sides.catalogs.iter().enumerate() {
            let (tables, leaves) = (all.tables.len(), all.leaves.len());
            let table = |one: &TableAt| TableAt { first_leaf: leaves + one.first_leaf, ..one.clone() };
            all.tables.extend(catalog.tables.iter().map(table));
            all.leaves.extend(catalog.leaves.iter().map(|leaf| Leaf {
                site,
                at: tables + leaf.at,
                ..leaf.clone()
            }));
            all.names.extend(catalog.names.iter().cloned());
            all.block_ranges &= catalog.block_ranges;
        }
        all
    }

    /// Sums up cells on all nodes, and reads the keys of those that differ: rows that are not alike in the snapshots.
    fn first_look(
        &self,
        sites: &mut [Site],
        observer: &mut dyn FnMut(&VerifyProgress),
    ) -> Result<BTreeMap<Key, Hashes>, VerifyError> {
        let all = self.all_tables();
        let (mut controls, openers) = split(sites);
        let servers = openers.iter().map(|(connect, snapshot)| super::workers::Site::new(connect, *snapshot));
        let setting = Setting {
            content: self.content(),
            hashing: self.hashing(),
            by_digest: self.by_digest,
            catalog: &all,
            workers: Workers::new(servers.collect(), self.task.options.stop),
            jobs: self.task.options.jobs.max(1),
            limits: self.task.options.limits,
        };
        let count = all.tables.len() as u64;
        let shape = |(at, table): (usize, &TableAt)| match (self.table(table.table).key, &setting.hashing) {
            // Rows without a key cannot be distinguished.
            (None, _) => Shape::Out,
            (Some(_), None) => Shape::numbers(self.content(), table.table),
            (Some(_), Some(_)) => {
                Shape::fine(&setting, at, &(0..table.partitions).collect::<Vec<_>>(), count)
            }
        };
        let grid = Grid::new(all.tables.iter().enumerate().map(shape));
        let controls = controls.iter_mut().map(|control| &mut **control).collect();
        let mut coordinator = Coordinator::new(controls, observer);
        let sums = sums::of_servers(&setting, &mut coordinator, &grid)?;
        let nodes = self.sides.catalogs.len();
        let tables = all.tables.len() / nodes;
        let mut differing: Vec<(usize, usize, u64)> = Vec::new();
        for table in 0..tables {
            for cell in 0..grid.of_table(table).len() {
                let of_node = |node: usize| sums[grid.first(node * tables + table) + cell];
                if (1..nodes).any(|node| of_node(node) != of_node(0)) {
                    let rows = (0..nodes).map(|node| of_node(node).rows).max().unwrap_or(0);
                    differing.push((table, cell, rows));
                }
            }
        }
        let mut found = BTreeMap::new();
        let mut rest = differing.as_slice();
        while !rest.is_empty() {
            let mut rows = 0;
            let is_in = |(_, _, more): &&(usize, usize, u64)| {
                rows += more;
                rows <= ROWS_AT_ONCE
            };
            let end = rest.iter().take_while(is_in).count().max(1);
            let (batch, later) = rest.split_at(end);
            rest = later;
            let hashes = self.read_cells(&setting, &grid, batch)?;
            found.extend(hashes.into_iter().filter(|(_, hashes)| !alike(hashes)));
        }
        Ok(found)
    }

    /// Reads the hashes of all rows in some cells, each a table, the cell in it, and its rows.
    fn read_cells(
        &self,
        setting: &Setting<'_>,
        grid: &Grid,
        batch: &[(usize, usize, u64)],
    ) -> Result<BTreeMap<Key, Hashes>, VerifyError> {
        let nodes = self.sides.catalogs.len();
        let tables = setting.catalog.tables.len() / nodes;
        let mut hashes: BTreeMap<Key, Hashes> = BTreeMap::new();
        for node in 0..nodes {
            let mut reader = setting.workers.open(node)?;
            let cells = batch.iter().map(|(table, cell, _)| grid.first(node * tables + table) + cell);
            let selection = Selection::of(grid.clone(), cells);
            let leaves = setting.catalog.leaves.iter().enumerate();
            for (number_of_leaf, leaf) in leaves.filter(|(_, leaf)| leaf.site == node && leaf.is_home) {
                let filter = match selection.part(setting, leaf.at, leaf.partition) {
                    Part::Nothing => continue,
                    Part::All => String::new(),
                    Part::Where(condition) => format!(" where {condition}"),
                };
                let Some(relation) = &leaf.relation else { continue };
                let table = setting.catalog.tables[leaf.at].table;
                let doing = format!("comparing rows of {}", setting.catalog.names[number_of_leaf]);
                let columns = self.hash_columns(table);
                reader.query(&doing, &format!("select {columns} from only {relation}{filter}"), |row| {
                    let [key @ .., Some(hash)] = row else { return Ok(()) };
                    let key: Option<Vec<String>> = key.iter().map(|part| part.map(str::to_owned)).collect();
                    let hash = number(&doing, Some(hash))? as i64;
                    if let Some(key) = key {
                        add_hash(&mut hashes, nodes, node, (table, key), hash);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(hashes)
    }

    /// The hash of a row in SQL.
    fn row_hash(&self, table: usize) -> String {
        row_hash_sql(self.hashing().as_ref(), self.table(table), self.by_digest)
    }

    /// Key and hash of a row.
    fn hash_columns(&self, table: usize) -> String {
        let mut columns: Vec<String> =
            key_columns(self.table(table)).into_iter().map(|column| format!("{column}::text")).collect();
        columns.push(self.row_hash(table));
        columns.join(", ")
    }

    /// Reads columns of rows by their keys, from each node, as they are now.
    fn read_rows(
        &self,
        sites: &mut [Site],
        keys: &[&Key],
        columns: &dyn Fn(usize) -> String,
        each: &mut dyn FnMut(Found, &postgres::Row),
    ) -> Result<(), VerifyError> {
        const DOING: &str = "reading rows again that differ between nodes";
        look_anew(sites)?;
        for of_table in keys.chunk_by(|one, other| one.0 == other.0) {
            let number = of_table[0].0;
            let table = self.table(number);
            let key = key_columns(table);
            let kind = |name: &&str| {
                let declared = table.columns.iter().find(|(column, _)| column == name);
                let declared = declared.map_or("text", |(_, declared)| *declared);
                declared
                    .split(" not null")
                    .next()
                    .and_then(|kind| kind.split(" collate").next())
                    .unwrap_or("text")
            };
            let wanted: Vec<String> = key
                .iter()
                .enumerate()
                .map(|(at, name)| format!("${}::text[]::{}[]", at + 1, kind(name)))
                .collect();
            let statement = |relation: &str| {
                format!(
                    "select {} from {relation} where ({}) in (select * from unnest({}) as w)",
                    columns(number),
                    key.join(", "),
                    wanted.join(", ")
                )
            };
            for some in of_table.chunks(KEYS_AT_ONCE) {
                let parts: Vec<Vec<&String>> =
                    (0..key.len()).map(|part| some.iter().map(|key| &key.1[part]).collect()).collect();
                let parts: Vec<&(dyn ToSql + Sync)> =
                    parts.iter().map(|part| part as &(dyn ToSql + Sync)).collect();
                for (node, site) in sites.iter_mut().enumerate() {
                    for (leaf, relation) in self.relations(node, number) {
                        let rows = site.control.query(&statement(&relation), &parts);
                        for row in site.answer(DOING, rows)? {
                            each(Found { node, table: number, leaf }, &row);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// What to select a table's rows from on a node: the table, or its parts one by one.
    fn relations(&self, node: usize, table: usize) -> Vec<(Option<usize>, String)> {
        if !self.sides.are_parts {
            let name = self.table(table).name;
            return vec![(None, ledger::qualified(&self.loaded.dataset.schema_name, name))];
        }
        let catalog = &self.sides.catalogs[node];
        let is_of_table = |leaf: &Leaf| catalog.tables[leaf.at].table == table;
        let leaves = catalog.leaves.iter().enumerate().filter(|(_, leaf)| is_of_table(leaf));
        leaves.filter_map(|(number, leaf)| Some((Some(number), leaf.relation.clone()?))).collect()
    }

    /// Reads the hashes of these rows as they are now.
    fn read_hashes<'k>(
        &self,
        sites: &mut [Site],
        keys: impl Iterator<Item = &'k Key>,
    ) -> Result<BTreeMap<Key, Hashes>, VerifyError> {
        let (count, mut hashes) = (sites.len(), BTreeMap::new());
        let keys: Vec<&Key> = keys.collect();
        self.read_rows(sites, &keys, &|table| self.hash_columns(table), &mut |found, row| {
            let parts = row.len() - 1;
            let key = (0..parts).map(|part| row.get(part)).collect();
            add_hash(&mut hashes, count, found.node, (found.table, key), row.get(parts));
        })?;
        Ok(hashes)
    }

    /// Reads these rows from every node and reports in which fields they differ, and from which writes these come.
    fn name(&self, sites: &mut [Site], keys: &[Key], compared: &mut Compared) -> Result<(), VerifyError> {
        if keys.is_empty() {
            return Ok(());
        }
        let nodes = self.sides.catalogs.len();
        let columns = |table: usize| {
            let columns = self.table(table).columns.iter().map(|(name, _)| format!("{name}::text"));
            columns.collect::<Vec<_>>().join(", ")
        };
        let mut rows: BTreeMap<Key, Vec<Option<RowCopy>>> = BTreeMap::new();
        let keys: Vec<&Key> = keys.iter().collect();
        self.read_rows(sites, &keys, &columns, &mut |Found { node, table, leaf }, row| {
            let fields: Fields = (0..row.len()).map(|column| row.get(column)).collect();
            let place = |name: &str| self.table(table).columns.iter().position(|(column, _)| *column == name);
            let part = |name| place(name).and_then(|place| fields[place].clone()).unwrap_or_default();
            let key = key_columns(self.table(table)).into_iter().map(part).collect();
            rows.entry((table, key)).or_insert_with(|| vec![None; nodes])[node] =
                Some(RowCopy { fields, leaf });
        })?;
        let hashes = self.hashes_of_copies(sites, &keys)?;
        for (key, of_key) in &rows {
            let table = &key.0;
            for node in 1..nodes {
                let Some((mut difference, index)) = self.compare(*table, of_key, node) else { continue };
                if let (DifferenceKind::Diverged { wrong, .. }, Some(hashes)) =
                    (&mut difference.kind, hashes.get(key))
                {
                    *wrong = self.wrong(*table, of_key[node].as_ref(), hashes[node], hashes[0]);
                }
                compared.totals[index] += 1;
                *compared.of_table.entry(self.table(*table).name).or_default() += 1;
                if compared.differences.iter().filter(|d| d.kind.index() == index).count() < NAMED_MAX {
                    compared.differences.push(difference);
                }
            }
        }
        Ok(())
    }

    /// How a row of one node differs from that of the first. What verification has already found on one of them alone is not named again:
    /// that it is missing there, or extra, or damaged.
    fn compare(&self, table: usize, of_key: &[Option<RowCopy>], node: usize) -> Option<(Difference, usize)> {
        let content = self.content();
        let some = of_key[0].as_ref().or(of_key[node].as_ref())?;
        let (row, key) = identify(content, table, &some.fields);
        let name = |node: usize| self.name_of(node, table, row, some.leaf);
        let node_of = |name: &TableName| name.node.clone().unwrap_or_default();
        let (kind, name) = match (&of_key[0], &of_key[node]) {
            (None, None) => return None,
            (Some(_), None) | (None, Some(_)) => {
                // A row that must be there, or must not, has been named for it.
                if self.is_verified(table) && (content.must_be(table, row?) || !content.may_be(table, row?)) {
                    return None;
                }
                let (has, lacks) = if of_key[0].is_some() { (0, node) } else { (node, 0) };
                (DifferenceKind::OnlyOn { other: node_of(&name(lacks)?) }, name(has)?)
            }
            (Some(first), Some(other)) => {
                let fields = self.versions(table, row, &first.fields, &other.fields)?;
                let wrong = Wrong::Unknown;
                (DifferenceKind::Diverged { fields, other: node_of(&name(0)?), wrong }, name(node)?)
            }
        };
        let index = kind.index();
        let is_keyed = content.is_named_by_key();
        let subject = TableName { table: self.table(table).name.to_owned(), node: name.node.clone() };
        let (row, subject) = if is_keyed { (row, None) } else { (None, Some(subject)) };
        Some((Difference { kind, key, row, table: name, subject }, index))
    }

    /// What the table is called that a node has a row in.
    fn name_of(&self, node: usize, table: usize, row: Option<u64>, leaf: Option<usize>) -> Option<TableName> {
        let catalog = &self.sides.catalogs[node];
        let leaf = leaf.or_else(|| {
            let at = catalog.tables.iter().find(|at| at.table == table)?;
            let partition = self.content().partition_of(table, row?, at.partitions).unwrap_or(0);
            Some(at.first_leaf + partition as usize)
        });
        catalog.names.get(leaf?).cloned()
    }

    /// The fields in which two copies of a row differ, with the writes that they come from, where values say so; `None`: what differs is damage.
    fn versions(
        &self,
        table: usize,
        row: Option<u64>,
        first: &Fields,
        other: &Fields,
    ) -> Option<Vec<(usize, Version, Version)>> {
        let differing: Vec<usize> =
            (0..first.len()).filter(|&column| first[column] != other[column]).collect();
        let mutable = self.table(table).mutable;
        // Damage in a copy that was not verified has not been named.
        let any_counts = !self.is_verified(table) && !differing.is_empty();
        if !self.content().is_named_by_key() {
            let is_mutable = |column: &usize| mutable.contains(&self.table(table).columns[*column].0);
            let diverged = !differing.is_empty() && (mutable.is_empty() || differing.iter().any(is_mutable));
            return (diverged || any_counts).then(Vec::new);
        }
        let fields: Vec<(usize, Version, Version)> = differing
            .into_iter()
            .filter_map(|column| {
                let field = column.checked_sub(1)?;
                let version = |fields: &Fields| {
                    self.content().version(table, row?, field, fields[column].as_ref()?.as_bytes())
                };
                Some((field, version(other)?, version(first)?))
            })
            .collect();
        (!fields.is_empty() || any_counts).then_some(fields)
    }
}

//! Comparing nodes that should hold the same rows with each other, and telling what has diverged from what is on its way.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use data::ycsb::{FIELD_COUNT, Judgement, Table, Version};

use super::catalog::{Catalog, Leaf, sql};
use super::cluster::MirrorOptions;
use super::error::VerifyError;
use super::grid::{Grid, place_of};
use super::history::{Expect, LedgerHistory};
use super::judge::Content;
use super::problem::Problem;
use super::replication;
use super::report::{Difference, DifferenceKind, KINDS, NAMED_MAX, TableName};
use super::sums::{self, Buckets};
use super::workers::{Coordinator, VerifyProgress, Workers};
use super::{LIMITS, Setting, Site, VerifyOptions};
use crate::ledger::{self, Dataset, Writer};
use crate::plan::TABLE;
use crate::route::Route;
use crate::rows::column_names;

/// Keys of a bucket that differs are held for all nodes at once, for about so many rows at a time: some 100 MB per node.
const ROWS_AT_ONCE: u64 = 1 << 20;
/// Keys that are asked for in one statement.
const KEYS_AT_ONCE: usize = 1000;
/// Rows that differ and are looked at again; more are counted as they were found.
const ROWS_AGAIN_MAX: usize = 100_000;
/// Pause between two readings of rows that somebody writes.
const PAUSE: Duration = Duration::from_millis(200);

/// What the comparison came to.
#[derive(Default)]
pub(super) struct Compared {
    pub(super) notes: Vec<String>,
    pub(super) problems: Vec<Problem>,
    pub(super) differences: Vec<Difference>,
    pub(super) totals: [u64; KINDS],
    /// Rows that somebody has written all the time.
    pub(super) rows_unjudged: u64,
}

/// The hash of a row on each node; `None`: it is not there.
type Hashes = Vec<Option<i64>>;

/// Compares all rows of all nodes. `in_step`: no node was behind when its snapshot was taken; otherwise it is no use to wait again.
#[expect(
    clippy::too_many_arguments,
    reason = "what is read, what it should be, and how: each stands for itself"
)]
pub(super) fn nodes(
    sites: &mut [Site],
    catalogs: &[Catalog],
    dataset: &Dataset,
    writers: &[Writer],
    options: &VerifyOptions<'_>,
    mirror: &MirrorOptions,
    in_step: bool,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<Compared, VerifyError> {
    let mut compared = Compared::default();
    if !catalogs.iter().all(|catalog| catalog.record_hash) {
        compared.notes.push(
            "a node cannot hash rows (hash_record_extended, PostgreSQL 14), so nodes were compared only with the dataset, not with each other"
                .to_owned(),
        );
        return Ok(compared);
    }
    let table = Table::new(dataset.spec.clone());
    let known = LedgerHistory::new(dataset.rows, writers.to_vec());
    let history = options.history.unwrap_or(&known);
    let content = Content {
        table: &table,
        route: Route::new(dataset.partitions),
        loaded: dataset.rows,
        history,
        names: &[],
    };
    let mut open = first_look(sites, catalogs, content, options, observer)?;
    let total = open.len() as u64;
    if open.len() > ROWS_AGAIN_MAX {
        let kept: Vec<String> = open.keys().take(ROWS_AGAIN_MAX).cloned().collect();
        open = kept.into_iter().filter_map(|key| open.remove_entry(&key)).collect();
        let more = total - ROWS_AGAIN_MAX as u64;
        compared.notes.push(format!("{more} more rows differ between nodes and were not read again"));
        compared.totals[DifferenceKind::Diverged { fields: Vec::new(), other: String::new() }.index()] +=
            more;
    }
    let mut diverged = BTreeMap::new();
    if in_step {
        let begin = Instant::now();
        while !open.is_empty() {
            let behind = replication::await_logical(sites, begin, mirror.lag_limit, options.stop)?;
            let late = !behind.is_empty();
            compared.problems.extend(behind);
            let keys: Vec<&String> = open.keys().collect();
            let now = read_hashes(sites, dataset, &keys)?;
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
            if !open.is_empty() && begin.elapsed() > mirror.lag_limit {
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
    } else {
        diverged = open;
    }
    name(sites, catalogs, dataset, content, &diverged.into_keys().collect::<Vec<_>>(), &mut compared)?;
    Ok(compared)
}

fn alike(hashes: &Hashes) -> bool {
    hashes.windows(2).all(|pair| pair[0] == pair[1])
}

/// Sums up buckets on all nodes, and reads the keys of those that differ: rows that are not alike in the snapshots.
fn first_look(
    sites: &mut [Site],
    catalogs: &[Catalog],
    content: Content<'_>,
    options: &VerifyOptions<'_>,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<BTreeMap<String, Hashes>, VerifyError> {
    // All nodes' tables side by side: the leaf r of node n is table n * leaves + r.
    let leaves = content.route.leaves();
    let mut all = Catalog::new(Vec::new(), Vec::new());
    for (site, catalog) in catalogs.iter().enumerate() {
        all.leaves.extend(catalog.leaves.iter().map(|leaf| Leaf { site, ..leaf.clone() }));
        all.names.extend(catalog.names.iter().cloned());
    }
    let tables: Vec<usize> = (0..all.leaves.len()).collect();
    let grid = Grid::fine(content.route, content.history.rows_end(), &tables);
    let (mut controls, connects) = super::split(sites);
    let servers = connects.iter().map(|(connect, snapshot)| super::workers::Site::new(connect, *snapshot));
    let workers = Workers::new(servers.collect(), options.stop);
    let content = Content { names: &all.names, ..content };
    let setting = Setting { content, catalog: &all, workers, jobs: options.jobs.max(1), limits: LIMITS };
    let controls = controls.iter_mut().map(|control| &mut **control).collect();
    let mut coordinator = Coordinator::new(controls, observer);
    let sums = sums::tables(&setting, &mut coordinator, &grid, &tables)?;
    let mut differing: Vec<(usize, u64, u64)> = Vec::new();
    for leaf in 0..leaves {
        for bucket in 0..grid.buckets() {
            let of_node = |node: usize| {
                sums[grid.cell(node * leaves + leaf, bucket).expect("the grid covers every table")]
            };
            if (1..catalogs.len()).any(|node| of_node(node) != of_node(0)) {
                let rows = (0..catalogs.len()).map(|node| of_node(node).rows).max().unwrap_or(0);
                differing.push((leaf, bucket, rows));
            }
        }
    }
    let mut found = BTreeMap::new();
    let mut rest = differing.as_slice();
    while !rest.is_empty() {
        let mut rows = 0;
        let end = rest
            .iter()
            .take_while(|(_, _, more)| {
                rows += more;
                rows <= ROWS_AT_ONCE
            })
            .count()
            .max(1);
        let (batch, later) = rest.split_at(end);
        rest = later;
        let mut hashes: BTreeMap<String, Hashes> = BTreeMap::new();
        for (node, catalog) in catalogs.iter().enumerate() {
            let mut reader = setting.workers.open(node)?;
            for leaves in batch.chunk_by(|a, b| a.0 == b.0) {
                let leaf = leaves[0].0;
                let Some(relation) = &catalog.leaves[leaf].relation else { continue };
                let numbers = leaves.iter().map(|(_, bucket, _)| *bucket).collect();
                let condition = Buckets { mask: grid.bucket_mask(), numbers }.condition();
                let doing = format!("comparing rows of {}", catalog.names[leaf]);
                let statement = format!("select {} from only {relation} where {condition}", hash_columns());
                reader.query(&doing, &statement, |row| {
                    let &[Some(key), Some(hash)] = row else { return Ok(()) };
                    let number = super::workers::number(&doing, Some(hash))? as i64;
                    add_hash(&mut hashes, catalogs.len(), node, key, number);
                    Ok(())
                })?;
            }
        }
        found.extend(hashes.into_iter().filter(|(_, hashes)| !alike(hashes)));
    }
    Ok(found)
}

/// Key and hash of a row.
fn hash_columns() -> String {
    format!("ycsb_key, hash_record_extended(row({}), hashtextextended(ycsb_key, 0))", column_names())
}

fn add_hash(hashes: &mut BTreeMap<String, Hashes>, nodes: usize, node: usize, key: &str, hash: i64) {
    let of_key = match hashes.get_mut(key) {
        Some(of_key) => of_key,
        None => hashes.entry(key.to_owned()).or_insert_with(|| vec![None; nodes]),
    };
    // A key that is there twice has the sum of both.
    of_key[node] = Some(of_key[node].unwrap_or(0).wrapping_add(hash));
}

/// Ends the snapshots, so that the rows are seen as they are now.
fn look_anew(sites: &mut [Site]) -> Result<(), VerifyError> {
    for site in sites {
        site.close_snapshot()?;
    }
    Ok(())
}

/// Reads the hashes of these rows as they are now.
fn read_hashes(
    sites: &mut [Site],
    dataset: &Dataset,
    keys: &[&String],
) -> Result<BTreeMap<String, Hashes>, VerifyError> {
    const DOING: &str = "reading rows again that differ between nodes";
    look_anew(sites)?;
    let statement = format!(
        "select {} from {} where ycsb_key = any($1)",
        hash_columns(),
        ledger::qualified(&dataset.schema_name, TABLE)
    );
    let count = sites.len();
    let mut hashes = BTreeMap::new();
    for keys in keys.chunks(KEYS_AT_ONCE) {
        for (node, site) in sites.iter_mut().enumerate() {
            for row in sql(DOING, site.control.query(&statement, &[&keys]))? {
                add_hash(&mut hashes, count, node, row.get(0), row.get(1));
            }
        }
    }
    Ok(hashes)
}

/// A row's fields on one node.
type Fields = Vec<Option<String>>;

/// Reads these rows from every node and says in which fields they differ, and from which writes these come.
fn name(
    sites: &mut [Site],
    catalogs: &[Catalog],
    dataset: &Dataset,
    content: Content<'_>,
    keys: &[String],
    compared: &mut Compared,
) -> Result<(), VerifyError> {
    const DOING: &str = "reading rows that differ between nodes";
    if keys.is_empty() {
        return Ok(());
    }
    look_anew(sites)?;
    let relation = ledger::qualified(&dataset.schema_name, TABLE);
    let statement = format!("select {} from {relation} where ycsb_key = any($1)", column_names());
    for keys in keys.chunks(KEYS_AT_ONCE) {
        let mut rows: BTreeMap<String, Vec<Option<Fields>>> = BTreeMap::new();
        for (node, site) in sites.iter_mut().enumerate() {
            for row in sql(DOING, site.control.query(&statement, &[&keys]))? {
                let of_key = rows.entry(row.get(0)).or_insert_with(|| vec![None; catalogs.len()]);
                of_key[node] = Some((0..FIELD_COUNT).map(|column| row.get(column + 1)).collect());
            }
        }
        for (key, of_key) in &rows {
            let row = content.table.row_of_key(key.as_bytes());
            let leaf = place_of(content.route, key.as_bytes()).leaf;
            let table = |node: usize| &catalogs[node].names[leaf];
            for node in 1..catalogs.len() {
                let found = compare(content, row, &of_key[0], &of_key[node], table(0), table(node));
                if let Some((kind, table)) = found {
                    let index = kind.index();
                    compared.totals[index] += 1;
                    if compared.differences.iter().filter(|d| d.kind.index() == index).count() < NAMED_MAX {
                        compared.differences.push(Difference {
                            kind,
                            key: key.clone(),
                            row,
                            table: table.clone(),
                        });
                    }
                }
            }
        }
    }
    Ok(())
}

/// How a row of one node differs from that of the first. What verification has already said of one of them alone is not said again: that it is
/// missing there, or a stranger, or damaged.
fn compare<'a>(
    content: Content<'_>,
    row: Option<u64>,
    first: &Option<Fields>,
    other: &Option<Fields>,
    first_table: &'a TableName,
    other_table: &'a TableName,
) -> Option<(DifferenceKind, &'a TableName)> {
    let row = row?;
    let node = |table: &TableName| table.node.clone().unwrap_or_default();
    match (first, other) {
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => {
            // A row that must be there, or must not, has been named for it.
            if row < content.loaded || content.history.expects_row(row) != Expect::Either {
                return None;
            }
            let (has, lacks) =
                if first.is_some() { (first_table, other_table) } else { (other_table, first_table) };
            Some((DifferenceKind::OnlyOn { other: node(lacks) }, has))
        }
        (Some(first), Some(other)) => {
            let fields: Vec<(usize, Version, Version)> = (0..FIELD_COUNT)
                .filter(|&column| first[column] != other[column])
                .filter_map(|column| {
                    let version = |fields: &Fields| match content.table.judge(
                        row,
                        column,
                        fields[column].as_ref()?.as_bytes(),
                    ) {
                        Judgement::Exact { version } => Some(version),
                        Judgement::Damaged { .. } => None,
                    };
                    Some((column, version(other)?, version(first)?))
                })
                .collect();
            let kind = DifferenceKind::Diverged { fields, other: node(first_table) };
            let DifferenceKind::Diverged { fields, .. } = &kind else { return None };
            if fields.is_empty() { None } else { Some((kind, other_table)) }
        }
    }
}

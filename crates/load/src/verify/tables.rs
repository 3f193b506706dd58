//! Prove the content of any dataset's tables: every row that was loaded, each once, each value, and nothing else.
//!
//! ```text
//!            sums per table and cell agree --------------------> exact (fast)
//! fast: sum -+
//!            differ -> rows of these cells -> judge each row, mark its number -> numbers without a mark
//! deep: all rows are judged; their numbers are compared by sums -+
//! ```
//!
//! A cell is a range of row numbers of one table, of about [`CELL_BYTES`]. Fast, the server sums up `hash_record_extended(row(record_send(row(<columns>))), 0)`
//! by cell. `record_send` is the row in binary form, so one hash covers all values with their signs and their order, and the client computes
//! the same from the bytes that it would send.
//!
//! **Runs change rows.** A dataset says which rows a run may have left ([`Dataset::expect`]) and which columns change where their values cannot be
//! known ([`crate::dataset::Table::mutable`]). Of these its audit says whether they fit together ([`Dataset::audit`]). Where a run may have written
//! anywhere, only tables that no run changes are verified afterwards ([`Dataset::after_runs`]).
//!
//! **On a cluster** every node's own tables are read there, in a snapshot of that node. Where every node holds all rows of a table, each node's copy
//! is proved by itself. A row that a node has in another's leaf is misplaced.
//!
//! (`hash_record_extended` of the columns themselves would not do: the hash of a numeric leaves its sign out, and two rows that trade the values of
//! one column leave their sum as it was.)

use std::time::Instant;

use engines::Cluster;
use engines::profile::Layout;
use postgres::Client;

use self::content::hashes_as_we_do;
use super::catalog::reads_block_ranges;
use super::workers::{self, Coordinator, Queues, Workers};
use super::{Method, Problem, Site, VerifyError, VerifyProgress, split};
use crate::dataset::{AfterRuns, Audit, Auditor, Dataset, table_names};
use crate::ledger;
use crate::options::Stop;

pub(in crate::verify) use self::report::Findings;
pub use self::report::{Difference, DifferenceKind, KIND_NAMES, KINDS, TableFound, TablesReport};

mod chunks;
mod content;
mod place;
mod report;
mod rows;
mod sums;

/// What a verification shall do.
#[derive(Debug)]
pub struct TablesOptions<'a> {
    /// Read and compare every row, whatever the sums say.
    pub deep: bool,
    /// Connections that read at once; about as many threads compute.
    pub jobs: usize,
    /// A request to stop.
    pub stop: &'a Stop,
}

/// About so many bytes of values are in a cell: what is read again when its sums differ.
const CELL_BYTES: u64 = 8 << 20;

/// The most cells of a table.
const CELLS_MAX: u64 = 1 << 20;

/// How much is done at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Row numbers that are marked at a time, one bit each.
    pub numbers: u64,
    /// Blocks that a connection reads at once, where the server can read a range of them.
    pub blocks_at_once: u64,
}

/// 128 MB of marks; 64 MB of blocks.
pub const LIMITS: Limits = Limits { numbers: 1 << 30, blocks_at_once: 8192 };

/// All rows of one table: wherever they are, or one node's copy of them.
#[derive(Debug)]
struct TableAt {
    table: usize,
    /// Whose copy it is.
    node: Option<String>,
    /// Row numbers of a cell.
    per_cell: u64,
}

/// A table on a server that holds rows.
#[derive(Debug)]
struct Source {
    /// Whose rows: a place among the tables.
    at: usize,
    site: usize,
    /// Which partition of the table it is.
    partition: u32,
    /// Schema and name, quoted.
    relation: String,
    blocks: u64,
    /// Its rows belong to another node: what they should be on, by name.
    belongs_to: Option<String>,
}

/// A part of a source that one connection reads at once: a condition on the blocks, `None` for all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Piece {
    source: usize,
    blocks: Option<String>,
}

/// What all phases know.
struct Setting<'a> {
    content: &'a dyn Dataset,
    tables: Vec<TableAt>,
    sources: Vec<Source>,
    /// Names of the servers.
    names: Vec<String>,
    /// Servers read a range of blocks without reading the whole table.
    block_ranges: bool,
    workers: Workers<'a>,
    jobs: usize,
    limits: Limits,
}

impl<'a> Setting<'a> {
    /// The table of a place.
    fn table(&self, at: usize) -> &'a crate::dataset::Table {
        &self.content.tables()[self.tables[at].table]
    }

    /// The pieces of the sources that `wanted` chooses.
    fn pieces(&self, wanted: impl Fn(&Source) -> bool) -> Vec<Piece> {
        let sources = self.sources.iter().enumerate().filter(|(_, source)| wanted(source));
        sources.flat_map(|(number, source)| self.pieces_of(number, source.blocks)).collect()
    }

    fn pieces_of(&self, source: usize, blocks: u64) -> Vec<Piece> {
        if !self.block_ranges {
            return vec![Piece { source, blocks: None }];
        }
        let count = blocks.div_ceil(self.limits.blocks_at_once).max(1);
        let piece = |index: u64| {
            let from = index * self.limits.blocks_at_once;
            // The last one is open ended.
            let to = if index + 1 == count {
                String::new()
            } else {
                format!(" and ctid < '({},0)'::tid", from + self.limits.blocks_at_once)
            };
            Piece { source, blocks: Some(format!("ctid >= '({from},0)'::tid{to}")) }
        };
        (0..count).map(piece).collect()
    }

    /// Pieces by server.
    fn queues(&self, pieces: &[Piece]) -> Queues {
        let site = |(number, piece): (usize, &Piece)| (self.sources[piece.source].site, number);
        Queues::new(self.workers.sites(), pieces.iter().enumerate().map(site))
    }
}

/// Verifies a dataset on all nodes of a cluster, in one snapshot each. `observer` is called about once a second by the calling thread.
/// Nothing is changed in the database.
///
/// # Errors
/// When there is no verdict; a difference in the content is part of the report instead.
pub fn run_cluster(
    cluster: &Cluster,
    content: &dyn Dataset,
    options: &TablesOptions<'_>,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<TablesReport, VerifyError> {
    run_within(cluster, content, options, observer, LIMITS, true)
}

/// `may_hash`: whether what the server can do is used, or a test wants to see what is done without.
///
/// # Errors
/// As [`run_cluster`].
pub fn run_within(
    cluster: &Cluster,
    content: &dyn Dataset,
    options: &TablesOptions<'_>,
    observer: &mut dyn FnMut(&VerifyProgress),
    limits: Limits,
    may_hash: bool,
) -> Result<TablesReport, VerifyError> {
    let start = Instant::now();
    let mut notes = Vec::new();
    let mut sites = open(cluster, &mut notes)?;
    let ids = agree(&mut sites, content)?;
    let runs = runs(&mut sites, &ids)?;
    let after_runs = content.after_runs().filter(|_| runs > 0);
    notes.extend(note_of_runs(runs, after_runs.as_ref()));
    let all = || (0..content.tables().len()).collect();
    let judged = after_runs.as_ref().map_or_else(all, |after| after.unchanged.clone());
    let is_one = sites.len() == 1 && sites[0].name.is_none();
    chunks::check(&mut sites, &ids[0], content)?;
    let place::Places { tables, sources, mut problems, notes: odd } =
        place::find(cluster, &mut sites, &ids, content, &judged)?;
    notes.extend(odd);
    let mut method = choose_method(options, may_hash, &mut sites, &mut notes)?;
    let block_ranges = read_ranges(&mut sites, &sources)?;
    let audit = audit(&mut sites, content, &tables, &sources)?;
    let names = sites.iter().map(|site| site.name.clone().unwrap_or_default()).collect();
    let (controls, openers) = split(&mut sites);
    let servers = openers.iter().map(|(connect, snapshot)| workers::Site::new(connect.as_ref(), *snapshot));
    let setting = Setting {
        content,
        tables,
        sources,
        names,
        block_ranges,
        workers: Workers::new(servers.collect(), options.stop),
        jobs: options.jobs.max(1),
        limits,
    };
    let mut coordinator = Coordinator::new(controls, observer);
    let deep = method == Method::Deep;
    let mut compared = sums::compare(&setting, &mut coordinator, deep)?;
    if !deep && !compared.differing.is_empty() {
        method = Method::FastThenDeep;
    }
    let named = rows::name(&setting, &mut coordinator, &compared.differing, !deep)?;
    compared.found.merge(named);
    compared.found.merge(rows::misplaced(&setting, &mut coordinator)?);
    let tables = tables_found(&setting, &compared);
    let is_listed = is_one && after_runs.is_none() && ids[0].method == crate::Method::Copy;
    let chunks = if is_listed { chunks::expected(&setting, &compared, &ids[0])? } else { Vec::new() };
    drop((coordinator, setting));
    drop(openers);
    if is_listed {
        problems.extend(odd_chunks(&mut sites[0].control, ids[0].id, &chunks)?);
    }
    let updates_accepted = compared.found.written;
    let (differences, totals) = compared.found.findings.into_named();
    Ok(TablesReport {
        method,
        notes,
        problems,
        tables,
        differences,
        totals,
        unjudged: after_runs.map(|after| after.unjudged.to_owned()),
        updates_accepted,
        audit,
        ..TablesReport::nothing(start)
    })
}

/// How many runs the ledgers know.
fn runs(sites: &mut [Site], ids: &[ledger::Dataset]) -> Result<usize, VerifyError> {
    let mut runs = 0;
    for (site, dataset) in std::iter::zip(sites, ids) {
        runs += ledger::writers(&mut *site.control, dataset)?.len();
    }
    Ok(runs)
}

/// What to say of them.
fn note_of_runs(runs: usize, after_runs: Option<&AfterRuns>) -> Option<String> {
    let runs = match runs {
        0 => return None,
        1 => "1 run has".to_owned(),
        runs => format!("{runs} runs have"),
    };
    let note = after_runs.map(|after| format!(": {}", after.note)).unwrap_or_default();
    Some(format!("{runs} written into the tables since the load{note}"))
}

/// Whether all servers read a range of blocks without reading the whole table.
fn read_ranges(sites: &mut [Site], sources: &[Source]) -> Result<bool, VerifyError> {
    let mut all = true;
    for (number, site) in sites.iter_mut().enumerate() {
        if let Some(source) = sources.iter().find(|source| source.site == number) {
            all &= reads_block_ranges(&mut site.control, &source.relation)?;
        }
    }
    Ok(all)
}

/// The chunks of which the ledger has another checksum or other bytes than there must be.
fn odd_chunks(
    control: &mut Client,
    id: i32,
    chunks: &[(u64, Option<u64>)],
) -> Result<Option<Problem>, VerifyError> {
    let is_right = |chunk: usize, checksum, bytes| {
        let expected = chunks.get(chunk);
        expected.is_some_and(|(sum, size)| *sum == checksum && size.is_none_or(|size| size == bytes))
    };
    let odd = ledger::odd_chunks(control, id, is_right)?;
    Ok(odd.map(|(chunk, count)| Problem::LedgerChunks { chunk, count }))
}

/// Fast as far as sums can prove something, deep otherwise.
fn choose_method(
    options: &TablesOptions<'_>,
    may_hash: bool,
    sites: &mut [Site],
    notes: &mut Vec<String>,
) -> Result<Method, VerifyError> {
    if options.deep {
        return Ok(Method::Deep);
    }
    for site in sites {
        if !may_hash || !hashes_as_we_do(&mut site.control)? {
            notes.push(
                "the server cannot hash rows as pgfathom does (hash_record_extended, PostgreSQL 14), so every row was read"
                    .to_owned(),
            );
            return Ok(Method::Deep);
        }
    }
    Ok(Method::Fast)
}

/// The rows of each table into which a load puts some, over all copies.
fn tables_found(setting: &Setting<'_>, compared: &sums::Compared) -> Vec<TableFound> {
    let cells = &compared.cells;
    let judged = |table: usize| setting.tables.iter().any(|at| at.table == table);
    let tables = setting.content.tables().iter().enumerate();
    tables
        .filter(|(number, table)| table.rows > 0 && judged(*number))
        .map(|(_, table)| table)
        .map(|table| {
            let places = || (0..setting.tables.len()).filter(|at| setting.table(*at).name == table.name);
            TableFound {
                table: table.name,
                rows_expected: places().map(|at| cells.rows_expected(at)).sum(),
                rows_found: places().map(|at| cells.rows_found(at)).sum(),
                differences: compared.found.findings.of_table(table.name),
            }
        })
        .collect()
}

/// Opens a snapshot on each node that holds rows.
fn open(cluster: &Cluster, notes: &mut Vec<String>) -> Result<Vec<Site>, VerifyError> {
    let one = cluster.as_one_database();
    let cluster = one.as_ref().unwrap_or(cluster);
    let nodes: Vec<usize> = cluster.data_nodes().collect();
    let engine = cluster.engine;
    let is_alone = nodes.len() < 2;
    if !is_alone && !matches!(engine.layout, Layout::ForeignPartitions | Layout::Copies(_)) {
        return Err(VerifyError::Engine { engine });
    }
    let sites = nodes.iter().map(|&node| {
        let node = &cluster.nodes[node];
        let mut site = Site::connect(&node.spec, (!is_alone).then_some(node.name.as_str()))?;
        site.open_snapshot(notes)?;
        Ok(site)
    });
    sites.collect()
}

/// The dataset as each node's ledger has it: all must speak of the same one, and of the one that `content` is.
fn agree(sites: &mut [Site], content: &dyn Dataset) -> Result<Vec<ledger::Dataset>, VerifyError> {
    let mut found: Vec<(ledger::Dataset, i64)> = Vec::new();
    for site in sites.iter_mut() {
        let node = site.name.clone();
        let Some(dataset) = ledger::find_dataset(&mut *site.control, content.name())? else {
            return Err(super::what_else(&mut site.control, content.name()));
        };
        let name = dataset.name.clone();
        if dataset.format != data::FORMAT_VERSION {
            let known = data::FORMAT_VERSION;
            return Err(VerifyError::Format { dataset: name, found: dataset.format, known });
        }
        if !dataset.loaded {
            return Err(match node {
                None => VerifyError::Incomplete { dataset: name },
                Some(node) => VerifyError::IncompleteOn { dataset: name, node },
            });
        }
        if dataset.rows != content.rows() || dataset.spec != *content.spec() {
            let problem = format!("it has {} rows, and its parameters make {}", dataset.rows, content.rows());
            return Err(crate::LoadError::Contradiction { dataset: name, problem }.into());
        }
        let names = table_names(content.tables(), dataset.partitions);
        ledger::check_in_place(&mut *site.control, &dataset, &names)?;
        let token = ledger::layout(&mut *site.control, dataset.id)?.token;
        if let Some((first, theirs)) = found.first()
            && (first.partitions, *theirs) != (dataset.partitions, token)
        {
            let (one, other) = (sites[0].name.clone().unwrap_or_default(), node.unwrap_or_default());
            return Err(crate::LoadError::MixedCluster { one, other }.into());
        }
        found.push((dataset, token));
    }
    Ok(found.into_iter().map(|(dataset, _)| dataset).collect())
}

fn sql<T>(doing: &'static str, result: Result<T, postgres::Error>) -> Result<T, VerifyError> {
    result.map_err(|source| VerifyError::Sql { doing, source })
}

/// Asks the dataset what must hold of its tables together, of each copy of the rows.
fn audit(
    sites: &mut [Site],
    content: &dyn Dataset,
    tables: &[TableAt],
    sources: &[Source],
) -> Result<Audit, VerifyError> {
    let mut nodes: Vec<Option<&str>> = tables.iter().map(|table| table.node.as_deref()).collect();
    nodes.dedup();
    let mut all = Audit::default();
    let mut seen = Vec::new();
    for node in nodes {
        if seen.contains(&node) {
            continue;
        }
        seen.push(node);
        let mut places = Places { sites, content, tables, sources, node };
        let audit = content.audit(&mut places)?;
        let on = |sentence: String| match node {
            Some(node) => format!("{node}: {sentence}"),
            None => sentence,
        };
        all.kept.extend(audit.kept.into_iter().map(on));
        all.broken.extend(audit.broken.into_iter().map(on));
        all.unknown.extend(audit.unknown.into_iter().map(on));
    }
    Ok(all)
}

/// One copy of all rows.
struct Places<'a> {
    sites: &'a mut [Site],
    content: &'a dyn Dataset,
    tables: &'a [TableAt],
    sources: &'a [Source],
    node: Option<&'a str>,
}

impl Auditor for Places<'_> {
    fn sum(&mut self, query: &str) -> Result<i128, VerifyError> {
        const DOING: &str = "adding up what runs have changed";
        let tables = self.content.tables();
        let mut groups: std::collections::BTreeMap<(usize, u32), String> = std::collections::BTreeMap::new();
        for source in self.sources.iter().filter(|source| source.belongs_to.is_none()) {
            let at = &self.tables[source.at];
            if at.node.as_deref() == self.node {
                let text = groups.entry((source.site, source.partition)).or_insert_with(|| query.to_owned());
                *text = text.replace(&format!("{{{}}}", tables[at.table].name), &source.relation);
            }
        }
        let mut sum = 0;
        // A table that is gone leaves its name in the query: nothing can be added up there.
        for ((site, _), text) in groups.into_iter().filter(|(_, text)| !text.contains('{')) {
            let client: &mut Client = &mut self.sites[site].control;
            let row = sql(DOING, client.query_one(&format!("select ({text})::text"), &[]))?;
            sum += workers::number(DOING, row.get(0))?;
        }
        Ok(sum)
    }
}

//! Prove the content of the TPC-C tables: every row that was loaded, each once, each value, and nothing else.
//!
//! ```text
//!            sums per table and warehouse agree ----------------> exact (fast)
//! fast: sum -+
//!            differ -> rows of tables and warehouses that differ -+-> judge each row, mark its place -> places without a mark
//! deep: all rows are judged; places are compared by their sums ---+
//! ```
//!
//! Fast: the server sums up `hash_record_extended(row(record_send(row(<columns>))), 0)` by warehouse. `record_send` is the row in
//! binary form, so one hash covers all values with their signs and their order, and the client computes the same from the bytes that it
//! would send. (`hash_record_extended` of the columns themselves would not do: the hash of a numeric leaves its sign out, and two rows that
//! trade the values of one column leave their sum as it was.) Deep: every row is read and compared with what it must be.
//!
//! Runs change these tables at places that nobody wrote down, so afterwards only ITEM can be proved, and it is said so.
//!
//! **On a sharded cluster** every node's own tables are read there, in a snapshot of that node. A row that a node has of warehouses that are
//! another's is misplaced, and each node's copy of ITEM is proved by itself ([`place`]).

use std::time::Instant;

use connect::ConnSpec;
use data::tpcc::{Population, Table};
use engines::Cluster;
use postgres::Client;

use self::content::Content;
use self::place::Places;
use super::catalog::reads_block_ranges;
use super::workers::{self, Coordinator, Queues, Workers};
use super::{Problem, Site, VerifyError, VerifyProgress, split};
use crate::LoadError;
use crate::ledger::{self, Dataset};
use crate::options::Stop;
use crate::tpcc::{TpccDataset, find, plan};

pub use super::Method;
pub use super::tables::{Difference, DifferenceKind, KIND_NAMES, KINDS, TableFound, TablesReport};

mod content;
mod place;
mod rows;
mod sums;

/// What a verification shall do.
#[derive(Debug)]
pub struct TpccVerifyOptions<'a> {
    /// Read and compare every row, whatever the sums say.
    pub deep: bool,
    /// Connections that read at once; about as many threads compute.
    pub jobs: usize,
    /// A request to stop.
    pub stop: &'a Stop,
}

/// How much is done at once.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Places that are marked at a time, one bit each.
    places: u64,
    /// Blocks that a connection reads at once, where the server can read a range of them.
    blocks_at_once: u64,
}

/// 128 MB of marks; 64 MB of blocks.
const LIMITS: Limits = Limits { places: 1 << 30, blocks_at_once: 8192 };

/// A table whose rows are proved together: all of them, wherever they are; or one node's copy of ITEM.
#[derive(Debug)]
struct TableAt {
    table: Table,
    /// Whose copy of ITEM it is.
    node: Option<String>,
}

/// A table on a server that holds rows.
#[derive(Debug)]
struct Source {
    /// Whose rows: a place among the tables.
    at: usize,
    site: usize,
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
    content: Content,
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

impl Setting<'_> {
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

    fn name_of(&self, site: usize) -> &str {
        &self.names[site]
    }

    /// Pieces by server.
    fn queues(&self, pieces: &[Piece]) -> Queues {
        let site = |(number, piece): (usize, &Piece)| (self.sources[piece.source].site, number);
        Queues::new(self.workers.sites(), pieces.iter().enumerate().map(site))
    }
}

/// Verifies the TPC-C dataset of a database. `observer` is called about once a second by the calling thread.
///
/// Nothing is changed in the database. All reading is done in one snapshot.
///
/// # Errors
/// When there is no verdict; a difference in the content is part of the report instead.
pub fn run(
    spec: &ConnSpec,
    options: &TpccVerifyOptions<'_>,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<TablesReport, VerifyError> {
    run_within(&Cluster::single(spec.clone()), options, observer, LIMITS, true)
}

/// The same for all nodes of a cluster, in one snapshot each.
///
/// # Errors
/// As [`run`]; also when nodes speak of different datasets, or nobody knows how rows are spread over this kind of cluster.
pub fn run_cluster(
    cluster: &Cluster,
    options: &TpccVerifyOptions<'_>,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<TablesReport, VerifyError> {
    run_within(cluster, options, observer, LIMITS, true)
}

/// `may_hash`: whether what the server can do is used, or a test wants to see what is done without.
fn run_within(
    cluster: &Cluster,
    options: &TpccVerifyOptions<'_>,
    observer: &mut dyn FnMut(&VerifyProgress),
    limits: Limits,
    may_hash: bool,
) -> Result<TablesReport, VerifyError> {
    let start = Instant::now();
    let mut notes = Vec::new();
    let mut sites = open(cluster, &mut notes)?;
    let (found, ids) = agree(&mut sites)?;
    let mut runs = 0;
    for (site, id) in sites.iter_mut().zip(ids) {
        let dataset = Dataset { id, ..found.dataset.clone() };
        runs += ledger::writers(&mut *site.control, &dataset)?.len();
    }
    let judged: &[Table] = if runs > 0 {
        let runs = if runs == 1 { "1 run has".to_owned() } else { format!("{runs} runs have") };
        notes.push(format!(
            "{runs} written into the tables since the load: only item was verified, because no transaction changes it; prove tpcc checks the consistency conditions"
        ));
        &[Table::Item]
    } else {
        &Table::ALL
    };
    let is_one = sites.len() == 1 && sites[0].name.is_none();
    if is_one {
        check_chunks(&mut sites[0].control, &found)?;
    }
    let content = Content::new(found.population(), found.warehouses);
    let Places { tables, sources, mut problems, notes: odd } = place::find(&mut sites, &found, judged)?;
    notes.extend(odd);
    let mut method = Method::Deep;
    if options.deep {
        // As asked for.
    } else if may_hash && all_hash_as_we_do(&mut sites)? {
        method = Method::Fast;
    } else {
        notes.push(
            "the server cannot hash rows as pgfathom does (hash_record_extended, PostgreSQL 14), so every row was read"
                .to_owned(),
        );
    }
    let mut block_ranges = true;
    for (number, site) in sites.iter_mut().enumerate() {
        if let Some(source) = sources.iter().find(|source| source.site == number) {
            block_ranges &= reads_block_ranges(&mut site.control, &source.relation)?;
        }
    }
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
    let rows_total = found.dataset.rows;
    let deep = method == Method::Deep;
    let mut compared = sums::compare(&setting, &mut coordinator, deep, rows_total)?;
    if !deep && !compared.differing.is_empty() {
        method = Method::FastThenDeep;
    }
    let findings = rows::name(&setting, &mut coordinator, &compared.differing, !deep)?;
    compared.findings.merge(findings);
    compared.findings.merge(rows::misplaced(&setting, &mut coordinator)?);
    let (cells, all) = (&compared.cells, &compared.findings);
    let tables = judged.iter().map(|table| {
        let places = || (0..setting.tables.len()).filter(|at| setting.tables[*at].table == *table);
        TableFound {
            table: table.name(),
            rows_expected: places().map(|at| cells.rows_expected(at)).sum(),
            rows_found: places().map(|at| cells.rows_found(at)).sum(),
            differences: all.of_table(table.name()),
        }
    });
    let tables = tables.collect();
    drop((coordinator, setting));
    drop(openers);
    if is_one && judged.len() == Table::ALL.len() {
        let odd = ledger::odd_chunks(&mut sites[0].control, found.dataset.id, |chunk, checksum, bytes| {
            compared.cells.chunk(chunk) == Some((checksum, bytes))
        })?;
        problems.extend(odd.map(|(chunk, count)| Problem::LedgerChunks { chunk, count }));
    }
    let (differences, totals) = compared.findings.into_named();
    Ok(TablesReport {
        method,
        notes,
        problems,
        tables,
        differences,
        totals,
        unjudged: (runs > 0).then(|| "runs have changed all tables but item".to_owned()),
        ..TablesReport::nothing(start)
    })
}

/// Refuses a ledger of one server whose chunks are not those that a load of so many warehouses has.
fn check_chunks(control: &mut Client, found: &TpccDataset) -> Result<(), VerifyError> {
    let contradiction = |problem: String| {
        VerifyError::from(LoadError::Contradiction { dataset: found.dataset.name.clone(), problem })
    };
    let nodes = ledger::layout(control, found.dataset.id)?.nodes;
    if !nodes.is_empty() && found.dataset.partitions == 0 {
        let nodes = nodes.join(", ");
        return Err(contradiction(format!("it names the nodes {nodes}, but has all rows on one server")));
    }
    let rows = control.query(
        "select chunk, rows, first_row, coalesce(to_jsonb(c) ->> 'leaf', '0') <> '0' or to_jsonb(c) ->> 'leaves' is not null
         from pgfathom.chunk c where dataset = $1 order by chunk",
        &[&found.dataset.id],
    );
    let rows = sql("reading pgfathom.chunk", rows)?;
    let count = plan::chunks(found.warehouses);
    if rows.len() as u64 != count {
        let (there, warehouses) = (rows.len(), found.warehouses);
        return Err(contradiction(format!(
            "{warehouses} warehouses have {count} chunks, but it has {there}"
        )));
    }
    let population = found.population();
    let mut sum = 0u64;
    for (number, row) in rows.iter().enumerate() {
        let (chunk, in_ledger): (i64, i64) = (row.get(0), row.get(1));
        let part = plan::Part::of_chunk(number as u64, found.warehouses);
        let expected = part.rows(&population);
        if chunk != number as i64 || u64::try_from(in_ledger) != Ok(expected) {
            return Err(contradiction(format!(
                "chunk {chunk} has {in_ledger} rows, but {part} are {expected}"
            )));
        }
        if row.get::<_, i64>(2) != i64::from(part.w_id) {
            let first: i64 = row.get(2);
            return Err(contradiction(format!(
                "chunk {chunk} is recorded for warehouse {first}, but is {part}"
            )));
        }
        if row.get(3) {
            return Err(contradiction(format!(
                "chunk {chunk} is recorded for some partitions only, but one server has all of them"
            )));
        }
        sum += expected;
    }
    if sum != found.dataset.rows || population.c_load() != found.c_load {
        let (rows, c_load) = (found.dataset.rows, found.c_load);
        return Err(contradiction(format!(
            "its chunks have {sum} rows, but it records {rows}, with C-Load {c_load}"
        )));
    }
    Ok(())
}

/// Opens a snapshot on each node that holds rows.
fn open(cluster: &Cluster, notes: &mut Vec<String>) -> Result<Vec<Site>, VerifyError> {
    let nodes: Vec<usize> = cluster.data_nodes().collect();
    let is_alone = nodes.len() < 2;
    if !is_alone && !cluster.has_foreign_partitions() {
        return Err(VerifyError::Engine { engine: cluster.engine });
    }
    let sites = nodes.iter().map(|&node| {
        let node = &cluster.nodes[node];
        let mut site = Site::connect(&node.spec, (!is_alone).then_some(node.name.as_str()))?;
        site.open_snapshot(notes)?;
        Ok(site)
    });
    sites.collect()
}

/// The dataset, and its number on each node. All nodes must speak of the same one.
fn agree(sites: &mut [Site]) -> Result<(TpccDataset, Vec<i32>), VerifyError> {
    let mut first: Option<(TpccDataset, i64, String)> = None;
    let mut ids = Vec::new();
    for site in sites {
        let node = site.name.clone();
        let Some(found) = find(&mut *site.control)? else {
            return Err(super::what_else(&mut site.control, crate::tpcc::TPCC));
        };
        let dataset = found.dataset.name.clone();
        if found.dataset.format != data::FORMAT_VERSION {
            let known = data::FORMAT_VERSION;
            return Err(VerifyError::Format { dataset, found: found.dataset.format, known });
        }
        if !found.dataset.loaded {
            return Err(match node {
                None => VerifyError::Incomplete { dataset },
                Some(node) => VerifyError::IncompleteOn { dataset, node },
            });
        }
        let names = crate::tpcc::table_names(found.dataset.partitions);
        ledger::check_in_place(&mut *site.control, &found.dataset, &names)?;
        let token = ledger::layout(&mut *site.control, found.dataset.id)?.token;
        ids.push(found.dataset.id);
        let node = node.unwrap_or_default();
        match &first {
            None => first = Some((found, token, node)),
            Some((model, theirs, one)) => {
                let same = (model.warehouses, model.dataset.spec.seed, model.dataset.partitions, *theirs)
                    == (found.warehouses, found.dataset.spec.seed, found.dataset.partitions, token);
                if !same {
                    return Err(LoadError::MixedCluster { one: one.clone(), other: node }.into());
                }
            }
        }
    }
    let (found, ..) = first.ok_or(VerifyError::NoDataset)?;
    Ok((found, ids))
}

fn all_hash_as_we_do(sites: &mut [Site]) -> Result<bool, VerifyError> {
    for site in sites {
        if !hashes_as_we_do(&mut site.control)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn sql<T>(doing: &'static str, result: Result<T, postgres::Error>) -> Result<T, VerifyError> {
    result.map_err(|source| VerifyError::Sql { doing, source })
}

/// Whether the server's hash of a row in binary form is there and agrees with ours, tried with a value of each type and a null.
fn hashes_as_we_do(control: &mut Client) -> Result<bool, VerifyError> {
    const DOING: &str = "checking how the server hashes";
    let there = control.query_one(
        "select to_regprocedure('pg_catalog.hash_record_extended(record,bigint)') is not null
            and to_regprocedure('pg_catalog.record_send(record)') is not null",
        &[],
    );
    if !sql(DOING, there)?.get::<_, bool>(0) {
        return Ok(false);
    }
    let population = Population::new(1);
    let (orders, order) = (population.orders(1, 1), population.orders(1, 1).order(3_000));
    let line = orders.line(&order, 1);
    let theirs = control.query_one(
        &format!(
            "select hash_record_extended(row(record_send(row({}, {}, {}, {}, {}, {}, null::timestamp, {}, {}::numeric(6,2), '{}'::char(24)))), 0)",
            line.ol_o_id,
            line.ol_d_id,
            line.ol_w_id,
            line.ol_number,
            line.ol_i_id,
            line.ol_supply_w_id,
            line.ol_quantity,
            format_args!("{}.{:02}", line.ol_amount_cents / 100, line.ol_amount_cents % 100),
            String::from_utf8_lossy(&line.ol_dist_info)
        ),
        &[],
    );
    let ours = content::RecordHash::new(Table::OrderLine).of(&line);
    Ok(sql(DOING, theirs)?.get::<_, i64>(0) as u64 == ours)
}

#[cfg(test)]
mod tests;

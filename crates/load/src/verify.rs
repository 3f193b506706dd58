//! Verifies the tables of a dataset: they hold every row that was loaded or written, and nothing else.
//!
//! ```text
//!            sums per cell agree --------------------------------------> exact (fast)
//! fast: sum -+
//!            differ -> smaller cells, where one is a whole partition --+
//! deep: all cells -----------------------------------------------------+-> judge row by row -> name missing and doubled rows
//! ```
//!
//! A cell is a range of row numbers, or of keys whose numbers only the client knows. Fast costs the server one scan with a hash per row, and
//! the client the same hash of rows that it computes itself; two numbers cross the network for each cell. It proves that the tables are as they
//! were loaded. `hash_record_extended(row(record_send(row(<columns>))), 0)` covers all values with their signs and their order (the hash of a
//! numeric leaves its sign out, and rows that trade the values of a column leave the sum of plain record hashes as it was); a dataset may
//! have a cheaper one ([`Dataset::hashing`]). Where the server has no hash of a row (before PostgreSQL 14) every row is read and
//! judged instead, and a note reports it. Memory does not grow with the tables.
//!
//! **Runs change rows.** A dataset defines which rows a run may have left ([`Dataset::judge`], [`Dataset::expect`]), which columns change where
//! their values cannot be known, and whether these fit together ([`Dataset::audit`]). Where a run may have written anywhere, only tables that
//! no run changes are verified afterwards ([`Dataset::after_runs`]).

use std::time::{Duration, Instant};

use engines::cluster::Cluster;
use engines::profile::Layout;
use postgres::Client;

use self::catalog::{Catalog, Leaf};
pub use self::error::VerifyError;
use self::workers::{Queues, Workers};
use crate::dataset::{Dataset, Hashing};
use crate::error::LoadError;
use crate::ledger;
use crate::options::Stop;

pub use self::problem::Problem;
pub use self::report::{Method, NodeReport, TableFound, Verdict, VerifyReport};
pub use self::workers::{Phase, VerifyProgress};
pub use crate::difference::{
    Difference, DifferenceKind, ExtraReason, KIND_NAMES, KINDS, NAMED_MAX, TableName, Wrong,
};

mod audit;
mod catalog;
mod chunks;
mod cluster;
mod compare;
mod content;
mod definition;
pub mod error;
mod findings;
mod foreign;
mod grid;
mod leaf;
mod mirrored;
mod names;
mod parts;
mod problem;
mod prove;
mod reader;
mod references;
mod replication;
mod report;
mod rows;
mod site;
mod spread;
mod sums;
mod workers;

/// What a verification shall do.
#[derive(Clone, Copy, Debug)]
pub struct VerifyOptions<'a> {
    /// Read and judge every row, whatever the sums say.
    pub deep: bool,
    /// Connections that read at once; about as many threads compute.
    pub jobs: usize,
    /// What nodes that hold the same rows are given.
    pub mirror: MirrorOptions,
    /// A request to stop.
    pub stop: &'a Stop,
    /// How much is done at once.
    pub limits: Limits,
    /// Whether servers compute the hashes of rows, where they can.
    pub may_hash: bool,
}

impl<'a> VerifyOptions<'a> {
    /// A verification that waits for no standbys.
    pub fn new(deep: bool, jobs: usize, stop: &'a Stop) -> VerifyOptions<'a> {
        let mirror = MirrorOptions { lag_limit: Duration::ZERO, standbys: false };
        VerifyOptions { deep, jobs, mirror, stop, limits: LIMITS, may_hash: true }
    }
}

/// What a verification of nodes that hold the same shall do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MirrorOptions {
    /// How long a node may take to apply what others had written.
    pub lag_limit: Duration,
    /// Verify the standbys of a primary, too.
    pub standbys: bool,
}

/// How much is done at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Row numbers held at a time while rows are named.
    pub found_rows: u64,
    /// Blocks that a connection reads at once, where the server can read a range of them.
    pub blocks_at_once: u64,
}

/// 128 MB of row numbers; 64 MB of blocks.
pub const LIMITS: Limits = Limits { found_rows: 1 << 24, blocks_at_once: 8192 };

/// The dataset that a server's ledger describes, if it has it.
pub type Found = Result<Option<Box<dyn Dataset>>, LoadError>;

/// A dataset by its name, and how to make it of what a ledger has of it.
pub struct Subject<'a> {
    /// Its name.
    pub name: &'static str,
    /// The dataset that a server holds, if it holds one of this name.
    pub find: &'a dyn Fn(&mut Client) -> Found,
}

impl std::fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Verifies a dataset on all nodes of a cluster: every row, and what its nodes have on record of each other. `observer` is called about once
/// a second by the calling thread.
///
/// Nothing is changed in the database. All reading of a node is done in one snapshot, which keeps vacuum from removing newer dead rows as long
/// as it lasts.
///
/// # Errors
/// When there is no verdict; whatever is wrong with the content or the nodes is part of the report instead.
pub fn run(
    cluster: &Cluster,
    subject: &Subject<'_>,
    options: &VerifyOptions<'_>,
    observer: &mut dyn FnMut(&VerifyProgress),
) -> Result<VerifyReport, VerifyError> {
    let (spread, one) = (cluster, cluster.as_one_database());
    let cluster = one.as_ref().unwrap_or(cluster);
    let data: Vec<usize> = cluster.data_nodes().collect();
    if cluster.engine.layout == Layout::OneServer && data.is_empty() {
        return Err(VerifyError::NoPrimary {
            nodes: cluster.nodes.iter().map(|node| node.name.clone()).collect(),
        });
    }
    if options.mirror.standbys
        && (cluster.engine.layout != Layout::OneServer
            || data.len() != 1
            || data.len() == cluster.nodes.len())
    {
        return Err(VerifyError::NoStandbys);
    }
    let task = Task { cluster, subject, options, start: Instant::now() };
    if let Some(one) = &one {
        let whole = Task { cluster: spread, ..task };
        return cluster::spread(&Task { cluster: one, ..task }, &whole, data[0], observer);
    }
    match (cluster.engine.layout, data.as_slice()) {
        (Layout::OneServer, &[primary]) if options.mirror.standbys => {
            let standbys: Vec<usize> = (0..cluster.nodes.len()).filter(|&node| node != primary).collect();
            mirrored::standbys(&task, primary, &standbys, observer)
        }
        (Layout::OneServer | Layout::ForeignPartitions | Layout::Copies(_), &[node]) => {
            cluster::server(&task, node, observer)
        }
        (Layout::ForeignPartitions, _) => cluster::sharded(&task, &data, observer),
        (Layout::Copies(_), _) => mirrored::peers(&task, &data, observer),
        (Layout::OneServer | Layout::Spread(_), _) => Err(VerifyError::Engine { engine: cluster.engine }),
    }
}

/// What was requested.
#[derive(Clone, Copy)]
struct Task<'a> {
    cluster: &'a Cluster,
    subject: &'a Subject<'a>,
    options: &'a VerifyOptions<'a>,
    start: Instant,
}

/// The dataset that is verified.
struct Loaded {
    /// As the ledger has it.
    dataset: ledger::Dataset,
    content: Box<dyn Dataset>,
    /// How many runs have written into it.
    runs: usize,
    /// What the ledger does not know about them.
    unfinished: Option<String>,
    /// Its tables that can be judged.
    judged: Vec<usize>,
}

/// What all phases know.
struct Setting<'a> {
    content: &'a dyn Dataset,
    hashing: Option<Hashing>,
    /// Rows are hashed in a way that every server has, for a comparison of servers with each other.
    by_digest: bool,
    catalog: &'a Catalog,
    workers: Workers<'a>,
    jobs: usize,
    limits: Limits,
}

/// A part of a leaf that one connection reads at once.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Piece {
    leaf: usize,
    /// `None` for all of it.
    condition: Option<String>,
}

impl Piece {
    fn filter(&self) -> String {
        self.condition.as_ref().map(|condition| format!(" where {condition}")).unwrap_or_default()
    }
}

#[cfg(test)]
impl<'a> Setting<'a> {
    /// Of tests without a server.
    fn without_servers(content: &'a dyn Dataset, catalog: &'a Catalog, stop: &'a Stop) -> Setting<'a> {
        let (hashing, workers) = (content.hashing(), Workers::new(Vec::new(), stop));
        Setting { content, hashing, by_digest: false, catalog, workers, jobs: 1, limits: LIMITS }
    }
}

impl Setting<'_> {
    /// The table that a leaf is of.
    fn table_of(&self, leaf: usize) -> usize {
        self.catalog.tables[self.catalog.leaves[leaf].at].table
    }

    /// The leaf that a row belongs to which was found in this one.
    fn home_of(&self, leaf: usize, number: u64) -> usize {
        let Leaf { at, partition, .. } = self.catalog.leaves[leaf];
        let table = &self.catalog.tables[at];
        let home = self.content.partition_of(table.table, number, table.partitions);
        table.first_leaf + home.unwrap_or(partition) as usize
    }

    /// The leaf that a row belongs to; where only the server knows it, that of partition 0.
    fn leaf_of(&self, at: usize, number: u64) -> usize {
        self.home_of(self.catalog.tables[at].first_leaf, number)
    }

    /// Cuts what is read of a leaf into pieces that connections can read side by side.
    fn pieces(&self, leaf: usize, condition: Option<&str>) -> Vec<Piece> {
        if !self.catalog.block_ranges {
            return vec![Piece { leaf, condition: condition.map(str::to_owned) }];
        }
        let at_once = self.limits.blocks_at_once;
        let count = self.catalog.leaves[leaf].blocks.div_ceil(at_once).max(1);
        let and = condition.map(|condition| format!(" and {condition}")).unwrap_or_default();
        let piece = |index: u64| {
            let from = index * at_once;
            // The last one is open ended.
            let to = match index + 1 == count {
                true => String::new(),
                false => format!(" and ctid < '({},0)'::tid", from + at_once),
            };
            Piece { leaf, condition: Some(format!("ctid >= '({from},0)'::tid{to}{and}")) }
        };
        (0..count).map(piece).collect()
    }

    /// Pieces by server.
    fn queues(&self, pieces: &[Piece]) -> Queues {
        let site = |(number, piece): (usize, &Piece)| (self.catalog.leaves[piece.leaf].site, number);
        Queues::new(self.workers.sites(), pieces.iter().enumerate().map(site))
    }
}

/// What to report of a database that lacks the dataset that was named.
fn what_else(control: &mut Client, wanted: &'static str) -> VerifyError {
    match ledger::dataset_names(control) {
        Ok(names) => {
            if let Some(found) = names.into_iter().find(|name| name != wanted) {
                return VerifyError::OtherDataset { wanted, found };
            }
        }
        Err(error) => return error.into(),
    }
    let pgbench =
        control.query_one("select exists (select from pg_class where relname = 'pgbench_accounts')", &[]);
    match pgbench {
        Ok(row) if row.get(0) => VerifyError::PgbenchOnly { wanted },
        _ => VerifyError::NoDataset { wanted },
    }
}

#[cfg(test)]
pub(crate) mod tests;

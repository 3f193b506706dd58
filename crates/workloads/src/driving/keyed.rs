//! Rows that are read and updated one by one by key, as `matrix` measures between every two nodes.

use std::fmt::Debug;

use engines::Cluster;
use load::ledger::Dataset;
use postgres::Client;
use run::routing::{Homes, KeyOwners};

use super::{Announces, Benchmark, Refusal};

/// Opens the dataset of a target that has such rows.
///
/// # Errors
/// When there is none, or it is not complete.
pub fn keyed(client: &mut Client) -> Result<Box<dyn Keyed>, Refusal> {
    crate::ycsb::keyed(client)
}

/// Where rows are.
#[derive(Clone, Debug)]
pub enum Owned {
    /// Each on its node.
    Split(KeyOwners),
    /// On every node.
    Everywhere,
}

/// Sessions of a matrix, and the nodes whose rows they draw.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// The name of the only type of transactions.
    pub item: String,
    /// All sessions.
    pub sessions: u64,
    /// `None`: all draw from the whole table.
    pub homes: Option<Homes>,
}

/// A dataset of rows with a key each.
pub trait Keyed: Debug {
    /// What the ledger has about it.
    fn dataset(&self) -> &Dataset;

    /// The key of a row.
    fn key(&self, row: u64) -> String;

    /// A statement that reads a row and one that updates it, by the key in `$1`; the second leaves the row as it is.
    fn probes(&self) -> [String; 2];

    /// Who owns which key, from the catalog of the node `entry` that `client` is connected to, tested against that server. `asker` is named in
    /// errors.
    ///
    /// # Errors
    /// When the catalog does not show it, or the server disagrees.
    fn placed(
        &self,
        cluster: &Cluster,
        client: &mut Client,
        entry: usize,
        asker: &str,
    ) -> Result<Owned, Refusal>;

    /// Sessions in groups of `sessions_each`, each held to one of `nodes`.
    ///
    /// # Errors
    /// When a node has no row, or next to none.
    fn hold(
        &self,
        cluster: &Cluster,
        owners: KeyOwners,
        nodes: Vec<u16>,
        sessions_each: u64,
        asker: &str,
    ) -> Result<Homes, Refusal>;

    /// Whether a node has rows.
    fn has_rows(&self, homes: &Homes, node: u16) -> bool;

    /// Reads one row by key.
    fn reads(&self, drawn: Drawn) -> Benchmark;

    /// Updates one row by key, once the run is entered in the ledgers.
    fn updates(&self, drawn: Drawn) -> Box<dyn Announces>;

    /// Refuses a cluster of which a ledger cannot be reached: a run of updates must be entered in each.
    ///
    /// # Errors
    /// See above.
    fn check_ledgers(&self, cluster: &Cluster) -> Result<(), Refusal>;
}

//! Engine profiles: the abilities and promises of each kind of database, as values that code reads.
//!
//! No code outside of this crate checks the engine: it reads the value that matters. For data that is only in the catalog the profile has the
//! query, and all engines answer it with the same columns (see [`Catalog`]), so one piece of code reads them all. [`Tried`] is where a profile has
//! been tried.

mod commit;
mod discovery;
mod expectation;
mod layout;
mod own;
mod promise;

pub use commit::{Commit, CommitCost, Protocol, Trips};
pub use discovery::{Catalog, Discovery, Kind, Oracle, Replication, Sets};
pub use expectation::{Case, Expectation, Levels, Reasons, Statements};
pub use layout::{
    Arrival, Conflicts, Copies, Ddl, EntryPoints, KeyedTrips, Layout, LoadPath, NodeLinks,
    REPLICATING_EXTENSIONS, Sizes, Spread, Storage,
};
pub use own::Own;
pub(crate) use promise::short;
pub use promise::{Anomaly, Arrangement, Entry, Isolation, Place, Promise, Rule, Setting, Verdict, table};

use std::fmt;

/// The abilities and promises of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name in `cluster.toml` and in `run.json`.
    pub name: &'static str,
    /// Other names that a cluster file may have for it.
    pub aliases: &'static [&'static str],
    /// Its official name.
    pub title: &'static str,
    /// Where this profile has been tried.
    pub tried: Tried,
    /// How the engine, its nodes and the placement of rows are found.
    pub discovery: Discovery,
    /// The distribution of rows over the nodes, and how tables are created.
    pub layout: Layout,
    /// How it stores rows.
    pub storage: Storage,
    /// How much disk a table takes.
    pub sizes: Sizes,
    /// Which nodes take client connections.
    pub entry: EntryPoints,
    /// How bulk data gets in.
    pub load: LoadPath,
    /// How the nodes connect to each other.
    pub links: NodeLinks,
    /// Round trips between the nodes for one statement by key, a transaction of its own, through a node that does not own the row; where that was measured.
    pub keyed_trips: Option<KeyedTrips>,
    /// Whether the WAL functions and replication views of the node that a client is connected to describe its commits, as on PostgreSQL.
    pub has_wal: bool,
    /// The SQLSTATE values with which a node reports that another node does not answer, or that it is no part of the cluster now, besides those of class 08
    /// (connection exceptions). Behind one may stand a blank and how the message begins.
    pub node_lost: &'static [&'static str],
    /// How a transaction commits.
    pub commit: Commit,
    /// Whose isolation levels these are.
    pub levels: Levels,
    /// When statements at READ COMMITTED get a snapshot.
    pub statements: Statements,
    /// What transactions may rely on.
    pub promises: &'static [Promise],
    /// The expected results of scripted cases that need several nodes.
    pub expectations: &'static [Expectation],
    /// Explanations for a witness.
    pub reasons: Reasons,
    /// Notes for users, as sentences.
    pub limits: &'static [&'static str],
}

/// Whether an error, by its SQLSTATE and message, is one of [`Profile::node_lost`].
pub fn reports_lost_node(lost: &[&str], sqlstate: &str, message: &str) -> bool {
    lost.iter().any(|one| {
        let (code, begin) = one.split_once(' ').unwrap_or((one, ""));
        code == sqlstate && message.starts_with(begin)
    })
}

impl Profile {
    /// The expected result of a scripted case.
    pub fn expectation(&self, case: Case) -> Option<&'static Expectation> {
        self.expectations.iter().find(|expectation| expectation.case == case)
    }

    /// What it makes for itself: one per catalog or replication system that it can have.
    pub fn own(&self) -> impl Iterator<Item = &'static Own> {
        let (catalog, replications): (_, &[Replication]) = match self.discovery {
            Discovery::Catalog(catalog) => (Some(catalog.own), &[]),
            Discovery::Copies(replications) => (None, replications),
            _ => (None, &[]),
        };
        catalog.into_iter().chain(replications.iter().map(|replication| replication.own))
    }

    /// Whether a deadlock over two nodes is never detected: then only a time limit ends it.
    pub fn misses_deadlocks(&self) -> bool {
        self.expectation(Case::Deadlock).is_some_and(|expectation| expectation.may_happen == Some(true))
    }
}

/// Where a profile has been tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tried {
    /// On live servers: these.
    Live(&'static str),
    /// On catalogs written down from documentation and sources, replayed over a socket; never on a live server.
    RecordedCatalogs,
    /// Nowhere: written from the documentation.
    Documentation,
}

impl Tried {
    /// Whether it was tried on a live server.
    pub fn is_live(self) -> bool {
        matches!(self, Tried::Live(_))
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tried::Live(servers) => write!(f, "live: {servers}"),
            Tried::RecordedCatalogs => f.write_str("recorded catalogs only, never a live server"),
            Tried::Documentation => f.write_str("documentation only"),
        }
    }
}

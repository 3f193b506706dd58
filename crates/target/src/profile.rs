//! Engine profiles: what each kind of target can do and what it promises, as values.
//!
//! Nothing else in the program asks "which engine is it?" in order to decide what to do: it asks the profile. What is not a fact of ours but of a
//! catalog stands here as the question to ask, and its answer has one shape for all engines (see [`Catalog`]), so one reader serves
//! them all. Facts come from the engines' documentation and sources; [`Tried`] says honestly which were ever tried on a live server.

mod citus;
mod cockroach;
mod greenplum;
mod multimaster;
mod postgres;
mod promise;
mod shardman;
mod ydb;
mod yugabyte;

pub use multimaster::REPLICATIONS;
pub use postgres::DETECT;
pub use promise::{Anomaly, Arrangement, Entry, Level, Place, Promise, Rule, Setting, Verdict, table};

use crate::engine::Engine;

/// What an engine can do and promises.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The engine.
    pub engine: Engine,
    /// Its name as its makers write it.
    pub title: &'static str,
    /// Where this profile has been proven.
    pub tried: Tried,
    /// How nodes and placement are found.
    pub discovery: Discovery,
    /// Which nodes take client connections, and what for.
    pub entry: &'static str,
    /// How bulk data gets in.
    pub load: LoadPath,
    /// What the driver may use.
    pub wire: Wire,
    /// What transactions may rely on.
    pub promises: &'static [Promise],
    /// What a commit costs in sequential round trips: on one node, and over several.
    pub commit: [&'static str; 2],
    /// What can be watched.
    pub views: &'static [View],
    /// What cannot be done, in sentences.
    pub limits: &'static [&'static str],
}

/// Where a profile has been proven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tried {
    /// On live servers: these.
    Live(&'static str),
    /// On catalogs written down from the documentation, over a socket, and never on a live server.
    RecordedCatalogs,
    /// Not at all: what is here is what the documentation says.
    Never,
}

impl std::fmt::Display for Tried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Tried::Live(servers) => write!(f, "live: {servers}"),
            Tried::RecordedCatalogs => f.write_str("recorded catalogs only"),
            Tried::Never => f.write_str("never"),
        }
    }
}

/// How nodes and placement are found.
#[derive(Clone, Copy, Debug)]
pub enum Discovery {
    /// From PostgreSQL's own catalog: partitions, foreign tables.
    Native,
    /// Every node holds every row; the nodes stand in the catalog of one of these replication systems.
    Copies(&'static [Replication]),
    /// From the engine's own catalog.
    Catalog(Catalog),
    /// Not over PostgreSQL's protocol, for this reason: the nodes come from a cluster file.
    None(&'static str),
}

/// A way of replicating every row to every node.
#[derive(Clone, Copy, Debug)]
pub struct Replication {
    /// Its name.
    pub name: &'static str,
    /// Whether there is anything of it, where everybody may ask that and not everybody the rest: a truth value, and in words what of it is of
    /// roles that this session does not trust, which does not count.
    pub probe: Option<&'static str>,
    /// The nodes, in the shape of [`Catalog::nodes`].
    pub nodes: &'static str,
}

/// The questions to an engine's own catalog. All answers are text, asked by the simple protocol.
///
/// Placeholders: `{schema}`, `{table}` and `{relation}` (qualified and quoted) are string constants; `{name}` is the qualified
/// identifier; `{keys}` are the key's values, cast to their types.
#[derive(Clone, Copy, Debug)]
pub struct Catalog {
    /// One row per node: key (what leaves refer to), name, host, port, database (NULL: the same), role, whether it is the node that was asked,
    /// state (NULL: it works), connection string (instead of host and port), the role that chose the address where this session does not trust it.
    pub nodes: &'static str,
    /// Whether discovery connects to each node. Not where nodes take no ordinary sessions.
    pub reach_nodes: bool,
    /// One row per key column: kind, column, type, hash function or operator class, whether its collation is deterministic, two numbers.
    /// The kind is one of [`Kind::NAMES`], anything else is the reason why only the server can route. Without rows there is no such table.
    pub table: &'static str,
    /// One row per leaf: schema and name on its node, the node's key, lower and upper bound, state (NULL: it works), the name by which the
    /// oracle calls it, object number.
    pub leaves: &'static str,
    /// Who decides where a key belongs.
    pub oracle: Oracle,
}

/// How the server says where a key belongs.
#[derive(Clone, Copy, Debug)]
pub enum Oracle {
    /// A question with `{keys}`; the answer is the leaf's name in [`Catalog::leaves`].
    Leaf(&'static str),
    /// A question with `{keys}`; the answer is a number within the leaf's bounds.
    Code(&'static str),
    /// A question with `{where}` about a row that exists; the answer is the leaf's name. Keys without a row have no answer.
    Row(&'static str),
}

/// How a table's keys find their leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Ranges of a signed 32-bit hash (Citus).
    Hash32,
    /// Remainders of PostgreSQL's partition hash: bounds are remainder and modulus (Shardman).
    Remainder,
    /// Numbered segments (Greenplum); the operator class tells which hash.
    Segment,
    /// Ranges of a 16-bit code (YugabyteDB); the upper bound is exclusive.
    Code,
    /// Ranges of encoded keys, in hexadecimal (CockroachDB); the upper bound is exclusive. The numbers are those of table and index.
    Keys,
    /// Every node has every row.
    Everywhere,
    /// One leaf has every row.
    One,
}

impl Kind {
    /// The words by which [`Catalog::table`] names them.
    pub const NAMES: [(&'static str, Kind); 7] = [
        ("hash32", Kind::Hash32),
        ("remainder", Kind::Remainder),
        ("segment", Kind::Segment),
        ("code", Kind::Code),
        ("keys", Kind::Keys),
        ("everywhere", Kind::Everywhere),
        ("one", Kind::One),
    ];

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Kind> {
        Kind::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

/// How bulk data gets in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadPath {
    /// COPY into the leaf on the node that owns it.
    Leaves,
    /// COPY into the table, through any node.
    AnyNode,
    /// COPY into the table on one node; the others get the rows by replication.
    OneNode,
    /// COPY into the table through the one entry point.
    EntryOnly,
    /// Not at all, for this reason.
    None(&'static str),
}

impl std::fmt::Display for LoadPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LoadPath::Leaves => "COPY into each leaf on its owner",
            LoadPath::AnyNode => "COPY into the table through any node",
            LoadPath::OneNode => "COPY into one node, replicated to the others",
            LoadPath::EntryOnly => "COPY into the table through the entry point",
            LoadPath::None(reason) => reason,
        })
    }
}

/// Whether something can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// Yes.
    Yes,
    /// No.
    No,
    /// With this reservation.
    Partly(&'static str),
}

impl Support {
    /// Whether it may be relied on without reservation.
    pub fn is_full(self) -> bool {
        self == Support::Yes
    }
}

/// What a driver may use.
#[derive(Clone, Copy, Debug)]
pub struct Wire {
    /// COPY, and whether a COPY is one atomic statement.
    pub copy: Support,
    /// Binary COPY.
    pub copy_binary: Support,
    /// Prepared statements.
    pub prepared: Support,
    /// Several statements in flight.
    pub pipelining: Support,
    /// `SAVEPOINT`.
    pub savepoints: Support,
    /// `FOR UPDATE SKIP LOCKED`.
    pub skip_locked: Support,
    /// Advisory locks that hold for the whole cluster.
    pub advisory_locks: Support,
    /// When a serialization failure (40001) must be expected, so that the whole transaction is retried.
    pub retry: &'static str,
}

/// A view or function that shows what the engine is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Its name.
    pub name: &'static str,
    /// What it shows, and what to beware of.
    pub shows: &'static str,
}

impl Engine {
    /// What it can do and promises.
    pub fn profile(self) -> &'static Profile {
        match self {
            Engine::Postgres => &postgres::POSTGRES,
            Engine::FdwSharded => &postgres::FDW_SHARDED,
            Engine::Citus => &citus::PROFILE,
            Engine::Shardman => &shardman::PROFILE,
            Engine::Greenplum => &greenplum::PROFILE,
            Engine::Multimaster => &multimaster::PROFILE,
            Engine::Cockroach => &cockroach::PROFILE,
            Engine::Yugabyte => &yugabyte::PROFILE,
            Engine::Ydb => &ydb::PROFILE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_has_a_profile_of_its_own() {
        for engine in Engine::ALL {
            let profile = engine.profile();
            assert_eq!(profile.engine, engine);
            assert!(!profile.promises.is_empty(), "{engine} promises something, if only what it allows");
            assert!(profile.commit.iter().all(|cost| !cost.is_empty()));
            let cannot_load = matches!(profile.load, LoadPath::None(_));
            let cannot_discover = matches!(profile.discovery, Discovery::None(_));
            assert!(
                !(cannot_load || cannot_discover) || !profile.limits.is_empty(),
                "{engine} says what it cannot"
            );
        }
    }

    /// A question without its placeholder would ask about everything.
    #[test]
    fn questions_name_what_they_ask_about() {
        for engine in Engine::ALL {
            let Discovery::Catalog(catalog) = engine.profile().discovery else { continue };
            let names = |sql: &str| ["{relation}", "{name}", "{table}"].iter().any(|word| sql.contains(word));
            assert!(names(catalog.table) && names(catalog.leaves), "{engine}");
            let (question, place) = match catalog.oracle {
                Oracle::Leaf(question) | Oracle::Code(question) => (question, "{keys}"),
                Oracle::Row(question) => (question, "{where}"),
            };
            assert!(question.contains(place), "{engine}");
        }
    }
}

//! How an engine, its nodes and the placement of rows are found.

use super::Own;

/// How an engine, its nodes and the placement of rows are found.
#[derive(Clone, Copy, Debug)]
pub enum Discovery {
    /// From PostgreSQL's own catalog: partitions, foreign tables.
    Native,
    /// Every node holds every row; the nodes are in the catalog of one of these replication systems.
    Copies(&'static [Replication]),
    /// From the engine's own catalog.
    Catalog(Catalog),
    /// Impossible over PostgreSQL's protocol, for this reason: the nodes come from a cluster file.
    None(&'static str),
}

/// A way of replicating every row to every node.
#[derive(Clone, Copy, Debug)]
pub struct Replication {
    /// Its name.
    pub name: &'static str,
    /// SQL: a boolean, whether it seems to be installed.
    pub sign: &'static str,
    /// Whether it is in use, if every role may query that but not the rest: a boolean, and as text the parts of
    /// roles that this session does not trust, which do not count.
    pub probe: Option<&'static str>,
    /// The nodes, with the columns of [`Catalog::nodes`].
    pub nodes: &'static str,
    /// What it makes for itself.
    pub own: &'static Own,
    /// SQL: its subscriptions, if they are not in PostgreSQL's catalog: `subscription`, as booleans `enabled` and `running`, the `slot` on the
    /// node that is followed, and that node as `source`: its key in `nodes`.
    pub subscriptions: Option<&'static str>,
    /// Which tables a subscription brings, where it names sets of them.
    pub sets: Option<&'static Sets>,
    /// SQL that replicates a table whose rows every node has already, unless it is replicated, where that is not done by publications. Placeholder:
    /// `{table}`, an expression for its oid.
    pub add_table: Option<&'static str>,
    /// SQL that takes a table out of what is replicated, where it could not be dropped otherwise. Placeholder as above.
    pub remove_table: Option<&'static str>,
    /// If it replicates a table from the moment at which it is created: the setting, given when a session begins, that keeps the session's writes
    /// on its node.
    pub local_writes: Option<(&'static str, &'static str)>,
    /// Updates and deletes of a table without a primary key are refused, or stay on their node, whatever its replica identity.
    pub needs_key: bool,
    /// What becomes of two nodes' writes of one row, where that differs from the profile's expectation.
    pub conflicts: Option<&'static str>,
}

/// The sets of tables that a node sends, and those that another one subscribes to.
#[derive(Clone, Copy, Debug)]
pub struct Sets {
    /// What a set is called.
    pub word: &'static str,
    /// SQL for the node that follows: the name of a subscription, and a set that it names.
    pub subscribed: &'static str,
    /// SQL for the node that is followed: a set, schema and name of a table in it, and in words what of the table is not sent (NULL: all of it is).
    pub sent: &'static str,
    /// SQL for the node that follows, if it keeps a list of what it takes: the name of a subscription, schema and name of a table.
    pub taken: Option<&'static str>,
}

impl Replication {
    /// Whether its nodes are a group that its own catalog lists: what is made on some of them alone stops the replication to the others for good.
    /// Subscriptions of PostgreSQL alone make no group.
    pub fn has_group(&self) -> bool {
        self.probe.is_none()
    }
}

/// The queries to an engine's own catalog. All results are text, by the simple protocol.
///
/// Placeholders: `{schema}`, `{table}` and `{relation}` (qualified and quoted) are string constants; `{name}` is the qualified
/// identifier; `{keys}` are the key's values, cast to their types.
#[derive(Clone, Copy, Debug)]
pub struct Catalog {
    /// SQL: a boolean, whether this is the engine. Objects that a plain role can create do not count: only members of the engine's
    /// extension, and what is in `pg_catalog`.
    pub sign: &'static str,
    /// One row per node: key (what leaves refer to), name, host, port, database (NULL: the same), role, whether it is the node that was queried,
    /// state (NULL: it works), connection string (instead of host and port), the role that chose the address if this session does not trust it, whether no
    /// client can enter there. The last three may be left out.
    pub nodes: &'static str,
    /// The key of the node through which tables are created, if only one can do that.
    pub coordinator: Option<&'static str>,
    /// Whether discovery connects to each node. False if nodes take no ordinary sessions.
    pub reach_nodes: bool,
    /// SQL for a node of a cluster file that is not its coordinator, where some nodes know nothing of the tables: a boolean, whether it is one of them.
    pub is_blind: Option<&'static str>,
    /// One row per key column: kind, column, type, hash function or operator class, whether its collation is deterministic, two numbers.
    /// The kind is one of [`Kind::NAMES`], anything else is the reason why only the server can route. Without rows there is no such table.
    pub table: &'static str,
    /// One row per leaf: schema and name on its node, the node's key, lower and upper bound, state (NULL: it works), the name that
    /// the oracle uses for it, object number.
    pub leaves: &'static str,
    /// Where an engine moves parts of tables between its nodes: one row per part of any table and its node, by their names.
    pub places: Option<&'static str>,
    /// SQL for the number of a key that the bounds of leaves are about, on the node of a leaf, where each leaf is a table that can be read there: then a
    /// verification reads every copy of every leaf. Placeholder: `{column}`, an identifier.
    pub part_hash: Option<&'static str>,
    /// Who decides where a key belongs.
    pub oracle: Oracle,
    /// What it makes for itself.
    pub own: &'static Own,
}

/// How the server computes the leaf of a key.
#[derive(Clone, Copy, Debug)]
pub enum Oracle {
    /// A query with `{keys}`; the result is the leaf's name in [`Catalog::leaves`].
    Leaf(&'static str),
    /// A query with `{keys}`; the result is a number within the leaf's bounds.
    Code(&'static str),
    /// A query with `{where}` about a row that exists; the result is the leaf's name. Keys without a row have none.
    Row(&'static str),
}

impl Oracle {
    /// The query.
    pub fn query(self) -> &'static str {
        let (Oracle::Leaf(query) | Oracle::Code(query) | Oracle::Row(query)) = self;
        query
    }
}

/// The rule from a key to its leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Ranges of a signed 32-bit hash (Citus).
    Hash32,
    /// Remainders of PostgreSQL's partition hash: bounds are remainder and modulus (Shardman).
    Remainder,
    /// Numbered segments (Greenplum); the operator class decides which hash.
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
    /// The words that [`Catalog::table`] has for them.
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

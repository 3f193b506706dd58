//! The distribution of rows over the nodes, the load path, and the connections of clients and nodes.

use std::fmt;

/// The distribution of rows over the nodes, and how tables are created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// One server holds every row. Standbys follow it.
    OneServer,
    /// Each partition is a table on one node and a foreign table on the others. pgfathom creates both, and reads each leaf on its owner.
    ForeignPartitions,
    /// Every node holds every row and takes writes.
    Copies(Copies),
    /// The engine distributes the rows of a table over its nodes.
    Spread(Spread),
}

impl Layout {
    /// Whether the rows of one table are on several nodes.
    pub fn is_spread(self) -> bool {
        matches!(self, Layout::ForeignPartitions | Layout::Spread(_))
    }

    /// Whether tables have to be created on each node, whose rows then reach the other nodes by publications.
    pub fn publishes(self) -> bool {
        matches!(self, Layout::Copies(Copies { ddl: Ddl::EachNode, .. }))
    }

    /// Whether a commit is one of all nodes, so that a client whose node is gone goes on at another one and misses nothing.
    pub fn commits_everywhere(self) -> bool {
        matches!(self, Layout::Copies(Copies { conflicts: Conflicts::Refused, .. }))
    }

    /// Whether conflicting writes of two nodes overwrite each other or stop replication.
    pub fn has_unresolved_conflicts(self) -> bool {
        matches!(self, Layout::Copies(Copies { conflicts: Conflicts::Unresolved, .. }))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::OneServer => f.write_str("one server holds every row; standbys follow it"),
            Layout::ForeignPartitions => {
                f.write_str("each partition is a table on one node and a foreign table on the others")
            }
            Layout::Copies(Copies { ddl, conflicts, .. }) => write!(
                f,
                "every node holds every row and takes writes; {}; {}",
                match ddl {
                    Ddl::EachNode => "tables are created on each node",
                    Ddl::Replicated => "the engine replicates DDL",
                },
                match conflicts {
                    Conflicts::Unresolved => "conflicting writes overwrite each other, or stop replication",
                    Conflicts::Refused => "of two conflicting writes one is refused",
                }
            ),
            Layout::Spread(Spread::ByItself) => f.write_str("the engine spreads the rows of every table"),
            Layout::Spread(Spread::Call { by_column, .. }) => {
                write!(f, "the engine spreads the rows of a table after `select {by_column}`")
            }
            Layout::Spread(Spread::Parameter(parameter)) => {
                write!(f, "the engine spreads the rows of a table created `with ({parameter})`")
            }
        }
    }
}

/// How nodes with the same rows keep them equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copies {
    /// Who creates tables on the other nodes.
    pub ddl: Ddl,
    /// What becomes of conflicting writes.
    pub conflicts: Conflicts,
    /// How it shows that a node has what another one has written.
    pub arrival: Arrival,
}

/// How nodes with the same rows show that a change has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// By the positions that logical replication slots have confirmed.
    Slots,
    /// By the change itself: its slots confirm positions only now and then.
    Rows,
}

/// Extensions without a profile that replicate a table from the moment at which it is created.
pub const REPLICATING_EXTENSIONS: &[&str] = &["bdr"];

/// Who creates a table on the other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ddl {
    /// The client, on each of them.
    EachNode,
    /// The engine.
    Replicated,
}

/// The result of two writes of the same row on two nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conflicts {
    /// The replicated one overwrites the other, or cannot be applied and stops replication.
    Unresolved,
    /// One of them is refused, or waits.
    Refused,
}

/// How a table is distributed by a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// It spreads every table.
    ByItself,
    /// By a function call after the table is created. The placeholders `{table}` and `{column}` stand inside string literals.
    Call {
        /// Spreads the rows by a column.
        by_column: &'static str,
        /// Keeps a whole copy on every node.
        whole: &'static str,
        /// The condition under which the engine has placed the table already. Placeholder: `{table}`, inside a string literal.
        unless: &'static str,
    },
    /// By a storage parameter of `create table`. Placeholder: `{column}`, inside a string literal.
    Parameter(&'static str),
}

impl Spread {
    /// The storage parameter of `create table`, if one is needed.
    pub fn parameter(self, column: &str) -> Option<String> {
        match self {
            Spread::Parameter(parameter) => Some(parameter.replace("{column}", &inside(column))),
            Spread::ByItself | Spread::Call { .. } => None,
        }
    }

    /// The statement to run after `create table`, if one is needed. Rows are placed by `column`; without one every node has a whole copy.
    pub fn statement(self, table: &str, column: Option<&str>) -> Option<String> {
        let Spread::Call { by_column, whole, unless } = self else { return None };
        let call = column.map_or(whole.to_owned(), |column| by_column.replace("{column}", &inside(column)));
        Some(format!("select {call} where not {unless}").replace("{table}", &inside(table)))
    }
}

/// A text as it stands inside a string literal.
fn inside(text: &str) -> String {
    text.replace('\'', "''")
}

/// Which nodes take client connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryPoints {
    /// The primary; standbys for reading.
    Primary,
    /// Every node that owns rows, unless its role is [`connect::cluster_file::Role::Worker`]: behind a coordinator.
    EveryNode,
    /// The coordinator.
    Coordinator,
}

impl fmt::Display for EntryPoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EntryPoints::Primary => "the primary; standbys for reading",
            EntryPoints::EveryNode => "every node",
            EntryPoints::Coordinator => "the coordinator",
        })
    }
}

/// How the bytes of a table on disk are found, as SQL about the table's oid, which stands for `{table}`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Of the table, without its indexes.
    pub table: &'static str,
    /// Of its indexes.
    pub indexes: &'static str,
}

impl Sizes {
    /// The functions of PostgreSQL, which ask the node that is queried.
    pub(crate) const OF_ONE_NODE: Sizes =
        Sizes { table: "pg_catalog.pg_table_size({table})", indexes: "pg_catalog.pg_indexes_size({table})" };

    /// Both as two columns of a query; `table` is an expression for the oid.
    pub fn columns(self, table: &str) -> String {
        let sum = |sql: &str| format!("coalesce(sum({}), 0)::bigint", sql.replace("{table}", table));
        format!("{}, {}", sum(self.table), sum(self.indexes))
    }
}

/// How the engine stores rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// As PostgreSQL does: pages of tables, indexes and TOAST, WAL, and vacuum.
    Pages,
    /// Otherwise, as the end of a sentence about the engine: what is computed from PostgreSQL's pages does not hold for it.
    Other(&'static str),
}

/// How bulk data gets in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadPath {
    /// COPY into each leaf on the node that owns it; each node's ledger has its own leaves.
    Leaves,
    /// COPY of all rows into each node separately, before the table is replicated; each node has its own ledger.
    EachNode,
    /// COPY into the table through an entry point, and the engine sends the rows to their nodes.
    Table,
    /// Not at all, for this reason.
    None(&'static str),
}

impl fmt::Display for LoadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LoadPath::Leaves => "COPY into each leaf on its owner",
            LoadPath::EachNode => "COPY into each node separately, before the table is replicated",
            LoadPath::Table => "COPY into the table through an entry point",
            LoadPath::None(reason) => reason,
        })
    }
}

/// Round trips between two nodes for one statement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KeyedTrips {
    /// A select of one row.
    pub select: f64,
    /// An update of one row.
    pub update: f64,
}

/// How the nodes connect to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeLinks {
    /// Standbys connect to their primary by `primary_conninfo`.
    Streaming,
    /// By foreign servers.
    ForeignServers,
    /// By subscriptions.
    Subscriptions,
    /// By the engine's own means.
    Own,
}

impl fmt::Display for NodeLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeLinks::Streaming => "streaming replication",
            NodeLinks::ForeignServers => "foreign servers",
            NodeLinks::Subscriptions => "subscriptions",
            NodeLinks::Own => "the engine's own connections",
        })
    }
}

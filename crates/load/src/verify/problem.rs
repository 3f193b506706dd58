//! Problems of a cluster besides its rows: its catalogs, its ledgers, its replication.

use std::fmt;

/// One thing that is wrong, with the node it is wrong on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Problem {
    /// The node has no partitioned table of the dataset: it is no entry to the rows.
    NoTable {
        /// The node.
        node: String,
    },
    /// The node's table has no partition for some keys: through this node their rows can neither be read nor written.
    NotAttached {
        /// The node.
        node: String,
        /// The leaf that is missing.
        leaf: String,
    },
    /// No node has the leaf as a table of its own.
    NoOwner {
        /// The leaf.
        leaf: String,
    },
    /// More than one node has the leaf as a table of its own: which rows a query returns depends on the node that runs it.
    TwoOwners {
        /// The leaf.
        leaf: String,
        /// The node that most others take for the owner.
        owner: String,
        /// The other one.
        other: String,
    },
    /// A node's catalog has the leaf somewhere else than it is.
    Misdirected {
        /// The node whose catalog is wrong.
        node: String,
        /// The leaf.
        leaf: String,
        /// Where that catalog points: a table on a node, or a server that is no node.
        catalogued: String,
        /// Where the leaf is.
        owner: String,
    },
    /// A node's catalog has leaves on a server that could not be looked at: whether it is their owner is unknown.
    UnknownServer {
        /// The node whose catalog has it.
        node: String,
        /// The foreign server.
        server: String,
        /// Its address there, as a cluster file can have it.
        address: String,
        /// The node that has the leaves.
        owner: String,
    },
    /// The role may not use the foreign servers of a node: what it returns of the rows of others is unknown.
    NoMapping {
        /// The node.
        node: String,
        /// The role.
        role: String,
        /// The servers.
        servers: Vec<String>,
    },
    /// A node's foreign table points at a table that is not there.
    Dangling {
        /// The node whose catalog points there.
        node: String,
        /// The leaf.
        leaf: String,
        /// The table that is not there.
        target: String,
    },
    /// The ledger of a node is missing, or has another dataset.
    OtherDataset {
        /// The node.
        node: String,
        /// What its ledger has.
        own: String,
        /// What those of the others have.
        others: String,
    },
    /// The ledger's chunks do not add up to the rows that were loaded.
    LedgerRows {
        /// Whose ledger, or all of them together.
        node: Option<String>,
        /// Rows by the ledger.
        ledger: u64,
        /// Rows that were loaded.
        rows: u64,
    },
    /// The ledger's chunks have the right number of rows, and not the right keys.
    LedgerChecksum {
        /// Whose ledger, or all of them together.
        node: Option<String>,
    },
    /// Chunks of the server's ledger have other checksums or bytes than their rows.
    LedgerChunks {
        /// The first of them.
        chunk: u64,
        /// How many there are.
        count: u64,
    },
    /// A table is not defined as the load made it, and its rows can be compared all the same.
    Definition {
        /// The node, in a cluster of several.
        node: Option<String>,
        /// The table.
        table: String,
        /// What is different.
        problem: String,
    },
    /// A node does not get what another one writes.
    NotReplicated {
        /// The node.
        node: String,
        /// Whose writes it does not get.
        source: String,
        /// The subscription that would bring them, and what is wrong with it; empty if there is none.
        why: String,
    },
    /// A subscription leads to a node, and does not bring it this table, or not as a whole.
    NotSent {
        /// The node.
        node: String,
        /// Whose writes it does not get.
        source: String,
        /// The table.
        table: String,
        /// Which sets are subscribed, and which have the table.
        why: String,
    },
    /// A node has what another one wrote so far, but its subscription does not work: what is written next does not arrive.
    Halted {
        /// The node.
        node: String,
        /// Whose writes it does not get any more.
        source: String,
        /// The subscription, and what is wrong with it.
        why: String,
    },
    /// The role may not read whether replication to a node works.
    HiddenStatus {
        /// The node.
        node: String,
        /// The replication system.
        system: String,
        /// The server's message.
        why: String,
    },
    /// A node has not applied what others had written when the verification began, although it was waited for.
    Behind {
        /// The node.
        node: String,
        /// Whose writes it lacks.
        source: String,
        /// How much of the source's log it has still to confirm.
        bytes: u64,
        /// How long it was waited for, in seconds.
        waited_s: u64,
        /// What else the servers say about it.
        why: String,
    },
}

impl Problem {
    /// Whether it leaves open if something is wrong with the rows: a node that is behind may still catch up, and one whose subscription has stopped
    /// may lack what is written now.
    pub fn is_doubt(&self) -> bool {
        self.is_of_time() || matches!(self, Problem::UnknownServer { .. } | Problem::NoMapping { .. })
    }

    /// Whether it may explain rows that a node lacks: they may still arrive.
    pub fn is_of_time(&self) -> bool {
        matches!(self, Problem::Behind { .. } | Problem::Halted { .. } | Problem::HiddenStatus { .. })
    }

    /// A word for the kind, for scripts.
    pub fn kind(&self) -> &'static str {
        match self {
            Problem::NoTable { .. } => "no table",
            Problem::NotAttached { .. } => "leaf not attached",
            Problem::NoOwner { .. } => "leaf without owner",
            Problem::TwoOwners { .. } => "leaf with two owners",
            Problem::Misdirected { .. } => "leaf misdirected",
            Problem::UnknownServer { .. } => "server not recognised",
            Problem::NoMapping { .. } => "foreign tables not readable",
            Problem::Dangling { .. } => "foreign table without target",
            Problem::OtherDataset { .. } => "ledger of another dataset",
            Problem::LedgerRows { .. } => "ledger with another number of rows",
            Problem::LedgerChecksum { .. } | Problem::LedgerChunks { .. } => "ledger with other keys",
            Problem::Definition { .. } => "table defined otherwise",
            Problem::NotReplicated { .. } => "node not replicated to",
            Problem::NotSent { .. } => "table not replicated",
            Problem::Halted { .. } => "replication stopped",
            Problem::HiddenStatus { .. } => "replication not readable",
            Problem::Behind { .. } => "node behind",
        }
    }

    /// Whether it is about where tables are, about ledgers, how tables are defined, or about replication: the names of the
    /// four checks.
    pub fn check(&self) -> &'static str {
        match self {
            Problem::OtherDataset { .. }
            | Problem::LedgerRows { .. }
            | Problem::LedgerChecksum { .. }
            | Problem::LedgerChunks { .. } => "ledger",
            Problem::Behind { .. }
            | Problem::Halted { .. }
            | Problem::HiddenStatus { .. }
            | Problem::NotReplicated { .. }
            | Problem::NotSent { .. } => "replication",
            Problem::Definition { .. } | Problem::NoMapping { .. } => "definition",
            _ => "placement",
        }
    }

    /// The node to look at, when it is one.
    pub fn node(&self) -> Option<&str> {
        match self {
            Problem::NoTable { node }
            | Problem::NotAttached { node, .. }
            | Problem::Misdirected { node, .. }
            | Problem::UnknownServer { node, .. }
            | Problem::NoMapping { node, .. }
            | Problem::Dangling { node, .. }
            | Problem::OtherDataset { node, .. }
            | Problem::NotReplicated { node, .. }
            | Problem::NotSent { node, .. }
            | Problem::Halted { node, .. }
            | Problem::HiddenStatus { node, .. }
            | Problem::Behind { node, .. }
            | Problem::TwoOwners { other: node, .. } => Some(node),
            Problem::LedgerRows { node, .. }
            | Problem::LedgerChecksum { node }
            | Problem::Definition { node, .. } => node.as_deref(),
            Problem::NoOwner { .. } | Problem::LedgerChunks { .. } => None,
        }
    }
}

impl Problem {
    /// What could not be looked at, and what to do.
    fn write_unseen(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::UnknownServer { node, server, address, owner } => write!(
                f,
                "the catalog of {node} has leaves of {owner} on the server {server}, and whether that is {owner} could not be determined: if it is, add \
                 also = [\"{address}\"] to the [[node]] {owner} of the cluster file"
            ),
            Problem::NoMapping { node, role, servers } => write!(
                f,
                "on {node}: this role has no user mapping for the foreign servers {}: what {node} returns of the rows there is unknown; CREATE USER MAPPING \
                 FOR {} there, or verify as the role that loaded (-U)",
                servers.join(", "),
                connect::sql::identifier(role)
            ),
            _ => Ok(()),
        }
    }
}

/// One line: the node or the leaf first, because that is what people search for.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ledger = |node: &Option<String>| match node {
            Some(node) => format!("the ledger of {node}"),
            None => "the ledgers of all nodes together".to_owned(),
        };
        match self {
            Problem::NoTable { node } => write!(f, "{node} has no table of the dataset"),
            Problem::NotAttached { node, leaf } => {
                write!(f, "{leaf} is not a partition on {node}: its rows cannot be reached through that node")
            }
            Problem::NoOwner { leaf } => write!(f, "{leaf} is not a table on any node"),
            Problem::TwoOwners { leaf, owner, other } => {
                write!(f, "{leaf} is a table on {other} as well as on {owner}")
            }
            Problem::Misdirected { node, leaf, catalogued, owner } => {
                write!(f, "{leaf}: the catalog of {node} points to {catalogued}, but it is on {owner}")
            }
            Problem::UnknownServer { .. } | Problem::NoMapping { .. } => self.write_unseen(f),
            Problem::Dangling { node, leaf, target } => {
                write!(f, "{leaf}: the catalog of {node} points to {target}, but there is no such table")
            }
            Problem::OtherDataset { node, own, others } => {
                write!(f, "the ledger of {node} has {own}, but the others have {others}")
            }
            Problem::LedgerRows { node, ledger: in_ledger, rows } => {
                write!(f, "{} counts {in_ledger} loaded rows instead of {rows}", ledger(node))
            }
            Problem::LedgerChecksum { node } => {
                write!(f, "{} has the right number of rows, but not the right keys", ledger(node))
            }
            Problem::LedgerChunks { chunk, count } => {
                let more = if *count > 1 { format!(" and {} more", count - 1) } else { String::new() };
                write!(f, "the ledger's checksum or bytes of chunk {chunk}{more} do not match its rows")
            }
            Problem::Definition { node: Some(node), table, problem } => {
                write!(f, "{table} on {node}: {problem}")
            }
            Problem::Definition { node: None, table, problem } => write!(f, "{table}: {problem}"),
            Problem::NotReplicated { node, source, why } if why.is_empty() => {
                write!(f, "{node} has no subscription to the writes of {source}")
            }
            Problem::NotReplicated { node, source, why } | Problem::Halted { node, source, why } => {
                write!(f, "{node} does not get what {source} writes: {why}")
            }
            Problem::NotSent { node, source, table, why } => {
                write!(f, "{node} does not get what {source} writes to {table}: {why}")
            }
            Problem::HiddenStatus { node, system, why } => {
                write!(
                    f,
                    "this role may not read the state of {system} on {node} ({why}): whether {node} gets what the others write is unknown; \
                     connect as a role that may (-U)"
                )
            }
            Problem::Behind { node, source, bytes, waited_s, why } => {
                write!(f, "{node} still lacks {bytes} bytes of what {source} wrote, after {waited_s} s")?;
                if why.is_empty() { Ok(()) } else { write!(f, ": {why}") }
            }
        }
    }
}

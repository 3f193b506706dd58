//! The errors of a load. Their messages name the flag, the table, or the server's own message.

mod hint;

use std::error::Error;
use std::time::Duration;

use connect::ConnectError;
use wire::backend::ProtocolError;
use wire::error::{ServerError, SqlState};

/// Why a load did not complete. The target is exact in every case: what is committed is in the ledger.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// An option that cannot be.
    #[error("{flag}: {problem}")]
    Option {
        /// The flag as the user types it.
        flag: &'static str,
        /// What is wrong with its value.
        problem: String,
        /// What to type instead.
        hint: String,
    },
    /// No connection.
    #[error(transparent)]
    Connect(Box<ConnectError>),
    /// The connection broke outside of what is repeated.
    #[error("{doing}: the connection to the server was lost")]
    Lost {
        /// What it was used for.
        doing: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The server was lost and did not come back.
    #[error("the connection to the server was lost and not restored within {} s ({attempts} attempts)", waited.as_secs())]
    ServerLost {
        /// How long it was waited for.
        waited: Duration,
        /// How often a connection was tried.
        attempts: u32,
        /// The error of the last attempt.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The server answers, but another node, which it needs, does not.
    #[error("another node of the cluster was away and did not come back within {} s ({attempts} attempts)", waited.as_secs())]
    NodeAway {
        /// How long it was waited for.
        waited: Duration,
        /// How often the work was tried.
        attempts: u32,
        /// The error of the last attempt, which names the node.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A statement of the control connection failed.
    #[error("{doing} failed")]
    Sql {
        /// What the statement was for.
        doing: String,
        /// The server's error.
        source: postgres::Error,
    },
    /// A statement of a loading stream failed.
    #[error("{doing} failed")]
    Stream {
        /// What the stream was at: a chunk, a leaf.
        doing: String,
        /// The server's error.
        source: Box<ServerError>,
    },
    /// A chunk failed again and again with an error that another attempt should have cured.
    #[error("{doing} failed {attempts} times")]
    TooManyAttempts {
        /// What the stream was at.
        doing: String,
        /// How often.
        attempts: u32,
        /// What happened the last time.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The server's disk is full.
    #[error("the server's disk is full ({done} of {total} chunks are committed)")]
    DiskFull {
        /// Chunks in the ledger.
        done: u64,
        /// Chunks of the dataset.
        total: u64,
        /// The server's error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The server answered something that is not the protocol.
    #[error("{doing}: the server violated the protocol")]
    Protocol {
        /// What the stream was at.
        doing: String,
        /// In which way.
        source: ProtocolError,
    },
    /// The server took another number of rows than it was sent.
    #[error("{doing}: {sent} rows were sent, but the server counted {counted}")]
    RowCount {
        /// What the stream was at.
        doing: String,
        /// Rows sent.
        sent: u64,
        /// Rows that the server reported.
        counted: u64,
    },
    /// A relation of a name we need is not ours.
    #[error("{name} exists and is a {kind} that pgfathom did not make")]
    ForeignTable {
        /// Its name without the schema.
        name: String,
        /// Table, view, ...
        kind: &'static str,
        /// Whether `--force` may drop it.
        droppable: bool,
    },
    /// Every table is replicated from the moment it is created.
    #[error(
        "the extension {extension} replicates each table at once: rows that are loaded on every node separately would be duplicated"
    )]
    ReplicatesAll {
        /// The extension.
        extension: String,
    },
    /// The nodes to be loaded are some of a group whose others would not have the tables.
    #[error(
        "the server is part of a group of {system} with {nodes} nodes, and {named} of them would be loaded: replication to the others would stop for good"
    )]
    PartOfGroup {
        /// The replication system.
        system: &'static str,
        /// The nodes in its catalog.
        nodes: usize,
        /// The nodes that take writes in the cluster.
        named: usize,
    },
    /// A relation of a name we need belongs to another dataset.
    #[error("{name} is a table of the dataset {dataset}, which this dataset needs as well")]
    TableOfOther {
        /// Its name without the schema.
        name: String,
        /// The other dataset.
        dataset: String,
    },
    /// A schema `pgfathom` that is not a ledger.
    #[error("the schema pgfathom exists, but is not a ledger of pgfathom")]
    ForeignSchema {
        /// Whether it has no tables, as on a node whose coordinator has them.
        is_empty: bool,
    },
    /// A ledger of another version.
    #[error("the ledger in schema pgfathom has version {found}, but this program uses version {known}")]
    LedgerVersion {
        /// Version in the target.
        found: u32,
        /// Version of this program.
        known: u32,
    },
    /// The ledger holds a value that no pgfathom writes.
    #[error("the ledger is damaged: pgfathom.{table}.{column} has a value that pgfathom does not write")]
    DamagedLedger {
        /// Table of the ledger.
        table: &'static str,
        /// Its column.
        column: &'static str,
    },
    /// The dataset in the target is another one.
    #[error(
        "the dataset {dataset} in this database has {what} {existing}, but this load specifies {requested}"
    )]
    OtherDataset {
        /// Its name.
        dataset: String,
        /// What differs: `seed`, `rows`, ...
        what: &'static str,
        /// Value in the ledger.
        existing: String,
        /// The value of this load.
        requested: String,
        /// The flags that match what is there.
        matching: String,
    },
    /// The ledger knows the dataset, but a table of it is gone or was changed.
    #[error("{table}: {problem}, although the ledger records it as made by a load")]
    ChangedTable {
        /// Name of the table.
        table: String,
        /// What is different.
        problem: String,
    },
    /// A table or schema whose owner could run code with this session's rights.
    #[error(
        "{object} belongs to the role {owner}, which this session does not trust: code that {owner} attaches to it would run with the rights of this session"
    )]
    NotTrusted {
        /// The table or schema.
        object: String,
        /// Its owner.
        owner: String,
    },
    /// Something attached to a table calls code of another role.
    #[error(
        "{table}: {what}, which belongs to the role {owner} and would run with the rights of this session"
    )]
    ForeignCode {
        /// The table.
        table: String,
        /// What it is and what it calls.
        what: String,
        /// Whose that is.
        owner: String,
    },
    /// What is made or dropped in this database runs code of another role.
    #[error("{0}")]
    EventTrigger(engines::trust::EventTrigger),
    /// Names in something attached to a table can become code of another role.
    #[error("{}", engines::trust::open_path(&format!("{table}: {what}"), owner))]
    OpenPath {
        /// The table.
        table: String,
        /// What it is, what it calls and where that looks names up.
        what: String,
        /// Who may make objects there.
        owner: String,
    },
    /// A trigger or a rule on a table that is filled.
    #[error("{table} has {what}, which pgfathom did not make")]
    Attached {
        /// The table.
        table: String,
        /// The trigger or rule.
        what: String,
    },
    /// A rule that replaces what is written to a table.
    #[error("the rule {rule} of {table} replaces what is written to it (DO INSTEAD)")]
    Rewritten {
        /// The table.
        table: String,
        /// The rule.
        rule: String,
    },
    /// A right with which a role can attach code to a table at any time.
    #[error("{}", engines::trust::may_attach(table, right, owner))]
    MayAttach {
        /// The table.
        table: String,
        /// The right.
        right: String,
        /// Who has it; `public`: everybody.
        owner: String,
    },
    /// A name that should be a table's.
    #[error("{name} is a {kind}, not a table")]
    NotATable {
        /// Schema and name.
        name: String,
        /// What it is.
        kind: String,
    },
    /// A table that has another name or schema by now.
    #[error("{table} is not where the load made it: it is now {now}")]
    MovedTable {
        /// Its name then.
        table: String,
        /// Schema and name now.
        now: String,
    },
    /// Policies hide rows from this role.
    #[error("{table}: row-level security applies to this role")]
    RowSecurity {
        /// The table.
        table: String,
    },
    /// The ledger contradicts itself.
    #[error("the ledger of the dataset {dataset} is inconsistent: {problem}")]
    Contradiction {
        /// The dataset.
        dataset: String,
        /// In which way.
        problem: String,
    },
    /// Nowhere to create a table: no schema of the search path exists.
    #[error("there is no schema for new tables: search_path has none that exists")]
    NoSchema,
    /// The client's partition routing disagrees with the server's.
    #[error(
        "the server routes keys to other partitions than this program computes ({wrong} of {tried} keys, the first is \"{key}\")"
    )]
    Routing {
        /// Keys on which the two disagree.
        wrong: u64,
        /// Keys tried.
        tried: u64,
        /// One of them.
        key: String,
    },
    /// Another load started the dataset over while this one ran.
    #[error("another pgfathom restarted the load of this dataset")]
    Restarted,
    /// Something failed on one node of several.
    #[error("node {node} failed")]
    Node {
        /// Its name in the cluster file.
        node: String,
        /// What failed there.
        source: Box<LoadError>,
    },
    /// A node with a ledger of its own is away.
    #[error("the ledger of node {node} cannot be read, and a run that writes is recorded on every node")]
    LedgerAway {
        /// Its name in the cluster file.
        node: String,
        /// What the attempt met.
        source: Box<LoadError>,
    },
    /// An engine that this program cannot fill.
    #[error("load does not support clusters of the engine {engine}")]
    Engine {
        /// Which.
        engine: engines::Engine,
    },
    /// A cluster file without a node that takes writes.
    #[error("load cannot fill a cluster of standbys alone")]
    OnlyStandbys,
    /// The catalogs of the nodes do not agree on where a leaf is.
    #[error("{leaf} {problem}")]
    Placement {
        /// The leaf table.
        leaf: String,
        /// Where the catalog has it.
        problem: String,
    },
    /// A node does not know another one.
    #[error("node {node} has no foreign server for {other}")]
    NoServer {
        /// The node.
        node: String,
        /// The other one.
        other: String,
    },
    /// The ledgers of the nodes belong to different loads.
    #[error("the nodes hold different datasets: {one} and {other} were not made by the same load")]
    MixedCluster {
        /// A node.
        one: String,
        /// One that differs.
        other: String,
    },
    /// A crash of the server has emptied unlogged tables.
    #[error("the server has crashed and emptied the dataset's unlogged tables")]
    Emptied,
    /// A leaf and its index are in different tablespaces.
    #[error("{table} is in tablespace {its}, its index {index} in {index_in}")]
    SplitTablespace {
        /// The table.
        table: String,
        /// Its tablespace.
        its: String,
        /// The index.
        index: String,
        /// The index's tablespace.
        index_in: String,
    },
    /// A publication carries the table before it is filled.
    #[error(
        "publication {publication} already contains the table, so the loaded rows would also be replicated"
    )]
    Published {
        /// Its name.
        publication: String,
    },
    /// A subscriber does not keep up.
    #[error("the subscriber of replication slot {slot} has not read what was written {} s ago", waited.as_secs())]
    Behind {
        /// The slot on this node.
        slot: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The free space that a stop rule is about cannot be watched.
    #[error("--keep-free: the free space of {node} cannot be monitored")]
    Unwatchable {
        /// The server.
        node: String,
        /// What was tried last.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The user stopped it while another node did not answer.
    #[error("interrupted while {what}: another node does not answer ({away})")]
    NotAwaited {
        /// What needed the node.
        what: String,
        /// What the server reported about it.
        away: String,
    },
    /// The user stopped it before anything was done.
    #[error("interrupted before anything was done")]
    Interrupted,
    /// Every run number is used.
    #[error("all {runs} run numbers of this dataset are used: values cannot record another writer")]
    WritersExhausted {
        /// How many there are.
        runs: u32,
    },
    /// Another session holds the table of runs for long.
    #[error("another session holds a lock on pgfathom.writer: no run can be registered")]
    WritersBusy,
    /// The mark of a run is a transaction that stays open, and a pool of one server connection has none beside it.
    #[error(
        "the connection pooler before the server had no server connection for a second session within {seconds} s: a run that writes keeps one until its end"
    )]
    PoolOfOne {
        /// How long it was waited for.
        seconds: u64,
    },
    /// A session that cannot be a loader has a lock that keeps loaders apart.
    #[error("{holder} has the lock for {what}, and its role cannot load: it is no pgfathom that loads")]
    LockTaken {
        /// What the lock is for.
        what: &'static str,
        /// Who has it.
        holder: String,
        /// The statement that ends its session.
        remedy: String,
    },
    /// A run is on.
    #[error(
        "run {run_no} is writing into {dataset} (server process {pid} holds its lock); nothing was changed"
    )]
    RunActive {
        /// What it writes into.
        dataset: String,
        /// Its number.
        run_no: u16,
        /// The server's process of the connection that shows that it is on.
        pid: i32,
    },
    /// Two ledgers of a cluster have different runs under one number.
    #[error("the nodes' ledgers disagree about run {run_no}: they have different runs under that number")]
    TwoWriters {
        /// The number.
        run_no: u16,
    },
}

impl LoadError {
    pub(crate) fn sql(doing: impl Into<String>, source: postgres::Error) -> LoadError {
        LoadError::Sql { doing: doing.into(), source }
    }

    pub(crate) fn connect(source: ConnectError) -> LoadError {
        LoadError::Connect(Box::new(source))
    }

    /// The same error with the name of its node; unchanged without a name.
    pub(crate) fn at(self, node: &str) -> LoadError {
        match self {
            error if node.is_empty() => error,
            error @ LoadError::Node { .. } => error,
            error => LoadError::Node { node: node.to_owned(), source: Box::new(error) },
        }
    }

    /// The error itself, without the node.
    pub fn innermost(&self) -> &LoadError {
        match self {
            LoadError::Node { source, .. } => source.innermost(),
            error => error,
        }
    }

    /// The same error, as a full disk if it is one.
    pub(crate) fn or_disk_full(self, done: u64, total: u64) -> LoadError {
        match self {
            LoadError::DiskFull { source, .. } => LoadError::DiskFull { done, total, source },
            LoadError::Sql { source, .. } if sqlstate_of(&source) == Some(SqlState::DISK_FULL) => {
                LoadError::DiskFull { done, total, source: Box::new(source) }
            }
            LoadError::Node { node, source } => source.or_disk_full(done, total).at(&node),
            error => error,
        }
    }

    /// Whether the server went away and the same may work when it is back.
    pub(crate) fn is_connection_lost(&self) -> bool {
        match self {
            LoadError::Connect(error) => error.is_transient(),
            LoadError::Lost { .. } => true,
            LoadError::Node { source, .. } | LoadError::LedgerAway { source, .. } => {
                source.is_connection_lost()
            }
            LoadError::Stream { source, .. } => source.sqlstate.ends_session() || source.is_fatal(),
            // FATAL ends a session whatever its code: a limit of time for the session or the transaction has codes of its own.
            LoadError::Sql { source, .. } => match connect::control::server_error(source) {
                Some(error) => {
                    error.sqlstate.ends_session() || error.sqlstate.0.starts_with(b"08") || error.is_fatal()
                }
                None => {
                    source.is_closed() || source.source().is_some_and(|cause| cause.is::<std::io::Error>())
                }
            },
            _ => false,
        }
    }

    /// Whether the server itself answers, and reports that another node does not. `lost`: the engine's SQLSTATE values for that.
    pub(crate) fn is_node_away(&self, lost: &[&str]) -> bool {
        match self {
            LoadError::Node { source, .. } => source.is_node_away(lost),
            LoadError::Sql { source, .. } => connect::control::server_error(source).is_some_and(|error| {
                !error.is_fatal() && is_of_absent_node(error.sqlstate, &error.message, lost)
            }),
            LoadError::Stream { source, .. } => {
                !source.is_fatal() && is_of_absent_node(source.sqlstate, &source.message, lost)
            }
            _ => false,
        }
    }

    /// Whether an attempt to connect may succeed later: the server is away, or answers while it is no part of its cluster yet.
    pub(crate) fn may_come_back(&self, lost: &[&str]) -> bool {
        self.is_connection_lost() || self.is_node_away(lost)
    }

    /// The message of the server, or its own.
    pub(crate) fn reason(&self) -> String {
        match self.innermost() {
            LoadError::Sql { source, .. } => connect::control::server_error(source)
                .map_or_else(|| source.to_string(), |error| error.message.clone()),
            LoadError::Stream { source, .. } => source.message.clone(),
            error => error.to_string(),
        }
    }

    /// Whether the server refuses a connection because it has too many (class 53, insufficient resources).
    pub(crate) fn is_no_room(&self) -> bool {
        self.sqlstate().is_some_and(|state| state.0.starts_with(b"53"))
    }

    /// The server's SQLSTATE, if there is one.
    pub fn sqlstate(&self) -> Option<SqlState> {
        match self {
            LoadError::Connect(error) => <[u8; 5]>::try_from(error.sqlstate()?.as_bytes()).ok().map(SqlState),
            LoadError::Sql { source, .. } => sqlstate_of(source),
            LoadError::Stream { source, .. } => Some(source.sqlstate),
            LoadError::DiskFull { .. } => Some(SqlState::DISK_FULL),
            LoadError::Node { source, .. } | LoadError::LedgerAway { source, .. } => source.sqlstate(),
            _ => None,
        }
    }
}

/// Parts of the messages with which a node refuses a connection of another node.
const REFUSALS: [&str; 5] = [
    "no password supplied",
    "password authentication failed",
    "authentication failed",
    "pg_hba.conf",
    "does not support SSL",
];

/// Whether a session that lives on reports with this SQLSTATE that another node is away: connection exceptions, and the codes with which that node
/// ended the session of this one.
pub(crate) fn is_of_absent_node(sqlstate: SqlState, message: &str, lost: &[&str]) -> bool {
    let code = &sqlstate.0;
    // A node that refuses its peer is there: waiting does not help.
    if REFUSALS.iter().any(|words| message.contains(words)) {
        return false;
    }
    code.starts_with(b"08")
        || [b"57P01", b"57P02", b"57P03"].contains(&code)
        || engines::profile::reports_lost_node(lost, sqlstate.as_str(), message)
}

/// The SQLSTATE of an error of the control connection.
pub(crate) fn sqlstate_of(error: &postgres::Error) -> Option<SqlState> {
    <[u8; 5]>::try_from(error.code()?.code().as_bytes()).ok().map(SqlState)
}

#[cfg(test)]
pub(crate) mod tests;

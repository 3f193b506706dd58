//! What collectors share: a small table of the nodes as they were at the last tick.
//!
//! The collector of a host reads here which server processes are active and where the data is; the collector of stacks
//! reads here about anomalies. Readers take a copy; no thread holds the lock while it reads from a server or a file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A server process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Process id on the server's machine.
    pub pid: u32,
    /// Kind of backend, as in `pg_stat_activity`.
    pub backend: String,
    /// The wait event, `Type:Event`; empty if it waits for nothing.
    pub wait: String,
    /// The statement that it is at work with, as the lines of waits name it.
    pub query_id: Option<String>,
}

/// A node at its last tick.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NodeState {
    /// When; 0 if never.
    pub t_us: u64,
    /// Whether it answered then.
    pub is_up: bool,
    /// Whether its processes run on this machine, in our view of process ids.
    pub is_local: bool,
    /// Whether our session shares its server process with others: a pooler is in between.
    pub is_pooled: bool,
    /// The main process of the server, where its socket names it: known before the server has answered anything.
    pub main: Option<u32>,
    /// The host it is reached at; a folder for a Unix socket.
    pub address: String,
    /// Its data directory, if it is visible.
    pub data_directory: Option<PathBuf>,
    /// Tablespaces outside of it: name and folder.
    pub tablespaces: Vec<(String, PathBuf)>,
    /// Processes that were active: client backends that run a statement, and other server processes that are not idle.
    pub active: Vec<Process>,
    /// The server processes of our own sessions, up to the limit.
    pub ours: Vec<u32>,
    /// How many there are.
    pub ours_count: u64,
    /// The server processes of all clients' sessions with their parallel workers, up to the limit; without that of the watch itself.
    pub backends: Vec<u32>,
    /// How many there are.
    pub backends_count: u64,
    /// Active client sessions.
    pub sessions_active: u64,
    /// Sessions that wait for a lock.
    pub sessions_blocked: u64,
    /// Sessions by kind of wait (`CPU` for none), the active ones only.
    pub waits: BTreeMap<String, u64>,
    /// Transactions per second in the last interval, committed and rolled back.
    pub transactions_per_s: f64,
    /// WAL per second in the last interval.
    pub wal_bytes_per_s: f64,
    /// Since the oldest transaction began.
    pub oldest_transaction_s: f64,
    /// The largest replay lag of a standby.
    pub replay_lag_bytes: u64,
}

/// The table.
#[derive(Debug, Default)]
pub struct Board {
    nodes: Mutex<BTreeMap<String, NodeState>>,
}

impl Board {
    /// An empty table.
    pub fn new() -> Board {
        Board::default()
    }

    /// Replaces the entry of a node.
    pub fn set(&self, node: &str, state: NodeState) {
        self.lock().insert(node.to_string(), state);
    }

    /// Changes the entry of a node.
    pub fn change(&self, node: &str, change: impl FnOnce(&mut NodeState)) {
        change(self.lock().entry(node.to_string()).or_default());
    }

    /// The entry of a node.
    pub fn node(&self, node: &str) -> Option<NodeState> {
        self.lock().get(node).cloned()
    }

    /// All nodes.
    pub fn nodes(&self) -> BTreeMap<String, NodeState> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, NodeState>> {
        // Entries are replaced as a whole or changed field by field, so none can be torn.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Faults: how they are injected into a cluster during a proof, and how they are undone.
//!
//! Every fault is probed before it is promised ("not possible here" is an answer with a reason), written into the [`journal`] before it is
//! injected, and undone at the end in any case, by this process or by the next `prove --heal`. Only servers of `up` and of `--local` get faults, or those
//! that the user has explicitly allowed; the proxy and an orphaned transaction affect only our own sessions.

pub mod disk;
pub mod journal;
pub mod links;
mod manager;
mod mount;
pub mod plan;
pub mod proxy;
pub mod site;

use std::fmt;
use std::time::Duration;

pub use disk::Disk;
pub use journal::{Journal, Undo};
pub use links::Links;
pub use plan::{Plan, PlanError, Step};
pub use proxy::Proxy;
pub use site::{Happened, Node, QuietError, Site};

/// A fault that can be injected into a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// SIGKILL to every process. Written data stays in the page cache: this tests recovery, not fsync.
    Kill,
    /// The same to the node's failover manager, too: as when the host is lost.
    Crash,
    /// SIGSTOP to every process, those of a failover manager included: the node neither answers nor leaves.
    Pause,
    /// A fast stop and a start.
    Restart,
    /// A standby is made the primary.
    Promote,
    /// The failover manager is requested to make another node the primary.
    Switchover,
    /// The store of the failover manager is killed.
    Store,
    /// The disk is cut off, the processes are killed, the file system is mounted again: unsynced data is lost.
    Power,
    /// The disk of the data directory is filled to the last block.
    Full,
    /// No data passes between the node and the other nodes, while clients still reach it.
    Partition,
    /// Every connection through the proxy is closed; new ones are accepted.
    Cut,
    /// The proxy forwards nothing in either direction and closes no connection; data sent in that time arrives afterwards.
    Blackhole,
    /// Nothing passes towards the server.
    BlackholeRequests,
    /// Nothing passes towards the client.
    BlackholeReplies,
    /// The proxy delays all data, in each direction.
    Delay(Duration),
    /// The proxy forwards at most this many bytes a second in each direction.
    Rate(u64),
    /// Every third reply to a COMMIT is not delivered: the connection is closed in its place.
    DropCommit,
    /// A transaction is prepared for two-phase commit, and never finished.
    Orphan,
}

impl Fault {
    /// All faults; those with a parameter have a typical one.
    pub const ALL: [Fault; 18] = [
        Fault::Kill,
        Fault::Crash,
        Fault::Pause,
        Fault::Restart,
        Fault::Promote,
        Fault::Switchover,
        Fault::Store,
        Fault::Power,
        Fault::Full,
        Fault::Partition,
        Fault::Cut,
        Fault::Blackhole,
        Fault::BlackholeRequests,
        Fault::BlackholeReplies,
        Fault::Delay(Duration::from_millis(50)),
        Fault::Rate(64 << 10),
        Fault::DropCommit,
        Fault::Orphan,
    ];

    /// Its word on the command line, without the parameter.
    pub fn word(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Crash => "crash",
            Fault::Pause => "pause",
            Fault::Restart => "restart",
            Fault::Promote => "promote",
            Fault::Switchover => "switchover",
            Fault::Store => "store",
            Fault::Power => "power",
            Fault::Full => "full",
            Fault::Partition => "partition",
            Fault::Cut => "cut",
            Fault::Blackhole => "blackhole",
            Fault::BlackholeRequests => "blackhole-requests",
            Fault::BlackholeReplies => "blackhole-replies",
            Fault::Delay(_) => "delay",
            Fault::Rate(_) => "rate",
            Fault::DropCommit => "drop-commit",
            Fault::Orphan => "orphan",
        }
    }

    /// What happens, for people.
    pub fn description(self) -> &'static str {
        match self {
            Fault::Kill => "kill -9",
            Fault::Crash => "server and failover manager killed",
            Fault::Pause => "all processes stopped (SIGSTOP)",
            Fault::Restart => "restart",
            Fault::Promote => "standby promoted",
            Fault::Switchover => "switchover",
            Fault::Store => "store of the failover manager killed",
            Fault::Power => "power cut",
            Fault::Full => "disk full",
            Fault::Partition => "cut off from the other nodes",
            Fault::Cut => "connections cut",
            Fault::Blackhole => "network drops everything",
            Fault::BlackholeRequests => "network drops requests",
            Fault::BlackholeReplies => "network drops replies",
            Fault::Delay(_) => "network delay",
            Fault::Rate(_) => "slow network",
            Fault::DropCommit => "replies to COMMIT dropped",
            Fault::Orphan => "orphaned two-phase commit",
        }
    }

    /// Whether it is injected between the client and the node, in our own proxy.
    pub fn needs_proxy(self) -> bool {
        matches!(
            self,
            Fault::Cut
                | Fault::Blackhole
                | Fault::BlackholeRequests
                | Fault::BlackholeReplies
                | Fault::Delay(_)
                | Fault::Rate(_)
                | Fault::DropCommit
        )
    }

    /// Whether the node's data must be on a separate disk.
    pub(crate) fn needs_disk(self) -> bool {
        matches!(self, Fault::Power | Fault::Full)
    }

    /// Whether it affects the server itself, not only our sessions.
    pub fn hurts_server(self) -> bool {
        !self.needs_proxy() && self != Fault::Orphan
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Fault::Delay(delay) => write!(f, "={}ms", delay.as_millis()),
            Fault::Rate(rate) => write!(f, "={rate}"),
            _ => Ok(()),
        }
    }
}

/// Why a fault could not be injected or undone.
#[derive(Debug, thiserror::Error)]
pub enum FaultError {
    /// A server did not do what was requested.
    #[error(transparent)]
    Local(#[from] lab::local::LocalError),
    /// A program of the system failed.
    #[error("{program} failed: {output}")]
    Program {
        /// Its name.
        program: &'static str,
        /// Its words.
        output: String,
    },
    /// A file could not be used.
    #[error("cannot {what} {path}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The server refused, or could not be reached.
    #[error(transparent)]
    Client(#[from] crate::client::ClientError),
    /// It cannot be done here.
    #[error("{fault} is not possible here: {why}")]
    NotPossible {
        /// What was requested.
        fault: Fault,
        /// Why not.
        why: String,
    },
}

impl FaultError {
    /// What the user can type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            FaultError::Local(error) => error.hint(),
            FaultError::Client(error) => error.hint(),
            FaultError::NotPossible { .. } => {
                Some("pgfathom prove --local KIND makes its own cluster of PostgreSQL for faults".to_owned())
            }
            FaultError::Program { .. } | FaultError::Io { .. } => {
                Some("remove what is left of it: pgfathom prove --heal".to_owned())
            }
        }
    }

    fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> FaultError {
        let path = path.display().to_string();
        move |source| FaultError::Io { what, path, source }
    }
}

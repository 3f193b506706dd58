//! Faults: what is done to a cluster while promises are watched, and how it is undone.
//!
//! Every fault is probed before it is promised ("not possible here" is an answer with a reason), written into the [`journal`] before it is
//! injected, and undone at the end whatever happens, by ourselves or by the next `prove --heal`. Only servers that `up` or we made are hurt, or what
//! the user has explicitly allowed; the proxy and an orphaned transaction touch nothing but our own sessions.

pub mod disk;
pub mod journal;
pub mod links;
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
pub use site::{Happened, Node, Site};

/// What can be done to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// SIGKILL to every process. What was written stays in the page cache: it proves recovery, not fsync.
    Kill,
    /// SIGSTOP to every process: the node neither answers nor leaves.
    Pause,
    /// A fast stop and a start.
    Restart,
    /// A standby is made the primary.
    Promote,
    /// The disk is cut off, the processes are killed, the file system is mounted anew: what was not synced is gone.
    Power,
    /// The disk of the data directory is filled to the last block.
    Full,
    /// Nothing passes between the node and the other nodes, while clients reach it as before.
    Partition,
    /// Every connection through the proxy is closed; new ones are taken.
    Cut,
    /// Nothing passes the proxy in either direction, and no connection is closed; what was sent arrives when it is over.
    Blackhole,
    /// Nothing passes towards the server.
    BlackholeRequests,
    /// Nothing passes towards the client.
    BlackholeReplies,
    /// Everything passes the proxy later, in each direction.
    Delay(Duration),
    /// No more than so many bytes a second pass the proxy in each direction.
    Rate(u64),
    /// Every third reply to a COMMIT is not delivered: the connection is closed in its place.
    DropCommit,
    /// A transaction is prepared for two-phase commit, and nobody ends it.
    Orphan,
}

impl Fault {
    /// Those without a parameter, with the others at a typical one.
    pub const ALL: [Fault; 15] = [
        Fault::Kill,
        Fault::Pause,
        Fault::Restart,
        Fault::Promote,
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
            Fault::Pause => "pause",
            Fault::Restart => "restart",
            Fault::Promote => "promote",
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
            Fault::Pause => "all processes stopped (SIGSTOP)",
            Fault::Restart => "restart",
            Fault::Promote => "standby promoted",
            Fault::Power => "power cut",
            Fault::Full => "disk full",
            Fault::Partition => "cut off from the other nodes",
            Fault::Cut => "connections cut",
            Fault::Blackhole => "network lets nothing through",
            Fault::BlackholeRequests => "network lets no request through",
            Fault::BlackholeReplies => "network lets no reply through",
            Fault::Delay(_) => "network delay",
            Fault::Rate(_) => "slow network",
            Fault::DropCommit => "replies to COMMIT dropped",
            Fault::Orphan => "orphaned two-phase commit",
        }
    }

    /// Whether it happens on the way between the client and the node, in our own proxy.
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

    /// Whether the node's data have to lie on a disk of their own.
    pub(crate) fn needs_disk(self) -> bool {
        matches!(self, Fault::Power | Fault::Full)
    }

    /// Whether it hurts the server itself, not only our sessions with it.
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
    /// A server did not do what it was told.
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
                Some("pgfathom prove --local KIND makes a cluster of its own that may be hurt".to_owned())
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

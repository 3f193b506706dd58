//! Requests to a probe and its replies.

use super::network::Listening;
use record::check::{Disk, Host, Memory, Pair, Processor};
use serde::{Deserialize, Serialize};

/// The version of these messages: a probe of another version is refused.
pub const PROTOCOL: u32 = 1;

/// What a probe is to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Measure a directory.
    Disk(DiskPlan),
    /// Read what the host is.
    Facts,
    /// Read the wall clock, at once.
    Clock,
    /// Measure the processor.
    Processor {
        /// For how long.
        time_ms: u64,
    },
    /// Measure the memory of every node.
    Memory {
        /// For how long, each test.
        time_ms: u64,
    },
    /// Listen for other probes, until the end.
    Listen,
    /// Measure the way to a probe that listens.
    Network {
        /// Its address.
        address: String,
        /// Its port and token.
        listening: Listening,
        /// For how long.
        time_ms: u64,
    },
}

impl Request {
    /// Whether this reply is one to this request: what a host sends is not trusted.
    pub(crate) fn is_answered_by(&self, reply: &Reply) -> bool {
        matches!(
            (self, reply),
            (_, Reply::Failed(_))
                | (Request::Disk(_), Reply::Disk(_))
                | (Request::Facts, Reply::Facts(_))
                | (Request::Clock, Reply::Clock { .. })
                | (Request::Processor { .. }, Reply::Processor(_))
                | (Request::Memory { .. }, Reply::Memory(_))
                | (Request::Listen, Reply::Listening(_))
                | (Request::Network { .. }, Reply::Network(_))
        )
    }
}

/// How a directory is measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskPlan {
    /// The directory; files are made only in a folder of our own below it.
    pub directory: String,
    /// It is the data directory of a database: the folder beside it is used, if that lies on the same file system.
    #[serde(default)]
    pub is_data: bool,
    /// Mount points that were measured for another data directory: a file system is not measured once for each server on it.
    #[serde(default)]
    pub measured_mounts: Vec<String>,
    /// The largest size of the file.
    pub size_bytes: u64,
    /// The time of each test.
    pub time_ms: u64,
    /// Bytes of one random operation.
    pub block_bytes: u64,
    /// Operations in flight, one test each.
    pub depths: Vec<u64>,
}

/// What it replies.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// First of all.
    Hello {
        /// Its version of these messages.
        protocol: u32,
        /// Its process.
        pid: u32,
    },
    /// A directory was measured, or refused.
    Disk(Box<Disk>),
    /// What the host is.
    Facts(Box<Host>),
    /// The wall clock.
    Clock {
        /// Microseconds since the Unix epoch.
        wall_us: u64,
    },
    /// The processor.
    Processor(Processor),
    /// Memory.
    Memory(Vec<Memory>),
    /// How to reach the listener.
    Listening(Listening),
    /// The way to another host.
    Network(Box<Pair>),
    /// It could not be done.
    Failed(String),
}

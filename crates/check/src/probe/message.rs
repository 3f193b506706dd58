//! Requests to a probe and its replies.

use record::check::Disk;
use serde::{Deserialize, Serialize};

/// The version of these messages: a probe of another version is refused.
pub const PROTOCOL: u32 = 1;

/// What a probe is to do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Measure a directory.
    Disk(DiskPlan),
}

/// How a directory is measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskPlan {
    /// The directory; files are made only in a folder of our own below it.
    pub directory: String,
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
    /// It could not be done.
    Failed(String),
}

//! Loads datasets into a target, and verifies their content.
//!
//! ```text
//! options -> schema (tables, ledger) -> streams (chunks: COPY + ledger row, one transaction each) -> keys -> statistics
//! ```
//!
//! The target is exact at every moment, even if the client, the network or the server fails: a chunk's rows and its ledger row are committed
//! together or not at all. So to continue a load means to load the chunks without a ledger row.

mod absent;
mod begin;
mod chunk_set;
mod connections;
mod contention;
mod coordinate;
mod copies;
mod copy;
pub mod dataset;
mod difference;
mod dispatch;
pub mod error;
mod fill;
mod finish;
mod freeze;
pub mod history;
mod index;
mod job;
pub mod ledger;
mod method;
mod node_sessions;
pub mod options;
mod pace;
mod peers;
mod place;
pub mod plan;
pub mod progress;
mod report;
pub mod route;
mod schema;
mod session;
mod shape;
mod shard;
mod space;
mod stream;
mod trust;
pub mod verify;
mod via;
mod wal;
mod watch;
pub mod writers;

// The unit tests load the table of YCSB. Its crate stands above this one and would bring a second copy of the types of this one.
#[cfg(test)]
extern crate self as load;
#[cfg(test)]
#[path = "../../workloads/src/ycsb/dataset/mod.rs"]
pub mod ycsb;

pub use begin::{check_cluster, load};
pub use dataset::Dataset;
pub use error::LoadError;
pub use options::{Deadline, Method, Options, Segment, Stop, StopLevel, Via};
pub use progress::{LoadEvent, Observer, Phase, Progress};
pub use report::{LoadReport, NodeReport, Outcome};
pub use wal::NodeWal;

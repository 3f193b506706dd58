//! Fill a target and prove what is in it.
//!
//! ```text
//! options -> schema (tables, ledger) -> streams (chunks: COPY + ledger row, one transaction each) -> keys -> statistics
//! ```
//!
//! Whatever happens to the client, the network or the server, the target is exact at every moment: a chunk's rows and its ledger row
//! are committed together or not at all, so continuing is nothing but loading the chunks that have no row.

mod copy;
mod dispatch;
pub mod error;
mod fill;
mod freeze;
mod index;
pub mod ledger;
pub mod options;
pub mod plan;
pub mod progress;
pub mod route;
pub mod rows;
mod schema;
mod session;
mod stream;
pub mod tpcc;
pub mod verify;
pub mod writers;

pub use error::LoadError;
pub use fill::{LoadReport, Outcome, load_ycsb};
pub use options::{Method, Options, Stop, StopLevel};
pub use progress::{LoadEvent, Observer, Phase, Progress};

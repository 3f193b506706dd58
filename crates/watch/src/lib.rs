//! Samples a system while it works: what the database's views say, what its log says, what the kernel counts.
//!
//! Nothing here drives load, and nothing may be felt by it: one thread and one connection per node, one thread per machine, one tick a
//! second. What a tick brings is a [`Batch`] of lines of [`record::watched`] and events; the [`Sampler`] writes them into a run
//! directory. Collectors learn from each other over the [`Board`] only (which processes are active, where the data lies).
//!
//! What cannot be seen is never guessed: columns are probed, and a privilege or file that is missing becomes a `missing` line that says
//! what can no longer be said.

pub mod board;
pub mod bundle;
pub mod collect;
pub mod collectors;
pub mod host;
pub mod live;
pub mod log;
pub mod machines;
mod meter;
pub mod perf;
pub mod sampler;
pub mod sql;
pub mod ssh;
pub mod stuck;

pub use board::Board;
pub use collect::{Batch, Collect, Place, Tick};
pub use sampler::{Options, Sampler, Totals};
pub use sql::Node;

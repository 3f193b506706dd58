//! Samples a system while it works: the database's views, its log, and the kernel's counters.
//!
//! It drives no load, and its own cost must be negligible: one thread and one connection per node, one thread per host, one tick a
//! second. Each tick returns a [`Batch`] of lines of [`record::watched`] and events; the [`Sampler`] writes them into a run
//! directory. Collectors share data only through the [`Board`] (which processes are active, where the data is).
//!
//! Nothing is guessed: columns are probed, and a missing privilege or file becomes a `missing` line that names
//! what is unknown without it.

pub mod board;
pub mod bundle;
pub mod collect;
pub mod collectors;
mod guarded;
pub mod host;
pub mod live;
pub mod log;
pub mod machines;
mod meter;
pub mod perf;
pub mod pooler;
pub mod sampler;
pub mod sql;
pub mod ssh;
pub mod stuck;
mod sys;

pub use board::Board;
pub use collect::{Batch, Collect, Place, Tick};
pub use sampler::{Options, Sampler, Totals};
pub use sql::{Node, Planning};

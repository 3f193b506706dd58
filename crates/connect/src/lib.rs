//! Connections to a target, by libpq's rules.
//!
//! Both planes connect through here. [`conninfo`] turns flags, connection strings, the environment, service and password files into
//! a [`ConnSpec`] exactly as libpq would; [`control`] and [`hot`] open it, with the same TLS, the same choice among several
//! hosts and the same errors, one for convenient queries, the other for the hot path's own protocol code. A [`cluster_file`] is a list of
//! such connections, one per node.

mod attempt;
pub mod cluster_file;
pub mod conninfo;
pub mod control;
mod ending;
pub mod hot;
pub mod os_user;
pub mod poll;
mod secret;
mod settings;
mod socket;
pub mod sql;
pub mod tls;
pub mod waiting;

pub use attempt::{Attempt, Cause, ConnectError, when_slow};
pub use conninfo::{ConnSpec, HostSpec};
pub use secret::Secret;
pub use settings::PoolerRefusal;

//! What is under test: connections by libpq's rules, placement, local clusters.
//!
//! Both planes connect through here. [`conninfo`] turns flags, connection strings, the environment, service and password files into
//! a [`ConnSpec`] exactly as libpq would; [`control`] and [`hot`] open it, with the same TLS, the same choice among several
//! hosts and the same errors, one for convenient queries, the other for the hot path's own protocol code.

mod catalog;
pub mod cluster;
mod connect;
pub mod conninfo;
pub mod control;
pub mod engine;
pub mod hash;
pub mod hot;
pub mod leftover;
pub mod local;
pub mod placement;
pub mod profile;
mod secret;
mod settings;
mod socket;
mod sys;
pub mod throwaway;
pub mod tls;
pub mod trust;
pub mod waiting;

pub use cluster::{Absent, Cluster, ClusterError, ClusterNode, Role, Survey};
pub use connect::{Attempt, Cause, ConnectError};
pub use conninfo::{ConnSpec, HostSpec};
pub use engine::Engine;
pub use placement::{Leaf, Placement, PlacementError};
pub use secret::Secret;
pub use settings::PoolerRefusal;

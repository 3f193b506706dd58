//! PostgreSQL on this host: its binaries, and clusters made from them.

mod busy;
mod cluster;
mod distance;
mod error;
mod fixed;
pub(crate) mod folder;
mod found;
mod http;
mod installation;
mod instance;
mod job;
mod patroni;
mod preset;
pub(crate) mod process;
mod registry;
mod relays;
pub(crate) mod seed;
mod server;
pub(crate) mod standby;
mod text;
pub(crate) mod topology;

pub use cluster::{
    Front, LocalCluster, Removed, UpOptions, default_dir, down, is_node_of_ours, is_ours, is_up, up,
};
pub use distance::Distances;
pub use error::LocalError;
pub use found::{Backend, Launch};
pub use installation::{Extension, Installation, Search, Version, find_installations, installations};
pub(crate) use instance::THROWAWAY_PRESET;
pub use instance::{Instance, Supervision, resume_in, signal_servers_in, start_store_of};
pub use patroni::{Managed, SynchronousMode, TTL_S_DEFAULT};
pub use preset::Preset;
pub use process::{StopMode, servers_in};
pub use registry::{Registry, state_dir};
pub use relays::{NodeWays, serve_relays};
pub(crate) use server::stop_for_good;
pub use topology::{
    CommitLevel, NODES_MAX, PARTITIONS_MAX, PARTITIONS_PER_NODE_DEFAULT, PUBLICATION, Replication,
    SyncStandbys, Topology, subscription,
};

//! Engines and clusters: the nodes of a target, the node of a key, and the abilities and guarantees of its engine.
//!
//! An engine is a [`profile`]: values, not branches. The catalog queries of all engines return the same columns, so one piece of code reads them.

mod catalog;
pub mod cluster;
pub mod directions;
pub mod engine;
pub mod hash;
pub mod lock;
pub mod placement;
pub mod profile;
pub mod sets;
pub mod trust;

pub use cluster::{Absent, Cluster, ClusterError, ClusterNode, ServerPlace, Survey};
pub use engine::Engine;
pub use placement::{Leaf, Placement, PlacementError};

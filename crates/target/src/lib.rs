//! What is under test: connections by libpq's rules, placement, local clusters.
//!
//! Both planes connect through here. [`conninfo`] turns flags, connection strings, the environment, service and password files into
//! a [`ConnSpec`] exactly as libpq would; [`control`] and [`hot`] open it, with the same TLS, the same choice among several
//! hosts and the same errors, one for convenient queries, the other for the hot path's own protocol code.

pub mod conninfo;
pub mod hash;
pub mod local;
mod secret;
mod sys;
pub mod throwaway;

pub use conninfo::{ConnSpec, HostSpec};
pub use secret::Secret;

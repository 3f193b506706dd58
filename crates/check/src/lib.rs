//! Preflight: what hosts and nodes give before a load or a run depends on them.
//!
//! `host` measures and reads hosts, `database` reads the settings, the schema and the state of a node. Both return [`record::check::Item`]s.

pub mod database;

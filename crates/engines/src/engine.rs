//! The engines that pgfathom knows. Each is one file: a [`Profile`], with its catalog queries and everything else that code needs to know about it.
//!
//! To add one: write `engine/NAME.rs`, register it in [`Engine::ALL`], and record its catalogs in `tests/catalogs/NAME.*.txt`. No other code names an engine.

mod citus;
mod cockroach;
mod detect;
mod fdw_sharded;
mod greenplum;
mod mtm;
mod multimaster;
mod postgres;
mod shardman;
mod ydb;
mod yugabyte;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::profile::Profile;

pub use detect::{Signs, replications, signs};

/// A kind of database. It derefs to its [`Profile`]: its abilities and promises.
#[derive(Clone, Copy)]
pub struct Engine(&'static Profile);

impl Engine {
    /// All of them, in the order of the documentation. If a catalog indicates two, the first one counts.
    pub const ALL: [Engine; 10] = [
        Engine(&postgres::PROFILE),
        Engine(&fdw_sharded::PROFILE),
        Engine(&citus::PROFILE),
        Engine(&mtm::PROFILE),
        Engine(&multimaster::PROFILE),
        Engine(&shardman::PROFILE),
        Engine(&greenplum::PROFILE),
        Engine(&cockroach::PROFILE),
        Engine(&yugabyte::PROFILE),
        Engine(&ydb::PROFILE),
    ];

    /// PostgreSQL servers that hold each other's partitions as foreign tables: recognised by its foreign servers, which [`crate::cluster`] reads itself.
    pub(crate) const FOREIGN_PARTITIONS: Engine = Engine(&fdw_sharded::PROFILE);

    /// The name in `cluster.toml` and in `run.json`.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The engine with this name or alias.
    pub fn parse(name: &str) -> Option<Engine> {
        Engine::ALL.into_iter().find(|engine| engine.name() == name || engine.aliases.contains(&name))
    }
}

/// An otherwise unknown server: PostgreSQL.
impl Default for Engine {
    fn default() -> Engine {
        Engine(&postgres::PROFILE)
    }
}

impl Deref for Engine {
    type Target = Profile;

    fn deref(&self) -> &Profile {
        self.0
    }
}

impl PartialEq for Engine {
    fn eq(&self, other: &Engine) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Engine {}

impl Hash for Engine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;

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
mod sets;
mod shardman;
mod ydb;
mod yugabyte;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::profile::{Case, Profile, Replication};

pub use detect::{Signs, is_spread, isolated, plain_schemas, replications, signs};
pub(crate) use detect::{known_replications, native_sets};

/// A kind of database. It derefs to its [`Profile`]: its abilities and promises.
#[derive(Clone, Copy)]
pub struct Engine {
    profile: &'static Profile,
    /// The replication system that discovery found, where a profile covers several.
    replication: Option<&'static Replication>,
}

impl Engine {
    const fn of(profile: &'static Profile) -> Engine {
        Engine { profile, replication: None }
    }

    /// An engine with this profile, as tests compare a wrong one with a server.
    pub const fn with_profile(profile: &'static Profile) -> Engine {
        Engine::of(profile)
    }

    /// The same, replicated by this system.
    pub(crate) fn replicated_by(self, replication: &'static Replication) -> Engine {
        Engine { replication: Some(replication), ..self }
    }

    /// What becomes of two nodes' writes of one row.
    pub fn conflict_rule(self) -> &'static str {
        let of_replication = self.replication.and_then(|replication| replication.conflicts);
        let of_profile = || self.profile.expectation(Case::Conflict).map(|expectation| expectation.why);
        of_replication.or_else(of_profile).unwrap_or("no promise was found")
    }

    /// All of them, in the order of the documentation. If a catalog indicates two, the first one counts.
    pub const ALL: [Engine; 10] = [
        Engine::of(&postgres::PROFILE),
        Engine::of(&fdw_sharded::PROFILE),
        Engine::of(&citus::PROFILE),
        Engine::of(&mtm::PROFILE),
        Engine::of(&multimaster::PROFILE),
        Engine::of(&shardman::PROFILE),
        Engine::of(&greenplum::PROFILE),
        Engine::of(&cockroach::PROFILE),
        Engine::of(&yugabyte::PROFILE),
        Engine::of(&ydb::PROFILE),
    ];

    /// PostgreSQL servers that hold each other's partitions as foreign tables: recognised by its foreign servers, which [`crate::cluster`] reads itself.
    pub(crate) const FOREIGN_PARTITIONS: Engine = Engine::of(&fdw_sharded::PROFILE);

    /// The name in `cluster.toml` and in `run.json`.
    pub fn name(self) -> &'static str {
        self.profile.name
    }

    /// The engine with this name or alias.
    pub fn parse(name: &str) -> Option<Engine> {
        Engine::ALL.into_iter().find(|engine| engine.name() == name || engine.aliases.contains(&name))
    }
}

/// An otherwise unknown server: PostgreSQL.
impl Default for Engine {
    fn default() -> Engine {
        Engine::of(&postgres::PROFILE)
    }
}

impl Deref for Engine {
    type Target = Profile;

    fn deref(&self) -> &Profile {
        self.profile
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

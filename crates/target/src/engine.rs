//! The kinds of target there are, by the names that `cluster.toml` and reports use.

use std::fmt;

/// What kind of database a cluster is. What each can do and what it promises is its [`crate::profile::Profile`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Engine {
    /// PostgreSQL: one server, or a primary with standbys.
    Postgres,
    /// PostgreSQL servers that hold each other's hash partitions as foreign tables of `postgres_fdw`.
    FdwSharded,
    /// Citus.
    Citus,
    /// Postgres Pro Shardman.
    Shardman,
    /// Greenplum and its kin: Arenadata DB, Greengage, Cloudberry.
    Greenplum,
    /// Every node holds and writes every row: logical replication both ways, pglogical, Spock, pgactive, Postgres Pro Multimaster.
    Multimaster,
    /// CockroachDB.
    Cockroach,
    /// YugabyteDB's YSQL.
    Yugabyte,
    /// YDB.
    Ydb,
}

impl Engine {
    /// All of them, in the order of the documentation.
    pub const ALL: [Engine; 9] = [
        Engine::Postgres,
        Engine::FdwSharded,
        Engine::Citus,
        Engine::Shardman,
        Engine::Greenplum,
        Engine::Multimaster,
        Engine::Cockroach,
        Engine::Yugabyte,
        Engine::Ydb,
    ];

    /// The name in `cluster.toml` and in `run.json`.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Postgres => "postgres",
            Engine::FdwSharded => "fdw-sharded",
            Engine::Citus => "citus",
            Engine::Shardman => "shardman",
            Engine::Greenplum => "greenplum",
            Engine::Multimaster => "multimaster",
            Engine::Cockroach => "cockroach",
            Engine::Yugabyte => "yugabyte",
            Engine::Ydb => "ydb",
        }
    }

    /// The engine of this name. The relatives of Greenplum are one engine, and so are the long and short names.
    pub fn parse(name: &str) -> Option<Engine> {
        match name {
            "arenadata" | "greengage" | "cloudberry" => Some(Engine::Greenplum),
            "cockroachdb" => Some(Engine::Cockroach),
            "yugabytedb" => Some(Engine::Yugabyte),
            _ => Engine::ALL.into_iter().find(|engine| engine.name() == name),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

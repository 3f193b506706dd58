//! YDB. Its PostgreSQL protocol is an experiment without bulk paths and without its own catalog: what cannot be done stands here.

use super::promise::short::{F, unless};
use super::{Arrangement, Discovery, Level, LoadPath, Profile, Promise, Setting, Support, Tried, View, Wire};
use crate::engine::Engine;

const NO_PGWIRE: &str = "partitions and their nodes are told over gRPC only (DescribeTable, ListEndpoints)";
const NO_BULK: &str =
    "there is no bulk load over PostgreSQL's protocol: rows come in by INSERT, or by BulkUpsert over gRPC";

pub(super) const PROFILE: Profile = Profile {
    engine: Engine::Ydb,
    title: "YDB",
    tried: Tried::Never,
    discovery: Discovery::None(NO_PGWIRE),
    entry: "every node of the pgwire front",
    load: LoadPath::None(NO_BULK),
    wire: Wire {
        copy: Support::No,
        copy_binary: Support::No,
        prepared: Support::Partly("experimental: a subset of PostgreSQL 14"),
        pipelining: Support::Partly("experimental: a subset of PostgreSQL 14"),
        savepoints: Support::No,
        skip_locked: Support::No,
        advisory_locks: Support::No,
        retry: "always: ABORTED is a status of YDB, not always a 40001",
    },
    promises: &[Promise {
        levels: &[Level::Serializable],
        at: Arrangement::Plain,
        title: "YDB, SERIALIZABLE (the default)",
        verdicts: [F, F, F, F, F, F, unless(Setting::StaleReads), F, F],
    }],
    commit: [
        "immediate on one shard",
        "four and a half round trips and half a millisecond, by its makers' account",
    ],
    views: &[View {
        name: ".sys/partition_stats",
        shows: "partitions, their nodes and load; at most once per second",
    }],
    limits: &[
        "tables are split by ranges of the primary key, and tablets move: placement is not read",
        "name the nodes in a cluster file (engine = \"ydb\"); discovery from one node, load, node-wise work and the matrix' data axis do not exist",
    ],
};

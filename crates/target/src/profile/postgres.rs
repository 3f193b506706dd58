//! PostgreSQL: one server, a primary with standbys, or hash partitions over several by `postgres_fdw`.

use super::verdicts::{A, D, F, N};
use super::{Discovery, LoadPath, Profile, Promise, Support, Tried, View, Wire};
use crate::engine::Engine;

/// Which engine it is, by what its catalog holds: one row of truth values, and each of the engines has a column of its own. The version is
/// not asked: forks report PostgreSQL's.
pub const DETECT: &str = "\
    select exists (select 1 from pg_catalog.pg_namespace where nspname = 'crdb_internal'), \
           exists (select 1 from pg_catalog.pg_proc where proname = 'yb_servers'), \
           exists (select 1 from pg_catalog.pg_class where relname = 'gp_segment_configuration'), \
           exists (select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
                   where n.nspname = 'shardman' and c.relname = 'repgroups'), \
           exists (select 1 from pg_catalog.pg_extension where extname = 'citus'), \
           exists (select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
                   where n.nspname = 'mtm' and c.relname = 'cluster_nodes'), \
           exists (select 1 from pg_catalog.pg_extension where extname = 'pglogical'), \
           exists (select 1 from pg_catalog.pg_extension where extname = 'spock'), \
           exists (select 1 from pg_catalog.pg_extension where extname = 'pgactive'), \
           exists (select 1 from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid \
                   where c.relname = 'pg_subscription' and a.attname = 'suborigin')";

const WIRE: Wire = Wire {
    copy: Support::Yes,
    copy_binary: Support::Yes,
    prepared: Support::Yes,
    pipelining: Support::Yes,
    savepoints: Support::Yes,
    skip_locked: Support::Yes,
    advisory_locks: Support::Yes,
    retry: "REPEATABLE READ and SERIALIZABLE; on a standby also when recovery conflicts with a query",
};

const VIEWS: [View; 8] = [
    View { name: "pg_stat_activity", shows: "sessions and what they wait for" },
    View { name: "pg_stat_database", shows: "transactions, blocks, temporary files, deadlocks" },
    View {
        name: "pg_stat_bgwriter",
        shows: "checkpoints and buffers; pg_stat_checkpointer beside it from 17 on",
    },
    View { name: "pg_stat_wal", shows: "WAL written and synced, from 14 on" },
    View { name: "pg_stat_io", shows: "reads and writes by kind of backend, from 16 on" },
    View { name: "pg_stat_replication", shows: "standbys, their state and lag" },
    View { name: "pg_stat_user_tables", shows: "rows, scans and vacuums per table" },
    View { name: "pg_stat_statements", shows: "time per statement, where the extension is loaded" },
];

pub(super) const POSTGRES: Profile = Profile {
    engine: Engine::Postgres,
    title: "PostgreSQL",
    tried: Tried::Live("PostgreSQL 15 and 18"),
    discovery: Discovery::Native,
    entry: "the primary; standbys for reading",
    load: LoadPath::Leaves,
    wire: WIRE,
    promises: &[
        Promise { level: "READ COMMITTED", verdicts: [F, F, A, A, N, A, N, F] },
        Promise { level: "REPEATABLE READ", verdicts: [F, F, F, F, N, A, N, F] },
        Promise { level: "SERIALIZABLE", verdicts: [F, F, F, F, N, F, N, F] },
        Promise {
            level: "REPEATABLE READ, primary and hot standby",
            verdicts: [
                D("forbidden on each node"),
                F,
                D("forbidden on each node"),
                F,
                A,
                D("allowed; SERIALIZABLE is refused on a standby"),
                D("allowed, unless synchronous_commit = remote_apply and the standby is a synchronous one"),
                D("forbidden when the standby that takes over is synchronous"),
            ],
        },
    ],
    commit: ["a local flush; one more round trip with synchronous standbys", "there is one node"],
    views: &VIEWS,
    limits: &["a standby's address is not in the primary's catalog: name standbys in a cluster file"],
};

pub(super) const FDW_SHARDED: Profile = Profile {
    engine: Engine::FdwSharded,
    title: "PostgreSQL, hash partitions over postgres_fdw",
    tried: Tried::Live("PostgreSQL 15 and 18, three nodes"),
    discovery: Discovery::Native,
    entry: "every node",
    load: LoadPath::Leaves,
    wire: Wire {
        copy: Support::Partly(
            "before 16, one round trip per row for a foreign partition; COPY into the leaf on its owner",
        ),
        skip_locked: Support::Partly(
            "silently lost on other nodes: the remote statement says FOR UPDATE only",
        ),
        advisory_locks: Support::Partly("of the entry node only"),
        retry: "READ COMMITTED too: the other nodes always run REPEATABLE READ",
        ..WIRE
    },
    promises: &[Promise {
        level: "READ COMMITTED, REPEATABLE READ and SERIALIZABLE at the entry",
        verdicts: [A, F, A, D("forbidden within a shard"), A, A, F, A],
    }],
    commit: [
        "a local flush on the owner, and one round trip to it",
        "one round trip per node, one after the other; together with parallel_commit. No two-phase commit",
    ],
    views: &VIEWS,
    limits: &[
        "the parent can have no unique index: upserts go to the leaf on its owner",
        "a deadlock over two nodes is never detected: only the time limits of the foreign servers end it",
        "changing the key of a row on another node fails",
    ],
};

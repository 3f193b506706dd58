//! PostgreSQL: one server, a primary with standbys, or hash partitions over several by `postgres_fdw`.

use super::promise::short::{A, F, S, with};
use super::{
    Arrangement, Discovery, Entry, Level, LoadPath, Profile, Promise, Setting, Support, Tried, View, Wire,
};
use crate::engine::Engine;

/// Whether an extension has the relations and functions of these names in this schema, and nobody else has put others of these names beside
/// them. Names alone prove nothing: whoever may create a schema can call it as an extension does, and our questions would run what is in it.
macro_rules! extension_has {
    ($extension:literal, $schema:literal, $names:literal) => {
        concat!(
            "(select coalesce(pg_catalog.bool_and(o.is_of_superuser and exists \
                         (select 1 from pg_catalog.pg_depend d \
                          join pg_catalog.pg_class k on k.oid = d.classid and k.relname = o.catalog \
                          join pg_catalog.pg_class x on x.oid = d.refclassid and x.relname = 'pg_extension' \
                          join pg_catalog.pg_extension e on e.oid = d.refobjid and e.extname = '",
            $extension,
            "' \
                          where d.objid = o.oid and d.deptype = 'e' \
                            and k.relnamespace = n.oid and x.relnamespace = n.oid)), false) \
              from (select c.oid, c.relnamespace as schema, c.relname as name, r.rolsuper as is_of_superuser, 'pg_class' as catalog \
                    from pg_catalog.pg_class c join pg_catalog.pg_roles r on r.oid = c.relowner \
                    union all select p.oid, p.pronamespace, p.proname, r.rolsuper, 'pg_proc' \
                    from pg_catalog.pg_proc p join pg_catalog.pg_roles r on r.oid = p.proowner) o \
              join pg_catalog.pg_namespace s on s.oid = o.schema and s.nspname = '",
            $schema,
            "' \
              join pg_catalog.pg_namespace n on n.nspname = 'pg_catalog' \
              where o.name in (",
            $names,
            "))"
        )
    };
}

/// Which engine it is: one row of truth values, and each of the engines has a column of its own. Nothing counts that a plain role can have made:
/// only members of the engine's extension, and what is in `pg_catalog`. Forks report the version of the PostgreSQL that they began as, so
/// only CockroachDB is recognised by its own, as what is in its `crdb_internal` has no owner.
pub const DETECT: &str = concat!(
    "select pg_catalog.version() like 'CockroachDB %', \
            exists (select 1 from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace \
                    where n.nspname = 'pg_catalog' and p.proname = 'yb_servers'), \
            exists (select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
                    where n.nspname = 'pg_catalog' and c.relname = 'gp_segment_configuration'), ",
    extension_has!(
        "shardman",
        "shardman",
        "'repgroups', 'parts', 'sharded_tables', 'global_tables', 'get_partition_for_value'"
    ),
    ", ",
    extension_has!("citus", "pg_catalog", "'pg_dist_node'"),
    ", ",
    extension_has!("multimaster", "mtm", "'cluster_nodes', 'nodes'"),
    ", ",
    extension_has!("pglogical", "pglogical", "'node', 'node_interface', 'local_node'"),
    ", ",
    extension_has!("spock", "spock", "'node', 'node_interface', 'local_node'"),
    ", ",
    extension_has!("pgactive", "pgactive", "'pgactive_nodes'"),
    ", exists (select 1 from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid \
               join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
               where n.nspname = 'pg_catalog' and c.relname = 'pg_subscription' and a.attname = 'suborigin')"
);

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

/// On each node of a replicated cluster.
const EACH: Entry = F.noted("on each node");
const APPLIED: Entry = with(Setting::RemoteApply);
const SYNC: Entry = with(Setting::SynchronousStandby);
const ONE_AFTER_ANOTHER: &str = "no two-phase commit";

pub(super) const POSTGRES: Profile = Profile {
    engine: Engine::Postgres,
    title: "PostgreSQL",
    tried: Tried::Live("PostgreSQL 15 and 18"),
    discovery: Discovery::Native,
    entry: "the primary; standbys for reading",
    load: LoadPath::Leaves,
    wire: WIRE,
    promises: &[
        Promise {
            levels: &[Level::ReadCommitted],
            at: Arrangement::Plain,
            title: "PostgreSQL, READ COMMITTED",
            verdicts: [F, F, A, A, F, A, F, F, F],
        },
        Promise {
            levels: &[Level::RepeatableRead],
            at: Arrangement::Plain,
            title: "PostgreSQL, REPEATABLE READ",
            verdicts: [F, F, F, F, F, A, F, F, F],
        },
        Promise {
            levels: &[Level::Serializable],
            at: Arrangement::Plain,
            title: "PostgreSQL, SERIALIZABLE",
            verdicts: [F, F, F, F, F, F, F, F, F],
        },
        Promise {
            levels: &[Level::ReadCommitted],
            at: Arrangement::Standbys,
            title: "primary and hot standby, READ COMMITTED",
            verdicts: [EACH, F, A, A, A, A, APPLIED, F, SYNC],
        },
        Promise {
            levels: &[Level::RepeatableRead, Level::Serializable],
            at: Arrangement::Standbys,
            title: "primary and hot standby, REPEATABLE READ; a standby refuses SERIALIZABLE",
            verdicts: [EACH, F, EACH, F, A, A, APPLIED, F, SYNC],
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
    promises: &[
        Promise {
            levels: &[Level::ReadCommitted],
            at: Arrangement::Plain,
            title: "fdw-sharded, READ COMMITTED at the entry",
            verdicts: [
                A,
                F,
                A,
                A.noted("F on other nodes, which run REPEATABLE READ"),
                A,
                A,
                F,
                A.noted(ONE_AFTER_ANOTHER),
                F,
            ],
        },
        Promise {
            levels: &[Level::RepeatableRead],
            at: Arrangement::Plain,
            title: "fdw-sharded, REPEATABLE READ at the entry",
            verdicts: [A, F, A, F.noted("a row is on one shard"), A, A, F, A.noted(ONE_AFTER_ANOTHER), F],
        },
        Promise {
            levels: &[Level::Serializable],
            at: Arrangement::Plain,
            title: "fdw-sharded, SERIALIZABLE at the entry",
            verdicts: [A, F, A, F, A, S, F, A.noted(ONE_AFTER_ANOTHER), F],
        },
    ],
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

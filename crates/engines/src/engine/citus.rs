//! Citus. Catalog by its documentation and sources (releases 11 to 13).

use super::detect::extension_has;
use crate::profile::short::{A, F, S};
use crate::profile::{
    Arrangement, Case, Catalog, Commit, Discovery, EntryPoints, Expectation, Isolation, KeyedTrips, Layout,
    Levels, LoadPath, NodeLinks, Oracle, Own, Profile, Promise, Protocol, Reasons, Sizes, Spread, Statements,
    Storage, Tried,
};

/// A worker with metadata is an entry point. The coordinator counts as a shard when it may hold shards itself. A cluster whose coordinator was
/// never added to `pg_dist_node` still has it as group 0.
const NODES: &str = "\
    select n.groupid::text, n.nodename || ':' || n.nodeport, n.nodename, n.nodeport::text, null, \
           case when n.shouldhaveshards and (n.hasmetadata or n.groupid = 0) then 'shard' \
                when n.groupid = 0 then 'coordinator' else 'worker' end, \
           (n.groupid = (select l.groupid from pg_catalog.pg_dist_local_group l))::text, \
           case when not n.isactive then 'inactive' end, null, null, (n.groupid <> 0 and not n.hasmetadata)::text \
    from pg_catalog.pg_dist_node n where n.noderole = 'primary' \
    union all select '0', 'coordinator', null, null, null, \
           case when exists (select 1 from pg_catalog.pg_dist_node) then 'coordinator' else 'shard' end, \
           (l.groupid = 0)::text, null, null, null, 'false' \
    from pg_catalog.pg_dist_local_group l where not exists (select 1 from pg_catalog.pg_dist_node where groupid = 0) \
    order by 1";

/// A worker without metadata has no node and no distributed table in its catalog.
const BLIND: &str = "select not exists (select 1 from pg_catalog.pg_dist_node)";

/// `h`: by hash. `n`: a reference table (kept by two-phase commit, `t`) or a table of one node.
const TABLE: &str = "\
    select case p.partmethod when 'h' then 'hash32' \
                             when 'n' then case p.repmodel when 't' then 'everywhere' else 'one' end \
                             else 'its distribution method is ' || p.partmethod::text end, \
           a.attname::text, pg_catalog.format_type(a.atttypid, -1), null, \
           coalesce(c.collisdeterministic, true)::text \
    from pg_catalog.pg_dist_partition p \
    left join pg_catalog.pg_attribute a on a.attrelid = p.logicalrelid and p.partkey is not null \
         and a.attname = pg_catalog.column_to_column_name(p.logicalrelid, p.partkey) \
    left join pg_catalog.pg_collation c on c.oid = a.attcollation \
    where p.logicalrelid = pg_catalog.to_regclass({relation})";

/// Placements in state 4 wait for their removal: the shard has moved. Every other state except 1 is temporary.
const LEAVES: &str = "\
    select {schema}, {table} || '_' || s.shardid, p.groupid::text, s.shardminvalue, s.shardmaxvalue, \
           case when p.shardid is null then 'without a placement' \
                when p.shardstate <> 1 then 'in state ' || p.shardstate end, \
           s.shardid::text, '0' \
    from pg_catalog.pg_dist_shard s \
    left join pg_catalog.pg_dist_placement p on p.shardid = s.shardid and p.shardstate <> 4 \
    where s.logicalrelid = pg_catalog.to_regclass({relation}) \
    order by s.shardminvalue::int, p.groupid";

/// Placements that are not waiting for their removal.
const PLACES: &str = "\
    select p.shardid::text, coalesce(n.nodename || ':' || n.nodeport, 'the coordinator') \
    from pg_catalog.pg_dist_placement p \
    left join pg_catalog.pg_dist_node n on n.groupid = p.groupid and n.noderole = 'primary' \
    where p.shardstate <> 4";

/// The parent of a distributed table is empty on every node. Citus' own functions add up the shards of all nodes, and refuse other tables.
const SIZES: Sizes = Sizes {
    table: "case when exists (select 1 from pg_catalog.pg_dist_partition d where d.logicalrelid = {table}) \
            then pg_catalog.citus_table_size({table}) else pg_catalog.pg_table_size({table}) end",
    indexes: "case when exists (select 1 from pg_catalog.pg_dist_partition d where d.logicalrelid = {table}) \
              then pg_catalog.citus_total_relation_size({table}) - pg_catalog.citus_table_size({table}) \
              else pg_catalog.pg_indexes_size({table}) end",
};

/// By `PREPARED_TRANSACTION_NAME_FORMAT` (`citus_GROUP_PID_TRANSACTION_CONNECTION`), `resource_lock.h` and `multi_logical_replication.c`.
const OWN: Own = Own {
    libraries: &["citus"],
    shows_parts: Some(("citus.override_table_visibility", "off")),
    plain_schemas: Some(("citus.enable_schema_based_sharding", "off")),
    prepared: &["citus_"],
    resolves: "the maintenance daemon of its coordinator commits or rolls it back, by pg_dist_transaction there, every citus.recover_2pc_interval (60 s)",
    resolve: Some("SELECT recover_prepared_transactions();"),
    advisory: Some((4, 16)),
    locks_while: "while shards are moved, split or rebalanced, and while tables are created or changed",
    lock_statement: Some((
        "lock_shard_resources",
        "writes to one reference table, of which every node has a copy, take turns: each takes this lock and is committed on all \
         nodes in two phases. Distribute the table, write to it in fewer and larger statements, or keep what changes often in a distributed table",
    )),
    parts: Some(
        "case when c.relname ~ '_[0-9]{5,18}$' then (select count(*) from pg_catalog.pg_dist_shard h join pg_catalog.pg_dist_shard s \
           on s.logicalrelid = h.logicalrelid where h.shardid = pg_catalog.substring(c.relname::text, '[0-9]+$')::bigint having count(*) > 0) end",
    ),
    // The view citus_tables is in the schema public, or in another one where there is no such schema.
    shards: "SELECT p.logicalrelid AS table_name, p.partmethod, pg_catalog.column_to_column_name(p.logicalrelid, p.partkey) AS distribution_column, \
             (SELECT count(*) FROM pg_catalog.pg_dist_shard s WHERE s.logicalrelid = p.logicalrelid) AS shards FROM pg_catalog.pg_dist_partition p;",
    pools: "citus.max_cached_conns_per_worker, citus.max_adaptive_executor_pool_size and citus.max_shared_pool_size at the nodes where clients enter",
    slots: &["citus_shard_"],
    subscriptions: &["citus_shard_"],
    sessions: &["citus_internal", "citus_rebalancer", "citus_shard_"],
    origin: Some(
        "SELECT waiting_gpid, blocking_gpid, blocked_statement, current_statement_in_blocking_process, waiting_nodeid, blocking_nodeid FROM citus_lock_waits;",
    ),
    away: &["connection to the remote node"],
    // WaitEventSetWait of adaptive_executor.c.
    node_waits: Some(("Client", "ClientRead")),
    ..Own::NOTHING
};

/// How commits over several shards end.
const TWO_PHASE: &str = "two-phase commit, in doubt until recovery";

pub(super) static PROFILE: Profile = Profile {
    name: "citus",
    aliases: &[],
    title: "Citus",
    tried: Tried::Live("Citus 13.2.0 on PostgreSQL 15.20, three nodes"),
    discovery: Discovery::Catalog(Catalog {
        sign: extension_has!("citus", "pg_catalog", "'pg_dist_node'"),
        nodes: NODES,
        coordinator: Some("0"),
        reach_nodes: true,
        is_blind: Some(BLIND),
        table: TABLE,
        leaves: LEAVES,
        places: Some(PLACES),
        part_hash: Some("pg_catalog.worker_hash({column})"),
        oracle: Oracle::Leaf(
            "select pg_catalog.get_shard_id_for_distribution_column({relation}, {keys})::text",
        ),
        own: &OWN,
    }),
    layout: Layout::Spread(Spread::Call {
        by_column: "create_distributed_table('{table}', '{column}')",
        whole: "create_reference_table('{table}')",
        // In a schema that is distributed itself each new table is on the node of the schema, and these functions refuse it.
        unless: "exists (select 1 from pg_catalog.pg_dist_partition where logicalrelid = pg_catalog.to_regclass('{table}'))",
    }),
    storage: Storage::Pages,
    sizes: SIZES,
    entry: EntryPoints::EveryNode,
    load: LoadPath::Table,
    links: NodeLinks::Own,
    // Measured with 20 ms between the nodes: 21 ms each, prepared or not; a transaction block takes two for its first statement, and one for its end.
    keyed_trips: Some(KeyedTrips { select: 1.0, update: 1.0 }),
    has_wal: false,
    // Some failures of libpq come without a SQLSTATE of their own.
    node_lost: &[
        "58030",
        "XX000 server closed the connection unexpectedly",
        "XX000 postmaster was shut down",
        "XX000 connection to the remote node",
        "XX000 connection not open",
        "XX000 could not receive data from server",
        "XX000 could not send data to server",
    ],
    commit: Commit { protocol: Protocol::TwoPhase { one_node_alone: true }, error_undoes: false },
    levels: Levels::Derived,
    statements: Statements::Unknown,
    promises: &[
        Promise {
            levels: &[Isolation::ReadCommitted],
            at: Arrangement::Plain,
            title: "Citus, READ COMMITTED",
            verdicts: [A, F, A, A, A, A, F, F.noted(TWO_PHASE), F],
        },
        Promise {
            levels: &[Isolation::RepeatableRead],
            at: Arrangement::Plain,
            title: "Citus, REPEATABLE READ",
            verdicts: [A, F, S, F.noted("a row is on one shard"), A, A, F, F.noted(TWO_PHASE), F],
        },
        Promise {
            levels: &[Isolation::Serializable],
            at: Arrangement::Plain,
            title: "Citus, SERIALIZABLE",
            verdicts: [A, F, S, F, A, S, F, F.noted(TWO_PHASE), F],
        },
    ],
    expectations: &[Expectation {
        case: Case::Deadlock,
        may_happen: Some(false),
        why: "the engine detects deadlocks across all nodes, or never lets a transaction wait",
        change: "check the detector's settings",
    }],
    reasons: Reasons {
        fractured_read: "there is no distributed snapshot: each shard is read in its own snapshot",
        ..Reasons::GENERAL
    },
    limits: &[
        "workers without metadata are no entry points: their role is worker",
        "shard tables are hidden on workers unless citus.override_table_visibility is off; pgfathom does not load them directly",
        "if a shard has several placements, the one of the lowest group counts",
        "in a schema that is distributed itself all tables are on one node, and INSERT ... SELECT fails there with 42601 (13.2)",
        "FOR UPDATE is refused where a query goes to several shards, and SKIP LOCKED with it",
        "advisory locks apply to one node only",
        "citus_shards queries all nodes for sizes: do not read it while you measure",
    ],
};

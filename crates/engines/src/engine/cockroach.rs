//! CockroachDB. Catalog by its documentation and sources; never tried on a live server.

use crate::profile::short::{A, F};
use crate::profile::{
    Arrangement, Case, Catalog, Commit, Discovery, EntryPoints, Expectation, Isolation, Layout, Levels,
    LoadPath, NodeLinks, Oracle, Own, Profile, Promise, Protocol, Reasons, Sizes, Spread, Statements,
    Storage, Tried,
};

const NODES: &str = "\
    select node_id::STRING, 'n' || node_id::STRING, split_part(sql_address, ':', 1), split_part(sql_address, ':', 2), \
           null, 'shard', (node_id = crdb_internal.node_id())::STRING, \
           case when not is_live then 'not live' end \
    from crdb_internal.gossip_nodes order by node_id";

/// The columns of the primary key, and the numbers that its keys begin with. Only `STRING`, whole numbers, `UUID` and `BYTES` without a
/// collation are encoded by the client.
const TABLE: &str = "\
    select case when s.direction = 'ASC' then 'keys' else 'a key column is descending' end, s.column_name, \
           pg_catalog.format_type(a.atttypid, -1), null, (c.collation_name is null)::STRING, \
           t.table_id::STRING, i.index_id::STRING \
    from crdb_internal.tables t \
    join crdb_internal.table_indexes i on i.descriptor_id = t.table_id and i.index_type = 'primary' \
    join information_schema.statistics s on s.table_schema = t.schema_name and s.table_name = t.name \
         and s.index_name = i.index_name and s.storing = 'NO' \
    join information_schema.columns c on c.table_schema = t.schema_name and c.table_name = t.name \
         and c.column_name = s.column_name \
    join pg_catalog.pg_attribute a on a.attrelid = t.table_id and a.attname = s.column_name \
    where t.database_name = current_database() and t.schema_name = {schema} and t.name = {table} \
      and t.state = 'PUBLIC' order by s.seq_in_index";

const LEAVES: &str = "\
    select {schema}, {table}, lease_holder::STRING, encode(raw_start_key, 'hex'), encode(raw_end_key, 'hex'), \
           case when lease_holder is null then 'without a leaseholder' end, range_id::STRING, '0' \
    from [show ranges from table {name} with details, keys] order by raw_start_key";

pub(super) static PROFILE: Profile = Profile {
    name: "cockroach",
    aliases: &["cockroachdb"],
    title: "CockroachDB",
    tried: Tried::RecordedCatalogs,
    discovery: Discovery::Catalog(Catalog {
        sign: // Forks report the version of the PostgreSQL that they began as. What is in `crdb_internal` has no owner.
        "pg_catalog.version() like 'CockroachDB %'",
        nodes: NODES,
        coordinator: None,
        is_blind: None,
        reach_nodes: true,
        table: TABLE,
        leaves: LEAVES,
        places: None,
        part_hash: None,
        oracle: Oracle::Leaf("select range_id::STRING from [show range from table {name} for row ({keys})]"),
        own: &Own::NOTHING,
    }),
    layout: Layout::Spread(Spread::ByItself),
    storage: Storage::Other(
        "keeps rows as pairs of keys and values in LSM trees, several replicas of each, and the log of its consensus instead of WAL",
    ),
    sizes: Sizes::OF_ONE_NODE,
    entry: EntryPoints::EveryNode,
    load: LoadPath::Table,
    links: NodeLinks::Own,
    keyed_trips: None,
    has_wal: false,
    node_lost: &[],
    commit: Commit {
        protocol: Protocol::Consensus { words: "parallel commits: one round of consensus", round_trips: 1.0 },
        error_undoes: false,
    },
    levels: Levels::Equivalent,
    statements: Statements::Unknown,
    promises: &[Promise {
        levels: &[Isolation::Serializable],
        at: Arrangement::Plain,
        title: "CockroachDB, SERIALIZABLE (the default)",
        verdicts: [F, F, F, F, F, F, A.noted("causal reverse only; serializable, not strictly"), F, F],
    }],
    expectations: &[Expectation {
        case: Case::Deadlock,
        may_happen: Some(false),
        why: "the engine detects deadlocks across all nodes, or never lets a transaction wait",
        change: "check the detector's settings",
    }],
    reasons: Reasons::GENERAL,
    limits: &[
        "ranges split, merge and change leaseholders: a placement is valid only for a moment; pre-split and scatter before a matrix",
        "in a virtual cluster keys begin with its number, which pgfathom does not encode: the server routes",
        "keys in order ('user' and a number) all go to one range: load scattered keys",
        "older releases commit a COPY every 100 rows outside of a transaction",
        "always expect 40001, at COMMIT too: the default level is SERIALIZABLE",
        "advisory lock functions exist but lock nothing",
    ],
};

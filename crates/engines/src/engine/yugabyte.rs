//! YugabyteDB's YSQL, releases that have the view `yb_tablet_metadata`. By its documentation and regression tests; never tried on a live server.
//!
//! The verdicts follow from the names of its isolation levels; where no promise was found, the reason notes it.

use crate::profile::short::{A, F, M};
use crate::profile::{
    Arrangement, Case, Catalog, Commit, Discovery, EntryPoints, Expectation, Isolation, Layout, Levels,
    LoadPath, NodeLinks, Oracle, Own, Profile, Promise, Protocol, Reasons, Sizes, Spread, Statements,
    Storage, Tried,
};

const NODES: &str = "\
    select host || ':' || port, host || ':' || port, host, port::text, null, 'shard', \
           (port::text = pg_catalog.current_setting('port') \
            and (host = pg_catalog.host(pg_catalog.inet_server_addr()) \
                 or host = any (string_to_array(pg_catalog.current_setting('listen_addresses'), ','))))::text, \
           null \
    from pg_catalog.yb_servers() order by host, port";

/// Hash columns of the primary key carry the option bit 4 (`INDOPTION_HASH`, 0x4) in `indoption`. A table without any is sharded by
/// range, or colocated.
const TABLE: &str = "\
    select case when a.attname is null then 'it is sharded by range, or colocated' else 'code' end, a.attname::text, \
           pg_catalog.format_type(a.atttypid, -1), null, \
           (l.collname is null or l.collname in ('C', 'POSIX', 'default'))::text \
    from pg_catalog.pg_class c \
    left join pg_catalog.pg_index i on i.indrelid = c.oid and i.indisprimary \
    left join lateral unnest(i.indkey::int2[], i.indoption::int2[]) with ordinality as k (attnum, option, place) \
         on k.option & 4 = 4 \
    left join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum \
    left join pg_catalog.pg_collation l on l.oid = a.attcollation \
    where c.oid = pg_catalog.to_regclass({relation}) order by k.place";

/// The leader has the same form as host and port in `yb_servers()`.
const LEAVES: &str = "\
    select {schema}, {table}, m.leader, coalesce(m.start_hash_code, 0)::text, coalesce(m.end_hash_code, 65536)::text, \
           case when m.leader is null then 'without a leader' end, m.tablet_id, '0' \
    from pg_catalog.yb_tablet_metadata m \
    where m.oid = pg_catalog.to_regclass({relation})::oid and m.db_name = pg_catalog.current_database() \
    order by m.start_hash_code nulls first";

pub(super) static PROFILE: Profile = Profile {
    name: "yugabyte",
    aliases: &["yugabytedb"],
    title: "YugabyteDB",
    tried: Tried::RecordedCatalogs,
    discovery: Discovery::Catalog(Catalog {
        sign: "exists (select 1 from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace \
                       where n.nspname = 'pg_catalog' and p.proname = 'yb_servers')",
        nodes: NODES,
        coordinator: None,
        is_blind: None,
        reach_nodes: true,
        table: TABLE,
        leaves: LEAVES,
        places: None,
        part_hash: None,
        oracle: Oracle::Code("select pg_catalog.yb_hash_code({keys})::text"),
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
        protocol: Protocol::Consensus {
            words: "the status record, then the answers of the tablets",
            round_trips: 2.0,
        },
        error_undoes: false,
    },
    levels: Levels::Equivalent,
    statements: Statements::Unknown,
    promises: &[
        Promise {
            levels: &[Isolation::RepeatableRead],
            at: Arrangement::Plain,
            title: "YugabyteDB, REPEATABLE READ (snapshot)",
            verdicts: [F, F, F, F, F, A, M, F, F],
        },
        Promise {
            levels: &[Isolation::Serializable],
            at: Arrangement::Plain,
            title: "YugabyteDB, SERIALIZABLE",
            verdicts: [F, F, F, F, F, F, M, F, F],
        },
    ],
    expectations: &[Expectation {
        case: Case::Deadlock,
        may_happen: Some(false),
        why: "the engine detects deadlocks across all nodes, or never lets a transaction wait",
        change: "check the detector's settings",
    }],
    reasons: Reasons::GENERAL,
    limits: &[
        "releases without yb_tablet_metadata are not supported; the server routes tables sharded by range and colocated tables",
        "the bytes of a smallint in a key are assumed to be those of an integer: the self-test verifies that",
        "COPY commits every 20,000 rows unless ROWS_PER_TRANSACTION 0 is given",
        "expect 40001 at REPEATABLE READ and SERIALIZABLE, and for read restarts; READ COMMITTED retries by itself",
        "SKIP LOCKED works at READ COMMITTED and REPEATABLE READ; advisory locks exist in recent releases only",
    ],
};

//! YugabyteDB's YSQL, releases that have the view `yb_tablet_metadata`. By its documentation and regression tests; never tried on a live server.
//!
//! The verdicts follow from the names of its isolation levels; where no promise was found, they say so.

use super::promise::short::{A, F, M};
use super::{
    Arrangement, Catalog, Discovery, Level, LoadPath, Oracle, Profile, Promise, Support, Tried, View, Wire,
};
use crate::engine::Engine;

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

/// The leader is written as `yb_servers()` writes host and port.
const LEAVES: &str = "\
    select {schema}, {table}, m.leader, coalesce(m.start_hash_code, 0)::text, coalesce(m.end_hash_code, 65536)::text, \
           case when m.leader is null then 'without a leader' end, m.tablet_id, '0' \
    from pg_catalog.yb_tablet_metadata m \
    where m.oid = pg_catalog.to_regclass({relation})::oid and m.db_name = pg_catalog.current_database() \
    order by m.start_hash_code nulls first";

pub(super) const PROFILE: Profile = Profile {
    engine: Engine::Yugabyte,
    title: "YugabyteDB",
    tried: Tried::RecordedCatalogs,
    discovery: Discovery::Catalog(Catalog {
        nodes: NODES,
        reach_nodes: true,
        table: TABLE,
        leaves: LEAVES,
        oracle: Oracle::Code("select pg_catalog.yb_hash_code({keys})::text"),
    }),
    entry: "every node",
    load: LoadPath::AnyNode,
    wire: Wire {
        copy: Support::Partly("commits every 20,000 rows unless ROWS_PER_TRANSACTION 0 is said"),
        copy_binary: Support::Yes,
        prepared: Support::Yes,
        pipelining: Support::Yes,
        savepoints: Support::Yes,
        skip_locked: Support::Partly("READ COMMITTED and REPEATABLE READ"),
        advisory_locks: Support::Partly("recent releases only"),
        retry: "REPEATABLE READ and SERIALIZABLE, and read restarts; READ COMMITTED retries by itself",
    },
    promises: &[
        Promise {
            levels: &[Level::RepeatableRead],
            at: Arrangement::Plain,
            title: "YugabyteDB, REPEATABLE READ (snapshot)",
            verdicts: [F, F, F, F, F, A, M, F, F],
        },
        Promise {
            levels: &[Level::Serializable],
            at: Arrangement::Plain,
            title: "YugabyteDB, SERIALIZABLE",
            verdicts: [F, F, F, F, F, F, M, F, F],
        },
    ],
    commit: ["one round of consensus for a single row", "about two rounds of consensus before the answer"],
    views: &[
        View { name: "yb_servers()", shows: "nodes" },
        View { name: "yb_tablet_metadata", shows: "tablets, their hash ranges and leaders" },
        View { name: "yb_local_tablets", shows: "tablets of one node" },
        View { name: "yb_active_session_history", shows: "what sessions waited for" },
    ],
    limits: &[
        "tables sharded by range and colocated tables have no hash codes: they are routed by the server",
        "the bytes of a smallint in a key are taken to be those of an integer: the self-test decides",
    ],
};

//! Postgres Pro Shardman. Catalog by its documentation; never tried on a live server.

use super::detect::extension_has;
use crate::profile::short::{A, F, with};
use crate::profile::{
    Arrangement, Case, Catalog, Commit, Discovery, Entry, EntryPoints, Expectation, Isolation, Layout,
    Levels, LoadPath, NodeLinks, Oracle, Own, Profile, Promise, Protocol, Reasons, Setting, Sizes, Spread,
    Statements, Storage, Tried,
};
use crate::trust::trusted;

/// A replication group without a server is the one of the queried node. A group of several hosts is used like any list of hosts;
/// the first one is enough to identify it.
const NODES: &str = concat!(
    "select r.id::text, coalesce(s.srvname::text, 'rg' || r.id), \
           split_part((select option_value from pg_catalog.pg_options_to_table(s.srvoptions) where option_name = 'host'), ',', 1), \
           split_part((select option_value from pg_catalog.pg_options_to_table(s.srvoptions) where option_name = 'port'), ',', 1), \
           (select option_value from pg_catalog.pg_options_to_table(s.srvoptions) where option_name = 'dbname'), \
           'shard', (r.srvid is null)::text, \
           case when r.srvid is not null and s.oid is null then 'without a foreign server' end, null, \
           case when s.srvowner not in (",
    trusted!(),
    ") then pg_catalog.pg_get_userbyid(s.srvowner) end \
    from shardman.repgroups r left join pg_catalog.pg_foreign_server s on s.oid = r.srvid order by r.id"
);

/// The partitioned table itself is PostgreSQL's; a global table is on every node.
const TABLE: &str = "\
    select case when g.relname is not null then 'everywhere' else 'remainder' end, a.attname::text, \
           pg_catalog.format_type(a.atttypid, -1), f.proname::text, coalesce(l.collisdeterministic, true)::text, \
           t.nparts::text \
    from pg_catalog.pg_class c \
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
    left join shardman.sharded_tables t on t.rel = c.oid \
    left join shardman.global_tables g on g.nspname = n.nspname and g.relname = c.relname \
    left join pg_catalog.pg_partitioned_table p on p.partrelid = c.oid \
    left join lateral unnest(p.partattrs::int2[], p.partclass::oid[], p.partcollation::oid[]) \
         with ordinality as k (attnum, class, collated, place) on true \
    left join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum and k.attnum > 0 \
    left join pg_catalog.pg_opclass o on o.oid = k.class \
    left join pg_catalog.pg_amproc m on m.amprocfamily = o.opcfamily and m.amproclefttype = o.opcintype \
         and m.amprocrighttype = o.opcintype and m.amprocnum = 2 \
    left join pg_catalog.pg_proc f on f.oid = m.amproc and o.opcdefault \
    left join pg_catalog.pg_collation l on l.oid = k.collated \
    where c.oid = pg_catalog.to_regclass({relation}) and (t.rel is not null or g.relname is not null) \
    order by k.place";

/// Partition n of table t is the table `t_n` on its owner and the foreign table `t_n_fdw` elsewhere. A global table is itself, here as everywhere.
const LEAVES: &str = "\
    select {schema}, {table} || '_' || p.pnum, p.rgid::text, p.pnum::text, t.nparts::text, null, \
           {table} || '_' || p.pnum, '0' \
    from shardman.sharded_tables t join shardman.parts p on p.rel = t.rel \
    where t.rel = pg_catalog.to_regclass({relation}) \
    union all select {schema}, {table}, r.id::text, null, null, null, {table}, '0' \
    from shardman.global_tables g join shardman.repgroups r on r.srvid is null \
    where g.nspname = {schema} and g.relname = {table}";

/// A snapshot of all nodes needs a setting, which is off by default in release 14.
const CSN: Entry = with(Setting::CsnSnapshot);
const MOVING: Entry = A.noted("when sessions change nodes");
const TWO_PHASE: &str = "two-phase commit, blocking";

pub(super) static PROFILE: Profile = Profile {
    name: "shardman",
    aliases: &[],
    title: "Postgres Pro Shardman",
    tried: Tried::RecordedCatalogs,
    discovery: Discovery::Catalog(Catalog {
        sign: extension_has!(
            "shardman",
            "shardman",
            "'repgroups', 'parts', 'sharded_tables', 'global_tables', 'get_partition_for_value'"
        ),
        nodes: NODES,
        coordinator: None,
        is_blind: None,
        reach_nodes: true,
        table: TABLE,
        leaves: LEAVES,
        places: None,
        part_hash: None,
        oracle: Oracle::Leaf(
            "select coalesce(remote_relname, local_relname)::text \
             from shardman.get_partition_for_value({relation}::regclass, {keys})",
        ),
        own: &Own::NOTHING,
    }),
    layout: Layout::Spread(Spread::Parameter("distributed_by = '{column}'")),
    storage: Storage::Pages,
    sizes: Sizes::OF_ONE_NODE,
    entry: EntryPoints::EveryNode,
    load: LoadPath::Table,
    links: NodeLinks::ForeignServers,
    keyed_trips: None,
    has_wal: false,
    node_lost: &[],
    commit: Commit { protocol: Protocol::TwoPhase { one_node_alone: false }, error_undoes: false },
    levels: Levels::Derived,
    statements: Statements::Unknown,
    promises: &[
        Promise {
            levels: &[Isolation::ReadCommitted],
            at: Arrangement::Plain,
            title: "Shardman, READ COMMITTED",
            verdicts: [CSN, F, A, A, MOVING, A, MOVING, F.noted(TWO_PHASE), F],
        },
        Promise {
            levels: &[Isolation::RepeatableRead],
            at: Arrangement::Plain,
            title: "Shardman, REPEATABLE READ",
            verdicts: [CSN, F, CSN, F, MOVING, A, MOVING, F.noted(TWO_PHASE), F],
        },
    ],
    expectations: &[Expectation {
        case: Case::Deadlock,
        may_happen: None,
        why: "a deadlock detector for all nodes has to be enabled by a setting",
        change: "lock in the same order everywhere, or turn the detector on",
    }],
    reasons: Reasons {
        fractured_read: "without enable_csn_snapshot each node reads in its own snapshot",
        ..Reasons::GENERAL
    },
    limits: &[
        "enable_csn_snapshot decides what is promised: it is off by default in release 14",
        "with CSN snapshots a commit also waits for the slowest clock (shardman.pg_stat_csn)",
        "COPY into the table sends single rows to other nodes; COPY into a partition on its owner does not",
        "whether SKIP LOCKED reaches partitions of other nodes is not documented; locks of the whole cluster have functions of their own",
    ],
};

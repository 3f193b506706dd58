//! Every node holds and writes every row. PostgreSQL's own logical replication both ways (16 and later) is tried live, the others are written from
//! documentation and sources.

use super::promise::short::{A, F, M};
use super::{
    Arrangement, Discovery, Level, LoadPath, Profile, Promise, Replication, Support, Tried, View, Wire,
};
use crate::engine::Engine;
use crate::trust::trusted;

/// Subscriptions that do not forward what they received: the mark of replication both ways. Names, owners and origins are for everybody to read.
/// From PostgreSQL 16 on a plain role can be allowed to make some, and chooses the addresses in them.
const NATIVE_PROBE: &str = concat!(
    "select coalesce(pg_catalog.bool_or(s.is_trusted), false), \
            pg_catalog.string_agg(pg_catalog.quote_ident(s.subname) || ' of the role ' || pg_catalog.pg_get_userbyid(s.subowner), ', ' \
                                  order by s.subname) filter (where not s.is_trusted) \
     from (select subname, subowner, subowner in (",
    trusted!(),
    ") as is_trusted \
           from pg_catalog.pg_subscription s join pg_catalog.pg_database d on d.oid = s.subdbid \
           where d.datname = pg_catalog.current_database() and s.suborigin = 'none') s"
);

/// Their connection strings are for superusers. The node that was asked stands in none of them; `pgfathom up` names a subscription
/// `pgfathom_ME_from_PEER`, and others are named as a whole.
const NATIVE: &str = concat!(
    "with s as (select coalesce(substring(s.subname from '_from_(.+)$'), s.subname::text) as peer, \
                      substring(s.subname from '^pgfathom_(.+)_from_') as me, s.subenabled, s.subconninfo \
               from pg_catalog.pg_subscription s join pg_catalog.pg_database d on d.oid = s.subdbid \
               where d.datname = pg_catalog.current_database() and s.suborigin = 'none' and s.subowner in (",
    trusted!(),
    ")) \
    select peer, peer, null, null, null, 'peer', 'false', \
           case when not subenabled then 'not replicated from: its subscription is disabled' end, subconninfo from s \
    union all select coalesce(min(me), 'entry'), coalesce(min(me), 'entry'), null, null, null, 'peer', 'true', null, null from s \
    order by 2"
);

/// Postgres Pro Multimaster and the open mmts (`multimaster--1.0.sql`).
const MTM: &str = "\
    select n.id::text, 'node' || n.id, null, null, null, 'peer', n.is_self::text, \
           case when not n.enabled then 'disabled' when not n.connected and not n.is_self then 'disconnected' end, \
           n.conninfo \
    from mtm.nodes() n order by n.id";

const PGLOGICAL: &str = "\
    select n.node_id::text, n.node_name::text, null, null, null, 'peer', (l.node_id is not null)::text, null, i.if_dsn \
    from pglogical.node n join pglogical.node_interface i on i.if_nodeid = n.node_id \
    left join pglogical.local_node l on l.node_id = n.node_id order by n.node_name";

const SPOCK: &str = "\
    select n.node_id::text, n.node_name::text, null, null, null, 'peer', (l.node_id is not null)::text, null, i.if_dsn \
    from spock.node n join spock.node_interface i on i.if_nodeid = n.node_id \
    left join spock.local_node l on l.node_id = n.node_id order by n.node_name";

/// `node_status` r is ready.
const PGACTIVE: &str = "\
    select n.node_sysid::text, n.node_name::text, null, null, null, 'peer', \
           (n.node_sysid = (select system_identifier from pg_catalog.pg_control_system())::text)::text, \
           case when n.node_status <> 'r' then 'in status ' || n.node_status::text end, n.node_dsn \
    from pgactive.pgactive_nodes n order by n.node_name";

/// The ways of replicating, in the order of the last columns of [`super::DETECT`].
pub const REPLICATIONS: [Replication; 5] = [
    Replication { name: "multimaster", probe: None, nodes: MTM },
    Replication { name: "pglogical", probe: None, nodes: PGLOGICAL },
    Replication { name: "spock", probe: None, nodes: SPOCK },
    Replication { name: "pgactive", probe: None, nodes: PGACTIVE },
    Replication { name: "logical replication", probe: Some(NATIVE_PROBE), nodes: NATIVE },
];

const EACH_NODE: &str = "on each node";
const ONE_NODE: &str = "SERIALIZABLE is of one node only";
const RETRY: &str = "40001, even at READ COMMITTED";

pub(super) const PROFILE: Profile = Profile {
    engine: Engine::Multimaster,
    title: "Multimaster: logical replication both ways, pglogical, Spock, pgactive, Postgres Pro Multimaster",
    tried: Tried::Live(
        "PostgreSQL 18, logical replication both ways; Postgres Pro and pglogical on recorded catalogs, Spock and pgactive on stand-in tables only",
    ),
    discovery: Discovery::Copies(&REPLICATIONS),
    entry: "every node",
    load: LoadPath::OneNode,
    wire: Wire {
        copy: Support::Yes,
        copy_binary: Support::Yes,
        prepared: Support::Yes,
        pipelining: Support::Yes,
        savepoints: Support::Yes,
        skip_locked: Support::Partly("of one node only"),
        advisory_locks: Support::Partly("of one node only"),
        retry: "Postgres Pro Multimaster: READ COMMITTED too; the asynchronous ones: as one server alone",
    },
    promises: &[
        Promise {
            levels: &[Level::ReadCommitted],
            at: Arrangement::Asynchronous,
            title: "Multimaster, asynchronous, READ COMMITTED",
            verdicts: [F.noted(EACH_NODE), F, A, A, A, A, A, A, A],
        },
        Promise {
            levels: &[Level::RepeatableRead],
            at: Arrangement::Asynchronous,
            title: "Multimaster, asynchronous, REPEATABLE READ",
            verdicts: [F.noted(EACH_NODE), F, F.noted(EACH_NODE), A, A, A, A, A, A],
        },
        Promise {
            levels: &[Level::Serializable],
            at: Arrangement::Asynchronous,
            title: "Multimaster, asynchronous, SERIALIZABLE",
            verdicts: [F.noted(EACH_NODE), F, F.noted(EACH_NODE), A, A, A.noted(ONE_NODE), A, A, A],
        },
        Promise {
            levels: &[Level::ReadCommitted],
            at: Arrangement::Majority,
            title: "Postgres Pro Multimaster, READ COMMITTED",
            verdicts: [F.noted(EACH_NODE), F, A, F.noted(RETRY), A, A, M, F, F],
        },
        Promise {
            levels: &[Level::RepeatableRead],
            at: Arrangement::Majority,
            title: "Postgres Pro Multimaster, REPEATABLE READ",
            verdicts: [F.noted(EACH_NODE), F, F.noted(EACH_NODE), F.noted(RETRY), A, A, M, F, F],
        },
        Promise {
            levels: &[Level::Serializable],
            at: Arrangement::Majority,
            title: "Postgres Pro Multimaster, SERIALIZABLE",
            verdicts: [
                F.noted(EACH_NODE),
                F,
                F.noted(EACH_NODE),
                F.noted(RETRY),
                A,
                A.noted(ONE_NODE),
                M,
                F,
                F,
            ],
        },
    ],
    commit: [
        "asynchronous: a local flush, and acknowledged writes can be lost or diverge",
        "Postgres Pro Multimaster: prepare, precommit, commit on a majority: two to three round trips and the time to apply",
    ],
    views: &[
        View { name: "pg_stat_subscription", shows: "what each subscription has received and applied" },
        View { name: "pg_stat_subscription_stats", shows: "apply errors; from 18 on conflicts by kind" },
        View { name: "pg_replication_slots", shows: "WAL kept for a peer that does not take it" },
        View { name: "mtm.status(), mtm.nodes()", shows: "the state of a Multimaster" },
        View { name: "mtm.check_query(sql)", shows: "whether all nodes answer a query alike" },
    ],
    limits: &[
        "schema changes and sequences are not replicated by the asynchronous ones",
        "two inserts of one key stop native replication on both nodes until somebody skips them",
        "connection strings of subscriptions are visible to superusers only: without one, name the nodes in a cluster file",
    ],
};

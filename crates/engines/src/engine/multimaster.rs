//! Every node has every row, takes writes, and sends them to the others after the commit. PostgreSQL's own logical replication both ways (16 and
//! later), pgactive and pglogical were tried live; Spock is written from its sources.

use super::detect::extension_has;
use super::sets::{self, PGACTIVE_SETS, PGLOGICAL_SETS, SPOCK_SETS};
use crate::profile::short::{A, F};
use crate::profile::{
    Arrangement, Arrival, Case, Commit, Conflicts, Copies, Ddl, Discovery, EntryPoints, Expectation,
    Isolation, Layout, Levels, LoadPath, NodeLinks, Own, Profile, Promise, Protocol, Reasons, Replication,
    Sizes, Statements, Storage, Tried,
};
use crate::trust::trusted;

/// Subscriptions that do not forward received changes: they indicate replication both ways. Every role may read names, owners and origins.
/// From PostgreSQL 16 on a plain role may be allowed to create some, and then chooses their addresses.
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

/// Only superusers may read their connection strings. The queried node is in none of them; `pgfathom up` names a subscription
/// `pgfathom_ME_from_PEER`, and others keep their full name.
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

const PGLOGICAL: &str = "\
    select n.node_id::text, n.node_name::text, null, null, null, 'peer', (l.node_id is not null)::text, null, i.if_dsn \
    from pglogical.node n join pglogical.node_interface i on i.if_nodeid = n.node_id \
    left join pglogical.local_node l on l.node_id = n.node_id order by n.node_name";

/// A worker that ended with an error is `down` until it is started again.
const PGLOGICAL_SUBSCRIPTIONS: &str = "\
    select s.subscription_name as subscription, s.status <> 'disabled' as enabled, s.status not in ('down', 'disabled') as running, \
           s.slot_name as slot, n.node_id::text as source \
    from pglogical.show_subscription_status() s left join pglogical.node n on n.node_name::text = s.provider_node::text";

/// Without a copy of its rows. A table without a key cannot be in a set that replicates updates. Of a partitioned table the changes are those of its
/// partitions, and each of them has to be in a set.
const PGLOGICAL_ADD_TABLE: &str = "\
    select pglogical.replication_set_add_table( \
               case when exists (select from pg_catalog.pg_index i where i.indrelid = t.oid and i.indisprimary) \
                    then 'default' else 'default_insert_only' end, t.oid::pg_catalog.regclass, false) \
    from pg_catalog.pg_class t \
    where (t.oid = {table} or t.oid in (select relid from pg_catalog.pg_partition_tree({table}))) \
          and not exists (select from pglogical.replication_set_table s where s.set_reloid = t.oid)";

/// A table in a set is dropped with CASCADE only.
const PGLOGICAL_REMOVE_TABLE: &str = "\
    select pglogical.replication_set_remove_table(r.set_name, s.set_reloid) \
    from pglogical.replication_set_table s join pglogical.replication_set r using (set_id) \
    where s.set_reloid::oid = {table} or s.set_reloid::oid in (select relid from pg_catalog.pg_partition_tree({table}))";

const SPOCK: &str = "\
    select n.node_id::text, n.node_name::text, null, null, null, 'peer', (l.node_id is not null)::text, null, i.if_dsn \
    from spock.node n join spock.node_interface i on i.if_nodeid = n.node_id \
    left join spock.local_node l on l.node_id = n.node_id order by n.node_name";

/// As in pglogical, of which it is a fork; by its sources (`spock--5.0.0.sql`). It adds the partitions of a table by itself.
const SPOCK_SUBSCRIPTIONS: &str = "\
    select s.subscription_name as subscription, s.status <> 'disabled' as enabled, s.status not in ('down', 'disabled') as running, \
           s.slot_name as slot, n.node_id::text as source \
    from spock.sub_show_status() s left join spock.node n on n.node_name::text = s.provider_node::text";

const SPOCK_ADD_TABLE: &str = "\
    select spock.repset_add_table( \
               case when exists (select from pg_catalog.pg_index i where i.indrelid = t.oid and i.indisprimary) \
                    then 'default' else 'default_insert_only' end, t.oid::pg_catalog.regclass, false) \
    from pg_catalog.pg_class t \
    where t.oid = {table} and not exists (select from spock.replication_set_table s where s.set_reloid = t.oid)";

const SPOCK_REMOVE_TABLE: &str = "\
    select spock.repset_remove_table(r.set_name, s.set_reloid) \
    from spock.replication_set_table s join spock.replication_set r using (set_id) where s.set_reloid::oid = {table}";

/// `node_status` r is ready, and k is a node that was taken out of the group. A node has an identity of its own in the group, which is not the system
/// identifier of its server.
///
/// Its address is a connection string, or names a foreign server with the address (`user_mapping=... pgactive_foreign_server=...`).
const PGACTIVE: &str = concat!(
    "\
    select n.node_sysid::text, n.node_name::text, \
           (select o.option_value from pg_catalog.pg_options_to_table(s.srvoptions) o where o.option_name = 'host'), \
           (select o.option_value from pg_catalog.pg_options_to_table(s.srvoptions) o where o.option_name = 'port'), \
           (select o.option_value from pg_catalog.pg_options_to_table(s.srvoptions) o where o.option_name = 'dbname'), 'peer', \
           ((n.node_sysid, n.node_timeline, n.node_dboid) = \
            (select i.sysid, i.timeline, i.dboid from pgactive.pgactive_get_local_nodeid() i))::text, \
           case when n.node_status <> 'r' then 'in status ' || n.node_status::text end, \
           case when s.oid is null then n.node_dsn end, \
           case when s.srvowner not in (",
    trusted!(),
    ") then pg_catalog.pg_get_userbyid(s.srvowner) end \
    from pgactive.pgactive_nodes n \
    left join pg_catalog.pg_foreign_server s \
      on s.srvname::text = substring(n.node_dsn from 'pgactive_foreign_server[[:space:]]*=[[:space:]]*''?([^''[:space:]]+)') \
    where n.node_status <> 'k' order by n.node_name"
);

/// A node follows every other one of its group, by a slot that has the same name on each of them if their databases have one oid. A worker whose change
/// cannot be applied ends, and is started again 5 s later. A user stops all of a node's workers at once: they run on, and apply nothing.
const PGACTIVE_SUBSCRIPTIONS: &str = "\
    select n.node_name::text as subscription, n.node_status = 'r' and not pgactive.pgactive_is_apply_paused() as enabled, \
           exists (select from pgactive.pgactive_get_workers_info() w join pg_catalog.pg_stat_activity a on a.pid = w.pid \
                   where w.worker_type = 'apply' and (w.sysid, w.timeline, w.dboid) = (n.node_sysid, n.node_timeline, n.node_dboid)) as running, \
           pgactive.pgactive_format_slot_name(i.sysid, i.timeline, i.dboid, n.node_dboid)::text as slot, \
           n.node_sysid::text as source \
    from pgactive.pgactive_nodes n cross join pgactive.pgactive_get_local_nodeid() i \
    where n.node_status <> 'k' and (n.node_sysid, n.node_timeline, n.node_dboid) <> (i.sysid, i.timeline, i.dboid)";

const REPLICATIONS: [Replication; 4] = [
    Replication {
        name: "pglogical",
        sign: extension_has!("pglogical", "pglogical", "'node', 'node_interface', 'local_node'"),
        probe: None,
        nodes: PGLOGICAL,
        own: &Own {
            slots: &["pgl_"],
            libraries: &["pglogical"],
            enable: Some("SELECT pglogical.alter_subscription_enable({subscription}, true);"),
            anew: "drop the subscription (pglogical.drop_subscription), empty its tables here, and make it again with synchronize_data, which makes the slot \
                   and copies the rows",
            ..Own::NOTHING
        },
        subscriptions: Some(PGLOGICAL_SUBSCRIPTIONS),
        sets: Some(&PGLOGICAL_SETS),
        add_table: Some(PGLOGICAL_ADD_TABLE),
        remove_table: Some(PGLOGICAL_REMOVE_TABLE),
        local_writes: None,
        needs_key: true,
        conflicts: Some(
            "pglogical.conflict_resolution decides (apply_remote unless set): each node applies what arrives last, and an update that it overwrites is lost",
        ),
    },
    Replication {
        name: "spock",
        sign: extension_has!("spock", "spock", "'node', 'node_interface', 'local_node'"),
        probe: None,
        nodes: SPOCK,
        own: &Own {
            slots: &["spk_"],
            libraries: &["spock"],
            enable: Some("SELECT spock.sub_enable({subscription}, true);"),
            anew: "drop the subscription (spock.sub_drop), empty its tables here, and make it again with synchronize_data, which makes the slot and copies \
                   the rows",
            ..Own::NOTHING
        },
        subscriptions: Some(SPOCK_SUBSCRIPTIONS),
        sets: Some(&SPOCK_SETS),
        add_table: Some(SPOCK_ADD_TABLE),
        remove_table: Some(SPOCK_REMOVE_TABLE),
        local_writes: None,
        needs_key: true,
        conflicts: Some(
            "spock.conflict_resolution decides (last_update_wins unless set): by the time of the commit one update stays, and the other one is lost",
        ),
    },
    Replication {
        name: "pgactive",
        sign: extension_has!("pgactive", "pgactive", "'pgactive_nodes'"),
        probe: None,
        nodes: PGACTIVE,
        own: &Own {
            slots: &["pgactive_"],
            libraries: &["pgactive"],
            enable: Some("SELECT pgactive.pgactive_apply_resume();"),
            anew: "take this node out of the group (pgactive.pgactive_detach_nodes, at another node) and let it join again \
                   (pgactive.pgactive_join_group), which makes the slots and copies the rows",
            ..Own::NOTHING
        },
        subscriptions: Some(PGACTIVE_SUBSCRIPTIONS),
        sets: Some(&PGACTIVE_SETS),
        add_table: None,
        remove_table: None,
        local_writes: Some(("pgactive.do_not_replicate", "on")),
        needs_key: true,
        conflicts: Some(
            "the last update wins, by the time of its commit, on all nodes: the other one is lost, and is in pgactive.pgactive_conflict_history if that \
             is logged",
        ),
    },
    Replication {
        name: "logical replication",
        sign: "exists (select 1 from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid \
                       join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
                       where n.nspname = 'pg_catalog' and c.relname = 'pg_subscription' and a.attname = 'suborigin')",
        probe: Some(NATIVE_PROBE),
        nodes: NATIVE,
        own: &Own::NOTHING,
        subscriptions: None,
        sets: Some(&sets::NATIVE),
        add_table: None,
        remove_table: None,
        local_writes: None,
        needs_key: false,
        conflicts: None,
    },
];

pub(super) const EACH_NODE: &str = "on each node";
pub(super) const ONE_NODE: &str = "SERIALIZABLE holds on one node only";
/// Where nodes commit first and then send their changes to each other.
pub(super) const LONG_FORK: Expectation = Expectation {
    case: Case::LongFork,
    may_happen: Some(true),
    why: "each node shows its own commits first and the others' when they arrive",
    change: "read data whose order matters on one node",
};
/// Where nodes do not send what transactions read.
pub(super) const SERIALIZABLE: Expectation = Expectation {
    case: Case::Serializable,
    may_happen: Some(true),
    why: "SERIALIZABLE tracks the reads of one node's transactions only",
    change: "run serializable transactions on one node",
};

pub(super) static PROFILE: Profile = Profile {
    name: "multimaster",
    aliases: &[],
    title: "Multimaster: logical replication both ways, pglogical, Spock, pgactive",
    tried: Tried::Live(
        "PostgreSQL 18, logical replication both ways; pgactive 2.1.8 and pglogical 2.4.2 on PostgreSQL 15; Spock on stand-in tables only",
    ),
    discovery: Discovery::Copies(&REPLICATIONS),
    layout: Layout::Copies(Copies {
        ddl: Ddl::EachNode,
        conflicts: Conflicts::Unresolved,
        arrival: Arrival::Slots,
    }),
    storage: Storage::Pages,
    sizes: Sizes::OF_ONE_NODE,
    entry: EntryPoints::EveryNode,
    load: LoadPath::EachNode,
    links: NodeLinks::Subscriptions,
    keyed_trips: None,
    has_wal: true,
    node_lost: &[],
    commit: Commit { protocol: Protocol::Asynchronous, error_undoes: true },
    levels: Levels::Derived,
    statements: Statements::Unknown,
    promises: &[
        Promise {
            levels: &[Isolation::ReadCommitted],
            at: Arrangement::Plain,
            title: "Multimaster, asynchronous, READ COMMITTED",
            verdicts: [F.noted(EACH_NODE), F, A, A, A, A, A, A, A],
        },
        Promise {
            levels: &[Isolation::RepeatableRead],
            at: Arrangement::Plain,
            title: "Multimaster, asynchronous, REPEATABLE READ",
            verdicts: [F.noted(EACH_NODE), F, F.noted(EACH_NODE), A, A, A, A, A, A],
        },
        Promise {
            levels: &[Isolation::Serializable],
            at: Arrangement::Plain,
            title: "Multimaster, asynchronous, SERIALIZABLE",
            verdicts: [F.noted(EACH_NODE), F, F.noted(EACH_NODE), A, A, A.noted(ONE_NODE), A, A, A],
        },
    ],
    expectations: &[
        Expectation {
            case: Case::Deadlock,
            may_happen: None,
            why: "no promise was found: row locks apply to one node",
            change: "let each row be written on one node only",
        },
        LONG_FORK,
        SERIALIZABLE,
        Expectation {
            case: Case::ReadYourWrites,
            may_happen: Some(true),
            why: "replication is asynchronous: one node acknowledges",
            change: "read your own writes on the node that took them",
        },
        Expectation {
            case: Case::Conflict,
            may_happen: Some(true),
            why: "conflicts are not resolved: a change that arrives overwrites the row, and one that cannot be applied stops replication",
            change: "let each row be written on one node only, and generate keys that no other node generates",
        },
    ],
    reasons: Reasons {
        torn_commit: "a transaction commits on one node and reaches the others afterwards, where a change that arrives overwrites a row or cannot be \
                      applied: what another node writes to the same rows leaves only a part of it",
        torn_commit_change: "let each row be written on one node only (ownership)",
        order: "each node applies the writes of the others in its own order",
        order_change: "let each row be written on one node only (ownership)",
        ..Reasons::GENERAL
    },
    limits: &[
        "schema changes and sequences are not replicated",
        "acknowledged writes can be lost or diverge: a commit is flushed on one node only",
        "two inserts of one key stop native replication on both nodes until an administrator skips them",
        "connection strings of subscriptions are visible to superusers only: without one, name the nodes in a cluster file",
        "SKIP LOCKED and advisory locks apply to one node only",
        "pgactive replicates each table at once: load fills each node in sessions with pgactive.do_not_replicate",
        "pglogical stops at a row that violates a second unique constraint; pgactive tries it again every 5 s",
    ],
};

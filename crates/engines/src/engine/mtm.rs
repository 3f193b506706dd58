//! Postgres Pro Multimaster: every node holds and writes every row, and a commit is agreed on by a majority of the nodes. Catalog by its documentation
//! and the open mmts (`multimaster--1.0.sql`).

use super::detect::extension_has;
use super::multimaster::{EACH_NODE, LONG_FORK, ONE_NODE, SERIALIZABLE};
use crate::profile::short::{A, F, M};
use crate::profile::{
    Arrangement, Arrival, Case, Commit, Conflicts, Copies, Ddl, Discovery, EntryPoints, Expectation,
    Isolation, Layout, Levels, LoadPath, NodeLinks, Own, Profile, Promise, Protocol, Reasons, Replication,
    Sizes, Statements, Storage, Tried,
};

const NODES: &str = "\
    select n.id::text, 'node' || n.id, null, null, null, 'peer', n.is_self::text, \
           case when not n.enabled then 'disabled' when not n.connected and not n.is_self then 'disconnected' end, \
           n.conninfo \
    from mtm.nodes() n order by n.id";

/// Each node follows every other one by a slot there that has its own number.
const SUBSCRIPTIONS: &str = "\
    select 'node' || o.id as subscription, coalesce(o.enabled, false) as enabled, coalesce(o.connected, false) as running, 'mtm_slot_' || i.id as slot, \
           o.id::text as source \
    from mtm.nodes() o cross join (select s.id from mtm.nodes() s where s.is_self) i where not o.is_self";

/// By `MULTIMASTER_SLOT_PATTERN`, `MULTIMASTER_BROADCAST_SERVICE` and the names of transactions in `commit.c` of mmts. Its backends wait on the latch of the
/// process, with the event of extensions.
const OWN: Own = Own {
    prepared: &["MTM-"],
    resolves: "the nodes vote on its outcome once a majority of them sees each other",
    resolve: None,
    slots: &["mtm_slot_", "mtm_filter_slot_"],
    subscriptions: &["mtm_sub_"],
    sessions: &["mtm_broadcast", "mtm_admin", "mtm_consistency_check"],
    // They run mtm.dmq_receiver_loop as long as the other node is there.
    daemons: &["mtm_broadcast"],
    away: &["[MTM] failed to collect prepare acks"],
    isolated: &["[MTM] multimaster node is not online"],
    is_patched: true,
    libraries: &["multimaster"],
    commit_waits: Some(("Extension", "Extension")),
    ..Own::NOTHING
};

const REPLICATIONS: [Replication; 1] = [Replication {
    name: "mtm",
    sign: extension_has!("multimaster", "mtm", "'cluster_nodes', 'nodes'"),
    probe: None,
    nodes: NODES,
    own: &OWN,
    subscriptions: Some(SUBSCRIPTIONS),
    sets: None,
    add_table: None,
    remove_table: None,
    local_writes: None,
    needs_key: false,
    conflicts: None,
}];

const RETRY: &str = "40001";
const RETRY_ELSEWHERE: &str = "two sessions of one node; of two nodes one is refused (40001)";

pub(super) static PROFILE: Profile = Profile {
    name: "mtm",
    aliases: &["postgrespro-multimaster"],
    title: "Postgres Pro Multimaster",
    tried: Tried::Live("postgres_cluster 13.2 with mmts of April 2021, three nodes"),
    discovery: Discovery::Copies(&REPLICATIONS),
    layout: Layout::Copies(Copies {
        ddl: Ddl::Replicated,
        conflicts: Conflicts::Refused,
        arrival: Arrival::Rows,
    }),
    storage: Storage::Pages,
    sizes: Sizes::OF_ONE_NODE,
    entry: EntryPoints::EveryNode,
    load: LoadPath::Table,
    links: NodeLinks::Own,
    keyed_trips: None,
    has_wal: false,
    // Internal errors of commit.c: a change of the members, or a node that is not one of them.
    node_lost: &["XX000 [MTM]"],
    commit: Commit { protocol: Protocol::Majority { round_trips: 3.0 }, error_undoes: false },
    levels: Levels::Derived,
    statements: Statements::Unknown,
    promises: &[
        Promise {
            levels: &[Isolation::ReadCommitted],
            at: Arrangement::Plain,
            title: "Postgres Pro Multimaster, READ COMMITTED",
            verdicts: [F.noted(EACH_NODE), F, A, A.noted(RETRY_ELSEWHERE), A, A, M, F, F],
        },
        Promise {
            levels: &[Isolation::RepeatableRead],
            at: Arrangement::Plain,
            title: "Postgres Pro Multimaster, REPEATABLE READ",
            verdicts: [F.noted(EACH_NODE), F, F.noted(EACH_NODE), F.noted(RETRY), A, A, M, F, F],
        },
        Promise {
            levels: &[Isolation::Serializable],
            at: Arrangement::Plain,
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
    expectations: &[
        Expectation {
            case: Case::Deadlock,
            may_happen: None,
            why: "no promise was found",
            change: "let each row be written on one node only",
        },
        LONG_FORK,
        SERIALIZABLE,
        Expectation {
            case: Case::ReadYourWrites,
            may_happen: None,
            why: "no promise was found: a commit is confirmed by a majority, and the node that is read may not be in it",
            change: "read your own writes on the node that took them",
        },
        Expectation {
            case: Case::Conflict,
            may_happen: Some(false),
            why: "Multimaster commits on a majority: of two that conflict one is refused (40001), or waits",
            change: "check for nodes outside the majority",
        },
    ],
    reasons: Reasons { order: "each node applies the others' writes in its own order", ..Reasons::GENERAL },
    limits: &[
        "expect 40001 at READ COMMITTED too",
        "a commit also waits until a majority of the nodes has applied the transaction",
        "SKIP LOCKED and advisory locks apply to one node only",
    ],
};

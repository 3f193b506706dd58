//! PostgreSQL servers that hold each other's hash partitions as foreign tables of `postgres_fdw`.

use crate::profile::short::{A, F, S};
use crate::profile::{
    Arrangement, Case, Commit, Discovery, EntryPoints, Expectation, Isolation, KeyedTrips, Layout, Levels,
    LoadPath, NodeLinks, Profile, Promise, Protocol, Reasons, Sizes, Statements, Storage, Tried,
};

const ONE_AFTER_ANOTHER: &str = "no two-phase commit";

pub(super) static PROFILE: Profile = Profile {
    name: "fdw-sharded",
    aliases: &[],
    title: "PostgreSQL, hash partitions over postgres_fdw",
    tried: Tried::Live("PostgreSQL 15 and 18, three nodes"),
    discovery: Discovery::Native,
    layout: Layout::ForeignPartitions,
    storage: Storage::Pages,
    sizes: Sizes::OF_ONE_NODE,
    entry: EntryPoints::EveryNode,
    load: LoadPath::Leaves,
    links: NodeLinks::ForeignServers,
    // Counted on the wire (docs/matrix.md).
    keyed_trips: Some(KeyedTrips { select: 5.0, update: 3.0 }),
    has_wal: true,
    node_lost: &[],
    commit: Commit { protocol: Protocol::NodeByNode, error_undoes: true },
    levels: Levels::Postgres,
    statements: Statements::FirstUse,
    promises: &[
        Promise {
            levels: &[Isolation::ReadCommitted],
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
            levels: &[Isolation::RepeatableRead],
            at: Arrangement::Plain,
            title: "fdw-sharded, REPEATABLE READ at the entry",
            verdicts: [A, F, A, F.noted("a row is on one shard"), A, A, F, A.noted(ONE_AFTER_ANOTHER), F],
        },
        Promise {
            levels: &[Isolation::Serializable],
            at: Arrangement::Plain,
            title: "fdw-sharded, SERIALIZABLE at the entry",
            verdicts: [A, F, A, F, A, S, F, A.noted(ONE_AFTER_ANOTHER), F],
        },
    ],
    expectations: &[
        Expectation {
            case: Case::Deadlock,
            may_happen: Some(true),
            why: "each server looks for deadlocks among its own sessions only",
            change: "lock in the same order everywhere, and give the foreign servers a lock_timeout",
        },
        Expectation {
            case: Case::InDoubt,
            may_happen: Some(true),
            why: "a prepared transaction keeps its locks and stays invisible until it is committed or rolled back; no process does that by itself",
            change: "monitor pg_prepared_xacts, and let a coordinator that survives a crash decide",
        },
    ],
    reasons: Reasons {
        fractured_read: "each node takes its own snapshot when a statement first reaches it: between two of them a transfer can commit, at every \
                         isolation level",
        torn_commit: "postgres_fdw commits its nodes one after another, without two-phase commit: half of a transaction stays when a node \
                      crashes in between, or when the entry node refuses its part at COMMIT (40001) after the others have committed theirs",
        torn_commit_change: Reasons::GENERAL.torn_commit_change,
        order: "each node has its own snapshot, which begins with its first use",
        order_change: "keep rows that must agree on one shard, or use an engine with one snapshot for all nodes",
    },
    limits: &[
        "the parent can have no unique index: upserts go to the leaf on its owner",
        "a deadlock over two nodes is never detected: only the time limits of the foreign servers end it",
        "changing the key of a row on another node fails",
        "before 16, COPY into the parent takes one round trip per row of another node",
        "SKIP LOCKED is silently ignored on other nodes: the remote statement has FOR UPDATE only; advisory locks apply to the entry node only",
        "expect 40001 at READ COMMITTED too: the other nodes always run REPEATABLE READ",
    ],
};

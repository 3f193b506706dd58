//! YDB. Its PostgreSQL protocol is an experiment without bulk loading and without its own catalog: this file lists the limits.

use crate::profile::short::{F, unless};
use crate::profile::{
    Arrangement, Case, Commit, Discovery, EntryPoints, Expectation, Isolation, Layout, Levels, LoadPath,
    NodeLinks, Profile, Promise, Protocol, Reasons, Setting, Sizes, Spread, Statements, Storage, Tried,
};

const NO_PGWIRE: &str =
    "partitions and their nodes are available over gRPC only (DescribeTable, ListEndpoints)";
const NO_BULK: &str =
    "there is no bulk load over PostgreSQL's protocol: rows come in by INSERT, or by BulkUpsert over gRPC";

pub(super) static PROFILE: Profile = Profile {
    name: "ydb",
    aliases: &[],
    title: "YDB",
    tried: Tried::Documentation,
    discovery: Discovery::None(NO_PGWIRE),
    layout: Layout::Spread(Spread::ByItself),
    storage: Storage::Other(
        "keeps rows in the LSM trees of its tablets, on a distributed storage of their own that writes several copies",
    ),
    sizes: Sizes::OF_ONE_NODE,
    entry: EntryPoints::EveryNode,
    load: LoadPath::None(NO_BULK),
    links: NodeLinks::Own,
    keyed_trips: None,
    has_wal: false,
    node_lost: &[],
    commit: Commit {
        protocol: Protocol::Consensus {
            words: "a distributed transaction through coordinator and mediator, by its authors' count",
            round_trips: 4.5,
        },
        error_undoes: false,
    },
    levels: Levels::Own,
    statements: Statements::Unknown,
    promises: &[Promise {
        levels: &[Isolation::Serializable],
        at: Arrangement::Plain,
        title: "YDB, SERIALIZABLE (the default)",
        verdicts: [F, F, F, F, F, F, unless(Setting::StaleReads), F, F],
    }],
    expectations: &[Expectation {
        case: Case::Deadlock,
        may_happen: Some(false),
        why: "the engine detects deadlocks across all nodes, or never lets a transaction wait",
        change: "check the detector's settings",
    }],
    reasons: Reasons::GENERAL,
    limits: &[
        "tables are split by ranges of the primary key, and tablets move: placement is not read",
        "name the nodes in a cluster file (engine = \"ydb\"); discovery from one node, load, work by node and the data axis of the matrix are not supported",
        "its PostgreSQL protocol is an experiment, a subset of PostgreSQL 14, without COPY, savepoints, SKIP LOCKED and advisory locks",
        "always expect retries: ABORTED is a status of YDB, and not always a 40001",
    ],
};
